/* Message logging over two-sided messages: the baseline that access logs are compared with.
 *
 * What: a library that is loaded before the MPI library and intercepts its calls.  The last
 * ML_LOGGERS processes of MPI_COMM_WORLD are loggers; they never return from MPI_Init, so they do
 * not run the program, and to the program MPI_COMM_WORLD means all others, its slots.  Each put's
 * data, and the operands and result of each get and atomic, go to a logger, which stores them in
 * memory.
 *
 * Why: section 7.2 of Besta & Hoefler compares with such a protocol ("Comparison to Message
 * Logging"): additional processes store the logs, and every record is a message to one of them.
 *
 * How it is kept fair.  A put to another slot is sent when it is issued, from the program's own
 * memory if it is large; a put to oneself needs no record.  Results are sent before the call
 * returns that completes the access.  Nothing waits for an answer: a message counts as logged when
 * the MPI library has taken it.  Loggers sleep when there is nothing to do, as checksum ranks do.
 * Their memory is a ring of a given size, faulted in beforehand; the newest records stay.
 *
 * Not there, since no measured program needs it: request-based gets, large-count calls (Open MPI
 * 5.0 has none), and datatypes that are freed before their access is complete.
 *
 * The wrappers that put the slots in the place of MPI_COMM_WORLD are generated (ml.py).
 */
#define _GNU_SOURCE
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INLINE_BYTES 2048 /* so much data travels with its record, within Open MPI's eager limit */
/* A logger that finds nothing yields so often before it sleeps, and then so long.  Measured: one that
   sleeps at once holds senders up, whose buffers are few (an insert into the key-value store: twice
   the time), and one that only yields takes its share of the cores from the program. */
#define IDLE_POLLS 200
#define IDLE_US 50
#define MOST_PARTS 3

enum { TAG_RECORD, TAG_DATA };
enum { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP, BYE };

struct record {
    uint64_t number;       /* of the slot's records, from 0 */
    uint64_t displacement; /* in the target's units */
    uint64_t bytes;        /* of data: behind the record; more than INLINE_BYTES: a message */
    int32_t call, source, target, window;
};

struct part { /* of a record's data: where the program has it */
    const void *at;
    int count;
    MPI_Datatype type;
};

static MPI_Comm slots = MPI_COMM_NULL;   /* what MPI_COMM_WORLD means to the program */
static MPI_Comm traffic = MPI_COMM_NULL; /* of all processes, for the records */
static int me, logger;
static uint64_t sent;

MPI_Comm ml_comm(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD && slots != MPI_COMM_NULL ? slots : comm;
}

static void give_up(const char *text, uint64_t number)
{
    fprintf(stderr, "ml: %s %llu\n", text, (unsigned long long)number);
    PMPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t number_from(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* ---- a logger --------------------------------------------------------------------------------*/

static char *ring;
static uint64_t ring_bytes, head, filled, records, stored_bytes, wraps;

/* The next so many bytes of the ring. */
static char *room_for(uint64_t bytes)
{
    if (bytes > ring_bytes)
        give_up("a record does not fit the loggers' memory; give them more than bytes:", ring_bytes);
    if (head + bytes > ring_bytes) {
        head = 0;
        wraps++;
    }
    return ring + head;
}

static void keep(uint64_t bytes)
{
    head += (bytes + 7) & ~(uint64_t)7;
    if (head > ring_bytes)
        head = ring_bytes;
    if (head > filled)
        filled = head;
}

/* What was stored; with ML_KEEP, the ring itself too. */
static void tell(int index)
{
    const char *directory = getenv("ML_DIRECTORY");
    char path[PATH_MAX];
    if (!directory)
        return;
    snprintf(path, sizeof path, "%s/logger-%d.json", directory, index);
    FILE *file = fopen(path, "w");
    if (!file) {
        give_up("cannot write what was stored by logger", (uint64_t)index);
        return;
    }
    fprintf(file, "{\"records\": %llu, \"bytes\": %llu, \"wraps\": %llu}\n",
            (unsigned long long)records, (unsigned long long)stored_bytes,
            (unsigned long long)wraps);
    fclose(file);
    if (!number_from("ML_KEEP"))
        return;
    snprintf(path, sizeof path, "%s/logger-%d.ring", directory, index);
    if (!(file = fopen(path, "wb")) || fwrite(ring, 1, filled, file) != filled)
        give_up("cannot write the ring of logger", (uint64_t)index);
    if (file)
        fclose(file);
}

/* Store records until every slot that has this logger has said good-bye. */
static void serve(int index, int left)
{
    const int most = (int)sizeof(struct record) + INLINE_BYTES;
    while (left > 0) {
        MPI_Request request;
        MPI_Status status;
        int there = 0, polls = 0, bytes;
        char *at = room_for((uint64_t)most);
        PMPI_Irecv(at, most, MPI_BYTE, MPI_ANY_SOURCE, TAG_RECORD, traffic, &request);
        while (PMPI_Test(&request, &there, &status) == MPI_SUCCESS && !there) {
            if (polls++ < IDLE_POLLS)
                sched_yield();
            else
                usleep(IDLE_US);
        }
        PMPI_Get_count(&status, MPI_BYTE, &bytes);
        struct record record;
        memcpy(&record, at, sizeof record);
        if (record.call == BYE) {
            left--;
            continue;
        }
        if (record.bytes > INLINE_BYTES) {
            at = room_for(sizeof record + record.bytes);
            memcpy(at, &record, sizeof record);
            PMPI_Recv(at + sizeof record, (int)record.bytes, MPI_BYTE, status.MPI_SOURCE, TAG_DATA,
                      traffic, MPI_STATUS_IGNORE);
        }
        keep(sizeof record + record.bytes);
        records++;
        stored_bytes += record.bytes;
    }
    tell(index);
}

/* ---- a slot: sending records -----------------------------------------------------------------*/

static struct sending {
    MPI_Request request;
    void *packed; /* NULL: sent from the program's memory */
} *sendings;
static size_t nsendings, room_sendings;

static struct result {
    struct record record;
    struct part parts[MOST_PARTS];
    int nparts;
    MPI_Win win;
} *results; /* of accesses that are not complete yet, in program order */
static size_t nresults, room_results;

/* One more place in a growing array. */
static void *one_more(void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return array;
    *room = *room ? 2 * *room : 64;
    array = realloc(array, *room * size);
    if (!array)
        give_up("no memory for entries:", *room);
    return array;
}

static uint64_t size_of(const struct part *part)
{
    int size = 0;
    if (part->count)
        PMPI_Type_size(part->type, &size);
    return (uint64_t)size * (uint64_t)part->count;
}

static int is_contiguous(const struct part *part)
{
    MPI_Aint low, extent;
    int size;
    PMPI_Type_size(part->type, &size);
    PMPI_Type_get_extent(part->type, &low, &extent);
    return low == 0 && extent == size;
}

static void pack(const struct part *parts, int nparts, char *out)
{
    for (int i = 0; i < nparts; i++) {
        uint64_t bytes = size_of(&parts[i]);
        int position = 0;
        if (bytes && is_contiguous(&parts[i]))
            memcpy(out, parts[i].at, bytes);
        else if (bytes)
            PMPI_Pack(parts[i].at, parts[i].count, parts[i].type, out, (int)bytes, &position,
                      MPI_COMM_SELF);
        out += bytes;
    }
}

/* Send a record with its data.  Large data is on its way when this returns, until `finish_sendings`
   the program's memory is read. */
static void send_record(struct record record, const struct part *parts, int nparts)
{
    char small[sizeof record + INLINE_BYTES];
    record.bytes = 0;
    for (int i = 0; i < nparts; i++)
        record.bytes += size_of(&parts[i]);
    if (record.bytes > INT_MAX)
        give_up("an access is too large for a message; bytes:", record.bytes);
    record.number = sent++;
    memcpy(small, &record, sizeof record);
    if (record.bytes <= INLINE_BYTES) {
        pack(parts, nparts, small + sizeof record);
        PMPI_Send(small, (int)(sizeof record + record.bytes), MPI_BYTE, logger, TAG_RECORD,
                  traffic);
        return;
    }
    PMPI_Send(small, sizeof record, MPI_BYTE, logger, TAG_RECORD, traffic);
    sendings = one_more(sendings, nsendings, &room_sendings, sizeof *sendings);
    struct sending *sending = &sendings[nsendings++];
    const void *data = parts[0].at;
    sending->packed = NULL;
    if (nparts > 1 || !is_contiguous(&parts[0])) {
        data = sending->packed = malloc(record.bytes);
        if (!data)
            give_up("no memory for bytes:", record.bytes);
        pack(parts, nparts, sending->packed);
    }
    PMPI_Isend(data, (int)record.bytes, MPI_BYTE, logger, TAG_DATA, traffic, &sending->request);
}

static void finish_sendings(void)
{
    for (size_t i = 0; i < nsendings; i++) {
        PMPI_Wait(&sendings[i].request, MPI_STATUS_IGNORE);
        free(sendings[i].packed);
    }
    nsendings = 0;
}

static struct record record_of(int call, int target, MPI_Aint displacement, MPI_Win win)
{
    return (struct record){.displacement = (uint64_t)displacement, .call = call, .source = me,
                           .target = target, .window = PMPI_Win_c2f(win)};
}

/* An access that only writes: its data can be sent at once. */
static void log_write(int call, const void *at, int count, MPI_Datatype type, int target,
                      MPI_Aint displacement, MPI_Win win)
{
    struct part part = {at, count, type};
    if (target != me && target != MPI_PROC_NULL && count)
        send_record(record_of(call, target, displacement, win), &part, 1);
}

/* An access with a result, which is there when the access is complete: remember it. */
static void log_result(int call, int target, MPI_Aint displacement, MPI_Win win,
                       const struct part *parts, int nparts)
{
    if (target == MPI_PROC_NULL)
        return;
    results = one_more(results, nresults, &room_results, sizeof *results);
    struct result *result = &results[nresults++];
    result->record = record_of(call, target, displacement, win);
    memcpy(result->parts, parts, (size_t)nparts * sizeof *parts);
    result->nparts = nparts;
    result->win = win;
}

/* The accesses of a window to a target (-1: to all) are complete: send their results. */
static void send_results(MPI_Win win, int target)
{
    size_t kept = 0;
    for (size_t i = 0; i < nresults; i++) {
        struct result *result = &results[i];
        if (result->win == win && (target < 0 || result->record.target == target))
            send_record(result->record, result->parts, result->nparts);
        else
            results[kept++] = *result;
    }
    nresults = kept;
    finish_sendings();
}

/* ---- intercepted: coming and going -----------------------------------------------------------*/

static int begin(int rc)
{
    int rank, size, loggers = (int)number_from("ML_LOGGERS");
    if (rc)
        return rc;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    int nslots = size - loggers, index = rank - nslots;
    ring_bytes = number_from("ML_RING_BYTES");
    if (loggers < 1 || nslots < loggers || ring_bytes < sizeof(struct record) + INLINE_BYTES)
        give_up("ML_LOGGERS or ML_RING_BYTES is too small, or too few processes:", (uint64_t)size);
    if (index >= 0) {
        ring = mmap(NULL, ring_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (ring == MAP_FAILED)
            give_up("no memory for a ring of bytes:", ring_bytes);
    }
    PMPI_Comm_dup(MPI_COMM_WORLD, &traffic);
    PMPI_Comm_split(MPI_COMM_WORLD, index >= 0, 0, &slots);
    if (index >= 0) {
        serve(index, nslots / loggers + (index < nslots % loggers));
        PMPI_Finalize();
        _exit(0);
    }
    me = rank;
    logger = nslots + rank % loggers;
    return rc;
}

int MPI_Init(int *argc, char ***argv)
{
    return begin(PMPI_Init(argc, argv));
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return begin(PMPI_Init_thread(argc, argv, required, provided));
}

int MPI_Finalize(void)
{
    send_record((struct record){.call = BYE, .source = me}, NULL, 0);
    return PMPI_Finalize();
}

/* ---- intercepted: accesses -------------------------------------------------------------------*/

int MPI_Put(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint displacement,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    log_write(PUT, origin, count, type, target, displacement, win);
    return PMPI_Put(origin, count, type, target, displacement, target_count, target_type, win);
}

int MPI_Rput(const void *origin, int count, MPI_Datatype type, int target, MPI_Aint displacement,
             int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
    log_write(PUT, origin, count, type, target, displacement, win);
    finish_sendings(); /* the request says when the program's memory is free again */
    return PMPI_Rput(origin, count, type, target, displacement, target_count, target_type, win,
                     request);
}

int MPI_Accumulate(const void *origin, int count, MPI_Datatype type, int target,
                   MPI_Aint displacement, int target_count, MPI_Datatype target_type, MPI_Op op,
                   MPI_Win win)
{
    log_write(ACCUMULATE, origin, count, type, target, displacement, win);
    return PMPI_Accumulate(origin, count, type, target, displacement, target_count, target_type,
                           op, win);
}

int MPI_Raccumulate(const void *origin, int count, MPI_Datatype type, int target,
                    MPI_Aint displacement, int target_count, MPI_Datatype target_type, MPI_Op op,
                    MPI_Win win, MPI_Request *request)
{
    log_write(ACCUMULATE, origin, count, type, target, displacement, win);
    finish_sendings();
    return PMPI_Raccumulate(origin, count, type, target, displacement, target_count, target_type,
                            op, win, request);
}

int MPI_Get(void *origin, int count, MPI_Datatype type, int target, MPI_Aint displacement,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    struct part part = {origin, count, type};
    log_result(GET, target, displacement, win, &part, 1);
    return PMPI_Get(origin, count, type, target, displacement, target_count, target_type, win);
}

int MPI_Get_accumulate(const void *origin, int count, MPI_Datatype type, void *result,
                       int result_count, MPI_Datatype result_type, int target,
                       MPI_Aint displacement, int target_count, MPI_Datatype target_type,
                       MPI_Op op, MPI_Win win)
{
    struct part parts[] = {{result, result_count, result_type}, {origin, count, type}};
    log_result(GET_ACCUMULATE, target, displacement, win, parts, op == MPI_NO_OP ? 1 : 2);
    return PMPI_Get_accumulate(origin, count, type, result, result_count, result_type, target,
                               displacement, target_count, target_type, op, win);
}

int MPI_Fetch_and_op(const void *origin, void *result, MPI_Datatype type, int target,
                     MPI_Aint displacement, MPI_Op op, MPI_Win win)
{
    struct part parts[] = {{result, 1, type}, {origin, 1, type}};
    log_result(FETCH_AND_OP, target, displacement, win, parts, op == MPI_NO_OP ? 1 : 2);
    return PMPI_Fetch_and_op(origin, result, type, target, displacement, op, win);
}

int MPI_Compare_and_swap(const void *origin, const void *compare, void *result, MPI_Datatype type,
                         int target, MPI_Aint displacement, MPI_Win win)
{
    struct part parts[] = {{result, 1, type}, {origin, 1, type}, {compare, 1, type}};
    log_result(COMPARE_AND_SWAP, target, displacement, win, parts, 3);
    return PMPI_Compare_and_swap(origin, compare, result, type, target, displacement, win);
}

/* Their results are there when a request is complete, and requests are not watched here. */
int MPI_Rget(void *origin, int count, MPI_Datatype type, int target, MPI_Aint displacement,
             int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
    (void)origin, (void)count, (void)type, (void)target, (void)displacement, (void)target_count;
    (void)target_type, (void)request;
    PMPI_Win_call_errhandler(win, MPI_ERR_UNSUPPORTED_OPERATION);
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

int MPI_Rget_accumulate(const void *origin, int count, MPI_Datatype type, void *result,
                        int result_count, MPI_Datatype result_type, int target,
                        MPI_Aint displacement, int target_count, MPI_Datatype target_type,
                        MPI_Op op, MPI_Win win, MPI_Request *request)
{
    (void)origin, (void)count, (void)type, (void)op;
    return MPI_Rget(result, result_count, result_type, target, displacement, target_count,
                    target_type, win, request);
}

/* ---- intercepted: what completes accesses ----------------------------------------------------*/

/* Everything is logged when the call returns: data before it, results after it. */
#define COMPLETES(call, win, target)                                                              \
    finish_sendings();                                                                            \
    int rc = (call);                                                                              \
    send_results(win, target);                                                                    \
    return rc

int MPI_Win_flush(int rank, MPI_Win win)
{
    COMPLETES(PMPI_Win_flush(rank, win), win, rank);
}

int MPI_Win_flush_local(int rank, MPI_Win win)
{
    COMPLETES(PMPI_Win_flush_local(rank, win), win, rank);
}

int MPI_Win_flush_all(MPI_Win win)
{
    COMPLETES(PMPI_Win_flush_all(win), win, -1);
}

int MPI_Win_flush_local_all(MPI_Win win)
{
    COMPLETES(PMPI_Win_flush_local_all(win), win, -1);
}

int MPI_Win_unlock(int rank, MPI_Win win)
{
    COMPLETES(PMPI_Win_unlock(rank, win), win, rank);
}

int MPI_Win_unlock_all(MPI_Win win)
{
    COMPLETES(PMPI_Win_unlock_all(win), win, -1);
}

int MPI_Win_fence(int assert, MPI_Win win)
{
    COMPLETES(PMPI_Win_fence(assert, win), win, -1);
}

int MPI_Win_complete(MPI_Win win)
{
    COMPLETES(PMPI_Win_complete(win), win, -1);
}
