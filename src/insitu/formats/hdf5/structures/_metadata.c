/* Parser of the metadata structures that every HDF5 file has many of, from bytes that are in memory.
 *
 *   lookup3(data)                     Jenkins' checksum, which version 2 structures end with
 *   header_messages(head, base, widths, address, message)
 *                                     the messages of an object header, continuation blocks included
 *   heap_objects(head, base, widths, heap, tree, kind)
 *                                     the links or attributes of an object that lie in a fractal heap
 *   attribute_bodies(head, base, widths, messages, skipped)
 *                                     the attribute messages of an object, wherever they lie, in creation order
 *   full_leaf(data, base, offset_size, size, room, grid, chunk)
 *                                     the chunks of a dataset whose B-tree is one leaf that holds the whole grid
 *
 * `head` are the first bytes of the file, `widths` is 256 * offset_size + length_size. The functions return None for
 * whatever is not at hand, not plain or not sound: the Python parser beside their caller reads that, and says what is
 * wrong. So nothing is decided here about damaged files, but no field is trusted before its bounds are checked.
 * Sections of the format specification 3.0 are those that the Python parsers name.
 */
#include "../../../_extension_module.h"

#include <stdint.h>
#include <string.h>

enum { MAX_CONTINUATIONS = 64, MAX_NODES = 64, MAX_BLOCKS = 64, MAX_ROWS = 64, MAX_RANK = 32 };
enum { ATTRIBUTE = 0x0c, CONTINUATION = 0x10, ATTRIBUTE_INFO = 0x15, LAST_KNOWN_MESSAGE = 0x18 };

/* ---- bytes -------------------------------------------------------------------------------------------------------- */

static uint64_t number(const uint8_t *at, size_t width)
{
    uint64_t value = 0;
    while (width--)
        value = value << 8 | at[width];
    return value;
}

static unsigned bit_length(uint64_t value)
{
    unsigned bits = 0;
    for (; value; value >>= 1)
        bits++;
    return bits;
}

static size_t bytes_of(uint64_t value) { return (bit_length(value) + 7) / 8; }

/* The address that means: nowhere. */
static uint64_t undefined_address(size_t width) { return width == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * width) - 1; }

/* What is in memory of a file: its first `length` bytes. Addresses count from `base`. */
typedef struct {
    const uint8_t *data;
    uint64_t length, base, undefined;
    size_t offset_size, length_size;
} file_head;

static const uint8_t *find(const file_head *file, uint64_t address, uint64_t length)
{
    if (address >= file->undefined || file->base > file->length || address > file->length - file->base ||
        length > file->length - file->base - address)
        return NULL;
    return file->data + file->base + address;
}

/* ---- lookup3 ------------------------------------------------------------------------------------------------------ */

#define ROTATE(x, k) ((x) << (k) | (x) >> (32 - (k)))

/* The checksum of `length` bytes, of which the four at `hole` count as zero (where a block holds its own checksum).
 * Without a hole, `hole` is `length`. */
static uint32_t lookup3(const uint8_t *data, size_t length, size_t hole)
{
    uint32_t a = 0xdeadbeef + (uint32_t)length, b = a, c = a;
    for (size_t at = 0; at < length; at += 12) {
        size_t left = length - at;
        uint8_t group[12] = {0};
        memcpy(group, data + at, left < 12 ? left : 12);
        for (size_t i = hole; i < hole + 4; i++)
            if (i >= at && i < at + 12)
                group[i - at] = 0;
        a += (uint32_t)number(group, 4);
        b += (uint32_t)number(group + 4, 4);
        c += (uint32_t)number(group + 8, 4);
        if (left > 12) {
            a -= c; a ^= ROTATE(c, 4); c += b;
            b -= a; b ^= ROTATE(a, 6); a += c;
            c -= b; c ^= ROTATE(b, 8); b += a;
            a -= c; a ^= ROTATE(c, 16); c += b;
            b -= a; b ^= ROTATE(a, 19); a += c;
            c -= b; c ^= ROTATE(b, 4); b += a;
        } else {
            c ^= b; c -= ROTATE(b, 14);
            a ^= c; a -= ROTATE(c, 11);
            b ^= a; b -= ROTATE(a, 25);
            c ^= b; c -= ROTATE(b, 16);
            a ^= c; a -= ROTATE(c, 4);
            b ^= a; b -= ROTATE(a, 14);
            c ^= b; c -= ROTATE(b, 24);
        }
    }
    return c;
}

/* Whether the last four of `length` bytes are the checksum of those before. */
static int is_sound(const uint8_t *data, size_t length)
{
    return length >= 4 && lookup3(data, length - 4, length - 4) == (uint32_t)number(data + length - 4, 4);
}

static PyObject *py_lookup3(PyObject *self, PyObject *data)
{
    Py_buffer view;
    (void)self;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t sum = lookup3(view.buf, (size_t)view.len, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(sum);
}

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

static int take_file(PyObject *const *args, file_head *file)
{
    char *data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(args[0], &data, &length) < 0)
        return -1;
    file->data = (const uint8_t *)data;
    file->length = (uint64_t)length;
    file->base = PyLong_AsUnsignedLongLong(args[1]);
    unsigned long widths = PyLong_AsUnsignedLong(args[2]);
    if (PyErr_Occurred())
        return -1;
    file->offset_size = widths >> 8;
    file->length_size = widths & 255;
    if (file->offset_size < 1 || file->offset_size > 8 || file->length_size < 1 || file->length_size > 8) {
        PyErr_SetString(PyExc_ValueError, "addresses and lengths have 1 to 8 bytes");
        return -1;
    }
    file->undefined = undefined_address(file->offset_size);
    return 0;
}

/* An address that has more than 64 bits lies nowhere. */
static int take_address(PyObject *value, uint64_t *address)
{
    *address = PyLong_AsUnsignedLongLong(value);
    if (!PyErr_Occurred())
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    *address = UINT64_MAX;
    return 0;
}

/* ---- object headers (IV.A.1) --------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *list;
    PyTypeObject *message;
    newfunc make;
    struct { uint64_t address, length; } waiting[MAX_CONTINUATIONS];
    int count;
} messages;

/* Add one message to the list: an instance of a named tuple (kind, flags, body, order, place). */
static int add_message(messages *to, unsigned kind, unsigned flags, const uint8_t *body, size_t length, unsigned order,
                       uint64_t place)
{
    PyObject *fields[5] = {
        PyLong_FromUnsignedLong(kind),
        PyLong_FromUnsignedLong(flags),
        PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)length),
        PyLong_FromUnsignedLong(order),
        PyLong_FromUnsignedLongLong(place),
    };
    PyObject *made = NULL, *inner = NULL, *args = NULL;
    if (fields[0] && fields[1] && fields[2] && fields[3] && fields[4])
        inner = PyTuple_Pack(5, fields[0], fields[1], fields[2], fields[3], fields[4]);
    for (int i = 0; i < 5; i++)
        Py_XDECREF(fields[i]);
    if (inner)
        args = PyTuple_Pack(1, inner);
    if (args)
        made = to->make(to->message, args, NULL);
    Py_XDECREF(args);
    Py_XDECREF(inner);
    int failed = made == NULL || PyList_Append(to->list, made) < 0;
    Py_XDECREF(made);
    return failed ? -1 : 1;
}

/* Note where the next block of the header lies; 0 if it was met already, or there are too many. */
static int add_continuation(const file_head *file, messages *to, const uint8_t *body, size_t length)
{
    if (length < file->offset_size + file->length_size || to->count == MAX_CONTINUATIONS)
        return 0;
    uint64_t address = number(body, file->offset_size);
    for (int i = 0; i < to->count; i++)
        if (to->waiting[i].address == address)
            return 0;
    to->waiting[to->count].address = address;
    to->waiting[to->count++].length = number(body + file->offset_size, file->length_size);
    return 1;
}

/* Messages from `at` to `end` of a block at `address`: 1, or 0 if they are not plain, or -1 with an exception. */
static int parse_block(const file_head *file, messages *to, const uint8_t *block, size_t at, size_t end, int version,
                       int tracked, uint64_t address)
{
    size_t prefix = version == 1 ? 8 : tracked ? 6 : 4;
    while (at + prefix <= end) { /* what is shorter than a message's prefix is a gap */
        const uint8_t *head = block + at;
        unsigned kind = version == 1 ? (unsigned)number(head, 2) : head[0];
        size_t length = (size_t)number(head + (version == 1 ? 2 : 1), 2);
        unsigned flags = head[version == 1 ? 4 : 3];
        unsigned order = version == 2 && tracked ? (unsigned)number(head + 4, 2) : 0;
        size_t begin = at + prefix;
        if (length > end - begin || (kind > LAST_KNOWN_MESSAGE && flags & 0x80))
            return 0;
        int done = 1;
        if (kind == CONTINUATION)
            done = add_continuation(file, to, block + begin, length);
        else if (kind)
            done = add_message(to, kind, flags, block + begin, length, order, address + begin);
        if (done != 1)
            return done;
        at = begin + length;
    }
    return 1;
}

static int parse_header(const file_head *file, messages *to, uint64_t address)
{
    const uint8_t *data = find(file, address, 16);
    if (data == NULL)
        return 0;
    uint64_t left = file->length - (uint64_t)(data - file->data);
    int version = memcmp(data, "OHDR", 4) == 0 ? 2 : 1, tracked = 0;
    int done;
    if (version == 2) {
        size_t begin = 6 + (data[5] & 0x20 ? 16 : 0) + (data[5] & 0x10 ? 4 : 0), width = (size_t)1 << (data[5] & 3);
        if (data[4] != 2 || begin + width > left)
            return 0;
        uint64_t length = number(data + begin, width);
        begin += width;
        if (length > left || begin + length + 4 > left || !is_sound(data, begin + (size_t)length + 4))
            return 0;
        tracked = data[5] >> 2 & 1;
        done = parse_block(file, to, data, begin, begin + (size_t)length, 2, tracked, address);
    } else {
        uint64_t length = number(data + 8, 4);
        if (data[0] != 1 || 16 + length > left)
            return 0;
        done = parse_block(file, to, data, 16, 16 + (size_t)length, 1, 0, address);
    }
    for (int next = 0; done == 1 && next < to->count; next++) {
        uint64_t place = to->waiting[next].address, length = to->waiting[next].length;
        const uint8_t *block = find(file, place, length);
        if (block == NULL)
            return 0;
        if (version == 1) {
            done = parse_block(file, to, block, 0, (size_t)length, 1, 0, place);
            continue;
        }
        if (length < 8 || memcmp(block, "OCHK", 4) != 0 || !is_sound(block, (size_t)length))
            return 0;
        done = parse_block(file, to, block, 4, (size_t)length - 4, 2, tracked, place);
    }
    return done;
}

static PyObject *py_header_messages(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    file_head file;
    uint64_t address;
    (void)self;
    if (!has_arguments(given, 5, "header_messages") || take_file(args, &file) < 0 || take_address(args[3], &address) < 0)
        return NULL;
    messages to = {.message = (PyTypeObject *)args[4], .make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new)};
    if (!PyType_Check(args[4]) || !PyType_IsSubtype(to.message, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "messages are tuples");
        return NULL;
    }
    to.list = PyList_New(0);
    if (to.list == NULL)
        return NULL;
    int done = parse_header(&file, &to, address);
    if (done == 1)
        return to.list;
    Py_DECREF(to.list);
    if (done < 0)
        return NULL;
    return Py_NewRef(Py_None);
}

/* ---- fractal heaps (III.F) and the version 2 B-trees of their names (III.A.2) ---------------------------------------- */

/* The records of a tree, node by node: the root comes first. */
typedef struct {
    size_t record_size;
    uint64_t node_size;
    unsigned kind;
    struct { uint64_t address; const uint8_t *records; size_t count; } nodes[MAX_NODES];
    int count;
} name_tree;

/* Add a node, whose checksum lies behind `more` bytes that follow its records. */
static const uint8_t *add_node(const file_head *file, name_tree *tree, const char *signature, uint64_t address,
                               uint64_t count, uint64_t more)
{
    uint64_t used = 6 + count * tree->record_size + more + 4;
    const uint8_t *node = find(file, address, tree->node_size);
    if (node == NULL || tree->count == MAX_NODES || used > tree->node_size || memcmp(node, signature, 4) != 0 ||
        node[5] != tree->kind || !is_sound(node, (size_t)used))
        return NULL;
    for (int i = 0; i < tree->count; i++)
        if (tree->nodes[i].address == address)
            return NULL;
    tree->nodes[tree->count].address = address;
    tree->nodes[tree->count].records = node + 6;
    tree->nodes[tree->count++].count = (size_t)count;
    return node;
}

/* Add the leaves below a root that is no leaf itself: their addresses and numbers of records follow its own records. */
static int add_leaves(const file_head *file, name_tree *tree, uint64_t root, uint64_t count, uint64_t *total)
{
    size_t width = bytes_of((tree->node_size - 10) / tree->record_size), step;
    width = width ? width : 1;
    step = file->offset_size + width;
    const uint8_t *node = add_node(file, tree, "BTIN", root, count, (count + 1) * step);
    if (node == NULL)
        return 0;
    const uint8_t *child = node + 6 + count * tree->record_size;
    for (uint64_t i = 0; i <= count; i++, child += step) {
        uint64_t records = number(child + file->offset_size, width);
        *total += records;
        if (records && add_node(file, tree, "BTLF", number(child, file->offset_size), records, 0) == NULL)
            return 0;
    }
    return 1;
}

/* All records of a tree of at most two levels. */
static int open_tree(const file_head *file, uint64_t address, unsigned kind, name_tree *tree)
{
    size_t length = 22 + file->offset_size + file->length_size;
    const uint8_t *head = find(file, address, length);
    if (head == NULL || memcmp(head, "BTHD", 4) != 0 || head[4] != 0 || head[5] != kind || !is_sound(head, length))
        return 0;
    uint64_t root = number(head + 16, file->offset_size), count = number(head + 16 + file->offset_size, 2);
    uint64_t depth = number(head + 12, 2), total = count;
    tree->kind = kind;
    tree->node_size = number(head + 6, 4);
    tree->record_size = (size_t)number(head + 10, 2);
    tree->count = 0;
    if (count == 0 || depth > 1 || tree->record_size < (kind == 5 ? 11 : 17) ||
        tree->node_size < 10 + tree->record_size)
        return 0;
    int done = depth ? add_leaves(file, tree, root, count, &total) : add_node(file, tree, "BTLF", root, count, 0) != NULL;
    return done && total == number(head + 18 + file->offset_size, file->length_size);
}

typedef struct {
    size_t offset_bytes, length_bytes;
    uint64_t width, first, root;
    unsigned rows;
    int checked;
    const uint8_t *indirect; /* the children of the root, if it is an indirect block */
    uint64_t starts[MAX_ROWS + 1];
    struct { uint64_t child; const uint8_t *data; } known[MAX_BLOCKS];
    int count;
} fractal_heap;

static int open_heap(const file_head *file, uint64_t address, fractal_heap *heap)
{
    size_t ow = file->offset_size, lw = file->length_size, length = 26 + 12 * lw + 3 * ow;
    const uint8_t *head = find(file, address, length);
    if (head == NULL || memcmp(head, "FRHP", 4) != 0 || head[4] != 0 || number(head + 7, 2) != 0 ||
        !is_sound(head, length))
        return 0; /* (a heap with filters has a longer header) */
    const uint8_t *table = head + 14 + 10 * lw + 2 * ow;
    uint64_t most = number(head + 10, 4), largest = number(table + 2 + lw, lw), bits = number(table + 2 + 2 * lw, 2);
    heap->checked = head[9] >> 1 & 1;
    heap->width = number(table, 2);
    heap->first = number(table + 2, lw);
    heap->root = number(table + 6 + 2 * lw, ow);
    heap->rows = (unsigned)number(table + 6 + 2 * lw + ow, 2);
    heap->offset_bytes = (size_t)(bits + 7) / 8;
    heap->length_bytes = bytes_of(largest) < bytes_of(most) ? bytes_of(largest) : bytes_of(most);
    heap->count = 0;
    heap->indirect = NULL;
    if (!heap->width || !heap->first || heap->first & (heap->first - 1) || largest & (largest - 1) ||
        largest < heap->first || largest > (uint64_t)1 << 32 || bits < 1 || bits > 64)
        return 0;
    if (heap->rows == 0)
        return 1;
    /* Rows beyond these hold indirect blocks. */
    unsigned direct_rows = bit_length(largest) - bit_length(heap->first) + 2;
    if (heap->rows > direct_rows || heap->rows > MAX_ROWS)
        return 0;
    uint64_t size = 9 + ow + heap->offset_bytes + heap->rows * heap->width * ow;
    const uint8_t *block = find(file, heap->root, size);
    if (block == NULL || memcmp(block, "FHIB", 4) != 0 || !is_sound(block, (size_t)size))
        return 0;
    heap->indirect = block + 5 + ow + heap->offset_bytes;
    heap->starts[0] = 0;
    for (unsigned row = 0; row < heap->rows; row++)
        heap->starts[row + 1] = heap->starts[row] + heap->width * (heap->first << (row ? row - 1 : 0));
    return 1;
}

/* A direct block, checked once. */
static const uint8_t *find_block(const file_head *file, fractal_heap *heap, uint64_t child, uint64_t address, uint64_t size)
{
    for (int i = 0; i < heap->count; i++)
        if (heap->known[i].child == child)
            return heap->known[i].data;
    const uint8_t *block = find(file, address, size);
    size_t hole = 5 + file->offset_size + heap->offset_bytes;
    if (block == NULL || heap->count == MAX_BLOCKS || size < hole + 4 || memcmp(block, "FHDB", 4) != 0 ||
        (heap->checked && lookup3(block, (size_t)size, hole) != (uint32_t)number(block + hole, 4)))
        return NULL;
    heap->known[heap->count].child = child;
    heap->known[heap->count++].data = block;
    return block;
}

/* The object with an id of `room` bytes. */
static const uint8_t *find_object(const file_head *file, fractal_heap *heap, const uint8_t *id, size_t room, size_t *length)
{
    if (id[0] >> 4 || 1 + heap->offset_bytes + heap->length_bytes > room)
        return NULL; /* huge and tiny objects lie elsewhere */
    uint64_t start = number(id + 1, heap->offset_bytes), size = heap->first, child = 0, address = heap->root;
    *length = (size_t)number(id + 1 + heap->offset_bytes, heap->length_bytes);
    if (heap->indirect != NULL) {
        unsigned row = 0;
        while (row < heap->rows && start >= heap->starts[row + 1])
            row++;
        if (row == heap->rows)
            return NULL;
        size = heap->first << (row ? row - 1 : 0);
        start -= heap->starts[row];
        child = row * heap->width + start / size;
        start %= size;
        address = number(heap->indirect + child * file->offset_size, file->offset_size);
    }
    if (start > size || *length > size - start)
        return NULL;
    const uint8_t *block = find_block(file, heap, child, address, size);
    return block == NULL ? NULL : block + start;
}

/* Add (order, bytes) to the list. */
static int add_object(PyObject *list, unsigned long order, const uint8_t *body, size_t length)
{
    PyObject *first = PyLong_FromUnsignedLong(order), *item = NULL;
    PyObject *second = PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)length);
    if (first && second)
        item = PyTuple_Pack(2, first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* Add the object that a record names. Type 5: a hash of the name, the id of a link. Type 8: the id of an attribute,
 * flags, creation order, a hash. Objects do not overlap, so all together (`total`) are not longer than the file. */
static int add_named(const file_head *file, fractal_heap *heap, const uint8_t *record, unsigned kind, uint64_t *total,
                     PyObject *list)
{
    size_t length;
    if (kind == 8 && record[8] & 2)
        return 0; /* the message is shared: it lies in another heap */
    const uint8_t *body = find_object(file, heap, record + (kind == 5 ? 4 : 0), kind == 5 ? 7 : 8, &length);
    if (body == NULL || (*total += length) > file->length)
        return 0;
    return add_object(list, kind == 5 ? 0 : (unsigned long)number(record + 9, 4), body, length) < 0 ? -1 : 1;
}

static int add_all(const file_head *file, uint64_t address, const name_tree *tree, PyObject *list)
{
    fractal_heap heap;
    uint64_t total = 0;
    int done = open_heap(file, address, &heap);
    for (int node = 0; done == 1 && node < tree->count; node++)
        for (size_t i = 0; done == 1 && i < tree->nodes[node].count; i++)
            done = add_named(file, &heap, tree->nodes[node].records + i * tree->record_size, tree->kind, &total, list);
    return done;
}

static PyObject *py_heap_objects(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    file_head file;
    uint64_t heap, tree;
    name_tree names;
    (void)self;
    if (!has_arguments(given, 6, "heap_objects") || take_file(args, &file) < 0 || take_address(args[3], &heap) < 0 ||
        take_address(args[4], &tree) < 0)
        return NULL;
    unsigned long kind = PyLong_AsUnsignedLong(args[5]);
    if (PyErr_Occurred())
        return NULL;
    if (kind != 5 && kind != 8) {
        PyErr_SetString(PyExc_ValueError, "record types are 5 (links) and 8 (attributes)");
        return NULL;
    }
    if (!open_tree(&file, tree, (unsigned)kind, &names))
        return Py_NewRef(Py_None);
    PyObject *list = PyList_New(0);
    int done = list == NULL ? -1 : add_all(&file, heap, &names, list);
    if (done == 1)
        return list;
    Py_XDECREF(list);
    if (done < 0)
        return NULL;
    return Py_NewRef(Py_None);
}

/* ---- attribute messages (IV.A.2.m, IV.A.2.v) ----------------------------------------------------------------------- */

/* Add the attributes that an attribute info message leads to. */
static int add_dense(const file_head *file, const uint8_t *body, size_t length, PyObject *list)
{
    name_tree names;
    size_t at = length > 1 && body[1] & 1 ? 4 : 2, width = file->offset_size;
    if (length < at + 2 * width)
        return 0;
    uint64_t heap = number(body + at, width), tree = number(body + at + width, width);
    if (heap == file->undefined || tree == file->undefined)
        return 1;
    return open_tree(file, tree, 8, &names) ? add_all(file, heap, &names, list) : 0;
}

/* Add the attributes of one message of a header to a list of (order, bytes). */
static int add_attributes(const file_head *file, PyObject *message, PyObject *list)
{
    if (!PyTuple_Check(message) || PyTuple_Size(message) < 4) {
        PyErr_SetString(PyExc_TypeError, "messages are tuples (kind, flags, body, order, place)");
        return -1;
    }
    long kind = PyLong_AsLong(PyTuple_GetItem(message, 0)), flags = PyLong_AsLong(PyTuple_GetItem(message, 1));
    if (PyErr_Occurred())
        return -1;
    if (kind != ATTRIBUTE && kind != ATTRIBUTE_INFO)
        return 1;
    PyObject *body = PyTuple_GetItem(message, 2), *order = PyTuple_GetItem(message, 3);
    char *data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(body, &data, &length) < 0)
        return -1;
    if (kind == ATTRIBUTE_INFO)
        return add_dense(file, (const uint8_t *)data, (size_t)length, list);
    if (flags & 2)
        return 0; /* shared */
    PyObject *item = PyTuple_Pack(2, order, body);
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 1;
}

/* Whether an attribute message has a name: 1 or 0, or -1 if it is not sound. */
static int has_name(const uint8_t *body, size_t length, const char *name, size_t name_length)
{
    if (length < 8 || body[0] < 1 || body[0] > 3)
        return -1;
    size_t begin = body[0] == 3 ? 9 : 8, size = (size_t)number(body + 2, 2);
    size = size ? size - 1 : 0; /* the last byte is the closing zero */
    if (begin + size > length)
        return -1;
    const uint8_t *end = memchr(body + begin, 0, size);
    size = end == NULL ? size : (size_t)(end - body) - begin;
    return size == name_length && memcmp(body + begin, name, name_length) == 0;
}

/* The bodies of a sorted list of (order, bytes), without those of one name; NULL without an exception: not sound. */
static PyObject *take_bodies(PyObject *list, const char *name, size_t name_length)
{
    PyObject *bodies = PyList_New(0), *found = NULL;
    Py_ssize_t count = PyList_Size(list);
    int done = bodies == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; done >= 0 && i < count; i++) {
        PyObject *body = PyTuple_GetItem(PyList_GetItem(list, i), 1);
        done = has_name((const uint8_t *)PyBytes_AsString(body), (size_t)PyBytes_Size(body), name, name_length);
        if (done == 0 && PyList_Append(bodies, body) < 0)
            done = -1;
    }
    if (done >= 0)
        found = PyList_AsTuple(bodies);
    Py_XDECREF(bodies);
    return found;
}

/* Sort (order, bytes) by order; what has the same order stays as it is. */
static int sort_by_order(PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t i = 1; i < count; i++) {
        PyObject *item = PyList_GetItem(list, i);
        unsigned long order = PyLong_AsUnsignedLong(PyTuple_GetItem(item, 0));
        Py_ssize_t to = i;
        while (to > 0 && PyLong_AsUnsignedLong(PyTuple_GetItem(PyList_GetItem(list, to - 1), 0)) > order)
            to--;
        if (PyErr_Occurred())
            return -1;
        if (to == i)
            continue;
        Py_INCREF(item);
        int failed = PyList_SetSlice(list, i, i + 1, NULL) < 0 || PyList_Insert(list, to, item) < 0;
        Py_DECREF(item);
        if (failed)
            return -1;
    }
    return 0;
}

static PyObject *py_attribute_bodies(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    file_head file;
    char *name;
    Py_ssize_t name_length;
    (void)self;
    if (!has_arguments(given, 5, "attribute_bodies") || take_file(args, &file) < 0 ||
        PyBytes_AsStringAndSize(args[4], &name, &name_length) < 0)
        return NULL;
    if (!PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "the messages are a list");
        return NULL;
    }
    PyObject *list = PyList_New(0), *found = NULL;
    int done = list == NULL ? -1 : 1;
    for (Py_ssize_t i = 0; done == 1 && i < PyList_Size(args[3]); i++)
        done = add_attributes(&file, PyList_GetItem(args[3], i), list);
    if (done == 1 && sort_by_order(list) == 0)
        found = take_bodies(list, name, (size_t)name_length);
    Py_XDECREF(list);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* ---- chunks in one leaf of a version 1 B-tree (III.A.1) --------------------------------------------------------------- */

static int take_lengths(PyObject *given, uint64_t *out)
{
    if (!PyTuple_Check(given) || PyTuple_Size(given) > MAX_RANK) {
        PyErr_SetString(PyExc_ValueError, "shapes are tuples of at most 32 lengths");
        return -1;
    }
    int rank = (int)PyTuple_Size(given);
    for (int axis = 0; axis < rank; axis++) {
        out[axis] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(given, axis));
        if (PyErr_Occurred())
            return -1;
    }
    return rank;
}

typedef struct {
    int rank;
    uint64_t grid[MAX_RANK], chunk[MAX_RANK], base, size, room;
    size_t offset_size;
} chunked_dataset;

/* Fill the columns from a node; 0 unless it is a leaf with every cell of the grid in C order, all within the file. */
static int fill_columns(const chunked_dataset *of, const uint8_t *node, size_t count, int64_t *offset, int64_t *length,
                        int64_t *mask, int *masked)
{
    size_t key = 16 + 8 * (size_t)of->rank, step = key + of->offset_size;
    uint64_t index[MAX_RANK] = {0};
    const uint8_t *entry = node + 8 + 2 * of->offset_size;
    uint64_t undefined = undefined_address(of->offset_size);
    for (size_t i = 0; i < count; i++, entry += step) {
        for (int axis = 0; axis < of->rank; axis++)
            if (number(entry + 8 + 8 * axis, 8) != index[axis] * of->chunk[axis])
                return 0;
        uint64_t address = number(entry + key, of->offset_size), stored = number(entry, 4);
        if (number(entry + key - 8, 8) != 0 || address == undefined || of->base > of->size || address > of->size - of->base ||
            stored > of->size - of->base - address)
            return 0;
        offset[i] = (int64_t)(address + of->base);
        length[i] = (int64_t)stored;
        mask[i] = (int64_t)number(entry + 4, 4);
        *masked |= mask[i] != 0;
        for (int axis = of->rank - 1; axis >= 0 && ++index[axis] == of->grid[axis]; axis--)
            index[axis] = 0;
    }
    /* The key behind the last chunk is greater than its own. */
    for (size_t at = 8; at < key; at += 8) {
        uint64_t last = number(entry - step + at, 8), closing = number(entry + at, 8);
        if (last != closing)
            return closing > last;
    }
    return 0;
}

static PyObject *full_leaf(const chunked_dataset *of, const uint8_t *node, size_t available)
{
    uint64_t cells = 1, begin = 8 + 2 * of->offset_size, key = 16 + 8 * (uint64_t)of->rank;
    if (available < 8 || memcmp(node, "TREE\1\0", 6) != 0)
        return Py_NewRef(Py_None);
    uint64_t count = number(node + 6, 2);
    for (int axis = 0; axis < of->rank && cells <= count; axis++) {
        if (of->grid[axis] > count)
            return Py_NewRef(Py_None);
        cells *= of->grid[axis];
    }
    if (count == 0 || count > of->room || count != cells || begin + count * (key + of->offset_size) + key > available)
        return Py_NewRef(Py_None);
    PyObject *columns[3], *found = NULL;
    int masked = 0, done = 0;
    for (int i = 0; i < 3; i++)
        columns[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(8 * count));
    if (columns[0] && columns[1] && columns[2])
        done = fill_columns(of, node, (size_t)count, (int64_t *)PyBytes_AsString(columns[0]),
                            (int64_t *)PyBytes_AsString(columns[1]), (int64_t *)PyBytes_AsString(columns[2]), &masked);
    if (done)
        found = PyTuple_Pack(3, columns[0], columns[1], masked ? columns[2] : Py_None);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(columns[i]);
    if (found != NULL || PyErr_Occurred())
        return found;
    return Py_NewRef(Py_None);
}

static PyObject *py_full_leaf(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    chunked_dataset of;
    char *data;
    Py_ssize_t length;
    (void)self;
    if (!has_arguments(given, 7, "full_leaf") || PyBytes_AsStringAndSize(args[0], &data, &length) < 0)
        return NULL;
    of.base = PyLong_AsUnsignedLongLong(args[1]);
    of.offset_size = (size_t)PyLong_AsUnsignedLong(args[2]);
    of.size = PyLong_AsUnsignedLongLong(args[3]);
    of.room = PyLong_AsUnsignedLongLong(args[4]);
    if (PyErr_Occurred())
        return NULL;
    of.rank = take_lengths(args[5], of.grid);
    int rank = of.rank < 0 ? -1 : take_lengths(args[6], of.chunk);
    if (rank < 0)
        return NULL;
    if (rank != of.rank || of.offset_size < 1 || of.offset_size > 8 || of.size > INT64_MAX) {
        PyErr_SetString(PyExc_ValueError, "the shapes differ in rank, or a number is out of range");
        return NULL;
    }
    return full_leaf(&of, (const uint8_t *)data, (size_t)length);
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
    }
    if (done == 1)
        return objects;
    Py_XDECREF(objects);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the module ------------------------------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"lookup3", py_lookup3, METH_O, "lookup3(data)\n--\n\nJenkins' checksum."},
    FASTCALL(header_messages,
             "header_messages(head, base, widths, address, message)\n--\n\n"
             "The messages of an object header, as instances of the named tuple `message`; None if they are not plain."),
    FASTCALL(heap_objects,
             "heap_objects(head, base, widths, heap, tree, kind)\n--\n\n"
             "Creation order and bytes of the objects of a heap that a B-tree names; None if they are not plain."),
    FASTCALL(attribute_bodies,
             "attribute_bodies(head, base, widths, messages, skipped)\n--\n\n"
             "The attribute messages of an object in creation order, without those of the name `skipped`; None if they are "
             "not plain."),
    FASTCALL(full_leaf,
             "full_leaf(data, base, offset_size, size, room, grid, chunk)\n--\n\n"
             "Offsets, lengths and filter masks (None: all 0) of all cells of a grid, as int64; None if the node has others."),
    FASTCALL(collection_objects,
             "collection_objects(data, length_size)\n--\n\n"
             "The objects of a global heap collection by number; None if one is cut off."),
    {NULL, NULL, 0, NULL},
};

MODULE_DEFINITION("_metadata", "Parser of HDF5 metadata that is in memory.");

PyMODINIT_FUNC PyInit__metadata(void) { return PyModuleDef_Init(&definition); }
