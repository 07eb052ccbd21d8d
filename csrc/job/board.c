/* Boards: memory that the members of a communicator share.
 *
 * The boards that exist are also the list of communicators. The member that comes first makes the
 * whole board, before any member has the library make its part, and the board is removed when all
 * have freed the communicator. So a repair finds every communicator that some survivor uses, and a
 * replacement learns of those whose calls it has not come to yet.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "board.h"
#include "control.h"

/* Bytes of all areas together, and limits of one area. They are chosen so that the areas of the
   world stay in a cache and many derived communicators take little memory; an area is a page at
   least. */
#define WORLD_BYTES ((size_t)8 << 20)
#define DERIVED_BYTES ((size_t)512 << 10)
#define AREA_LEAST ((size_t)4 << 10)
#define AREA_MOST ((size_t)256 << 10)
#define LINE ((size_t)64)
#define PATH_BYTES 4096
#define PREFIX "comm-"
#define NAME PREFIX "%016llx"

/* The program's windows have smaller numbers; the lower bits follow from the communicator's id. */
#define WIRE_WINDOWS 0xc0000000u
#define GENERATION 1 /* a board never moves */

/* Set once by ftrma_boards_reach, before the program runs. Servers have it, too, since after a
   rollback one of them may clear away the node's boards. */
static struct ftrma_ledger *ledger;
static uint32_t here;

static size_t round_up(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

size_t ftrma_area_bytes(const struct ftrma_spec *spec)
{
    size_t all = spec->id == FTRMA_WORLD_ID ? WORLD_BYTES : DERIVED_BYTES;
    size_t bytes = all / 2 / (size_t)spec->n / LINE * LINE;
    return bytes < AREA_LEAST ? AREA_LEAST : bytes > AREA_MOST ? AREA_MOST : bytes;
}

static size_t file_bytes(const struct ftrma_spec *spec)
{
    size_t n = (size_t)spec->n;
    return round_up(sizeof(struct ftrma_board)) + n * sizeof(struct ftrma_word)
           + 2 * n * ftrma_area_bytes(spec);
}

static int path_of(uint64_t id, char *path)
{
    int n = snprintf(path, PATH_BYTES, "%s/" NAME, ftrma_directory, (unsigned long long)id);
    return n < 0 || n >= PATH_BYTES - 16 ? -ENAMETOOLONG : 0;
}

/* Make the file under a name of this process, then link it to its own name. So a file of that name
   is always whole, and the first one stays. */
static int make(const struct ftrma_spec *spec, const char *path)
{
    char own[PATH_BYTES + 16];
    snprintf(own, sizeof own, "%s.%d", path, (int)getpid());
    int fd = ftrma_open(own, O_RDWR | O_CREAT | O_TRUNC);
    if (fd < 0)
        return fd;
    struct ftrma_board board = {.spec = *spec, .area_bytes = ftrma_area_bytes(spec)};
    /* Allocating the memory now turns a full /dev/shm into an error here instead of a signal
       later. */
    int error = posix_fallocate(fd, 0, (off_t)file_bytes(spec));
    if (!error && pwrite(fd, &board, sizeof board, 0) != (ssize_t)sizeof board)
        error = EIO;
    close(fd);
    if (!error && link(own, path) && errno != EEXIST)
        error = errno;
    unlink(own);
    return -error;
}

/* ---- other nodes ----------------------------------------------------------------------------- */

void ftrma_boards_reach(struct ftrma_ledger *node_ledger, uint32_t target)
{
    ledger = node_ledger;
    here = target;
}

uint32_t ftrma_board_window(uint64_t id)
{
    return WIRE_WINDOWS | (uint32_t)(id * 0x9e3779b97f4a7c15ull >> 34);
}

/* Enter the board in the node's ledger, unless another process of the node has done so. */
static int announce(const struct communicator *c)
{
    struct ftrma_wire_part part = {
        .window = ftrma_board_window(c->spec.id), .target = here, .generation = GENERATION,
        .bytes = c->board_bytes, .words = FTRMA_WIRE_PLAIN,
        .head = (uint64_t)(c->areas - (const char *)c->board)};
    snprintf(part.file, sizeof part.file, NAME, (unsigned long long)c->spec.id);
    int error = ledger ? ftrma_parts_share(ledger, &part) : 0;
    return error == -ENOSPC ? -EMFILE : error;
}

static void withdraw(uint64_t id)
{
    if (ledger)
        ftrma_parts_unshare(ledger, ftrma_board_window(id), here, GENERATION);
}

/* ---- having one ------------------------------------------------------------------------------ */

static int map(struct communicator *c, const char *path)
{
    int fd = ftrma_open(path, O_RDWR);
    if (fd < 0)
        return fd;
    struct stat st;
    size_t bytes = file_bytes(&c->spec);
    if (fstat(fd, &st) || (size_t)st.st_size != bytes) {
        close(fd);
        return -EPROTO;
    }
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = p == MAP_FAILED ? -errno : 0;
    close(fd);
    if (error)
        return error;
    c->board = p;
    c->board_bytes = bytes;
    c->words = (struct ftrma_word *)(void *)((char *)p + round_up(sizeof *c->board));
    c->areas = (char *)(c->words + c->spec.n);
    error = memcmp(&c->board->spec, &c->spec, sizeof c->spec) ? -EPROTO : announce(c);
    if (error)
        ftrma_board_close(c);
    return error;
}

int ftrma_board_find(struct communicator *c)
{
    char path[PATH_BYTES];
    int error = c->board ? 0 : path_of(c->spec.id, path);
    return error || c->board ? error : map(c, path);
}

int ftrma_board_open(struct communicator *c)
{
    char path[PATH_BYTES];
    int error = ftrma_board_find(c);
    if (error != -ENOENT)
        return error;
    error = path_of(c->spec.id, path);
    if (!error)
        error = make(&c->spec, path);
    return error ? error : map(c, path);
}

void ftrma_board_close(struct communicator *c)
{
    if (c->board)
        munmap(c->board, c->board_bytes);
    c->board = NULL;
}

void ftrma_board_remove(uint64_t id)
{
    char path[PATH_BYTES];
    withdraw(id);
    if (!path_of(id, path))
        unlink(path);
}

/* ---- the list ------------------------------------------------------------------------------- */

int ftrma_spec_find(uint64_t id, struct ftrma_spec *spec)
{
    char path[PATH_BYTES];
    int error = path_of(id, path);
    int fd = error ? error : ftrma_open(path, O_RDONLY);
    if (fd < 0)
        return fd;
    ssize_t got = pread(fd, spec, sizeof *spec, offsetof(struct ftrma_board, spec));
    close(fd);
    return got == (ssize_t)sizeof *spec ? 0 : -EIO;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct ftrma_spec *)a)->id, y = ((const struct ftrma_spec *)b)->id;
    return x < y ? -1 : x > y;
}

int ftrma_boards_clear(void)
{
    DIR *directory = opendir(ftrma_directory);
    char world[32];
    snprintf(world, sizeof world, PREFIX "%016x", FTRMA_WORLD_ID);
    if (!directory)
        return -errno;
    for (struct dirent *entry; (entry = readdir(directory));)
        /* The world's board stays, even while somebody makes it. */
        if (!strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1)
            && strncmp(entry->d_name, world, strlen(world))) {
            withdraw(strtoull(entry->d_name + sizeof PREFIX - 1, NULL, 16));
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
    closedir(directory);
    return 0;
}

int ftrma_specs(struct ftrma_spec **list, size_t *n)
{
    *list = NULL;
    *n = 0;
    DIR *directory = opendir(ftrma_directory);
    if (!directory)
        return -errno;
    size_t room = 0;
    int error = 0;
    for (struct dirent *entry; !error && (entry = readdir(directory));) {
        char *end;
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1))
            continue;
        uint64_t id = strtoull(entry->d_name + sizeof PREFIX - 1, &end, 16);
        if (*end || id == FTRMA_WORLD_ID)
            continue; /* not finished: its process died */
        if (*n == room) {
            room = room ? 2 * room : 16;
            struct ftrma_spec *grown = realloc(*list, room * sizeof *grown);
            error = grown ? 0 : -ENOMEM;
            *list = grown ? grown : *list;
        }
        if (!error)
            error = ftrma_spec_find(id, &(*list)[*n]);
        *n += !error;
    }
    closedir(directory);
    if (!error && *n)
        qsort(*list, *n, sizeof **list, by_id);
    return error;
}
