/* Scattered reads: fill a strided array from a file.
 *
 *   read_scattered(descriptor, offset, target)        ->  number of bytes read
 *   read_ranges(descriptor, offsets, lengths, target)  ->  number of bytes read
 *
 * Of read_scattered, the bytes of the file are the elements of `target` in C order. Long rows are filled
 * by the system (preadv with a list of them). Short ones are read some hundred at a time into a buffer
 * that stays in the processor's second-level cache, and copied from there: for rows of 1 KiB that takes
 * 0.7 of the time, because loops that do nothing but store whole cache lines need not read the lines
 * first. read_ranges puts many ranges of the file one behind the other, with one release of the GIL for
 * all of them. Without this extension local.py does the same with NumPy, and range by range.
 */
#include "../_extension_module.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    MAX_DIMENSIONS = 32,
    ROWS = 1024,         /* no system takes more in one call (IOV_MAX) */
    BUFFER = 192 << 10,  /* bytes on their way to short rows: well within a second-level cache */
    LONG_ROW = 64 << 10, /* bytes of rows that the system fills itself */
    LINE = 64            /* bytes of a cache line */
};

typedef struct {
    char *at;                            /* the row that comes next */
    Py_ssize_t run;                      /* bytes of a row */
    int outer;                           /* axes that rows are spread over */
    Py_ssize_t shape[MAX_DIMENSIONS], strides[MAX_DIMENSIONS], index[MAX_DIMENSIONS];
    size_t left;                         /* rows to come */
} Rows;

static void rows_of(const Py_buffer *target, Rows *rows)
{
    int inner = target->ndim;
    rows->run = target->itemsize;
    while (inner > 0 && (target->shape[inner - 1] == 1 || target->strides[inner - 1] == rows->run)) {
        inner--;
        rows->run *= target->shape[inner];
    }
    rows->at = target->buf;
    rows->outer = inner;
    rows->left = 1;
    for (int axis = 0; axis < inner; axis++) {
        rows->shape[axis] = target->shape[axis];
        rows->strides[axis] = target->strides[axis];
        rows->index[axis] = 0;
        rows->left *= (size_t)target->shape[axis];
    }
}

static char *next_row(Rows *rows)
{
    char *found = rows->at;
    rows->left--;
    for (int axis = rows->outer - 1; axis >= 0; axis--) {
        rows->at += rows->strides[axis];
        if (++rows->index[axis] < rows->shape[axis])
            break;
        rows->at -= rows->strides[axis] * rows->shape[axis];
        rows->index[axis] = 0;
    }
    return found;
}

/* Copy `count` rows that lie side by side in `from` to rows that lie `step` bytes apart. */
static void copy_rows(const char *from, char *to, size_t run, size_t count, Py_ssize_t step)
{
    for (size_t row = 0; row < count; row++, from += run, to += step) {
        size_t i = 0;
        for (; i + LINE <= run; i += LINE)
            memcpy(to + i, from + i, LINE);
        if (i < run)
            memcpy(to + i, from + i, run - i);
    }
}

/* Copy bytes to the next rows; the last of them may get a part only. */
static void fill_rows(const char *from, size_t bytes, Rows *rows)
{
    size_t run = (size_t)rows->run;
    while (bytes >= run && rows->left) {
        int last = rows->outer - 1;
        size_t count = last < 0 ? 1 : (size_t)(rows->shape[last] - rows->index[last]);
        if (count > bytes / run)
            count = bytes / run;
        copy_rows(from, rows->at, run, count, last < 0 ? 0 : rows->strides[last]);
        from += count * run;
        bytes -= count * run;
        if (count > 1) { /* next_row goes on from the last of them */
            rows->at += rows->strides[last] * (Py_ssize_t)(count - 1);
            rows->index[last] += (Py_ssize_t)(count - 1);
            rows->left -= count - 1;
        }
        next_row(rows);
    }
    if (bytes && rows->left)
        memcpy(rows->at, from, bytes);
}

/* Read at most `size` bytes, fewer only at the end of the file; -1 and errno where the system refuses. */
static Py_ssize_t read_fully(int descriptor, char *buffer, size_t size, off_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(descriptor, buffer + done, size - done, offset + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (Py_ssize_t)done;
}

/* As `scatter`, for short rows. */
static Py_ssize_t scatter_short(int descriptor, off_t offset, Rows *rows)
{
    char *memory = malloc(BUFFER + LINE);
    if (memory == NULL)
        return -1; /* errno is ENOMEM */
    char *buffer = memory + (LINE - (uintptr_t)memory % LINE);
    size_t together = BUFFER / (size_t)rows->run;
    Py_ssize_t done = 0;
    while (rows->left) {
        size_t expected = (rows->left < together ? rows->left : together) * (size_t)rows->run;
        Py_ssize_t got = read_fully(descriptor, buffer, expected, offset + (off_t)done);
        if (got < 0) {
            done = -1;
            break;
        }
        fill_rows(buffer, (size_t)got, rows);
        done += got;
        if ((size_t)got < expected)
            break;
    }
    int error = errno;
    free(memory);
    errno = error;
    return done;
}

/* Bytes read; -1 and errno where the system refuses. Ends early at the end of the file. */
static Py_ssize_t scatter(int descriptor, off_t offset, Rows *rows)
{
    struct iovec parts[ROWS];
    Py_ssize_t done = 0;
    int first = 0, count = 0;
    for (;;) {
        if (first == count) {
            first = count = 0;
            while (count < ROWS && rows->left) {
                parts[count].iov_base = next_row(rows);
                parts[count++].iov_len = (size_t)rows->run;
            }
            if (!count)
                return done;
        }
        ssize_t got = preadv(descriptor, parts + first, count - first, offset + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            return done;
        done += got;
        while (first < count && (size_t)got >= parts[first].iov_len)
            got -= (ssize_t)parts[first++].iov_len;
        if (got) { /* the system stopped inside a row */
            parts[first].iov_base = (char *)parts[first].iov_base + got;
            parts[first].iov_len -= (size_t)got;
        }
    }
}

static PyObject *py_read_scattered(PyObject *module, PyObject *arguments)
{
    (void)module;
    int descriptor;
    long long offset;
    PyObject *object;
    if (!PyArg_ParseTuple(arguments, "iLO", &descriptor, &offset, &object))
        return NULL;
    if (offset < 0) {
        PyErr_SetString(PyExc_ValueError, "offset must not be negative");
        return NULL;
    }
    Py_buffer target;
    if (PyObject_GetBuffer(object, &target, PyBUF_STRIDED | PyBUF_WRITABLE) < 0)
        return NULL;
    Py_ssize_t done = 0;
    if (target.ndim > MAX_DIMENSIONS) {
        PyBuffer_Release(&target);
        PyErr_SetString(PyExc_ValueError, "too many dimensions");
        return NULL;
    }
    if (target.len > 0) {
        Rows rows;
        rows_of(&target, &rows);
        Py_BEGIN_ALLOW_THREADS
        done = rows.run < LONG_ROW ? scatter_short(descriptor, (off_t)offset, &rows)
                                   : scatter(descriptor, (off_t)offset, &rows);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&target);
    if (done < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyLong_FromSsize_t(done);
}

/* Bytes read; -1 and errno where the system refuses. Ends early where a range is cut short. */
static Py_ssize_t read_each(int descriptor, const int64_t *offsets, const int64_t *lengths, Py_ssize_t count, char *to)
{
    char *at = to;
    for (Py_ssize_t i = 0; i < count; i++)
        for (int64_t done = 0; done < lengths[i];) {
            ssize_t got = pread(descriptor, at, (size_t)(lengths[i] - done), (off_t)(offsets[i] + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                return -1;
            if (got == 0)
                return at - to;
            done += got;
            at += got;
        }
    return at - to;
}

/* Whether the ranges fill the target, and none is beyond what an offset can say. */
static int ranges_fit(const Py_buffer *offsets, const Py_buffer *lengths, Py_ssize_t room)
{
    const int64_t *from = offsets->buf, *many = lengths->buf;
    if (offsets->itemsize != sizeof(int64_t) || lengths->itemsize != sizeof(int64_t) || offsets->len != lengths->len)
        return 0;
    for (Py_ssize_t i = 0; i < offsets->len / (Py_ssize_t)sizeof(int64_t); i++) {
        if (from[i] < 0 || many[i] < 0 || many[i] > room || from[i] > INT64_MAX - many[i])
            return 0;
        room -= (Py_ssize_t)many[i];
    }
    return room == 0;
}

static PyObject *py_read_ranges(PyObject *module, PyObject *arguments)
{
    (void)module;
    int descriptor;
    PyObject *objects[3];
    if (!PyArg_ParseTuple(arguments, "iOOO", &descriptor, &objects[0], &objects[1], &objects[2]))
        return NULL;
    Py_buffer views[3];
    int view_count = 0;
    Py_ssize_t done = 0;
    for (; view_count < 3; view_count++)
        if (PyObject_GetBuffer(objects[view_count], &views[view_count], PyBUF_C_CONTIGUOUS | (view_count == 2 ? PyBUF_WRITABLE : 0)) < 0)
            break;
    int is_valid = view_count == 3;
    if (is_valid) {
        Py_BEGIN_ALLOW_THREADS
        is_valid = ranges_fit(&views[0], &views[1], views[2].len);
        if (is_valid)
            done = read_each(descriptor, views[0].buf, views[1].buf, views[0].len / (Py_ssize_t)sizeof(int64_t),
                             views[2].buf);
        Py_END_ALLOW_THREADS
        if (!is_valid)
            PyErr_SetString(PyExc_ValueError, "the ranges, int64 offsets and lengths, do not fill the target");
    }
    while (view_count)
        PyBuffer_Release(&views[--view_count]);
    if (!is_valid)
        return NULL;
    return done < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t(done);
}

static PyMethodDef methods[] = {
    {"read_scattered", py_read_scattered, METH_VARARGS,
     "read_scattered(descriptor, offset, target)\n--\n\nFill an array, strided or not, from a file; the number of bytes read."},
    {"read_ranges", py_read_ranges, METH_VARARGS,
     "read_ranges(descriptor, offsets, lengths, target)\n--\n\n"
     "Read ranges of a file, one behind the other, into a buffer; the number of bytes read."},
    {NULL, NULL, 0, NULL},
};

MODULE_DEFINITION("_scatter", "Reads that go to the rows of an array.");

PyMODINIT_FUNC PyInit__scatter(void)
{
    return PyModuleDef_Init(&definition);
}
