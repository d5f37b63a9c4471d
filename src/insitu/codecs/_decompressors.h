/* Decompression libraries that were linked when the extension was built: libdeflate for zlib streams, Zstandard.
 *
 * A decompressor is a number; which of them exist depends on the build (WITH_LIBDEFLATE, WITH_ZSTD). Its state is made
 * once for many chunks and belongs to one thread. Nothing here touches Python. */
#ifndef INSITU_DECOMPRESSORS_H
#define INSITU_DECOMPRESSORS_H

#include <stddef.h>

/* The decompressor of a codec ("zlib", "zstd"); -1 if none was linked. */
int decompressor_find(const char *codec);

/* Name and version of its library. */
const char *decompressor_library(int decompressor);

/* A state; NULL if there is no memory. */
void *decompressor_open(int decompressor);
void decompressor_close(int decompressor, void *state);

/* Decompress into exactly `size` bytes; 0 if the data is damaged, or holds more or less. */
int decompressor_run(int decompressor, void *state, const void *data, size_t length, void *out, size_t size);

/* A Zstandard dictionary, for short texts that are compressed one by one; NULL without the library, or if it is damaged. */
void *dictionary_open(const void *data, size_t length);
void dictionary_close(void *dictionary);

/* Decompress a short text into at most `room` bytes; its size, or -1 if it is damaged or longer. */
ptrdiff_t dictionary_run(const void *dictionary, void *state, const void *data, size_t length, void *out, size_t room);

#endif
