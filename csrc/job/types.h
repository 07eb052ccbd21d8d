/* Datatypes: sizes of predefined ones from a table, without a call of the library; layouts from the
 * library. */
#ifndef FTRMA_TYPES_H
#define FTRMA_TYPES_H

#include <mpi.h>

#include "internal.h"

#define FTRMA_TYPES 512u /* a power of two, several times the number of predefined types */

struct ftrma_type {
    MPI_Datatype type;
    size_t size_bytes; /* 0: an empty place of the table */
};
extern struct ftrma_type ftrma_types[FTRMA_TYPES];

void ftrma_learn_types(void); /* fills the table; after MPI_Init, before the first window */

static inline size_t ftrma_type_place(MPI_Datatype type)
{
    uint64_t h = (uint64_t)(uintptr_t)type * 0x9e3779b97f4a7c15ull;
    return (size_t)(h >> 48) & (FTRMA_TYPES - 1);
}

/* Size of a predefined contiguous type, bytes; 0 for any other. */
static inline size_t ftrma_basic_size(MPI_Datatype type)
{
    size_t i = ftrma_type_place(type);
    while (likely(ftrma_types[i].size_bytes)) {
        if (likely(ftrma_types[i].type == type))
            return ftrma_types[i].size_bytes;
        i = (i + 1) & (FTRMA_TYPES - 1);
    }
    return 0;
}

/* The only predefined type of which a type consists; MPI_DATATYPE_NULL if there are several. */
MPI_Datatype ftrma_element_type(MPI_Datatype type);

/* 1 if data may be sent with the type: it is not null, and committed. */
int ftrma_usable(MPI_Datatype type);

/* Copy between two layouts of the same number of bytes. Returns an MPI code. */
int ftrma_convert(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                  MPI_Datatype to_type);

/* Copy between a layout and packed bytes, whose number is that of ftrma_packed_bytes; 2 GiB and
   more are copied in slices. MPI codes. */
int ftrma_to_bytes(const void *memory, int count, MPI_Datatype type, void *packed, size_t bytes);
int ftrma_from_bytes(const void *packed, size_t bytes, void *memory, int count, MPI_Datatype type);

/* [out] *bytes: of count elements, packed. Returns an MPI code. */
int ftrma_packed_bytes(int count, MPI_Datatype type, size_t *bytes);

/* Cut a layout after its first `bytes`. *made: a type to be freed, if the cut is not between
   elements. Returns an MPI code. */
int ftrma_cut(int *count, MPI_Datatype *type, size_t bytes, MPI_Datatype *made);

/* The number of a predefined operation that computes, the same in every process; 0: any other
   operation. */
unsigned ftrma_predefined(MPI_Op op);

/* The layout of a type's elements in memory. */
struct ftrma_layout {
    MPI_Datatype type;
    size_t size;      /* of an element, packed */
    MPI_Aint extent;  /* from one element to the next */
    int basic;        /* it is the same packed and in memory */
};
/* Returns an MPI code. */
int ftrma_layout_of(MPI_Datatype type, struct ftrma_layout *l);
/* Copy elements to or from a packed stretch of count * size bytes. Return an MPI code. */
int ftrma_pack(const void *from, size_t count, const struct ftrma_layout *l, void *to);
int ftrma_unpack(const void *from, size_t count, const struct ftrma_layout *l, void *to);

/* Let the library make progress: messages need calls on both sides. A waiter looks FTRMA_PATIENCE
   times for the others before it calls this. */
#define FTRMA_PATIENCE 64
void ftrma_progress(void);

#endif
