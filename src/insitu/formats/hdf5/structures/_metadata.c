/* Metadata of HDF5 files that is in memory.
 *
 *   read_objects(head, numbers, addresses, known, indexed, deep, link)
 *                                     groups, datasets and named types, with links, attributes and chunks
 *   full_leaf(data, base, offset_size, size, room, grid, chunk)
 *                                     the chunks of a dataset whose B-tree is one leaf that holds the whole grid
 *   collection_objects(data, length_size)
 *                                     the objects of a global heap collection
 *   lookup3(data)                     Jenkins' checksum, which version 2 structures end with
 *
 * The parser (_objects.c) knows no Python and runs without the GIL; here its tables become objects. The functions return
 * None for what is not plain or not sound, `read_objects` for each object: the Python parser beside their caller reads
 * that, and says what is wrong.
 */
#include "../../../_extension_module.h"

#include <stdint.h>
#include <string.h>

#include "_objects.h"

enum { LONG_TEXT = 16 << 10 }; /* bytes whose checksum takes longer than to give up the GIL */

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

static int take_bytes(PyObject *given, const uint8_t **data, size_t *length)
{
    char *bytes;
    Py_ssize_t count;
    if (PyBytes_AsStringAndSize(given, &bytes, &count) < 0)
        return 0;
    *data = (const uint8_t *)bytes;
    *length = (size_t)count;
    return 1;
}

/* Numbers of a tuple; how many, or -1. */
static int take_numbers(PyObject *given, uint64_t *out, int most)
{
    if (!PyTuple_Check(given) || PyTuple_Size(given) > most) {
        PyErr_Format(PyExc_ValueError, "expected a tuple of at most %d numbers", most);
        return -1;
    }
    int count = (int)PyTuple_Size(given);
    for (int i = 0; i < count; i++) {
        out[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(given, i));
        if (PyErr_Occurred())
            return -1;
    }
    return count;
}

static int has_widths(const file_head *file)
{
    if (file->offset_size >= 1 && file->offset_size <= 8 && file->length_size >= 1 && file->length_size <= 8 &&
        file->size <= INT64_MAX && file->base <= INT64_MAX)
        return 1;
    PyErr_SetString(PyExc_ValueError, "a number is out of range: addresses and lengths have 1 to 8 bytes");
    return 0;
}

/* ---- lookup3 ------------------------------------------------------------------------------------------------------ */

static PyObject *py_lookup3(PyObject *self, PyObject *data)
{
    Py_buffer view;
    uint32_t sum;
    (void)self;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    size_t length = (size_t)view.len;
    if (length < LONG_TEXT) {
        sum = lookup3(view.buf, length, length);
    } else {
        Py_BEGIN_ALLOW_THREADS
        sum = lookup3(view.buf, length, length);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(sum);
}

/* ---- objects ------------------------------------------------------------------------------------------------------- */

static PyObject *bytes_of_text(const object_scan *all, size_t at, size_t length)
{
    return PyBytes_FromStringAndSize(length ? (const char *)all->text.items + at : "", (Py_ssize_t)length);
}

static PyObject *text_of(span name)
{
    return PyUnicode_DecodeUTF8((const char *)name.data, (Py_ssize_t)name.length, "surrogateescape");
}

/* An instance of a named tuple; takes the items, of which one may be NULL. */
static PyObject *named_tuple(PyTypeObject *type, newfunc make, PyObject *const *items, int count)
{
    PyObject *inner = PyTuple_New(count), *args = NULL, *made = NULL;
    int complete = inner != NULL;
    for (int i = 0; i < count; i++) {
        complete = complete && items[i] != NULL;
        if (inner != NULL && items[i] != NULL)
            PyTuple_SetItem(inner, i, items[i]); /* which takes it */
        else
            Py_XDECREF(items[i]);
    }
    if (complete)
        args = PyTuple_Pack(1, inner);
    if (args)
        made = make(type, args, NULL);
    Py_XDECREF(args);
    Py_XDECREF(inner);
    return made;
}

/* The links of a group: name, address, path, outside, order. */
static PyObject *list_of_links(const object_scan *all, const object *one, PyTypeObject *type, newfunc make)
{
    PyObject *list = PyList_New((Py_ssize_t)one->links);
    const group_link *links = (const group_link *)all->links.items + one->first_link;
    for (size_t i = 0; list != NULL && i < one->links; i++) {
        int soft = links[i].path.data != NULL;
        PyObject *items[5] = {
            text_of(links[i].name),
            soft ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(links[i].address),
            soft ? text_of(links[i].path) : Py_NewRef(Py_None),
            Py_NewRef(Py_None),
            PyLong_FromUnsignedLongLong(links[i].order),
        };
        PyObject *link = named_tuple(type, make, items, 5);
        if (link == NULL || PyList_SetItem(list, (Py_ssize_t)i, link) < 0) /* which takes it */
            Py_CLEAR(list);
        share_gil(i);
    }
    return list;
}

enum { CELL_NUMBERS = sizeof(chunk_cell) / sizeof(int64_t), MANY_CELLS = 1024 };

/* How many bytes an integer needs to hold all of a number of the cells; 0 if it is the same in all of them. */
static size_t width_of_column(const int64_t *numbers, size_t count)
{
    int64_t low = *numbers, high = *numbers;
    for (size_t i = 1; i < count; i++) {
        int64_t value = numbers[i * CELL_NUMBERS];
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    if (low == high)
        return 0;
    if (low >= INT8_MIN && high <= INT8_MAX)
        return 1;
    return low >= INT16_MIN && high <= INT16_MAX ? 2 : low >= INT32_MIN && high <= INT32_MAX ? 4 : 8;
}

#define FILL_COLUMN(type)                                                                                              \
    for (size_t i = 0; i < count; i++) {                                                                               \
        type value = (type)numbers[i * CELL_NUMBERS];                                                                  \
        memcpy(to + i * sizeof value, &value, sizeof value);                                                           \
    }

static void fill_column(const int64_t *numbers, size_t count, size_t width, char *to)
{
    if (width == 1) {
        FILL_COLUMN(int8_t)
    } else if (width == 2) {
        FILL_COLUMN(int16_t)
    } else if (width == 4) {
        FILL_COLUMN(int32_t)
    } else {
        FILL_COLUMN(int64_t)
    }
}

/* A number of all cells: the number if it is always the same, else bytes of the narrowest integers that hold all. Nobody
 * else has the bytes yet, so they are filled without the GIL if they are many. */
static PyObject *column_of_cells(const int64_t *numbers, size_t count)
{
    int many = count >= MANY_CELLS;
    PyThreadState *state = many ? PyEval_SaveThread() : NULL;
    size_t width = width_of_column(numbers, count);
    if (many)
        PyEval_RestoreThread(state);
    if (width == 0)
        return PyLong_FromLongLong(*numbers);
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(width * count));
    char *to = found == NULL ? NULL : PyBytes_AsString(found);
    if (to == NULL)
        return NULL;
    state = many ? PyEval_SaveThread() : NULL;
    fill_column(numbers, count, width, to);
    if (many)
        PyEval_RestoreThread(state);
    return found;
}

/* A tuple of such columns: offsets, lengths and filter masks. */
static PyObject *columns_of_cells(const chunk_cell *cells, size_t count)
{
    PyObject *found = PyTuple_New(CELL_NUMBERS);
    for (int i = 0; found != NULL && i < CELL_NUMBERS; i++) {
        PyObject *column = column_of_cells(&cells->offset + i, count);
        if (column == NULL || PyTuple_SetItem(found, i, column) < 0) /* which takes it */
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *tuple_of_values(const object_scan *all, const object *one)
{
    PyObject *found = PyTuple_New((Py_ssize_t)one->values);
    const span *values = (const span *)all->values.items + one->first_value;
    for (size_t i = 0; found != NULL && i < one->values; i++) {
        PyObject *value = PyBytes_FromStringAndSize((const char *)values[i].data, (Py_ssize_t)values[i].length);
        if (value == NULL || PyTuple_SetItem(found, (Py_ssize_t)i, value) < 0) /* which takes it */
            Py_CLEAR(found);
        share_gil(i);
    }
    return found;
}

/* An object as (kind, address, description, place, cells, attributes, values); None for what it does not have. */
static PyObject *tuple_of_object(const object_scan *all, const object *one, PyTypeObject *link, newfunc make)
{
    int described = one->kind == DATASET || one->kind == NAMED_TYPE, attributed = one->kind == DATASET || one->kind == GROUP;
    PyObject *items[7] = {
        PyLong_FromLong(one->kind),
        PyLong_FromUnsignedLongLong(one->address),
        described            ? bytes_of_text(all, one->description, one->described)
        : one->kind == GROUP ? list_of_links(all, one, link, make)
                             : Py_NewRef(Py_None),
        one->kind == DATASET && one->data_address != all->file.undefined ? PyLong_FromUnsignedLongLong(one->data_address)
                                                                         : Py_NewRef(Py_None),
        one->cells ? columns_of_cells((const chunk_cell *)all->cells.items + one->first_cell, one->cells)
                   : Py_NewRef(Py_None),
        attributed ? bytes_of_text(all, one->attributes, one->attribute_bytes) : Py_NewRef(Py_None),
        one->values ? tuple_of_values(all, one) : PyTuple_New(0),
    };
    return named_tuple(&PyTuple_Type, make, items, 7);
}

/* Note the addresses of a list. */
static int take_addresses(object_scan *all, PyObject *list, int wanted)
{
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "addresses are a list");
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        PyObject *item = PyList_GetItem(list, i);
        uint64_t address = item == NULL ? 0 : PyLong_AsUnsignedLongLong(item);
        if (PyErr_Occurred())
            return 0;
        if (add_address(all, address, wanted) < 0) {
            PyErr_NoMemory();
            return 0;
        }
        share_gil((size_t)i);
    }
    return 1;
}

static PyObject *list_of_objects(const object_scan *all, PyTypeObject *link)
{
    newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *found = PyList_New((Py_ssize_t)all->objects.count);
    const object *objects = all->objects.items;
    for (size_t i = 0; found != NULL && i < all->objects.count; i++) {
        PyObject *one = tuple_of_object(all, &objects[i], link, make);
        if (one == NULL || PyList_SetItem(found, (Py_ssize_t)i, one) < 0) /* which takes it */
            Py_CLEAR(found);
        share_gil(i);
    }
    return found;
}

static PyObject *py_read_objects(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    object_scan all = {.indexed = 0};
    file_head *file = &all.file;
    uint64_t numbers[7];
    size_t length;
    (void)self;
    if (!has_arguments(given, 7, "read_objects") || !take_bytes(args[0], &file->data, &length))
        return NULL;
    int count = take_numbers(args[1], numbers, 7);
    all.indexed = PyObject_IsTrue(args[4]);
    all.deep = PyObject_IsTrue(args[5]);
    if (count < 0 || all.indexed < 0 || all.deep < 0)
        return NULL;
    if (count != 7 || !PyType_Check(args[6]) || !PyType_IsSubtype((PyTypeObject *)args[6], &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "read_objects takes seven numbers, and a type of tuples for links");
        return NULL;
    }
    file->length = length;
    file->size = numbers[0];
    file->base = numbers[1];
    file->offset_size = (size_t)numbers[2];
    file->length_size = (size_t)numbers[3];
    file->leaf_room = numbers[4];
    file->node_room = numbers[5];
    file->chunk_room = numbers[6];
    if (!has_widths(file))
        return NULL;
    if (length > file->size || file->leaf_room > UINT32_MAX || file->node_room > UINT32_MAX || file->chunk_room > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the head is longer than its file, or a node has too much room");
        return NULL;
    }
    file->undefined = undefined_address(file->offset_size);
    file->budget = 64 * file->length + (1 << 20);
    PyObject *found = NULL;
    if (take_addresses(&all, args[3], 0) && take_addresses(&all, args[2], 1)) {
        Py_BEGIN_ALLOW_THREADS
        read_objects(&all);
        Py_END_ALLOW_THREADS
        found = list_of_objects(&all, (PyTypeObject *)args[6]);
    }
    free_scan(&all);
    return found;
}

/* ---- chunks in one leaf of a version 1 B-tree ------------------------------------------------------------------------ */

static PyObject *py_full_leaf(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    file_head file = {.length_size = 8};
    uint64_t grid[MAX_RANK], chunk[MAX_RANK];
    size_t length;
    const uint8_t *node;
    (void)self;
    if (!has_arguments(given, 7, "full_leaf") || !take_bytes(args[0], &node, &length))
        return NULL;
    file.base = PyLong_AsUnsignedLongLong(args[1]);
    file.offset_size = (size_t)PyLong_AsUnsignedLong(args[2]);
    file.size = PyLong_AsUnsignedLongLong(args[3]);
    file.chunk_room = PyLong_AsUnsignedLongLong(args[4]);
    if (PyErr_Occurred() || !has_widths(&file))
        return NULL;
    int rank = take_numbers(args[5], grid, MAX_RANK), ranks = rank < 0 ? -1 : take_numbers(args[6], chunk, MAX_RANK);
    if (ranks < 0)
        return NULL;
    if (ranks != rank) {
        PyErr_SetString(PyExc_ValueError, "the shapes differ in rank");
        return NULL;
    }
    file.undefined = undefined_address(file.offset_size);
    uint64_t count = leaf_cells(&file, rank, grid, node, length);
    if (count == 0)
        return Py_NewRef(Py_None);
    chunk_cell *cells = PyMem_Calloc((size_t)count, sizeof *cells);
    if (cells == NULL)
        return PyErr_NoMemory();
    int full;
    Py_BEGIN_ALLOW_THREADS
    full = full_leaf(&file, rank, grid, chunk, node, length, cells);
    Py_END_ALLOW_THREADS
    PyObject *found = full ? columns_of_cells(cells, (size_t)count) : Py_NewRef(Py_None);
    PyMem_Free(cells);
    return found;
}

/* ---- objects of a global heap collection (III.E) ------------------------------------------------------------------- */

enum { COLLECTION_HEADER = 16 };

/* Add one object to the dictionary; -1 for an error of Python's. */
static int add_heap_object(PyObject *objects, uint64_t index, const uint8_t *data, size_t size)
{
    PyObject *key = PyLong_FromUnsignedLongLong(index);
    PyObject *value = PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
    int done = key == NULL || value == NULL ? -1 : PyDict_SetItem(objects, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return done;
}

static PyObject *py_collection_objects(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    char *bytes;
    Py_ssize_t length;
    (void)self;
    if (!has_arguments(given, 2, "collection_objects") || PyBytes_AsStringAndSize(args[0], &bytes, &length) < 0)
        return NULL;
    size_t width = (size_t)PyLong_AsUnsignedLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    const uint8_t *data = (const uint8_t *)bytes;
    size_t end = (size_t)length;
    if (width != 2 && width != 4 && width != 8)
        return Py_NewRef(Py_None);
    PyObject *objects = PyDict_New();
    int done = objects == NULL ? -1 : 1;
    for (size_t at = COLLECTION_HEADER; done == 1 && end >= COLLECTION_HEADER && at <= end - COLLECTION_HEADER;) {
        uint64_t index = number(data + at, 2), size = number(data + at + 8, width);
        if (index == 0) /* the free space, which is last */
            break;
        at += COLLECTION_HEADER;
        if (size > end - at)
            done = 0;
        else if (add_heap_object(objects, index, data + at, (size_t)size) < 0)
            done = -1;
        else
            at += ((size_t)size + 7) / 8 * 8;
        share_gil((size_t)PyDict_Size(objects));
    }
    if (done == 1)
        return objects;
    Py_XDECREF(objects);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the module ------------------------------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"lookup3", py_lookup3, METH_O, "lookup3(data)\n--\n\nJenkins' checksum."},
    FASTCALL(read_objects,
             "read_objects(head, numbers, addresses, known, indexed, deep, link)\n--\n\n"
             "The objects at some addresses, and with `deep` those that they lead to, but for those that are `known`: tuples "
             "(kind, address, description, place, cells, attributes, values)."),
    FASTCALL(full_leaf,
             "full_leaf(data, base, offset_size, size, room, grid, chunk)\n--\n\n"
             "Offsets, lengths and filter masks of all cells of a grid: numbers that are the same for all, or bytes of the "
             "narrowest integers; None if the node has others."),
    FASTCALL(collection_objects,
             "collection_objects(data, length_size)\n--\n\n"
             "The objects of a global heap collection by number; None if one is cut off."),
    {NULL, NULL, 0, NULL},
};

MODULE_DEFINITION("_metadata", "HDF5 metadata that is in memory.");

PyMODINIT_FUNC PyInit__metadata(void) { return PyModuleDef_Init(&definition); }
