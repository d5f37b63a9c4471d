/* See _decompressors.h. */
#include "_decompressors.h"

#include <string.h>

#ifdef WITH_LIBDEFLATE
#include <libdeflate.h>
#endif
#ifdef WITH_ZSTD
#include <zstd.h>
#endif

enum { ZLIB = 0, ZSTANDARD = 1 };

int decompressor_find(const char *codec)
{
#ifdef WITH_LIBDEFLATE
    if (!strcmp(codec, "zlib"))
        return ZLIB;
#endif
#ifdef WITH_ZSTD
    if (!strcmp(codec, "zstd"))
        return ZSTANDARD;
#endif
    (void)codec;
    return -1;
}

const char *decompressor_library(int decompressor)
{
#ifdef WITH_LIBDEFLATE
    if (decompressor == ZLIB)
        return "libdeflate " LIBDEFLATE_VERSION_STRING;
#endif
#ifdef WITH_ZSTD
    if (decompressor == ZSTANDARD)
        return "zstd " ZSTD_VERSION_STRING;
#endif
    (void)decompressor;
    return NULL;
}

void *decompressor_open(int decompressor)
{
#ifdef WITH_LIBDEFLATE
    if (decompressor == ZLIB)
        return libdeflate_alloc_decompressor();
#endif
#ifdef WITH_ZSTD
    if (decompressor == ZSTANDARD)
        return ZSTD_createDCtx();
#endif
    (void)decompressor;
    return NULL;
}

void decompressor_close(int decompressor, void *state)
{
#ifdef WITH_LIBDEFLATE
    if (decompressor == ZLIB)
        libdeflate_free_decompressor(state);
#endif
#ifdef WITH_ZSTD
    if (decompressor == ZSTANDARD)
        ZSTD_freeDCtx(state);
#endif
    (void)decompressor, (void)state;
}

int decompressor_run(int decompressor, void *state, const void *data, size_t length, void *out, size_t size)
{
#ifdef WITH_LIBDEFLATE
    if (decompressor == ZLIB) /* no place for the actual size: then it must be exactly that one */
        return libdeflate_zlib_decompress(state, data, length, out, size, NULL) == LIBDEFLATE_SUCCESS;
#endif
#ifdef WITH_ZSTD
    if (decompressor == ZSTANDARD)
        return ZSTD_decompressDCtx(state, out, size, data, length) == size;
#endif
    (void)decompressor, (void)state, (void)data, (void)length, (void)out, (void)size;
    return 0;
}

void *dictionary_open(const void *data, size_t length)
{
#ifdef WITH_ZSTD
    return ZSTD_createDDict(data, length);
#else
    (void)data, (void)length;
    return NULL;
#endif
}

void dictionary_close(void *dictionary)
{
#ifdef WITH_ZSTD
    ZSTD_freeDDict(dictionary);
#else
    (void)dictionary;
#endif
}

ptrdiff_t dictionary_run(const void *dictionary, void *state, const void *data, size_t length, void *out, size_t room)
{
#ifdef WITH_ZSTD
    size_t found = ZSTD_decompress_usingDDict(state, out, room, data, length, dictionary);
    return ZSTD_isError(found) ? -1 : (ptrdiff_t)found;
#else
    (void)dictionary, (void)state, (void)data, (void)length, (void)out, (void)room;
    return -1;
#endif
}
