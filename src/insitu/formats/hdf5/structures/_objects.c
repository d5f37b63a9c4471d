/* Parser of the objects of an HDF5 file whose metadata lies in memory: groups, datasets and named types, with their
 * links, attributes, the values of these in heaps, and chunk indexes that are one full leaf.
 *
 * Whatever is not at hand, not plain or not sound is left alone, object by object: the Python parser reads that, and says
 * what is wrong. So nothing is decided here about damaged files, but no field is trusted before its bounds are checked.
 * `find` is the only way to the bytes, and counts them: a file whose structures lead to each other again and again ends
 * the work, not the memory. Sections of the format specification 3.0 are those that the Python parsers name.
 */
#include "_objects.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CONTINUATIONS = 64, MAX_NODES = 64, MAX_BLOCKS = 64, MAX_ROWS = 64, MAX_LEVELS = 16 };
enum {
    DATASPACE = 0x01,
    LINK_INFO = 0x02,
    DATATYPE = 0x03,
    FILL_OLD = 0x04,
    FILL = 0x05,
    LINK = 0x06,
    EXTERNAL_FILES = 0x07,
    LAYOUT = 0x08,
    GROUP_INFO = 0x0a,
    FILTERS = 0x0b,
    ATTRIBUTE = 0x0c,
    CONTINUATION = 0x10,
    SYMBOL_TABLE = 0x11,
    ATTRIBUTE_INFO = 0x15,
    LAST_KNOWN_MESSAGE = 0x18
};
enum { SHARED = 2, COLLECTION_HEADER = 16, VARIABLE_LENGTH = 9 };

/* ---- bytes -------------------------------------------------------------------------------------------------------- */

uint64_t number(const uint8_t *at, size_t width)
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

static size_t padded(size_t length) { return (length + 7) / 8 * 8; }

/* The address that means: nowhere. */
uint64_t undefined_address(size_t width) { return width == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * width) - 1; }

static const uint8_t *find(file_head *file, uint64_t address, uint64_t length)
{
    if (address >= file->undefined || file->base > file->length || address > file->length - file->base ||
        length > file->length - file->base - address || length > file->budget)
        return NULL;
    file->budget -= length;
    return file->data + file->base + address;
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

/* Make room for `count` more items, and count them; NULL if there is no memory. */
static void *add_items(array *to, size_t count, size_t size)
{
    if (to->items == NULL || count > to->room - to->count) {
        size_t room = to->room ? 2 * to->room : 64;
        while (room - to->count < count)
            room *= 2;
        void *items = room > SIZE_MAX / size ? NULL : realloc(to->items, room * size);
        if (items == NULL)
            return NULL;
        to->items = items;
        to->room = room;
    }
    void *first = (char *)to->items + to->count * size;
    to->count += count;
    return first;
}

static int add_text(object_scan *all, const uint8_t *data, size_t length)
{
    uint8_t *to = length > all->file.budget ? NULL : add_items(&all->text, length, 1);
    if (to == NULL)
        return 0;
    all->file.budget -= length;
    if (length)
        memcpy(to, data, length);
    return 1;
}

/* Add bytes behind their length (four bytes); where they begin is put into `at`. */
static int add_sized_text(object_scan *all, const uint8_t *data, size_t length, size_t *at)
{
    uint8_t size[4] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16), (uint8_t)(length >> 24)};
    if (length > UINT32_MAX || !add_text(all, size, 4))
        return 0;
    *at = all->text.count;
    return add_text(all, data, length);
}

void free_scan(object_scan *all)
{
    array *arrays[] = {&all->objects,  &all->links,       &all->text,      &all->values, &all->cells,
                       &all->messages, &all->attributes,  &all->collections, &all->heap_rows, &all->nodes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]->items);
    free(all->known);
}

static size_t place_of(const object_scan *all, uint64_t key)
{
    size_t at = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (all->known_room - 1);
    while (all->known[at] && all->known[at] != key)
        at = (at + 1) & (all->known_room - 1);
    return at;
}

int add_address(object_scan *all, uint64_t address, int wanted)
{
    uint64_t key = address + 1; /* 0 is a free place; the greatest number, which no object has, shares it */
    if (2 * all->known_count >= all->known_room) {
        size_t room = all->known_room ? 2 * all->known_room : 256, old_room = all->known_room;
        uint64_t *old = all->known, *known = calloc(room, sizeof *known);
        if (known == NULL)
            return -1;
        all->known = known;
        all->known_room = room;
        for (size_t i = 0; i < old_room; i++)
            if (old[i])
                known[place_of(all, old[i])] = old[i];
        free(old);
    }
    size_t at = key ? place_of(all, key) : 0;
    if (key && all->known[at])
        return 0;
    if (wanted) {
        object *one = add_items(&all->objects, 1, sizeof *one);
        if (one == NULL)
            return -1;
        *one = (object){.address = address, .kind = NOT_PLAIN};
    }
    if (key) {
        all->known[at] = key;
        all->known_count++;
    }
    return 1;
}

/* ---- lookup3 ------------------------------------------------------------------------------------------------------ */

#define ROTATE(x, k) ((x) << (k) | (x) >> (32 - (k)))

/* The checksum of `length` bytes, of which the four at `hole` count as zero (where a block holds its own checksum).
 * Without a hole, `hole` is `length`. */
uint32_t lookup3(const uint8_t *data, size_t length, size_t hole)
{
    uint32_t a = 0xdeadbeef + (uint32_t)length, b = a, c = a;
    for (size_t at = 0; at < length; at += 12) {
        size_t left = length - at;
        uint8_t group[12] = {0};
        memcpy(group, data + at, left < 12 ? left : 12);
        if (at + 12 > hole)
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

/* ---- object headers (IV.A.1) --------------------------------------------------------------------------------------- */

typedef struct {
    unsigned kind, flags, order;
    span body;
} message;

typedef struct {
    struct { uint64_t address, length; } blocks[MAX_CONTINUATIONS];
    int count;
} continuations;

/* Note where the next block of the header lies; 0 if it was met already, or there are too many. */
static int add_continuation(const file_head *file, continuations *to, const uint8_t *body, size_t length)
{
    if (length < file->offset_size + file->length_size || to->count == MAX_CONTINUATIONS)
        return 0;
    uint64_t address = number(body, file->offset_size);
    for (int i = 0; i < to->count; i++)
        if (to->blocks[i].address == address)
            return 0;
    to->blocks[to->count].address = address;
    to->blocks[to->count++].length = number(body + file->offset_size, file->length_size);
    return 1;
}

/* Messages from `at` to `end` of a block. */
static int parse_block(object_scan *all, continuations *to, const uint8_t *block, size_t at, size_t end, int version,
                       int tracked)
{
    size_t prefix = version == 1 ? 8 : tracked ? 6 : 4;
    while (at + prefix <= end) { /* what is shorter than a message's prefix is a gap */
        const uint8_t *head = block + at;
        unsigned kind = version == 1 ? (unsigned)number(head, 2) : head[0];
        size_t length = (size_t)number(head + (version == 1 ? 2 : 1), 2);
        unsigned flags = head[version == 1 ? 4 : 3];
        size_t begin = at + prefix;
        if (length > end - begin || (kind > LAST_KNOWN_MESSAGE && flags & 0x80))
            return 0;
        if (kind == CONTINUATION) {
            if (!add_continuation(&all->file, to, block + begin, length))
                return 0;
        } else if (kind) {
            message *one = add_items(&all->messages, 1, sizeof *one);
            if (one == NULL)
                return 0;
            *one = (message){kind, flags, version == 2 && tracked ? (unsigned)number(head + 4, 2) : 0,
                             {block + begin, length}};
        }
        at = begin + length;
    }
    return 1;
}

/* The messages of the header at an address, continuation blocks included. */
static int parse_header(object_scan *all, uint64_t address)
{
    file_head *file = &all->file;
    continuations to = {.count = 0};
    const uint8_t *data = find(file, address, 16);
    int version, tracked = 0, done;
    all->messages.count = 0;
    if (data == NULL)
        return 0;
    if (memcmp(data, "OHDR", 4) == 0) {
        size_t begin = 6 + (data[5] & 0x20 ? 16 : 0) + (data[5] & 0x10 ? 4 : 0), width = (size_t)1 << (data[5] & 3);
        version = 2;
        tracked = data[5] >> 2 & 1;
        if (data[4] != 2 || (data = find(file, address, begin + width)) == NULL)
            return 0;
        uint64_t length = number(data + begin, width);
        begin += width;
        if (length > file->length || (data = find(file, address, begin + length + 4)) == NULL ||
            !is_sound(data, begin + (size_t)length + 4))
            return 0;
        done = parse_block(all, &to, data, begin, begin + (size_t)length, 2, tracked);
    } else {
        uint64_t length = number(data + 8, 4);
        version = 1;
        if (data[0] != 1 || (data = find(file, address, 16 + length)) == NULL)
            return 0;
        done = parse_block(all, &to, data, 16, 16 + (size_t)length, 1, 0);
    }
    for (int next = 0; done && next < to.count; next++) {
        uint64_t length = to.blocks[next].length;
        const uint8_t *block = find(file, to.blocks[next].address, length);
        if (block == NULL)
            return 0;
        if (version == 1)
            done = parse_block(all, &to, block, 0, (size_t)length, 1, 0);
        else
            done = length >= 8 && memcmp(block, "OCHK", 4) == 0 && is_sound(block, (size_t)length) &&
                   parse_block(all, &to, block, 4, (size_t)length - 4, 2, tracked);
    }
    return done;
}

/* The first message of a kind. */
static const message *find_message(const object_scan *all, unsigned kind)
{
    const message *messages = all->messages.items;
    for (size_t i = 0; i < all->messages.count; i++)
        if (messages[i].kind == kind)
            return &messages[i];
    return NULL;
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
static const uint8_t *add_node(file_head *file, name_tree *tree, const char *signature, uint64_t address, uint64_t count,
                               uint64_t more)
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
static int add_leaves(file_head *file, name_tree *tree, uint64_t root, uint64_t count, uint64_t *total)
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
static int open_tree(file_head *file, uint64_t address, unsigned kind, name_tree *tree)
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

static int open_heap(file_head *file, uint64_t address, fractal_heap *heap)
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
static const uint8_t *find_block(file_head *file, fractal_heap *heap, uint64_t child, uint64_t address, uint64_t size)
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
static int find_object(file_head *file, fractal_heap *heap, const uint8_t *id, size_t room, span *found)
{
    if (id[0] >> 4 || 1 + heap->offset_bytes + heap->length_bytes > room)
        return 0; /* huge and tiny objects lie elsewhere */
    uint64_t start = number(id + 1, heap->offset_bytes), size = heap->first, child = 0, address = heap->root;
    found->length = (size_t)number(id + 1 + heap->offset_bytes, heap->length_bytes);
    if (heap->indirect != NULL) {
        unsigned row = 0;
        while (row < heap->rows && start >= heap->starts[row + 1])
            row++;
        if (row == heap->rows)
            return 0;
        size = heap->first << (row ? row - 1 : 0);
        start -= heap->starts[row];
        child = row * heap->width + start / size;
        start %= size;
        address = number(heap->indirect + child * file->offset_size, file->offset_size);
    }
    if (start > size || found->length > size - start)
        return 0;
    const uint8_t *block = find_block(file, heap, child, address, size);
    found->data = block == NULL ? NULL : block + start;
    return block != NULL;
}

typedef int (*take_object)(object_scan *all, uint64_t order, span body);

/* Give every object of a heap that a B-tree names to `take`. Records of type 5: a hash of the name, the id of a link. Type
 * 8: the id of an attribute, flags, creation order, a hash. Objects do not overlap, so all together are not longer than
 * the file. */
static int take_named(object_scan *all, uint64_t heap_address, uint64_t tree_address, unsigned kind, take_object take)
{
    fractal_heap heap;
    name_tree tree;
    uint64_t total = 0;
    if (!open_tree(&all->file, tree_address, kind, &tree) || !open_heap(&all->file, heap_address, &heap))
        return 0;
    for (int node = 0; node < tree.count; node++)
        for (size_t i = 0; i < tree.nodes[node].count; i++) {
            const uint8_t *record = tree.nodes[node].records + i * tree.record_size;
            span body;
            if (kind == 8 && record[8] & SHARED)
                return 0; /* the message lies in another heap */
            if (!find_object(&all->file, &heap, record + (kind == 5 ? 4 : 0), kind == 5 ? 7 : 8, &body) ||
                (total += body.length) > all->file.length || !take(all, kind == 5 ? 0 : number(record + 9, 4), body))
                return 0;
        }
    return 1;
}

/* ---- links (IV.A.2.g) and symbol tables (III.A.1, III.B, III.D) ------------------------------------------------------ */

static int add_link(object_scan *all, group_link link)
{
    group_link *to = add_items(&all->links, 1, sizeof *to);
    if (to == NULL)
        return 0;
    link.position = all->links.count;
    *to = link;
    return 1;
}

static int add_link_message(object_scan *all, uint64_t unused, span body)
{
    const uint8_t *data = body.data;
    size_t at = 2, length = body.length;
    unsigned kind = 0;
    group_link link = {.order = 0};
    (void)unused;
    if (length < 4 || data[0] != 1)
        return 0;
    unsigned flags = data[1];
    size_t width = (size_t)1 << (flags & 3);
    if (at + (flags & 8 ? 1 : 0) + (flags & 4 ? 8 : 0) + (flags & 16 ? 1 : 0) + width > length)
        return 0;
    if (flags & 8)
        kind = data[at++];
    if (flags & 4) {
        link.order = number(data + at, 8);
        at += 8;
    }
    if (flags & 16)
        at++; /* the character set: UTF-8, or its subset ASCII */
    uint64_t name = number(data + at, width);
    at += width;
    if (name > length - at || kind > 1)
        return 0; /* external links are for Python */
    const uint8_t *end = memchr(data + at, 0, (size_t)name);
    link.name = (span){data + at, end == NULL ? (size_t)name : (size_t)(end - data) - at};
    at += (size_t)name;
    if (kind == 0) {
        if (all->file.offset_size > length - at)
            return 0;
        link.address = number(data + at, all->file.offset_size);
    } else {
        if (2 > length - at || number(data + at, 2) > length - at - 2)
            return 0;
        link.path = (span){data + at + 2, (size_t)number(data + at, 2)};
    }
    return add_link(all, link);
}

static int compare_numbers(const void *one, const void *other)
{
    uint64_t left = *(const uint64_t *)one, right = *(const uint64_t *)other;
    return (left > right) - (left < right);
}

/* Whether the addresses in `nodes` from an index on occur once each, and as many structures of a size fit into the file. */
static int are_distinct(object_scan *all, size_t first, size_t total, uint64_t size)
{
    size_t count = all->nodes.count - first;
    uint64_t *copy = add_items(&all->nodes, count, sizeof *copy);
    if (copy == NULL || total > all->file.size / size)
        return 0;
    memcpy(copy, (uint64_t *)all->nodes.items + first, count * sizeof *copy);
    qsort(copy, count, sizeof *copy, compare_numbers);
    all->nodes.count -= count;
    for (size_t i = 1; i < count; i++)
        if (copy[i] == copy[i - 1])
            return 0;
    return 1;
}

/* The symbol table nodes that a group's B-tree leads to, in order: they are left in `nodes`, from the index that is
 * returned; SIZE_MAX if something is not sound. */
static size_t find_symbol_nodes(object_scan *all, uint64_t root)
{
    file_head *file = &all->file;
    size_t ow = file->offset_size, key = file->length_size, begin = 8 + 2 * ow, first = 0;
    uint64_t size = begin + (file->node_room + 1) * key + file->node_room * ow, *to;
    const uint8_t *node = find(file, root, size);
    unsigned level = node == NULL ? MAX_LEVELS : node[5];
    all->nodes.count = 0;
    if (level >= MAX_LEVELS || (to = add_items(&all->nodes, 1, sizeof *to)) == NULL)
        return SIZE_MAX;
    *to = root;
    for (;; level--) {
        size_t end = all->nodes.count;
        for (size_t i = first; i < end; i++) {
            node = find(file, ((uint64_t *)all->nodes.items)[i], size);
            uint64_t used = node == NULL ? 0 : number(node + 6, 2);
            if (node == NULL || memcmp(node, "TREE", 4) != 0 || node[4] != 0 || node[5] != level || used > file->node_room ||
                (to = add_items(&all->nodes, (size_t)used, sizeof *to)) == NULL)
                return SIZE_MAX;
            for (uint64_t child = 0; child < used; child++)
                to[child] = number(node + begin + key + child * (key + ow), ow);
        }
        first = end;
        if (level == 0)
            return first;
        if (first == all->nodes.count || !are_distinct(all, first, all->nodes.count, size))
            return SIZE_MAX;
    }
}

/* The text at an offset of a local heap. */
static int find_name(const uint8_t *names, uint64_t length, uint64_t at, span *found)
{
    const uint8_t *end = at < length ? memchr(names + at, 0, (size_t)(length - at)) : NULL;
    if (end == NULL)
        return 0;
    *found = (span){names + at, (size_t)(end - names) - (size_t)at};
    return 1;
}

/* Add the links of an old-style group (IV.A.2.r). */
static int add_symbols(object_scan *all, span body)
{
    file_head *file = &all->file;
    size_t ow = file->offset_size, lw = file->length_size, entry = lw + ow + 24;
    if (body.length < 2 * ow)
        return 0;
    const uint8_t *heap = find(file, number(body.data + ow, ow), 8 + 2 * lw + ow);
    if (heap == NULL || memcmp(heap, "HEAP", 4) != 0)
        return 0;
    uint64_t length = number(heap + 8, lw), size = 8 + file->leaf_room * entry;
    const uint8_t *names = length ? find(file, number(heap + 8 + 2 * lw, ow), length) : heap;
    size_t first = names == NULL ? SIZE_MAX : find_symbol_nodes(all, number(body.data, ow));
    if (first == SIZE_MAX || !are_distinct(all, first, all->nodes.count - first, size))
        return 0;
    for (size_t i = first; i < all->nodes.count; i++) {
        const uint8_t *node = find(file, ((uint64_t *)all->nodes.items)[i], size);
        if (node == NULL || memcmp(node, "SNOD", 4) != 0 || number(node + 6, 2) > file->leaf_room)
            return 0;
        const uint8_t *at = node + 8, *end = at + number(node + 6, 2) * entry;
        for (; at < end; at += entry) {
            group_link link = {.address = number(at + lw, ow)};
            if (!find_name(names, length, number(at, lw), &link.name))
                return 0;
            if (number(at + lw + ow, 4) == 2 && !find_name(names, length, number(at + lw + ow + 8, 4), &link.path))
                return 0;
            if (!add_link(all, link))
                return 0;
        }
    }
    return 1;
}

static int compare_positions(const group_link *one, const group_link *other)
{
    return (one->position > other->position) - (one->position < other->position);
}

static int compare_orders(const void *one, const void *other)
{
    const group_link *left = one, *right = other;
    if (left->order != right->order)
        return left->order > right->order ? 1 : -1;
    return compare_positions(left, right);
}

static int compare_names(const void *one, const void *other)
{
    const group_link *left = one, *right = other;
    size_t least = left->name.length < right->name.length ? left->name.length : right->name.length;
    int found = least ? memcmp(left->name.data, right->name.data, least) : 0;
    if (found)
        return found;
    if (left->name.length != right->name.length)
        return left->name.length > right->name.length ? 1 : -1;
    return compare_positions(left, right);
}

/* Add the links of a group: in order of creation where that is kept, else by name. */
static int read_group(object_scan *all, object *one)
{
    file_head *file = &all->file;
    const message *table = find_message(all, SYMBOL_TABLE), *messages = all->messages.items;
    int tracked = 0;
    one->first_link = all->links.count;
    if (table != NULL && !add_symbols(all, table->body))
        return 0;
    for (size_t i = 0; table == NULL && i < all->messages.count; i++)
        if (messages[i].kind == LINK && !add_link_message(all, 0, messages[i].body))
            return 0;
    for (size_t i = 0; table == NULL && i < all->messages.count; i++) {
        span body = messages[i].body;
        if (messages[i].kind != LINK_INFO)
            continue;
        tracked = body.length > 1 && body.data[1] & 1;
        size_t at = tracked ? 10 : 2, ow = file->offset_size;
        if (body.length < at + 2 * ow)
            return 0;
        uint64_t heap = number(body.data + at, ow), tree = number(body.data + at + ow, ow);
        if (heap != file->undefined && tree != file->undefined && !take_named(all, heap, tree, 5, add_link_message))
            return 0;
    }
    one->links = all->links.count - one->first_link;
    if (one->links)
        qsort((group_link *)all->links.items + one->first_link, one->links, sizeof(group_link),
              tracked ? compare_orders : compare_names);
    one->kind = GROUP;
    return 1;
}

/* ---- dataspaces (IV.A.2.b) ------------------------------------------------------------------------------------------ */

typedef struct {
    int rank, null;
    uint64_t shape[MAX_RANK];
} extent;

static int parse_extent(const file_head *file, span body, extent *space)
{
    if (body.length < 4 || body.data[0] < 1 || body.data[0] > 2 || body.data[1] > MAX_RANK)
        return 0;
    size_t at = body.data[0] == 1 ? 8 : 4, lw = file->length_size;
    space->rank = body.data[1];
    space->null = body.data[0] == 2 && body.data[3] == 2;
    if (body.length < at + (size_t)space->rank * lw)
        return 0;
    for (int axis = 0; axis < space->rank; axis++, at += lw) {
        space->shape[axis] = number(body.data + at, lw);
        if (space->shape[axis] >> 62)
            return 0;
    }
    return 1;
}

/* Number of elements; `limit` + 1 if there are more than that. */
static uint64_t count_elements(const extent *space, uint64_t limit)
{
    uint64_t count = 1;
    for (int axis = 0; axis < space->rank; axis++)
        if (space->shape[axis] == 0)
            return 0;
    for (int axis = 0; axis < space->rank; axis++) {
        if (space->shape[axis] > limit / count)
            return limit + 1;
        count *= space->shape[axis];
    }
    return space->null ? 0 : count;
}

/* ---- global heaps (III.E) -------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t address;
    size_t first, count;
} collection;

typedef struct {
    uint64_t index;
    span data;
} heap_row;

/* The collection at an address, whose objects are noted when it is met first. */
static const collection *find_collection(object_scan *all, uint64_t address)
{
    file_head *file = &all->file;
    const collection *known = all->collections.items;
    for (size_t i = all->collections.count; i--; file->budget -= sizeof *known) {
        if (known[i].address == address)
            return &known[i];
        if (file->budget < sizeof *known)
            return NULL;
    }
    size_t lw = file->length_size, first = all->heap_rows.count;
    const uint8_t *data = find(file, address, COLLECTION_HEADER);
    if (data == NULL || memcmp(data, "GCOL\1", 5) != 0)
        return NULL;
    uint64_t size = number(data + 8, lw);
    if (size < COLLECTION_HEADER || (data = find(file, address, size)) == NULL)
        return NULL;
    for (uint64_t at = COLLECTION_HEADER; at <= size - COLLECTION_HEADER;) {
        uint64_t index = number(data + at, 2), length = number(data + at + 8, lw);
        if (index == 0) /* the free space, which is last */
            break;
        at += COLLECTION_HEADER;
        heap_row *row = length > size - at ? NULL : add_items(&all->heap_rows, 1, sizeof *row);
        if (row == NULL) {
            all->heap_rows.count = first;
            return NULL;
        }
        *row = (heap_row){index, {data + at, (size_t)length}};
        at += (length + 7) / 8 * 8;
    }
    collection *found = add_items(&all->collections, 1, sizeof *found);
    if (found != NULL)
        *found = (collection){address, first, all->heap_rows.count - first};
    return found;
}

/* Add what a reference into a heap stands for: number of elements, address of the collection, number of the object. */
static int add_value(object_scan *all, const uint8_t *reference, uint64_t *total)
{
    size_t ow = all->file.offset_size;
    span value = {reference, 0};
    if (number(reference, 4)) {
        const collection *heap = find_collection(all, number(reference + 4, ow));
        uint64_t index = number(reference + 4 + ow, 4), cost = heap == NULL ? 0 : heap->count * sizeof(heap_row);
        if (heap == NULL || cost > all->file.budget)
            return 0;
        all->file.budget -= cost;
        const heap_row *rows = (const heap_row *)all->heap_rows.items + heap->first, *row = rows + heap->count;
        do
            if (row-- == rows)
                return 0;
        while (row->index != index); /* of two with one number, the last counts */
        value = row->data;
    }
    /* Objects that are used again and again: see `heap_value_limit` of the Python parser. */
    if (value.length > all->file.budget || (*total += value.length) > all->file.size + (1 << 20))
        return 0;
    all->file.budget -= value.length;
    span *to = add_items(&all->values, 1, sizeof *to);
    if (to == NULL)
        return 0;
    *to = value;
    return 1;
}

/* ---- attribute messages (IV.A.2.m, IV.A.2.v) ------------------------------------------------------------------------- */

typedef struct {
    uint64_t order;
    size_t position;
    span body;
} attribute;

static const char SKIPPED_NAME[] = "REFERENCE_LIST"; /* it is other bytes in each file, and nobody asks for it */

static int add_attribute(object_scan *all, uint64_t order, span body)
{
    attribute *to = add_items(&all->attributes, 1, sizeof *to);
    if (to == NULL)
        return 0;
    *to = (attribute){order, all->attributes.count, body};
    return 1;
}

static int compare_attributes(const void *one, const void *other)
{
    const attribute *left = one, *right = other;
    if (left->order != right->order)
        return left->order > right->order ? 1 : -1;
    return (left->position > right->position) - (left->position < right->position);
}

/* Whether an attribute message has the name that is left out: 1 or 0, or -1 if it is not sound. */
static int is_skipped(span body)
{
    if (body.length < 8 || body.data[0] < 1 || body.data[0] > 3)
        return -1;
    size_t begin = body.data[0] == 3 ? 9 : 8, size = (size_t)number(body.data + 2, 2);
    size = size ? size - 1 : 0; /* the last byte is the closing zero */
    if (begin + size > body.length)
        return -1;
    const uint8_t *end = memchr(body.data + begin, 0, size);
    size = end == NULL ? size : (size_t)(end - body.data) - begin;
    return size == sizeof SKIPPED_NAME - 1 && memcmp(body.data + begin, SKIPPED_NAME, size) == 0;
}

/* Add an attribute message to the text; references into heaps, which are others in every file, as zeroes, and what they
 * stand for to the values. */
static int add_attribute_text(object_scan *all, span body)
{
    size_t at, ow = all->file.offset_size, step = 8 + ow;
    int skipped = is_skipped(body);
    if (skipped)
        return skipped > 0;
    if ((body.data[0] > 1 && body.data[1] & 3) || !add_sized_text(all, body.data, body.length, &at))
        return 0; /* its type or its extent is shared */
    size_t sizes[3], begin = body.data[0] == 3 ? 9 : 8;
    for (int i = 0; i < 3; i++) {
        sizes[i] = (size_t)number(body.data + 2 + 2 * i, 2);
        sizes[i] = body.data[0] == 1 ? padded(sizes[i]) : sizes[i];
    }
    size_t type = begin + sizes[0], space_at = type + sizes[1], data = space_at + sizes[2];
    if (data > body.length || sizes[1] < 8)
        return 0;
    if ((body.data[type] & 15) != VARIABLE_LENGTH)
        return 1;
    extent space;
    span space_body = {body.data + space_at, (size_t)number(body.data + 6, 2)};
    if (number(body.data + type + 4, 4) != step || !parse_extent(&all->file, space_body, &space))
        return 0;
    uint64_t count = count_elements(&space, body.length), total = 0;
    if (count > (body.length - data) / step)
        return 0;
    memset((uint8_t *)all->text.items + at + data, 0, (size_t)count * step);
    for (uint64_t i = 0; i < count; i++)
        if (!add_value(all, body.data + data + i * step, &total))
            return 0;
    return 1;
}

/* Add the attributes of an object, in creation order. */
static int read_attributes(object_scan *all, object *one)
{
    file_head *file = &all->file;
    const message *messages = all->messages.items;
    int sorted = 1;
    all->attributes.count = 0;
    for (size_t i = 0; i < all->messages.count; i++) {
        span body = messages[i].body;
        if (messages[i].kind == ATTRIBUTE) {
            if (messages[i].flags & SHARED || !add_attribute(all, messages[i].order, body))
                return 0;
        } else if (messages[i].kind == ATTRIBUTE_INFO) {
            size_t at = body.length > 1 && body.data[1] & 1 ? 4 : 2, ow = file->offset_size;
            if (body.length < at + 2 * ow)
                return 0;
            uint64_t heap = number(body.data + at, ow), tree = number(body.data + at + ow, ow);
            if (heap != file->undefined && tree != file->undefined && !take_named(all, heap, tree, 8, add_attribute))
                return 0;
        }
    }
    attribute *found = all->attributes.items;
    for (size_t i = 1; sorted && i < all->attributes.count; i++)
        sorted = found[i - 1].order <= found[i].order;
    if (!sorted)
        qsort(found, all->attributes.count, sizeof *found, compare_attributes);
    one->attributes = all->text.count;
    one->first_value = all->values.count;
    for (size_t i = 0; i < all->attributes.count; i++)
        if (!add_attribute_text(all, found[i].body))
            return 0;
    one->attribute_bytes = all->text.count - one->attributes;
    one->values = all->values.count - one->first_value;
    return 1;
}

/* ---- chunks in one leaf of a version 1 B-tree (III.A.1) ---------------------------------------------------------------- */

static uint64_t leaf_size(const file_head *file, int rank, uint64_t used)
{
    uint64_t key = 16 + 8 * (uint64_t)rank;
    return 8 + 2 * file->offset_size + used * (key + file->offset_size) + key;
}

uint64_t leaf_cells(const file_head *file, int rank, const uint64_t *grid, const uint8_t *node, uint64_t available)
{
    uint64_t cells = 1;
    if (available < 8 || memcmp(node, "TREE\1\0", 6) != 0)
        return 0;
    uint64_t count = number(node + 6, 2);
    for (int axis = 0; axis < rank; axis++) {
        if (grid[axis] > count) /* so `cells` stays below 2 ** 32 */
            return 0;
        cells *= grid[axis];
        if (cells > count)
            return 0;
    }
    return count && count <= file->chunk_room && count == cells && leaf_size(file, rank, count) <= available ? count : 0;
}

int full_leaf(const file_head *file, int rank, const uint64_t *grid, const uint64_t *chunk, const uint8_t *node,
              uint64_t available, chunk_cell *cells)
{
    size_t ow = file->offset_size, key = 16 + 8 * (size_t)rank, step = key + ow;
    uint64_t count = leaf_cells(file, rank, grid, node, available), index[MAX_RANK] = {0};
    const uint8_t *entry = node + 8 + 2 * ow;
    for (uint64_t i = 0; i < count; i++, entry += step) {
        for (int axis = 0; axis < rank; axis++)
            if (number(entry + 8 + 8 * axis, 8) != index[axis] * chunk[axis])
                return 0;
        uint64_t address = number(entry + key, ow), stored = number(entry, 4);
        if (number(entry + key - 8, 8) != 0 || address == file->undefined || file->base > file->size ||
            address > file->size - file->base || stored > file->size - file->base - address)
            return 0;
        cells[i] = (chunk_cell){(int64_t)(address + file->base), (int64_t)stored, (int64_t)number(entry + 4, 4)};
        for (int axis = rank - 1; axis >= 0 && ++index[axis] == grid[axis]; axis--)
            index[axis] = 0;
    }
    /* The key behind the last chunk is greater than its own. */
    for (size_t at = 8; count && at < key; at += 8) {
        uint64_t last = number(entry - step + at, 8), closing = number(entry + at, 8);
        if (last != closing)
            return closing > last;
    }
    return 0;
}

/* ---- datasets --------------------------------------------------------------------------------------------------------- */

/* What a layout message (IV.A.2.i) says: where its address stands, and the chunks. */
typedef struct {
    size_t address_at; /* 0: there is none */
    int rank;          /* of chunks; -1: it is not chunked */
    uint64_t chunk[MAX_RANK];
    int is_btree_v1;
} storage;

static int parse_chunk(storage *to, const uint8_t *dims, size_t count, size_t width, int is_btree_v1)
{
    if (count < 2 || count > MAX_RANK + 1)
        return 0;
    to->rank = (int)count - 1;
    to->is_btree_v1 = is_btree_v1;
    for (int axis = 0; axis < to->rank; axis++) {
        to->chunk[axis] = number(dims + (size_t)axis * width, width);
        if (to->chunk[axis] == 0)
            return 0;
    }
    return 1;
}

static int parse_storage(const file_head *file, span body, storage *to)
{
    const uint8_t *data = body.data;
    size_t ow = file->offset_size;
    *to = (storage){.rank = -1};
    if (body.length < 2 || data[0] < 1 || data[0] > 5)
        return 0;
    if (data[0] < 3) { /* the address comes before the dimensions, compact data behind them */
        if (body.length < 8 || data[2] > 2)
            return 0;
        to->address_at = data[2] ? 8 : 0;
        if (body.length < 8 + (data[2] ? ow : 0) + 4 * (size_t)data[1])
            return 0;
        return data[2] != 2 || parse_chunk(to, data + 8 + ow, data[1], 4, 1);
    }
    if (data[1] < 2) { /* compact, contiguous */
        to->address_at = data[1] ? 2 : 0;
        return !data[1] || body.length >= 2 + ow + file->length_size;
    }
    if (data[1] > 2)
        return 0; /* a virtual dataset */
    if (data[0] == 3) {
        to->address_at = 3;
        return body.length >= 3 + ow && body.length >= 3 + ow + 4 * (size_t)data[2] &&
               parse_chunk(to, data + 3 + ow, data[2], 4, 1);
    }
    /* Flags, rank, bytes of a length, lengths, kind of index and its parameters, of which the address is the last. */
    static const uint8_t parameters[] = {0, 0, 0, 1, 5, 6};
    if (body.length < 5 || data[4] < 1 || data[4] > 8)
        return 0;
    size_t at = 5 + (size_t)data[3] * data[4];
    if (body.length < at + 1 || data[at] < 1 || data[at] > 5)
        return 0;
    to->address_at = at + 1 + parameters[data[at]] + (data[at] == 1 && data[2] & 2 ? file->length_size + 4 : 0);
    return body.length >= to->address_at + ow && parse_chunk(to, data + 5, data[3], data[4], 0);
}

/* Add the cells of a dataset whose index is a full leaf. */
static int add_cells(object_scan *all, object *one, const extent *space, const storage *layout)
{
    file_head *file = &all->file;
    uint64_t grid[MAX_RANK];
    if (space->rank != layout->rank)
        return 1;
    for (int axis = 0; axis < space->rank; axis++) {
        if (space->shape[axis] == 0)
            return 1;
        grid[axis] = (space->shape[axis] - 1) / layout->chunk[axis] + 1;
    }
    /* The room of a node is all in the file, used or not. */
    uint64_t key = 16 + 8 * (uint64_t)space->rank;
    uint64_t size = 8 + 2 * file->offset_size + (file->chunk_room + 1) * key + file->chunk_room * file->offset_size;
    const uint8_t *node = find(file, one->data_address, size);
    uint64_t count = node == NULL ? 0 : leaf_cells(file, space->rank, grid, node, size);
    if (count == 0)
        return 1;
    chunk_cell *cells = add_items(&all->cells, (size_t)count, sizeof *cells);
    if (cells == NULL)
        return 0;
    one->first_cell = all->cells.count - (size_t)count;
    if (full_leaf(file, space->rank, grid, layout->chunk, node, size, cells))
        one->cells = (size_t)count;
    else
        all->cells.count = one->first_cell;
    return 1;
}

/* Add what describes a dataset to the text: kind and body of its messages. The address of its data is put beside it, and
 * zero there: so most datasets of an archive have the same description in every file. */
static int read_dataset(object_scan *all, object *one)
{
    static const unsigned kinds[] = {DATASPACE, DATATYPE, LAYOUT, FILL, FILL_OLD, FILTERS};
    file_head *file = &all->file;
    const message *messages = all->messages.items, *part;
    size_t at = 0;
    extent space = {0};
    storage layout = {.rank = -1};
    for (size_t i = 0; i < all->messages.count; i++)
        switch (messages[i].kind) {
        case DATASPACE: case DATATYPE: case LAYOUT: case FILL: case FILL_OLD: case FILTERS:
            if (messages[i].flags & SHARED)
                return 0;
            break;
        case EXTERNAL_FILES:
            return 0;
        }
    if (find_message(all, DATASPACE) == NULL || find_message(all, DATATYPE) == NULL)
        return 0;
    one->description = all->text.count;
    one->data_address = file->undefined;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint8_t kind = (uint8_t)kinds[i];
        if ((part = find_message(all, kinds[i])) == NULL)
            continue;
        if (!add_text(all, &kind, 1) || !add_sized_text(all, part->body.data, part->body.length, &at))
            return 0;
        if (kind == DATASPACE && !parse_extent(file, part->body, &space))
            return 0;
        if (kind == LAYOUT) {
            if (!parse_storage(file, part->body, &layout))
                return 0;
            if (layout.address_at) {
                one->data_address = number(part->body.data + layout.address_at, file->offset_size);
                memset((uint8_t *)all->text.items + at + layout.address_at, 0, file->offset_size);
            }
        }
    }
    one->described = all->text.count - one->description;
    if (all->indexed && layout.is_btree_v1 && one->data_address != file->undefined && !space.null &&
        !add_cells(all, one, &space, &layout))
        return 0;
    one->kind = DATASET;
    return 1;
}

/* ---- objects ---------------------------------------------------------------------------------------------------------- */

static int read_object(object_scan *all, object *one)
{
    if (!parse_header(all, one->address))
        return 0;
    const message *type = find_message(all, DATATYPE);
    if (find_message(all, LAYOUT) != NULL)
        return read_dataset(all, one) && read_attributes(all, one);
    if (find_message(all, SYMBOL_TABLE) != NULL || find_message(all, LINK_INFO) != NULL ||
        find_message(all, LINK) != NULL || find_message(all, GROUP_INFO) != NULL)
        return read_group(all, one) && read_attributes(all, one);
    one->kind = type == NULL ? OTHER_OBJECT : NAMED_TYPE;
    one->description = all->text.count;
    one->described = type == NULL ? 0 : type->body.length;
    return type == NULL || add_text(all, type->body.data, type->body.length);
}

/* Read the objects that were added, and with `deep` those that they lead to: a group before what is in it, and all of one
 * level before those below. */
void read_objects(object_scan *all)
{
    for (size_t i = 0; i < all->objects.count; i++) {
        object one = ((object *)all->objects.items)[i];
        size_t links = all->links.count, text = all->text.count, values = all->values.count, cells = all->cells.count;
        if (!read_object(all, &one)) {
            one = (object){.address = one.address, .kind = NOT_PLAIN};
            all->links.count = links;
            all->text.count = text;
            all->values.count = values;
            all->cells.count = cells;
        }
        ((object *)all->objects.items)[i] = one;
        for (size_t link = 0; all->deep && one.kind == GROUP && link < one.links; link++) {
            const group_link *to = (const group_link *)all->links.items + one.first_link + link;
            if (to->path.data == NULL && add_address(all, to->address, 1) < 0) {
                /* Without memory for what it leads to, Python reads the group. */
                ((object *)all->objects.items)[i].kind = NOT_PLAIN;
                break;
            }
        }
    }
}
