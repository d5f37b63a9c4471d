/* Parser of the objects of an HDF5 file whose metadata lies in memory: see _objects.c. Nothing here knows Python, so it
 * runs without the GIL. */
#ifndef INSITU_HDF5_OBJECTS_H
#define INSITU_HDF5_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_RANK = 32 };

/* The first `length` bytes of a file of `size` bytes. Addresses count from `base`. */
typedef struct {
    const uint8_t *data;
    uint64_t length, size, base, undefined;
    size_t offset_size, length_size;
    uint64_t leaf_room, node_room, chunk_room; /* symbols of a node, children of nodes of groups and of chunks */
    uint64_t budget; /* bytes that may still be looked at: damaged structures lead to each other again and again */
} file_head;

/* A growing array. */
typedef struct {
    void *items;
    size_t count, room;
} array;

typedef struct {
    const uint8_t *data;
    size_t length;
} span;

enum object_kind { NOT_PLAIN, GROUP, DATASET, NAMED_TYPE, OTHER_OBJECT };

typedef struct {
    uint64_t address;
    enum object_kind kind;
    size_t first_link, links;         /* of a group, in order */
    size_t description, described;    /* of a dataset, or the type: bytes of `text` */
    size_t attributes, attribute_bytes; /* bytes of `text` */
    size_t first_value, values;       /* what attributes have in heaps, in the order of their references */
    uint64_t data_address;            /* of a dataset: of its data or its chunk index */
    size_t first_cell, cells;         /* of a chunked dataset; 0: its index is not plain, or not wanted */
} object;

typedef struct {
    span name;
    uint64_t address, order;
    span path; /* of a soft link; without data, the link is hard */
    size_t position;
} group_link;

typedef struct {
    int64_t offset, length, mask;
} chunk_cell;

/* What is wanted, and what was found. */
typedef struct {
    file_head file;
    int indexed; /* chunk indexes are wanted */
    int deep;    /* and whatever groups link to */
    array objects, links, text, values, cells;
    /* memory of the parser */
    array messages, attributes, collections, heap_rows, nodes;
    uint64_t *known; /* addresses that were met, a hash table; its zeroes are free places */
    size_t known_count, known_room;
} object_scan;

uint64_t number(const uint8_t *at, size_t width);
uint64_t undefined_address(size_t width);
uint32_t lookup3(const uint8_t *data, size_t length, size_t hole);

/* The cells of a node that is a leaf with every cell of the grid in C order, all within the file: 1, or 0 if it has
 * others. `cells` has room for all of them. */
int full_leaf(const file_head *file, int rank, const uint64_t *grid, const uint64_t *chunk, const uint8_t *node,
              uint64_t available, chunk_cell *cells);
/* How many cells a leaf that may be full has; 0: it is none. */
uint64_t leaf_cells(const file_head *file, int rank, const uint64_t *grid, const uint8_t *node, uint64_t available);

/* Note an address: 1 if it is new, 0 if it was met, -1 if there is no memory. New ones that are wanted become objects. */
int add_address(object_scan *all, uint64_t address, int wanted);
void read_objects(object_scan *all);
void free_scan(object_scan *all);

#endif
