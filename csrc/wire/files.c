/* Plain files beside the ledger, which a process of another node can make, lengthen, examine and
   remove.
 *
 * Each file that has bytes becomes a part, which is read and written like any other. Carrying a
 * request out twice does no harm. The names have a prefix of their own, so that no request reaches
 * a file of the job's.
 */
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"
#include "reply.h"

/* Make a file at least so long. Returns its bytes, or a negative errno value. */
static int64_t lengthen(int directory, const char *name, uint64_t bytes)
{
    struct stat st;
    int fd = openat(directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int error = fstat(fd, &st) ? errno : 0;
    if (!error && !bytes)
        error = ftruncate(fd, 0) ? errno : 0;
    else if (!error && (uint64_t)st.st_size < bytes) /* its memory is allocated now, or there is an
                                                        error */
        error = posix_fallocate(fd, 0, (off_t)bytes);
    if (!error && fstat(fd, &st))
        error = errno;
    close(fd);
    return error ? -error : st.st_size;
}

/* The bytes of a file; -ENOENT if there is none; -EINVAL if it is something else. */
static int64_t look(int directory, const char *name)
{
    struct stat st;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ELOOP ? -EINVAL : -errno;
    int error = fstat(fd, &st) ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
    close(fd);
    return error ? -error : st.st_size;
}

/* Make the part this file, with its present length. The node may have made the file anew, so it is
   mapped again in any case. */
static int place(struct ftrma_ledger *l, const struct ftrma_wire_head *head, const char *name,
                 uint64_t bytes)
{
    struct ftrma_wire_part part = {.window = head->window, .target = head->target,
                                   .generation = head->generation, .bytes = bytes,
                                   .words = FTRMA_WIRE_PLAIN};
    snprintf(part.file, sizeof part.file, "%s", name);
    int at = ftrma_parts_find(l, head->window, head->target, head->generation);
    if (at >= 0 && strcmp(l->parts[at].place.file, name))
        return -EEXIST;
    if (at < 0 && (at = ftrma_parts_reserve(l, head->window, head->target)) < 0)
        return at;
    return ftrma_parts_place(l, (uint32_t)at, &part);
}

/* Release the part if it was this file, since reaching bytes that are gone is fatal. */
static void displace(struct ftrma_ledger *l, const struct ftrma_wire_head *head, const char *name)
{
    int at = ftrma_parts_find(l, head->window, head->target, head->generation);
    if (at >= 0 && !strcmp(l->parts[at].place.file, name))
        ftrma_parts_release(l, (uint32_t)at);
}

const char *ftrma_files_serve(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                              const void *payload)
{
    struct ftrma_ledger *l = peer->agent->ledger;
    char name[FTRMA_WIRE_NAME_BYTES] = {0};
    memcpy(name, payload, head->length);
    if (strncmp(name, FTRMA_WIRE_OWN_FILE, strlen(FTRMA_WIRE_OWN_FILE)) || strchr(name, '/')
        || strlen(name) != head->length)
        return "no name of such a file";
    int64_t bytes = 0;
    if (head->offset == FTRMA_WIRE_REMOVE) {
        displace(l, head, name);
        bytes = unlinkat(l->directory, name, 0) && errno != ENOENT ? -errno : 0;
    } else {
        bytes = head->offset == FTRMA_WIRE_MAKE ? lengthen(l->directory, name, head->operand)
                                                : look(l->directory, name);
        int error = bytes > 0 ? place(l, head, name, (uint64_t)bytes) : 0;
        if (!bytes || bytes == -ENOENT)
            displace(l, head, name);
        bytes = error ? error : bytes;
    }
    ftrma_reply(peer, head, FTRMA_WIRE_DONE, (uint64_t)bytes, NULL, 0);
    return NULL;
}
