/* Loops over bytes that are worth a compiler: decoding of chunks, checksums, sums and extremes.
 *
 * Each has a twin (NumPy, another library) beside its caller, for where no compiler was at hand:
 *
 *   unshuffle(src, elementsize, dst)                    byte planes -> elements
 *   unshuffle_box(src, elementsize, shape, start, dst)  the same, of a box of the chunk, straight into a strided array
 *   decode_boxes(codec, chunks, elementsize, shuffled, shape, start, extent, dst, at, room)
 *                                                       many compressed chunks, a box of each to its place
 *   linked_libraries()                                  which codecs decode_boxes and measure_chunks can decompress
 *   unpack_bits(src, first, stride, bits, dst)          a run of big-endian bit fields -> unsigned integers
 *   fletcher32(data)                                    HDF5's checksum
 *   total(values)                                       the sum of float32 or float64 values, in float64
 *   measure(src, elementsize, shuffled, first, count, missing, statistics)
 *                                                       the same, the number, extremes and squares of what is not missing,
 *                                                       of elements or of byte planes that never become elements
 *   measure_chunks(codec, chunks, elements, room, ...)  the same, of many compressed chunks
 *
 * All of them check every bound before they give up the GIL, and touch nothing of Python afterwards. Loops over lists of
 * Python need it, and share it.
 * Only the limited API is used (buffers are in it since 3.11), so one build serves every later Python.
 */
#include "../_extension_module.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_decompressors.h"

#if defined(__SSE2__) || defined(_M_X64) || (defined(_M_IX86_FP) && _M_IX86_FP >= 2)
#include <emmintrin.h>
#define HAVE_SSE2 1
#elif (defined(__ARM_NEON) || defined(__ARM_NEON__)) && (defined(__aarch64__) || defined(_M_ARM64))
#include <arm_neon.h>
#define HAVE_NEON 1
#endif
#ifndef HAVE_SSE2
#define HAVE_SSE2 0
#endif
#ifndef HAVE_NEON
#define HAVE_NEON 0
#endif

enum { MAX_DIMENSIONS = 32 };

/* ---- byte planes to elements ------------------------------------------------------------------------------------- */

/* One run of `n` neighbouring elements. `src` is where the run starts in plane 0, planes lie `plane` bytes apart;
 * element i goes to `dst + i * step`. Each `words_N` moves planes k .. k+N-1 of the run and returns how many elements
 * it did (whole vectors only): the scalar loop does the rest. */

static void run_bytes(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, ptrdiff_t step, size_t size, size_t from)
{
    /* Blocks keep the destination in the first-level cache while its bytes are filled plane by plane. */
    enum { BLOCK = 512 };
    for (size_t begin = from; begin < n; begin += BLOCK) {
        size_t end = begin + BLOCK < n ? begin + BLOCK : n;
        for (size_t k = 0; k < size; k++) {
            const uint8_t *in = src + k * plane;
            uint8_t *out = dst + k;
            for (size_t i = begin; i < end; i++)
                out[(ptrdiff_t)i * step] = in[i];
        }
    }
}

#if defined(_MSC_VER)
#define INLINED static __forceinline
#elif defined(__GNUC__)
#define INLINED static inline __attribute__((always_inline))
#else
#define INLINED static inline
#endif

#if HAVE_SSE2

#define LOAD(k) _mm_loadu_si128((const __m128i *)(src + (size_t)(k) * plane + i))
#define STORE(at, v) _mm_storeu_si128((__m128i *)(at), (v))

INLINED size_t words_2(const uint8_t *src, size_t plane, size_t n, uint8_t *dst)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i a = LOAD(0), b = LOAD(1);
        STORE(dst + i * 2, _mm_unpacklo_epi8(a, b));
        STORE(dst + i * 2 + 16, _mm_unpackhi_epi8(a, b));
    }
    return i;
}

INLINED size_t words_4(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, ptrdiff_t step)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i a = LOAD(0), b = LOAD(1), c = LOAD(2), d = LOAD(3);
        __m128i ab0 = _mm_unpacklo_epi8(a, b), ab1 = _mm_unpackhi_epi8(a, b);
        __m128i cd0 = _mm_unpacklo_epi8(c, d), cd1 = _mm_unpackhi_epi8(c, d);
        __m128i v[4] = {_mm_unpacklo_epi16(ab0, cd0), _mm_unpackhi_epi16(ab0, cd0), _mm_unpacklo_epi16(ab1, cd1),
                        _mm_unpackhi_epi16(ab1, cd1)};
        if (step == 4) {
            for (int q = 0; q < 4; q++)
                STORE(dst + i * 4 + 16 * q, v[q]);
        } else {
            uint32_t words[16];
            for (int q = 0; q < 4; q++)
                STORE(words + 4 * q, v[q]);
            for (int q = 0; q < 16; q++)
                memcpy(dst + (ptrdiff_t)(i + q) * step, words + q, 4);
        }
    }
    return i;
}

INLINED size_t words_8(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, ptrdiff_t step)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i p[8], q[8], r[8];
        for (int k = 0; k < 8; k++)
            p[k] = LOAD(k);
        for (int k = 0; k < 4; k++) { /* pairs of planes: 01 23 45 67, low and high half */
            q[2 * k] = _mm_unpacklo_epi8(p[2 * k], p[2 * k + 1]);
            q[2 * k + 1] = _mm_unpackhi_epi8(p[2 * k], p[2 * k + 1]);
        }
        for (int h = 0; h < 2; h++) { /* fours of planes: r[4h + 0..1] = 0123, r[4h + 2..3] = 4567 */
            r[4 * h + 0] = _mm_unpacklo_epi16(q[0 + h], q[2 + h]);
            r[4 * h + 1] = _mm_unpackhi_epi16(q[0 + h], q[2 + h]);
            r[4 * h + 2] = _mm_unpacklo_epi16(q[4 + h], q[6 + h]);
            r[4 * h + 3] = _mm_unpackhi_epi16(q[4 + h], q[6 + h]);
        }
        for (int h = 0; h < 2; h++) {
            p[4 * h + 0] = _mm_unpacklo_epi32(r[4 * h + 0], r[4 * h + 2]);
            p[4 * h + 1] = _mm_unpackhi_epi32(r[4 * h + 0], r[4 * h + 2]);
            p[4 * h + 2] = _mm_unpacklo_epi32(r[4 * h + 1], r[4 * h + 3]);
            p[4 * h + 3] = _mm_unpackhi_epi32(r[4 * h + 1], r[4 * h + 3]);
        }
        if (step == 8) {
            for (int k = 0; k < 8; k++)
                STORE(dst + i * 8 + 16 * k, p[k]);
        } else {
            uint64_t words[16];
            for (int k = 0; k < 8; k++)
                STORE(words + 2 * k, p[k]);
            for (int k = 0; k < 16; k++)
                memcpy(dst + (ptrdiff_t)(i + k) * step, words + k, 8);
        }
    }
    return i;
}

#elif HAVE_NEON

#define LOAD(k) vld1q_u8(src + (size_t)(k) * plane + i)

INLINED size_t words_2(const uint8_t *src, size_t plane, size_t n, uint8_t *dst)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        uint8x16x2_t v = {{LOAD(0), LOAD(1)}};
        vst2q_u8(dst + i * 2, v);
    }
    return i;
}

INLINED size_t words_4(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, ptrdiff_t step)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        uint8x16x4_t v = {{LOAD(0), LOAD(1), LOAD(2), LOAD(3)}};
        if (step == 4) {
            vst4q_u8(dst + i * 4, v);
        } else {
            uint8_t words[64];
            vst4q_u8(words, v);
            for (int k = 0; k < 16; k++)
                memcpy(dst + (ptrdiff_t)(i + k) * step, words + 4 * k, 4);
        }
    }
    return i;
}

INLINED size_t words_8(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, ptrdiff_t step)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        uint16_t words[64];
        uint8x16x2_t ab = vzipq_u8(LOAD(0), LOAD(1)), cd = vzipq_u8(LOAD(2), LOAD(3));
        uint8x16x2_t ef = vzipq_u8(LOAD(4), LOAD(5)), gh = vzipq_u8(LOAD(6), LOAD(7));
        uint16_t *to = step == 8 ? (uint16_t *)(void *)(dst + i * 8) : words;
        for (int h = 0; h < 2; h++) {
            uint16x8x4_t v = {{vreinterpretq_u16_u8(ab.val[h]), vreinterpretq_u16_u8(cd.val[h]),
                               vreinterpretq_u16_u8(ef.val[h]), vreinterpretq_u16_u8(gh.val[h])}};
            vst4q_u16(to + 32 * h, v);
        }
        if (step != 8)
            for (int k = 0; k < 16; k++)
                memcpy(dst + (ptrdiff_t)(i + k) * step, words + 4 * k, 8);
    }
    return i;
}

#else

INLINED size_t words_2(const uint8_t *src, size_t plane, size_t n, uint8_t *dst)
{
    (void)src, (void)plane, (void)n, (void)dst;
    return 0;
}

INLINED size_t words_4(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, ptrdiff_t step)
{
    (void)src, (void)plane, (void)n, (void)dst, (void)step;
    return 0;
}

INLINED size_t words_8(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, ptrdiff_t step)
{
    (void)src, (void)plane, (void)n, (void)dst, (void)step;
    return 0;
}

#endif

static void unshuffle_run(const uint8_t *src, size_t plane, size_t size, size_t n, uint8_t *dst, ptrdiff_t step)
{
    if (size == 1 && step == 1) {
        memcpy(dst, src, n);
        return;
    }
    if (size == 2 && step == 2) {
        run_bytes(src, plane, n, dst, step, size, words_2(src, plane, n, dst));
        return;
    }
    /* Wider elements (complex128, records) are done eight or four planes at a time, in blocks that stay in cache. */
    size_t width = size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : 0;
    if (width == 0) {
        run_bytes(src, plane, n, dst, step, size, 0);
        return;
    }
    size_t block = size == width ? n : 256;
    for (size_t begin = 0; begin < n; begin += block) {
        size_t count = begin + block < n ? block : n - begin;
        uint8_t *to = dst + (ptrdiff_t)begin * step;
        for (size_t k = 0; k < size; k += width) {
            const uint8_t *from = src + k * plane + begin;
            size_t done = width == 8 ? words_8(from, plane, count, to + k, step)
                                     : words_4(from, plane, count, to + k, step);
            run_bytes(from, plane, count, to + k, step, width, done);
        }
    }
}

/* Many rows of `n` neighbours, `from` bytes apart in each plane and `to` bytes apart in the destination. Where rows are
 * whole vectors the loops have no calls and no variables on the stack: a processor (Neoverse N1) that sees nothing but
 * stores of whole cache lines does not read the lines before it writes them, which makes this 2.5 times as fast. */

#define ROWS(name, words, ...)                                                                                         \
    static void name(const uint8_t *src, size_t plane, size_t n, uint8_t *dst, size_t rows, ptrdiff_t from,            \
                     ptrdiff_t to)                                                                                     \
    {                                                                                                                  \
        for (size_t row = 0; row < rows; row++, src += from, dst += to)                                                \
            words(src, plane, n, dst __VA_ARGS__);                                                                     \
    }

ROWS(rows_2, words_2, )
ROWS(rows_4, words_4, , 4)
ROWS(rows_8, words_8, , 8)

static void unshuffle_rows(const uint8_t *src, size_t plane, size_t size, size_t n, uint8_t *dst, ptrdiff_t step,
                           size_t rows, ptrdiff_t from, ptrdiff_t to)
{
    int vectors = (HAVE_SSE2 || HAVE_NEON) && n % 16 == 0 && step == (ptrdiff_t)size;
    if (vectors && size == 2)
        rows_2(src, plane, n, dst, rows, from, to);
    else if (vectors && size == 4)
        rows_4(src, plane, n, dst, rows, from, to);
    else if (vectors && size == 8)
        rows_8(src, plane, n, dst, rows, from, to);
    else
        for (size_t row = 0; row < rows; row++)
            unshuffle_run(src + (ptrdiff_t)row * from, plane, size, n, dst + (ptrdiff_t)row * to, step);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static int get_buffer(PyObject *object, Py_buffer *view)
{
    return PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS);
}

static Py_ssize_t parse_positive(PyObject *object, const char *what)
{
    Py_ssize_t value = PyLong_AsSsize_t(object);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value <= 0) {
        PyErr_Format(PyExc_ValueError, "%s must be positive, not %zd", what, value);
        return -1;
    }
    return value;
}

static int parse_lengths(PyObject *object, Py_ssize_t *values, Py_ssize_t expected, const char *what)
{
    if (!PyTuple_Check(object) || PyTuple_Size(object) != expected) {
        PyErr_Format(PyExc_ValueError, "%s must be a tuple of %zd numbers", what, expected);
        return 0;
    }
    for (Py_ssize_t i = 0; i < expected; i++) {
        values[i] = PyLong_AsSsize_t(PyTuple_GetItem(object, i));
        if (values[i] == -1 && PyErr_Occurred())
            return 0;
        if (values[i] < 0) {
            PyErr_Format(PyExc_ValueError, "%s has a negative number", what);
            return 0;
        }
    }
    return 1;
}

/* ---- unshuffle(src, elementsize, dst) ---------------------------------------------------------------------------- */

static PyObject *py_unshuffle(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (!has_arguments(nargs, 3, "unshuffle"))
        return NULL;
    Py_ssize_t size = parse_positive(args[1], "elementsize");
    if (size < 0)
        return NULL;
    Py_buffer src, dst;
    if (get_buffer(args[0], &src) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[2], &dst, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&src);
        return NULL;
    }
    int fits = src.len == dst.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        size_t count = (size_t)(src.len / size);
        unshuffle_run(src.buf, count, (size_t)size, count, dst.buf, size);
        /* What does not fill an element was left as it was. */
        size_t whole = count * (size_t)size;
        memcpy((uint8_t *)dst.buf + whole, (const uint8_t *)src.buf + whole, (size_t)src.len - whole);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_Format(PyExc_ValueError, "%zd bytes do not unshuffle into %zd", src.len, dst.len);
    }
    PyBuffer_Release(&src);
    PyBuffer_Release(&dst);
    return fits ? Py_NewRef(Py_None) : NULL;
}

/* ---- unshuffle_box(src, elementsize, shape, start, dst[, at, extent]) -----------------------------------------------
 * With `at` and `extent` the box goes to that place of dst, which saves making a view for every small chunk. */

typedef struct {
    Py_ssize_t extent; /* elements of the box along this axis */
    Py_ssize_t from;   /* elements between neighbours in the chunk */
    Py_ssize_t to;     /* bytes between neighbours in the destination */
} box_axis;

static void unshuffle_axes(const uint8_t *src, size_t plane, size_t size, uint8_t *dst, const box_axis *axes, int count)
{
    if (count == 0) {
        unshuffle_run(src, plane, size, 1, dst, (ptrdiff_t)size);
    } else if (count == 1) {
        unshuffle_run(src, plane, size, (size_t)axes->extent, dst, axes->to);
    } else if (count == 2) {
        unshuffle_rows(src, plane, size, (size_t)axes[1].extent, dst, axes[1].to, (size_t)axes->extent, axes->from,
                       axes->to);
    } else {
        for (Py_ssize_t i = 0; i < axes->extent; i++)
            unshuffle_axes(src + i * axes->from, plane, size, dst + i * axes->to, axes + 1, count - 1);
    }
}

/* What is to be done with every chunk of one kind. */
typedef struct {
    size_t size;         /* bytes of an element */
    Py_ssize_t total;    /* elements of a chunk */
    Py_ssize_t first;    /* the box's first element in the chunk */
    int empty;           /* nothing to do */
    int count;           /* axes */
    box_axis axes[MAX_DIMENSIONS + 1];
} box_plan;

/* Check that a box lies in a chunk, and melt its axes; 0 with an exception if it does not. */
static int plan_box(box_plan *plan, Py_ssize_t size, int ndim, const Py_ssize_t *shape, const Py_ssize_t *start,
                    const Py_ssize_t *extent, const Py_ssize_t *strides)
{
    Py_ssize_t total = 1, first = 0, step = 1;
    int count = 0, empty = 0;
    for (int i = 0; i < ndim; i++) {
        if (start[i] > shape[i] || extent[i] > shape[i] - start[i]) {
            PyErr_Format(PyExc_ValueError, "axis %d: a box of %zd from %zd does not lie in %zd", i, extent[i],
                         start[i], shape[i]);
            return 0;
        }
        if (shape[i] != 0 && total > PY_SSIZE_T_MAX / shape[i]) {
            PyErr_SetString(PyExc_OverflowError, "the chunk is too large");
            return 0;
        }
        total *= shape[i];
        empty |= extent[i] == 0;
    }
    if (total > PY_SSIZE_T_MAX / size) {
        PyErr_SetString(PyExc_OverflowError, "the chunk is too large");
        return 0;
    }
    /* From the fastest axis outwards, an axis that continues its neighbour on both sides is melted into it: long runs
     * are what the vectors like. The melted axes are built backwards and turned round below. */
    box_axis *axes = plan->axes;
    for (int i = ndim - 1; i >= 0; i--) {
        first += start[i] * step;
        box_axis axis = {extent[i], step, strides[i]};
        step *= shape[i];
        if (axis.extent == 1)
            continue;
        if (count && axes[count - 1].from * axes[count - 1].extent == axis.from &&
            axes[count - 1].to * axes[count - 1].extent == axis.to)
            axes[count - 1].extent *= axis.extent;
        else
            axes[count++] = axis;
    }
    for (int i = 0; i < count / 2; i++) {
        box_axis swap = axes[i];
        axes[i] = axes[count - 1 - i];
        axes[count - 1 - i] = swap;
    }
    /* The innermost run must be neighbours in the chunk: an axis of extent 1 was dropped, its stride with it. */
    if (count && axes[count - 1].from != 1)
        axes[count++] = (box_axis){1, 1, size};
    plan->size = (size_t)size;
    plan->total = total;
    plan->first = first;
    plan->empty = empty;
    plan->count = count;
    return 1;
}

static int box_fits(const Py_buffer *dst, const Py_ssize_t *at, const Py_ssize_t *extent)
{
    for (int i = 0; i < dst->ndim; i++)
        if (at[i] > dst->shape[i] || extent[i] > dst->shape[i] - at[i]) {
            PyErr_Format(PyExc_ValueError, "axis %d: %zd elements at %zd do not go into %zd", i, extent[i], at[i],
                         dst->shape[i]);
            return 0;
        }
    return 1;
}

static uint8_t *element_address(const Py_buffer *dst, const Py_ssize_t *at)
{
    uint8_t *target = dst->buf;
    for (int i = 0; i < dst->ndim; i++)
        target += at[i] * dst->strides[i];
    return target;
}

static int has_element_size(const Py_buffer *dst, Py_ssize_t size)
{
    if (dst->ndim > MAX_DIMENSIONS) {
        PyErr_SetString(PyExc_ValueError, "too many dimensions");
        return 0;
    }
    if (dst->itemsize != size) {
        PyErr_Format(PyExc_ValueError, "elements of %zd bytes do not go into an array of %zd", size, dst->itemsize);
        return 0;
    }
    return 1;
}

static PyObject *py_unshuffle_box(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 7 && !has_arguments(nargs, 5, "unshuffle_box"))
        return NULL;
    Py_ssize_t size = parse_positive(args[1], "elementsize");
    if (size < 0)
        return NULL;
    Py_buffer src, dst;
    if (get_buffer(args[0], &src) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[4], &dst, PyBUF_STRIDES | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&src);
        return NULL;
    }
    Py_ssize_t shape[MAX_DIMENSIONS], start[MAX_DIMENSIONS], at[MAX_DIMENSIONS], extent[MAX_DIMENSIONS];
    box_plan plan;
    int is_valid = 0;
    if (!has_element_size(&dst, size) || !parse_lengths(args[2], shape, dst.ndim, "shape") ||
        !parse_lengths(args[3], start, dst.ndim, "start"))
        goto done;
    if (nargs == 7 &&
        (!parse_lengths(args[5], at, dst.ndim, "at") || !parse_lengths(args[6], extent, dst.ndim, "extent")))
        goto done;
    for (int i = 0; i < dst.ndim && nargs == 5; i++) {
        at[i] = 0;
        extent[i] = dst.shape[i];
    }
    if (!box_fits(&dst, at, extent) || !plan_box(&plan, size, dst.ndim, shape, start, extent, dst.strides))
        goto done;
    if (plan.total * size != src.len) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are not a chunk of %zd elements of %zd", src.len, plan.total, size);
        goto done;
    }
    is_valid = 1;
    if (!plan.empty) {
        uint8_t *target = element_address(&dst, at);
        Py_BEGIN_ALLOW_THREADS
        unshuffle_axes((const uint8_t *)src.buf + plan.first, (size_t)plan.total, plan.size, target, plan.axes,
                       plan.count);
        Py_END_ALLOW_THREADS
    }
done:
    PyBuffer_Release(&src);
    PyBuffer_Release(&dst);
    return is_valid ? Py_NewRef(Py_None) : NULL;
}

/* ---- decode_boxes(codec, chunks, elementsize, shuffled, shape, start, extent, dst, at, room) ------------------------
 * Many chunks in one call: what Python does between two chunks costs as much as inflating 4 kB, and threads that take
 * turns for the GIL every ten microseconds do not run side by side. `codec` is None if chunks are not compressed; `room`
 * is memory of the thread for one chunk, which only compressed ones need. `chunks` and `at` are lists, of buffers and of
 * tuples; or, without any Python object for a chunk, a tuple (block, begin, length) of one buffer that holds all chunks
 * and int64 columns of where, and an int64 array of a row for each chunk. Returns how many chunks were done: fewer than
 * all if one of them does not decode to a chunk, and the caller finds out why. */

enum { STORED = 1000 };

typedef struct {
    const uint8_t *data;
    Py_ssize_t length;
    uint8_t *target;
} box_job;

static int find_decompressor(PyObject *codec)
{
    PyObject *name = PyUnicode_Check(codec) ? PyUnicode_AsUTF8String(codec) : NULL;
    int found = name ? decompressor_find(PyBytes_AsString(name)) : -1;
    Py_XDECREF(name);
    if (found < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "no library for %R was linked", codec);
    return found;
}

/* The buffers of a list of chunks, NULL with an exception; `release_chunks` gives them back. */
static Py_buffer *acquire_chunks(PyObject *list, Py_ssize_t *count)
{
    *count = 0;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_ValueError, "chunks must be a list");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(list);
    Py_buffer *views = PyMem_Calloc((size_t)size + 1, sizeof(Py_buffer));
    if (views == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (; *count < size; ++*count) {
        PyObject *item = PyList_GetItem(list, *count);
        if (item == NULL || get_buffer(item, &views[*count]) < 0) {
            while (*count)
                PyBuffer_Release(&views[--*count]);
            PyMem_Free(views);
            return NULL;
        }
        share_gil((size_t)*count);
    }
    return views;
}

static void release_chunks(Py_buffer *views, Py_ssize_t count)
{
    while (count) {
        PyBuffer_Release(&views[--count]);
        share_gil((size_t)count);
    }
    PyMem_Free(views);
}

/* The thread's memory for a decoded chunk. */
static int acquire_room(PyObject *object, Py_buffer *room, size_t nbytes)
{
    if (PyObject_GetBuffer(object, room, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0)
        return 0;
    if ((size_t)room->len >= nbytes)
        return 1;
    PyErr_Format(PyExc_ValueError, "a chunk of %zu bytes does not go into %zd", nbytes, room->len);
    PyBuffer_Release(room);
    return 0;
}

static void copy_axes(const uint8_t *src, size_t size, uint8_t *dst, const box_axis *axes, int count)
{
    if (count == 0) {
        memcpy(dst, src, size);
    } else if (count == 1 && axes->to == (Py_ssize_t)size) {
        memcpy(dst, src, (size_t)axes->extent * size);
    } else {
        for (Py_ssize_t i = 0; i < axes->extent; i++)
            copy_axes(src + i * axes->from * (Py_ssize_t)size, size, dst + i * axes->to, axes + 1, count - 1);
    }
}

static int is_whole(const box_plan *plan)
{
    return !plan->empty && plan->count <= 1 && (plan->count ? plan->axes->extent : 1) == plan->total &&
           (!plan->count || plan->axes->to == (Py_ssize_t)plan->size);
}

static Py_ssize_t decode_jobs(int codec, const box_plan *plan, int shuffled, const box_job *jobs, Py_ssize_t count,
                              uint8_t *room)
{
    size_t nbytes = (size_t)plan->total * plan->size;
    int stored = codec == STORED, into_target = !stored && !shuffled && is_whole(plan);
    void *state = stored ? NULL : decompressor_open(codec);
    Py_ssize_t done = 0;
    for (; (state || stored) && done < count; done++) {
        const box_job *job = &jobs[done];
        uint8_t *to = into_target ? job->target : room;
        const uint8_t *chunk = stored ? job->data : to;
        if (stored ? (size_t)job->length != nbytes
                   : !decompressor_run(codec, state, job->data, (size_t)job->length, to, nbytes))
            break;
        if (plan->empty || into_target)
            continue;
        if (shuffled)
            unshuffle_axes(chunk + plan->first, (size_t)plan->total, plan->size, job->target, plan->axes, plan->count);
        else
            copy_axes(chunk + plan->first * (Py_ssize_t)plan->size, plan->size, job->target, plan->axes, plan->count);
    }
    if (state)
        decompressor_close(codec, state);
    return done;
}

/* What a call works on, and the buffers that it holds meanwhile. */
typedef struct {
    box_job *jobs;
    Py_ssize_t count;
    Py_buffer *views;
    Py_ssize_t view_count;
} box_jobs;

static int allocate_jobs(box_jobs *all, Py_ssize_t count, Py_ssize_t views)
{
    all->count = count;
    all->jobs = PyMem_Calloc((size_t)count + 1, sizeof(box_job));
    all->views = PyMem_Calloc((size_t)views + 1, sizeof(Py_buffer));
    if (all->jobs && all->views)
        return 1;
    PyErr_NoMemory();
    return 0;
}

static void release_jobs(box_jobs *all)
{
    for (Py_ssize_t i = 0; i < all->view_count; i++) {
        PyBuffer_Release(&all->views[i]);
        share_gil((size_t)i);
    }
    PyMem_Free(all->views);
    PyMem_Free(all->jobs);
}

static int add_jobs_of_lists(PyObject *chunks, PyObject *places, const Py_buffer *dst,
                             const Py_ssize_t *extent, box_jobs *all)
{
    if (!PyList_Check(chunks) || !PyList_Check(places) || PyList_Size(chunks) != PyList_Size(places)) {
        PyErr_SetString(PyExc_ValueError, "chunks and at must be lists of one length");
        return 0;
    }
    Py_ssize_t count = PyList_Size(chunks), at[MAX_DIMENSIONS];
    if (!allocate_jobs(all, count, count))
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *place = PyList_GetItem(places, i), *chunk = place == NULL ? NULL : PyList_GetItem(chunks, i);
        if (chunk == NULL || !parse_lengths(place, at, dst->ndim, "at") || !box_fits(dst, at, extent))
            return 0;
        if (get_buffer(chunk, &all->views[i]) < 0)
            return 0;
        all->view_count++;
        all->jobs[i] = (box_job){all->views[i].buf, all->views[i].len, element_address(dst, at)};
        share_gil((size_t)i);
    }
    return 1;
}

static int add_jobs_of_columns(PyObject *chunks, PyObject *places, const Py_buffer *dst,
                               const Py_ssize_t *extent, box_jobs *all)
{
    Py_buffer view;
    if (PyTuple_Size(chunks) != 3) {
        PyErr_SetString(PyExc_ValueError, "chunks must be (block, begin, length)");
        return 0;
    }
    if (get_buffer(PyTuple_GetItem(chunks, 1), &view) < 0)
        return 0;
    Py_ssize_t count = view.len / (Py_ssize_t)sizeof(int64_t), at[MAX_DIMENSIONS];
    PyBuffer_Release(&view);
    if (!allocate_jobs(all, count, 4))
        return 0;
    for (; all->view_count < 4; all->view_count++)
        if (get_buffer(all->view_count < 3 ? PyTuple_GetItem(chunks, all->view_count) : places,
                       &all->views[all->view_count]) < 0)
            return 0;
    const Py_buffer *block = &all->views[0];
    for (int i = 1; i < 4; i++) {
        Py_ssize_t width = i == 3 ? dst->ndim : 1;
        if (all->views[i].itemsize != (Py_ssize_t)sizeof(int64_t) ||
            all->views[i].len != count * width * (Py_ssize_t)sizeof(int64_t)) {
            PyErr_SetString(PyExc_ValueError, "begin, length and at must be int64 columns of one length");
            return 0;
        }
    }
    const int64_t *begin = all->views[1].buf, *length = all->views[2].buf, *place = all->views[3].buf;
    for (Py_ssize_t i = 0; i < count; i++, place += dst->ndim) {
        if (begin[i] < 0 || length[i] < 0 || begin[i] > block->len || length[i] > block->len - begin[i]) {
            PyErr_Format(PyExc_ValueError, "chunk %zd does not lie in its block", i);
            return 0;
        }
        for (int axis = 0; axis < dst->ndim; axis++) {
            if (place[axis] < 0 || place[axis] > dst->shape[axis]) {
                PyErr_Format(PyExc_ValueError, "axis %d: there is no place %lld", axis, (long long)place[axis]);
                return 0;
            }
            at[axis] = (Py_ssize_t)place[axis];
        }
        if (!box_fits(dst, at, extent))
            return 0;
        all->jobs[i] = (box_job){(const uint8_t *)block->buf + begin[i], (Py_ssize_t)length[i],
                                  element_address(dst, at)};
        share_gil((size_t)i);
    }
    return 1;
}

static PyObject *py_decode_boxes(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int codec = !has_arguments(nargs, 10, "decode_boxes") ? -1 : args[0] == Py_None ? STORED : find_decompressor(args[0]);
    Py_ssize_t size = codec < 0 ? -1 : parse_positive(args[2], "elementsize");
    int shuffled = size < 0 ? -1 : PyObject_IsTrue(args[3]);
    if (shuffled < 0)
        return NULL;
    Py_buffer dst, room = {0};
    if (PyObject_GetBuffer(args[7], &dst, PyBUF_STRIDES | PyBUF_WRITABLE) < 0)
        return NULL;
    Py_ssize_t shape[MAX_DIMENSIONS], start[MAX_DIMENSIONS], extent[MAX_DIMENSIONS], done = -1;
    box_plan plan;
    box_jobs all = {0};
    if (has_element_size(&dst, size) && parse_lengths(args[4], shape, dst.ndim, "shape") &&
        parse_lengths(args[5], start, dst.ndim, "start") && parse_lengths(args[6], extent, dst.ndim, "extent") &&
        plan_box(&plan, size, dst.ndim, shape, start, extent, dst.strides) &&
        (codec == STORED || acquire_room(args[9], &room, (size_t)plan.total * plan.size))) {
        if (PyTuple_Check(args[1]) ? add_jobs_of_columns(args[1], args[8], &dst, extent, &all)
                                   : add_jobs_of_lists(args[1], args[8], &dst, extent, &all)) {
            Py_BEGIN_ALLOW_THREADS
            done = decode_jobs(codec, &plan, shuffled, all.jobs, all.count, room.buf);
            Py_END_ALLOW_THREADS
        }
        if (codec != STORED)
            PyBuffer_Release(&room);
    }
    release_jobs(&all);
    PyBuffer_Release(&dst);
    return done < 0 ? NULL : PyLong_FromSsize_t(done);
}

static PyObject *py_linked_libraries(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    static const char *const codecs[] = {"zlib", "zstd"};
    PyObject *found = PyDict_New();
    for (size_t i = 0; found && i < sizeof codecs / sizeof *codecs; i++) {
        int codec = decompressor_find(codecs[i]);
        PyObject *name = codec < 0 ? NULL : PyUnicode_FromString(decompressor_library(codec));
        if (codec >= 0 && (name == NULL || PyDict_SetItemString(found, codecs[i], name) < 0))
            Py_CLEAR(found);
        Py_XDECREF(name);
    }
    return found;
}

/* ---- unpack_bits(src, first, stride, bits, dst) ------------------------------------------------------------------ */

static uint64_t field(const uint8_t *src, size_t position, unsigned bits)
{
    const uint8_t *byte = src + position / 8;
    unsigned lead = (unsigned)(position % 8), have = 8 - lead;
    uint64_t value = *byte & (0xFFu >> lead);
    while (have < bits) {
        unsigned missing = bits - have;
        byte++;
        if (missing < 8)
            return value << missing | *byte >> (8 - missing);
        value = value << 8 | *byte;
        have += 8;
    }
    return value >> (have - bits);
}

#define UNPACK(type)                                                                                                   \
    do {                                                                                                               \
        type *out = dst.buf;                                                                                           \
        for (size_t i = 0; i < count; i++)                                                                             \
            out[i] = (type)field(src.buf, (size_t)first + i * (size_t)stride, (unsigned)bits);                         \
    } while (0)

static PyObject *py_unpack_bits(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (!has_arguments(nargs, 5, "unpack_bits"))
        return NULL;
    Py_ssize_t first = PyLong_AsSsize_t(args[1]);
    if (first == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t stride = parse_positive(args[2], "stride"), bits = stride < 0 ? -1 : parse_positive(args[3], "bits");
    if (bits < 0)
        return NULL;
    Py_buffer src, dst;
    if (get_buffer(args[0], &src) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[4], &dst, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&src);
        return NULL;
    }
    int is_valid = 0;
    Py_ssize_t width = dst.itemsize;
    if (first < 0 || bits > 8 * width || (width != 1 && width != 2 && width != 4 && width != 8)) {
        PyErr_SetString(PyExc_ValueError, "fields of 1 to 64 bits go into integers at least as wide");
        goto done;
    }
    size_t count = (size_t)(dst.len / width);
    if (src.len > PY_SSIZE_T_MAX / 8 || first > PY_SSIZE_T_MAX - bits ||
        (count && (first + bits > src.len * 8 ||
                   count - 1 > (size_t)(src.len * 8 - first - bits) / (size_t)stride))) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are too few for %zu fields of %zd bits", src.len, count, bits);
        goto done;
    }
    is_valid = 1;
    Py_BEGIN_ALLOW_THREADS
    if (width == 1)
        UNPACK(uint8_t);
    else if (width == 2)
        UNPACK(uint16_t);
    else if (width == 4)
        UNPACK(uint32_t);
    else
        UNPACK(uint64_t);
    Py_END_ALLOW_THREADS
done:
    PyBuffer_Release(&src);
    PyBuffer_Release(&dst);
    return is_valid ? Py_NewRef(Py_None) : NULL;
}

/* ---- fletcher32(data) -------------------------------------------------------------------------------------------- */

static uint32_t fletcher32(const uint8_t *data, size_t size)
{
    /* 16-bit big-endian words; sums are folded, not reduced, so that a multiple of 65535 stays 65535 as in HDF5. */
    uint64_t low = 0, high = 0;
    size_t words = size / 2;
    while (words) {
        size_t block = words < 4096 ? words : 4096; /* 4096 words cannot overflow 64 bits after folding */
        words -= block;
        for (size_t i = 0; i < block; i++, data += 2) {
            low += (uint32_t)data[0] << 8 | data[1];
            high += low;
        }
        low = (low & 0xFFFF) + (low >> 16);
        high = (high & 0xFFFF) + (high >> 16);
        low = (low & 0xFFFF) + (low >> 16);
        high = (high & 0xFFFF) + (high >> 16);
    }
    if (size % 2) {
        low += (uint32_t)data[0] << 8;
        high += low;
    }
    while (low >> 16)
        low = (low & 0xFFFF) + (low >> 16);
    while (high >> 16)
        high = (high & 0xFFFF) + (high >> 16);
    return (uint32_t)(high << 16 | low);
}

static PyObject *py_fletcher32(PyObject *module, PyObject *object)
{
    (void)module;
    Py_buffer data;
    if (get_buffer(object, &data) < 0)
        return NULL;
    uint32_t value;
    Py_BEGIN_ALLOW_THREADS
    value = fletcher32(data.buf, (size_t)data.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(value);
}

/* ---- total(values) --------------------------------------------------------------------------------------------------
 * Sixteen sums side by side, of blocks that are short enough that each keeps nearly all of its bits; NumPy casts every
 * value into a buffer first, which takes four times as long. NaN and infinity come through as they do there. */

enum { LANES = 16, TOTAL_BLOCK = 4096 };

#define TOTAL(name, type)                                                                                              \
    static double name(const type *values, size_t count)                                                               \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        for (size_t begin = 0; begin < count; begin += TOTAL_BLOCK) {                                                  \
            size_t end = count - begin < TOTAL_BLOCK ? count : begin + TOTAL_BLOCK, i = begin;                         \
            double lanes[LANES] = {0};                                                                                 \
            for (; i + LANES <= end; i += LANES)                                                                       \
                for (int lane = 0; lane < LANES; lane++)                                                               \
                    lanes[lane] += (double)values[i + (size_t)lane];                                                   \
            for (; i < end; i++)                                                                                       \
                lanes[0] += (double)values[i];                                                                         \
            for (int half = LANES / 2; half; half /= 2)                                                                \
                for (int lane = 0; lane < half; lane++)                                                                \
                    lanes[lane] += lanes[lane + half];                                                                 \
            sum += lanes[0];                                                                                           \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

TOTAL(total_float, float)
TOTAL(total_double, double)

static PyObject *py_total(PyObject *module, PyObject *object)
{
    (void)module;
    Py_buffer values;
    if (PyObject_GetBuffer(object, &values, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return NULL;
    static const uint16_t one = 1; /* its first byte tells which end comes first on this machine */
    const char *format = values.format ? values.format : "B";
    if (*format == '@' || *format == '=' || *format == (*(const uint8_t *)&one ? '<' : '>'))
        format++;
    int single = !strcmp(format, "f"), wide = !strcmp(format, "d");
    double sum = 0;
    if (single || wide) {
        Py_BEGIN_ALLOW_THREADS
        sum = single ? total_float(values.buf, (size_t)values.len / sizeof(float))
                     : total_double(values.buf, (size_t)values.len / sizeof(double));
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_TypeError, "total takes float32 or float64 of the machine's byte order");
    }
    PyBuffer_Release(&values);
    return single || wide ? PyFloat_FromDouble(sum) : NULL;
}

/* ---- measure(src, elementsize, shuffled, first, count, missing, statistics) -----------------------------------------
 * Elements are put together from their byte planes a block at a time, and measurement while they are in the first-level
 * cache: an array of them never exists. A block whose sum is a number has nothing missing in it (unless some value stands
 * for missing), and takes one pass; any other is gone through again, leaving out NaN and what stands for it. Squared
 * deviations are from the block's own mean, and blocks are put together as by Chan, Golub and LeVeque (1983). */

enum { EXTREMES = 1, SQUARES = 2, MOST_MISSING = 2 };

typedef struct {
    double sum, squares, least, most;
    size_t valid;
} measurement;

typedef struct {
    int statistics;
    int missing;
    double values[MOST_MISSING];
} measure_options;

#define COMBINE_LANES(lanes)                                                                                           \
    for (int half = LANES / 2; half; half /= 2)                                                                        \
        for (int lane = 0; lane < half; lane++)                                                                        \
            lanes[lane] += lanes[lane + half]

/* What is missing is written over: with 0 for a sum, with a value that is there for extremes. No branch depends on a
 * value: missing ones often lie scattered. `IS_VALID` is true of what is there. */
#define IS_VALID(value) ((value == value) & (value != first) & (value != second))

#define MEASURE(name, type, word, total)                                                                               \
    static size_t name##_filled(const type *values, size_t count, type first, type second, type by, type *room)        \
    {                                                                                                                  \
        word counts[LANES] = {0}; /* as wide as a value: then a comparison needs no conversion to be added */          \
        size_t i = 0, sum = 0;                                                                                         \
        for (; i + LANES <= count; i += LANES)                                                                         \
            for (int lane = 0; lane < LANES; lane++) {                                                                 \
                type value = values[i + (size_t)lane];                                                                 \
                int valid = IS_VALID(value);                                                                           \
                room[i + (size_t)lane] = valid ? value : by;                                                           \
                counts[lane] += valid ? 1 : 0;                                                                         \
            }                                                                                                          \
        for (; i < count; i++) {                                                                                       \
            int valid = IS_VALID(values[i]);                                                                           \
            room[i] = valid ? values[i] : by;                                                                          \
            counts[0] += valid ? 1 : 0;                                                                                \
        }                                                                                                              \
        for (int lane = 0; lane < LANES; lane++)                                                                       \
            sum += (size_t)counts[lane];                                                                               \
        return sum;                                                                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_extremes(const type *values, size_t count, measurement *all)                                    \
    {                                                                                                                  \
        type least[LANES], most[LANES];                                                                                \
        size_t i = 0;                                                                                                  \
        for (int lane = 0; lane < LANES; lane++)                                                                       \
            least[lane] = most[lane] = values[0];                                                                      \
        for (; i + LANES <= count; i += LANES) {                                                                       \
            for (int lane = 0; lane < LANES; lane++)                                                                   \
                least[lane] = values[i + (size_t)lane] < least[lane] ? values[i + (size_t)lane] : least[lane];         \
            for (int lane = 0; lane < LANES; lane++)                                                                   \
                most[lane] = values[i + (size_t)lane] > most[lane] ? values[i + (size_t)lane] : most[lane];            \
        }                                                                                                              \
        for (; i < count; i++) {                                                                                       \
            least[0] = values[i] < least[0] ? values[i] : least[0];                                                    \
            most[0] = values[i] > most[0] ? values[i] : most[0];                                                       \
        }                                                                                                              \
        for (int lane = 0; lane < LANES; lane++) {                                                                     \
            if (!(all->least <= least[lane])) /* which NaN, the extreme of nothing, is not either */                   \
                all->least = least[lane];                                                                              \
            if (!(all->most >= most[lane]))                                                                            \
                all->most = most[lane];                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static double name##_squares(const type *values, size_t count, double mean)                                        \
    {                                                                                                                  \
        double lanes[LANES] = {0};                                                                                     \
        size_t i = 0;                                                                                                  \
        for (; i + LANES <= count; i += LANES)                                                                         \
            for (int lane = 0; lane < LANES; lane++)                                                                   \
                lanes[lane] += ((double)values[i + (size_t)lane] - mean) * ((double)values[i + (size_t)lane] - mean);  \
        for (; i < count; i++)                                                                                         \
            lanes[0] += ((double)values[i] - mean) * ((double)values[i] - mean);                                       \
        COMBINE_LANES(lanes);                                                                                          \
        return lanes[0];                                                                                               \
    }                                                                                                                  \
                                                                                                                       \
    static double name##_squares_valid(const type *values, size_t count, double mean, type first, type second)         \
    {                                                                                                                  \
        double lanes[LANES] = {0};                                                                                     \
        size_t i = 0;                                                                                                  \
        for (; i + LANES <= count; i += LANES)                                                                         \
            for (int lane = 0; lane < LANES; lane++) {                                                                 \
                type value = values[i + (size_t)lane];                                                                 \
                double away = (double)value - mean;                                                                    \
                lanes[lane] += IS_VALID(value) ? away * away : 0;                                                      \
            }                                                                                                          \
        for (; i < count; i++)                                                                                         \
            lanes[0] += IS_VALID(values[i]) ? ((double)values[i] - mean) * ((double)values[i] - mean) : 0;             \
        COMBINE_LANES(lanes);                                                                                          \
        return lanes[0];                                                                                               \
    }                                                                                                                  \
                                                                                                                       \
    static void name(const type *values, size_t count, const measure_options *how, type *room, measurement *all)       \
    {                                                                                                                  \
        type first = how->missing > 0 ? (type)how->values[0] : NAN, second = how->missing > 1 ? (type)how->values[1] : NAN; \
        double sum = how->missing ? NAN : total(values, count);                                                        \
        size_t valid = count;                                                                                          \
        if (sum != sum) {                                                                                              \
            valid = name##_filled(values, count, first, second, 0, room);                                              \
            sum = total(room, count);                                                                                  \
        }                                                                                                              \
        if (!valid)                                                                                                    \
            return;                                                                                                    \
        if (how->statistics & EXTREMES) {                                                                              \
            const type *present = values;                                                                              \
            if (valid < count) {                                                                                       \
                size_t i = 0;                                                                                          \
                while (!IS_VALID(values[i]))                                                                           \
                    i++;                                                                                               \
                name##_filled(values, count, first, second, values[i], room);                                          \
                present = room;                                                                                        \
            }                                                                                                          \
            name##_extremes(present, count, all);                                                                      \
        }                                                                                                              \
        if (how->statistics & SQUARES) {                                                                               \
            double mean = sum / (double)valid;                                                                         \
            all->squares += valid == count ? name##_squares(values, count, mean)                                       \
                                           : name##_squares_valid(values, count, mean, first, second);                 \
            if (all->valid) {                                                                                          \
                double before = (double)all->valid, now = (double)valid, difference = mean - all->sum / before;        \
                all->squares += difference * difference * (before / (before + now) * now);                             \
            }                                                                                                          \
        }                                                                                                              \
        all->sum += sum;                                                                                               \
        all->valid += valid;                                                                                           \
    }

MEASURE(measure_float, float, int32_t, total_float)
MEASURE(measure_double, double, int64_t, total_double)

static void measure_run(const uint8_t *src, size_t plane, size_t size, int shuffled, size_t count,
                        const measure_options *how, measurement *all)
{
    union {
        uint8_t bytes[TOTAL_BLOCK * sizeof(double)];
        float single[TOTAL_BLOCK];
        double wide[TOTAL_BLOCK];
    } block, room;
    int in_place = !shuffled && (uintptr_t)src % size == 0;
    for (size_t begin = 0; begin < count; begin += TOTAL_BLOCK) {
        size_t block_count = count - begin < TOTAL_BLOCK ? count - begin : TOTAL_BLOCK;
        const void *values = in_place ? src + begin * size : block.bytes;
        if (shuffled)
            unshuffle_run(src + begin, plane, size, block_count, block.bytes, (ptrdiff_t)size);
        else if (!in_place)
            memcpy(block.bytes, src + begin * size, block_count * size);
        if (size == sizeof(float))
            measure_float(values, block_count, how, room.single, all);
        else
            measure_double(values, block_count, how, room.wide, all);
    }
}

/* The arguments missing and statistics; 0 with an exception. */
static int parse_measure_options(Py_ssize_t size, PyObject *missing, PyObject *flags, measure_options *how)
{
    long statistics = PyLong_AsLong(flags);
    if (PyErr_Occurred())
        return 0;
    how->statistics = (int)(statistics & (EXTREMES | SQUARES));
    if ((size != sizeof(float) && size != sizeof(double)) || !PyTuple_Check(missing) ||
        PyTuple_Size(missing) > MOST_MISSING) {
        PyErr_SetString(PyExc_ValueError, "elements are of 4 or 8 bytes, and at most two numbers stand for missing");
        return 0;
    }
    for (how->missing = 0; how->missing < (int)PyTuple_Size(missing); how->missing++) {
        how->values[how->missing] = PyFloat_AsDouble(PyTuple_GetItem(missing, how->missing));
        if (PyErr_Occurred())
            return 0;
    }
    return 1;
}

static int elements_within(Py_ssize_t first, Py_ssize_t count, Py_ssize_t available)
{
    if (first >= 0 && count >= 0 && first <= available && count <= available - first)
        return 1;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%zd elements from %zd are not in %zd", count, first, available);
    return 0;
}

static PyObject *measurement_tuple(const measurement *all)
{
    return Py_BuildValue("dnddd", all->sum, (Py_ssize_t)all->valid, all->least, all->most, all->squares);
}

static PyObject *py_measure(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (!has_arguments(nargs, 7, "measure"))
        return NULL;
    Py_ssize_t size = parse_positive(args[1], "elementsize");
    int shuffled = PyObject_IsTrue(args[2]);
    if (size < 0 || shuffled < 0)
        return NULL;
    Py_ssize_t first = PyLong_AsSsize_t(args[3]), count = PyLong_AsSsize_t(args[4]);
    measure_options how = {0};
    Py_buffer src;
    if (PyErr_Occurred() || !parse_measure_options(size, args[5], args[6], &how) || get_buffer(args[0], &src) < 0)
        return NULL;
    Py_ssize_t elements = src.len / size;
    if (!elements_within(first, count, elements)) {
        PyBuffer_Release(&src);
        return NULL;
    }
    measurement all = {.sum = 0, .least = NAN, .most = NAN};
    const uint8_t *from = (const uint8_t *)src.buf + (shuffled ? first : first * size);
    Py_BEGIN_ALLOW_THREADS
    measure_run(from, (size_t)elements, (size_t)size, shuffled, (size_t)count, &how, &all);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&src);
    return measurement_tuple(&all);
}

/* ---- measure_chunks(codec, chunks, elements, room, elementsize, shuffled, first, count, missing, statistics) --------
 * The same of many compressed chunks of so many elements each, decompressed into the memory of the thread: the GIL is
 * given up once. A list of results: shorter than that of the chunks if one of them does not decode. */

static Py_ssize_t measure_each(int codec, const Py_buffer *chunks, Py_ssize_t chunk_count, uint8_t *room, size_t elements,
                               size_t size, int shuffled, size_t first, size_t count, const measure_options *how, measurement *all)
{
    void *state = decompressor_open(codec);
    Py_ssize_t done = 0;
    for (; state && done < chunk_count; done++) {
        if (!decompressor_run(codec, state, chunks[done].buf, (size_t)chunks[done].len, room, elements * size))
            break;
        all[done] = (measurement){.sum = 0, .least = NAN, .most = NAN};
        measure_run(room + (shuffled ? first : first * size), elements, size, shuffled, count, how, &all[done]);
    }
    if (state)
        decompressor_close(codec, state);
    return done;
}

static PyObject *py_measure_chunks(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int codec = has_arguments(nargs, 10, "measure_chunks") ? find_decompressor(args[0]) : -1;
    Py_ssize_t size = codec < 0 ? -1 : parse_positive(args[4], "elementsize");
    Py_ssize_t elements = size < 0 ? -1 : parse_positive(args[2], "elements");
    int shuffled = elements < 0 ? -1 : PyObject_IsTrue(args[5]);
    if (shuffled < 0)
        return NULL;
    Py_ssize_t first = PyLong_AsSsize_t(args[6]), count = PyLong_AsSsize_t(args[7]), chunk_count;
    measure_options how = {0};
    if (PyErr_Occurred() || !parse_measure_options(size, args[8], args[9], &how) || !elements_within(first, count, elements))
        return NULL;
    Py_buffer room, *chunks = acquire_chunks(args[1], &chunk_count);
    if (chunks == NULL)
        return NULL;
    PyObject *results = NULL;
    measurement *all = PyMem_Calloc((size_t)chunk_count + 1, sizeof(measurement));
    if (all == NULL) {
        PyErr_NoMemory();
    } else if (elements > PY_SSIZE_T_MAX / size) {
        PyErr_SetString(PyExc_OverflowError, "the chunk is too large");
    } else if (acquire_room(args[3], &room, (size_t)elements * (size_t)size)) {
        Py_ssize_t done;
        Py_BEGIN_ALLOW_THREADS
        done = measure_each(codec, chunks, chunk_count, room.buf, (size_t)elements, (size_t)size, shuffled, (size_t)first,
                            (size_t)count, &how, all);
        Py_END_ALLOW_THREADS
        PyBuffer_Release(&room);
        results = PyList_New(done);
        for (Py_ssize_t i = 0; results && i < done; i++) {
            PyObject *one = measurement_tuple(&all[i]);
            if (one == NULL || PyList_SetItem(results, i, one) < 0) /* which takes `one` */
                Py_CLEAR(results);
            share_gil((size_t)i);
        }
    }
    PyMem_Free(all);
    release_chunks(chunks, chunk_count);
    return results;
}

/* ---- decompress_texts(dictionary, texts, room) ----------------------------------------------------------------------
 * Short Zstandard frames that were compressed with a dictionary: a list of bytes, each of `room` bytes at most. */

static PyObject *py_decompress_texts(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Py_ssize_t room = has_arguments(nargs, 3, "decompress_texts") ? parse_positive(args[2], "room") : -1, text_count;
    int codec = decompressor_find("zstd");
    if (room < 0)
        return NULL;
    if (codec < 0) {
        PyErr_SetString(PyExc_RuntimeError, "Zstandard was not linked");
        return NULL;
    }
    Py_buffer dictionary_bytes, *texts;
    if (PyObject_GetBuffer(args[0], &dictionary_bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    void *dictionary, *state;
    Py_BEGIN_ALLOW_THREADS
    dictionary = dictionary_open(dictionary_bytes.buf, (size_t)dictionary_bytes.len);
    state = decompressor_open(codec);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&dictionary_bytes); /* the dictionary has a copy */
    uint8_t *out = PyMem_Malloc((size_t)room);
    PyObject *results = NULL;
    if (dictionary == NULL || state == NULL || out == NULL) {
        PyErr_SetString(PyExc_ValueError, "the dictionary is damaged, or there is no memory");
    } else if ((texts = acquire_chunks(args[1], &text_count)) != NULL) {
        results = PyList_New(text_count);
        for (Py_ssize_t i = 0; results && i < text_count; i++) {
            ptrdiff_t size;
            Py_BEGIN_ALLOW_THREADS
            size = dictionary_run(dictionary, state, texts[i].buf, (size_t)texts[i].len, out, (size_t)room);
            Py_END_ALLOW_THREADS
            PyObject *one = size < 0 ? NULL : PyBytes_FromStringAndSize((const char *)out, size);
            if (size < 0)
                PyErr_Format(PyExc_ValueError, "text %zd is damaged, or longer than %zd bytes", i, room);
            if (one == NULL || PyList_SetItem(results, i, one) < 0) /* which takes `one` */
                Py_CLEAR(results);
        }
        release_chunks(texts, text_count);
    }
    PyMem_Free(out);
    if (state)
        decompressor_close(codec, state);
    if (dictionary)
        dictionary_close(dictionary);
    return results;
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    FASTCALL(unshuffle,
             "unshuffle(src, elementsize, dst)\n--\n\nByte planes to elements; trailing bytes stay as they are."),
    FASTCALL(unshuffle_box,
             "unshuffle_box(src, elementsize, shape, start, dst, at=None, extent=None)\n--\n\n"
             "The box of dst's shape at start of a shuffled chunk; or of that extent, to that place of dst."),
    FASTCALL(decode_boxes,
             "decode_boxes(codec, chunks, elementsize, shuffled, shape, start, extent, dst, at, room)\n--\n\n"
             "A box of each of many compressed chunks to its place of dst; how many were done."),
    {"linked_libraries", py_linked_libraries, METH_NOARGS,
     "linked_libraries()\n--\n\nThe decompressors that were linked: codec to name and version of its library."},
    FASTCALL(unpack_bits,
             "unpack_bits(src, first, stride, bits, dst)\n--\n\nBig-endian bit fields, every stride bits, to integers."),
    {"fletcher32", py_fletcher32, METH_O, "fletcher32(data)\n--\n\nHDF5's Fletcher checksum."},
    {"total", py_total, METH_O, "total(values)\n--\n\nThe sum of float32 or float64 values, in float64."},
    FASTCALL(measure,
             "measure(src, elementsize, shuffled, first, count, missing, statistics)\n--\n\n"
             "Of floats that are not missing: (sum, number, least, most, squares about the mean)."),
    FASTCALL(measure_chunks,
             "measure_chunks(codec, chunks, elements, room, elementsize, shuffled, first, count, missing, statistics)\n--\n\n"
             "What measure gives, of each of many compressed chunks of so many elements; fewer if one does not decode."),
    FASTCALL(decompress_texts,
             "decompress_texts(dictionary, texts, room)\n--\n\n"
             "Short Zstandard frames that were compressed with a dictionary; a text has at most `room` bytes."),
    {NULL, NULL, 0, NULL},
};

MODULE_DEFINITION("_kernels", "Loops over bytes that release the GIL.");

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&definition);
}
