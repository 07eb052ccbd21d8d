/* Datatypes. The predefined contiguous ones are known by a table, because asking the library for a
 * size costs more than an 8-byte put; the layouts of all others are known to the library alone,
 * which is used by a message of this process to itself.
 */
#include "types.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLICE ((size_t)1 << 30) /* bytes; an int can count up to twice as many */

struct ftrma_type ftrma_types[FTRMA_TYPES];
static MPI_Comm self = MPI_COMM_NULL; /* a communicator for messages of this process to itself */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;    /* held to make it */
static pthread_mutex_t converting = PTHREAD_MUTEX_INITIALIZER; /* held to use it */

static void add_type(MPI_Datatype type)
{
    int size;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) || size <= 0)
        return;
    size_t i = ftrma_type_place(type);
    while (ftrma_types[i].size_bytes && ftrma_types[i].type != type)
        i = (i + 1) & (FTRMA_TYPES - 1);
    ftrma_types[i].type = type;
    ftrma_types[i].size_bytes = (size_t)size;
}

void ftrma_learn_types(void)
{
    const MPI_Datatype known[] = {
        MPI_BYTE, MPI_CHAR, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_SHORT, MPI_UNSIGNED_SHORT,
        MPI_INT, MPI_UNSIGNED, MPI_LONG, MPI_UNSIGNED_LONG, MPI_LONG_LONG, MPI_UNSIGNED_LONG_LONG,
        MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_WCHAR, MPI_C_BOOL, MPI_INT8_T, MPI_INT16_T,
        MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
        MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_AINT, MPI_COUNT,
        MPI_OFFSET, MPI_INTEGER, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_COMPLEX, MPI_DOUBLE_COMPLEX,
        MPI_LOGICAL, MPI_CHARACTER, MPI_CXX_BOOL, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        add_type(known[i]);
}

MPI_Datatype ftrma_element_type(MPI_Datatype type)
{
    int ni, na, nd, combiner;
    if (ftrma_basic_size(type))
        return type;
    if (PMPI_Type_get_envelope(type, &ni, &na, &nd, &combiner))
        return MPI_DATATYPE_NULL;
    if (combiner == MPI_COMBINER_NAMED)
        return type; /* a pair type such as MPI_DOUBLE_INT */
    int *ints = calloc((size_t)ni + 1, sizeof *ints);
    MPI_Aint *aints = calloc((size_t)na + 1, sizeof *aints);
    MPI_Datatype *inner = calloc((size_t)nd + 1, sizeof *inner), found = MPI_DATATYPE_NULL;
    if (ints && aints && inner && nd > 0
        && !PMPI_Type_get_contents(type, ni, na, nd, ints, aints, inner)) {
        found = ftrma_element_type(inner[0]);
        for (int i = 1; i < nd; i++)
            if (ftrma_element_type(inner[i]) != found)
                found = MPI_DATATYPE_NULL;
        for (int i = 0; i < nd; i++) {
            int a, b, c, named;
            PMPI_Type_get_envelope(inner[i], &a, &b, &c, &named);
            if (named != MPI_COMBINER_NAMED)
                PMPI_Type_free(&inner[i]);
        }
    }
    free(ints);
    free(aints);
    free(inner);
    return found;
}

static int open_self(void)
{
    MPI_Comm made;
    int rc = MPI_SUCCESS;
    if (likely(LOAD(&self) != MPI_COMM_NULL))
        return rc;
    pthread_mutex_lock(&opening);
    if (self == MPI_COMM_NULL && !(rc = PMPI_Comm_dup(MPI_COMM_SELF, &made))
        && !(rc = PMPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN)))
        STORE(&self, made);
    pthread_mutex_unlock(&opening);
    return rc;
}

/* 1 if the library accepts the type. The library checks the type even in a send of no elements to
   MPI_PROC_NULL. */
int ftrma_usable(MPI_Datatype type)
{
    return type != MPI_DATATYPE_NULL && !open_self()
           && !PMPI_Send(NULL, 0, type, MPI_PROC_NULL, 0, self);
}

/* Convert by a message of this process to itself, one thread at a time: otherwise a thread's
   message could match another thread's receive. */
int ftrma_convert(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                  MPI_Datatype to_type)
{
    pthread_mutex_lock(&converting);
    int rc = open_self();
    if (!rc)
        rc = PMPI_Sendrecv(from, count, type, 0, 0, to, to_count, to_type, 0, 0, self,
                           MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&converting);
    return rc;
}

int ftrma_packed_bytes(int count, MPI_Datatype type, size_t *bytes)
{
    MPI_Count size;
    int rc = PMPI_Type_size_x(type, &size);
    *bytes = rc ? 0 : (size_t)count * (size_t)size;
    return rc;
}

/* The number of elements whose bytes can be counted by an int. */
static int slice(int count, MPI_Datatype type, size_t bytes, int *elements, MPI_Aint *extent)
{
    MPI_Aint low;
    size_t each = bytes / (size_t)(count ? count : 1);
    if (each > INT_MAX)
        return MPI_ERR_COUNT;
    *elements = each ? (int)(INT_MAX / each) : count;
    return PMPI_Type_get_extent(type, &low, extent);
}

int ftrma_to_bytes(const void *memory, int count, MPI_Datatype type, void *packed, size_t bytes)
{
    if (likely(bytes <= INT_MAX))
        return ftrma_convert(memory, count, type, packed, (int)bytes, MPI_BYTE);
    MPI_Aint extent;
    int most, rc = slice(count, type, bytes, &most, &extent);
    size_t each = bytes / (size_t)count;
    for (int i = 0, n; !rc && i < count; i += n) {
        n = count - i < most ? count - i : most;
        rc = ftrma_convert((const char *)memory + i * extent, n, type, (char *)packed + (size_t)i * each,
                           (int)((size_t)n * each), MPI_BYTE);
    }
    return rc;
}

int ftrma_from_bytes(const void *packed, size_t bytes, void *memory, int count, MPI_Datatype type)
{
    if (likely(bytes <= INT_MAX))
        return ftrma_convert(packed, (int)bytes, MPI_BYTE, memory, count, type);
    MPI_Aint extent;
    int most, rc = slice(count, type, bytes, &most, &extent);
    size_t each = bytes / (size_t)count;
    for (int i = 0, n; !rc && i < count; i += n) {
        n = count - i < most ? count - i : most;
        rc = ftrma_convert((const char *)packed + (size_t)i * each, (int)((size_t)n * each), MPI_BYTE,
                           (char *)memory + i * extent, n, type);
    }
    return rc;
}

/* ---- the first bytes of a layout --------------------------------------------------------------- */

/* Find where the bytes of an element lie: [out] displs[i] is the place of its packed byte i. To
   find this, the library unpacks the numbers of the bytes, eight bits at a time. */
static int find_bytes(MPI_Datatype type, size_t bytes, MPI_Aint *displs)
{
    MPI_Aint low, span;
    int rc = PMPI_Type_get_true_extent(type, &low, &span);
    if (rc)
        return rc;
    unsigned char *numbers = malloc(bytes), *memory = malloc((size_t)span + 1);
    size_t *found = calloc((size_t)span + 1, sizeof *found);
    if (!numbers || !memory || !found)
        rc = MPI_ERR_NO_MEM;
    for (int shift = 0; !rc && bytes >> shift; shift += 8) {
        for (size_t i = 0; i < bytes; i++)
            numbers[i] = (unsigned char)((i + 1) >> shift);
        memset(memory, 0, (size_t)span);
        rc = ftrma_convert(numbers, (int)bytes, MPI_BYTE, memory - low, 1, type);
        for (MPI_Aint at = 0; at < span; at++)
            found[at] |= (size_t)memory[at] << shift;
    }
    for (MPI_Aint at = 0; at < span && !rc; at++)
        if (found[at])
            displs[found[at] - 1] = low + at;
    free(numbers);
    free(memory);
    free(found);
    return rc;
}

/* Make a type of the first bytes of one element: [out] *part. */
static int part_of(MPI_Datatype type, size_t bytes, MPI_Datatype *part)
{
    MPI_Aint *displs = malloc(bytes * sizeof *displs);
    int *lengths = malloc(bytes * sizeof *lengths), runs = 0;
    int rc = displs && lengths ? find_bytes(type, bytes, displs) : MPI_ERR_NO_MEM;
    for (size_t i = 0; i < bytes && !rc; i++)
        if (runs && displs[i] == displs[runs - 1] + lengths[runs - 1]) {
            lengths[runs - 1]++;
        } else {
            displs[runs] = displs[i];
            lengths[runs++] = 1;
        }
    if (!rc)
        rc = PMPI_Type_create_hindexed(runs, lengths, displs, MPI_BYTE, part);
    free(displs);
    free(lengths);
    return rc;
}

int ftrma_cut(int *count, MPI_Datatype *type, size_t bytes, MPI_Datatype *made)
{
    MPI_Datatype types[2] = {*type, MPI_DATATYPE_NULL};
    MPI_Aint low, extent;
    int size, rc = PMPI_Type_size(*type, &size);
    if (rc || !(bytes % (size_t)size)) {
        *count = rc ? 0 : (int)(bytes / (size_t)size);
        return rc;
    }
    rc = PMPI_Type_get_extent(*type, &low, &extent);
    if (!rc)
        rc = part_of(*type, bytes % (size_t)size, &types[1]);
    if (rc)
        return rc;
    int whole = (int)(bytes / (size_t)size);
    rc = PMPI_Type_create_struct(2, (int[]){whole, 1}, (MPI_Aint[]){0, whole * extent}, types,
                                 made);
    PMPI_Type_free(&types[1]);
    if (!rc)
        rc = PMPI_Type_commit(made);
    *count = 1;
    *type = *made;
    return rc;
}

/* ---- the library's own ------------------------------------------------------------------------- */

unsigned ftrma_predefined(MPI_Op op)
{
    const MPI_Op known[] = {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR,
                            MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == op)
            return i + 1;
    return 0;
}

void ftrma_progress(void)
{
    int flag;
    /* Before MPI is initialized (tests wait then) there is no library that could make progress. */
    if (!PMPI_Initialized(&flag) && flag && !open_self())
        PMPI_Iprobe(0, 0, self, &flag, MPI_STATUS_IGNORE);
}

int ftrma_layout_of(MPI_Datatype type, struct ftrma_layout *l)
{
    MPI_Aint lb;
    int size, rc = type == MPI_DATATYPE_NULL ? MPI_ERR_TYPE : MPI_SUCCESS;
    *l = (struct ftrma_layout){.type = type, .size = rc ? 0 : ftrma_basic_size(type)};
    l->basic = l->size > 0;
    l->extent = (MPI_Aint)l->size;
    if (rc || l->basic)
        return rc;
    rc = PMPI_Type_size(type, &size);
    if (!rc)
        rc = PMPI_Type_get_extent(type, &lb, &l->extent);
    l->size = rc || size < 0 ? 0 : (size_t)size;
    return rc;
}

/* Copy from a layout to packed bytes, or back, in slices whose size the library can count. */
static int convert(char *user, size_t count, const struct ftrma_layout *l, char *packed, int pack)
{
    size_t most = l->size && SLICE / l->size ? SLICE / l->size : 1;
    int rc = MPI_SUCCESS;
    for (size_t i = 0; i < count && l->size && !rc; i += most) {
        size_t n = count - i < most ? count - i : most;
        char *u = user + (MPI_Aint)i * l->extent, *p = packed + i * l->size;
        int bytes = (int)(n * l->size);
        rc = pack ? ftrma_convert(u, (int)n, l->type, p, bytes, MPI_BYTE)
                  : ftrma_convert(p, bytes, MPI_BYTE, u, (int)n, l->type);
    }
    return rc;
}

int ftrma_pack(const void *from, size_t count, const struct ftrma_layout *l, void *to)
{
    if (!l->basic)
        return convert((char *)(uintptr_t)from, count, l, to, 1);
    memcpy(to, from, count * l->size);
    return MPI_SUCCESS;
}

int ftrma_unpack(const void *from, size_t count, const struct ftrma_layout *l, void *to)
{
    if (!l->basic)
        return convert(to, count, l, (char *)(uintptr_t)from, 0);
    memcpy(to, from, count * l->size);
    return MPI_SUCCESS;
}
