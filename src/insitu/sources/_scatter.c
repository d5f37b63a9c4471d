/* Scattered reads: fill a strided array from a file.
 *
 *   read_scattered(descriptor, offset, target)  ->  number of bytes read
 *
 * The bytes of the file are the elements of `target` in C order. The system copies them straight to
 * the rows (preadv with a list of them), so nothing is copied twice. Without this extension local.py
 * does the same by way of a small buffer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { MAX_DIMENSIONS = 32, ROWS = 1024 }; /* ROWS: no system takes more in one call (IOV_MAX) */

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
        done = scatter(descriptor, (off_t)offset, &rows);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&target);
    if (done < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyLong_FromSsize_t(done);
}

static PyMethodDef methods[] = {
    {"read_scattered", py_read_scattered, METH_VARARGS,
     "read_scattered(descriptor, offset, target)\n--\n\nFill an array, strided or not, from a file; the number of bytes read."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_scatter",
    .m_doc = "Reads that go to the rows of an array.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__scatter(void)
{
    return PyModuleDef_Init(&definition);
}
