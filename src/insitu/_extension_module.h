/* What the extension modules share: their definition, and the check of how many arguments a call has.
 *
 * MODULE_DEFINITION needs a table `methods` before it, and defines `definition` for PyModuleDef_Init. Every module
 * keeps its state in the arguments alone, so it may be imported by several interpreters and run without the GIL; the
 * slots that say so are not in the headers of 3.11 (multiple interpreters: 3.12, no GIL: 3.13). */
#ifndef INSITU_EXTENSION_MODULE_H
#define INSITU_EXTENSION_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyModuleDef_Slot module_slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

#define MODULE_DEFINITION(name, doc)                                                                                   \
    static struct PyModuleDef definition = {                                                                           \
        .m_base = PyModuleDef_HEAD_INIT,                                                                               \
        .m_name = name,                                                                                                \
        .m_doc = doc,                                                                                                  \
        .m_methods = methods,                                                                                          \
        .m_slots = module_slots,                                                                                       \
    }

/* A row of `methods`: a function of the vectorcall convention, by its C name without "py_". */
#define FASTCALL(name, doc) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, doc}

/* Let other threads run now and then in a loop whose steps need the GIL: they take up to a microsecond each, and nobody is
 * to wait for a hundred. What a step borrows from a list may be gone afterwards. */
static inline void share_gil(size_t step)
{
    if (step % 64 == 63) {
        Py_BEGIN_ALLOW_THREADS
        Py_END_ALLOW_THREADS
    }
}

static inline int has_arguments(Py_ssize_t given, Py_ssize_t expected, const char *function)
{
    if (given == expected)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", function, expected, given);
    return 0;
}

#endif
