/*
 * Messages that nobody should send, to an agent, to agents that mirror a file, and to an origin; as
 * by somebody who has the key, so behind the door. Law: what is written is inside of what the
 * message is about, what is told is well formed, and the sanitizers find nothing.
 *
 *   cd csrc/wire && cc -std=gnu11 -O1 -g -fsanitize=address,undefined -I. -I.. *.c \
 *      ../../tests/c/engine_simple.c ../../tests/c/fuzz_wire.c -o fuzz_wire \
 *   && ./fuzz_wire DIRECTORY SEED MESSAGES
 *
 * Heads are mostly right, so that they are obeyed; each number in them is now and then one at an
 * edge: of a part, of its words, of 32 and of 64 bits. Around what may be written lies what may
 * not. Sums are right but for messages of which a bit is changed on the way: those have no effect,
 * and end their connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_state.h"
#include "fuzz.h"
#include "message.h"
#include "mirror.h"
#include "retransmit.h"
#include "spokes.h"
#include "sum.h"

enum { ORIGINS = 3, TARGETS = 4, WINDOW = 7, HEAD = 4096, WORDS = 1024, PART = 1000 };
enum { FILE_BYTES = 8192 };
/* Targets: a window, a plain file, one whose words can be SET, a window in a process's memory. */
enum { WHOLE, PLAIN, RAISED, PRIVATE };
enum { LIFE = 400 }; /* messages to one ledger, or one origin */
#define GUARD 0x5A

static const char *engine; /* each one that is registered, in turn */
static unsigned long done; /* messages so far, for who looks for the one that did it */

static void expect(int holds, const char *law)
{
    if (holds)
        return;
    printf("FAILS: %s, at message %lu\n", law, done);
    exit(1);
}

/* A number at an edge, or a little beside it. */
static uint64_t edge(void)
{
    static const uint64_t edges[] = {
        0, 8, 16, WORDS, HEAD, PART, FILE_BYTES, FTRMA_WIRE_ATOMIC_BYTES,
        FTRMA_WIRE_PAYLOAD_BYTES, FTRMA_WIRE_RUNS, 1ull << 31, 1ull << 32, 1ull << 62, 1ull << 63, 0 - (uint64_t)PART, 0 - (uint64_t)HEAD,
        0 - (uint64_t)8};
    return edges[below(sizeof edges / sizeof *edges)] + (one_in(2) ? 0 : (uint64_t)below(17) - 8);
}

static void must(long result)
{
    if (result >= 0)
        return;
    printf("FAILS: no place to fuzz in: %ld, %s\n", result, strerror(errno));
    exit(2);
}

/* ---- messages ------------------------------------------------------------------------------- */

static unsigned char payload[2 * FTRMA_WIRE_PAYLOAD_BYTES];

static void fill(size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = any();
        memcpy(payload + i, &word, sizeof word);
    }
}

/* Runs at edges, of which most are small. Returns their bytes together. */
static uint64_t runs(size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        struct ftrma_wire_run run = {below(PART), 1 + below(16)};
        if (one_in(8))
            run.offset = edge();
        if (one_in(32))
            run.bytes = edge();
        memcpy(payload + i * sizeof run, &run, sizeof run);
        sum += run.bytes;
    }
    return sum;
}

/* A request that could be one, but for the numbers at edges. */
static struct ftrma_wire_head request(struct ftrma_ledger *l, uint32_t origin)
{
    struct ftrma_wire_head head = {
        .kind = (uint16_t)(1 + below(FTRMA_WIRE_RESEND)), .format = FTRMA_WIRE_FORMAT,
        .roles_number = (uint32_t)l->header->roles_number, .target = (uint32_t)below(TARGETS),
        .generation = 1, .offset = below(PART / 8) * 8, .operand = below(64)};
    uint64_t next = ftrma_ledger_number(l, origin, head.target) + 1;
    head.number = one_in(16) ? next - below(3) : next;
    head.window = head.kind <= FTRMA_WIRE_GETV ? WINDOW : 0;
    size_t n = 1 + below(4), bytes = 0;
    fill(64);
    switch (head.kind) {
    case FTRMA_WIRE_PUT:
        fill(bytes = one_in(64) ? below(FTRMA_WIRE_PAYLOAD_BYTES) : 1 + below(64));
        break;
    case FTRMA_WIRE_PUTV:
        n = one_in(64) ? 1 + below(FTRMA_WIRE_RUNS) : n;
        head.operand = n;
        bytes = (size_t)runs(n) % FTRMA_WIRE_PAYLOAD_BYTES + n * sizeof(struct ftrma_wire_run);
        break;
    case FTRMA_WIRE_GETV:
        runs(n);
        bytes = n * sizeof(struct ftrma_wire_run);
        break;
    case FTRMA_WIRE_ACC:
    case FTRMA_WIRE_FOP:
    case FTRMA_WIRE_CAS:
        head.operation = (uint8_t)(1 + below(FTRMA_WIRE_TYPES - 1));
        bytes = ftrma_message_element(head.operation) * (head.kind == FTRMA_WIRE_ACC ? n : 1);
        if (head.kind != FTRMA_WIRE_CAS)
            head.operation = (uint8_t)(head.operation | (1 + below(FTRMA_WIRE_OPS - 1)) << 4);
        break;
    case FTRMA_WIRE_LOCK:
    case FTRMA_WIRE_UNLOCK:
        head.operand = below(FTRMA_WIRE_LOCKS);
        break;
    case FTRMA_WIRE_HOLD:
        head.kind = one_in(4) ? head.kind : FTRMA_WIRE_RELEASE;
        break;
    case FTRMA_WIRE_ROLES:
        head.roles_number += one_in(4);
        head.operand = below(2);
        break;
    default:
        break;
    }
    head.length = (uint32_t)bytes;
    return head;
}

/* Spoil a head at a few places, or none. */
static void spoil(struct ftrma_wire_head *head)
{
    switch (below(40)) {
    case 0: head->kind = (uint16_t)below(FTRMA_WIRE_KINDS + 2); break;
    case 1: head->operation = (uint8_t)any(); break;
    case 2: head->length = (uint32_t)edge(); break;
    case 3: head->number = edge(); break;
    case 4: head->roles_number += (uint32_t)below(3) - 1; break;
    case 5: head->window = (uint32_t)edge(); break;
    case 6: head->target = (uint32_t)edge(); break;
    case 7: head->generation = (uint32_t)edge(); break;
    case 8: head->format = (uint8_t)any(); break;
    default: break;
    }
    if (one_in(5))
        head->offset = edge();
    if (one_in(10))
        head->operand = edge();
}

/* The messages to one end so far. astray: one had another length than it said; flipped: a bit of the
   last one was changed. */
struct way {
    int astray, flipped;
};

static void flip(struct ftrma_wire_head *head, size_t bytes)
{
    size_t bit = one_in(2) ? below(8 * sizeof *head) : below(8 * (sizeof *head + bytes));
    unsigned char *byte = bit / 8 < sizeof *head ? (unsigned char *)head + bit / 8
                                                 : payload + (bit / 8 - sizeof *head);
    *byte = (unsigned char)(*byte ^ 1u << bit % 8);
}

/* Say a message, whose length may be another than it says. */
static void say(int fd, struct ftrma_wire_head *head, size_t bytes, struct way *way)
{
    bytes = bytes < sizeof payload ? bytes : sizeof payload;
    done++;
    size_t summed = head->length < sizeof payload ? head->length : 0;
    head->payload_sum = summed ? ftrma_sum(payload, summed) : 0;
    head->head_sum = ftrma_sum(head, offsetof(struct ftrma_wire_head, head_sum));
    way->astray |= bytes != head->length;
    if ((way->flipped = one_in(16)))
        flip(head, bytes < summed ? bytes : summed);
    if (send(fd, head, sizeof *head, MSG_NOSIGNAL) == (ssize_t)sizeof *head && bytes)
        (void)!send(fd, payload, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Look at an end behind a message. open: the connection still is. Returns the same. */
static int look(struct way *way, int open)
{
    expect(!way->flipped || way->astray || !open, "a message that was changed ends the connection");
    if (!open)
        *way = (struct way){0};
    return open;
}

/* Take all that was told. 0: the connection is over. */
static int hear(int fd, int side)
{
    static unsigned char told[1 << 20];
    static size_t have;
    ssize_t n;
    while ((n = recv(fd, told + have, sizeof told - have, MSG_DONTWAIT)) > 0) {
        size_t from = 0;
        for (struct ftrma_wire_head head; (size_t)n + have - from >= sizeof head;) {
            memcpy(&head, told + from, sizeof head);
            expect(!ftrma_message_fault(&head, side), "what is told is well formed");
            if ((size_t)n + have - from < sizeof head + head.length)
                break;
            from += sizeof head + head.length;
        }
        have = have + (size_t)n - from;
        memmove(told, told + from, have);
    }
    if (n < 0 && errno == EAGAIN)
        return 1;
    have = 0;
    return 0;
}

static void pair(int fd[2])
{
    int room = 4 << 20; /* nobody reads while this process writes */
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
    must(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room));
}

/* ---- files, and what of them may not be written ---------------------------------------------- */

static char directory[256];

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static unsigned char *make_file(const char *name)
{
    int fd = open(path_of(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(fd);
    must(ftruncate(fd, FILE_BYTES));
    unsigned char *map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(map == MAP_FAILED ? -1 : 0);
    must(close(fd));
    memset(map, GUARD, FILE_BYTES);
    return map;
}

static void untouched(const unsigned char *map, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        expect(map[i] == GUARD, "nothing is written outside of the part, its words and its head");
}

/* ---- an agent -------------------------------------------------------------------------------- */

static unsigned char *files[TARGETS];
static struct { unsigned char before[64], part[PART], behind[64]; } memory;

static void place(struct ftrma_ledger *l)
{
    for (uint32_t t = 0; t < TARGETS; t++) {
        static const uint64_t heads[TARGETS] = {WORDS, 0, 64, WORDS};
        int words = t == WHOLE || t == PRIVATE;
        struct ftrma_wire_part part = {
            .window = WINDOW, .target = t, .generation = 1, .at = HEAD, .bytes = PART,
            .words = words ? WORDS : FTRMA_WIRE_PLAIN, .head = heads[t]};
        if (t == PRIVATE) {
            part.pid = getpid();
            part.at = (uint64_t)(uintptr_t)memory.part;
        }
        snprintf(part.file, sizeof part.file, "part-%u", t);
        files[t] = make_file(part.file);
        memset(files[t], 0, part.head);
        if (words)
            memset(files[t] + WORDS, 0, sizeof(struct ftrma_wire_words));
        must(ftrma_parts_place(l, t, &part));
    }
    memset(&memory, GUARD, sizeof memory);
}

static void check_files(void)
{
    size_t words = WORDS + sizeof(struct ftrma_wire_words);
    for (int t = 0; t < TARGETS; t++) {
        size_t head = t == PLAIN ? 0 : t == RAISED ? 64 : words;
        untouched(files[t], head, HEAD);
        untouched(files[t], t == PRIVATE ? HEAD : HEAD + PART, FILE_BYTES);
    }
    untouched(memory.before, 0, sizeof memory.before);
    untouched(memory.behind, 0, sizeof memory.behind);
}

static void fuzz_agent(unsigned long messages)
{
    struct ftrma_ledger *l;
    struct ftrma_agent *a;
    int fds[ORIGINS] = {-1, -1, -1};
    struct way ways[ORIGINS] = {0};
    unlink(path_of("ledger"));
    must(ftrma_ledger_make(path_of("ledger"), ORIGINS, TARGETS, TARGETS));
    must(ftrma_ledger_open(path_of("ledger"), &l));
    place(l);
    must(ftrma_agent_open(path_of("ledger"), engine, &a));
    for (unsigned long i = 0; i < messages; i++) {
        uint32_t origin = (uint32_t)below(ORIGINS);
        if (fds[origin] < 0) {
            int fd[2];
            pair(fd);
            must(ftrma_agent_adopt(a, fd[1], origin, 0));
            fds[origin] = fd[0];
        }
        struct ftrma_wire_head head = request(l, origin);
        size_t bytes = head.length;
        if (one_in(2))
            spoil(&head);
        uint64_t numbers[TARGETS];
        for (uint32_t t = 0; t < TARGETS; t++)
            numbers[t] = ftrma_ledger_number(l, origin, t);
        say(fds[origin], &head, one_in(50) ? below(200) : bytes, &ways[origin]);
        int flipped = ways[origin].flipped && !ways[origin].astray;
        (void)ftrma_agent_serve(a, 0);
        for (int o = 0; o < ORIGINS; o++)
            if (fds[o] >= 0 && !look(&ways[o], hear(fds[o], FTRMA_WIRE_REPLIES))) {
                close(fds[o]);
                fds[o] = -1;
            }
        for (uint32_t t = 0; t < TARGETS && flipped; t++)
            expect(numbers[t] == ftrma_ledger_number(l, origin, t),
                   "a message that was changed has no effect");
        if (one_in(64)) { /* the agent's successor takes its ledger over */
            ftrma_agent_close(a);
            must(ftrma_agent_open(path_of("ledger"), engine, &a));
        }
        check_files();
    }
    ftrma_agent_close(a);
    ftrma_ledger_close(l);
    for (int o = 0; o < ORIGINS; o++)
        close(fds[o]);
    for (int t = 0; t < TARGETS; t++)
        munmap(files[t], FILE_BYTES);
}

/* ---- agents that mirror ---------------------------------------------------------------------- */

enum { MIRRORED = 14 }; /* words of the regions below; the bell is none */
static const struct ftrma_mirror_region regions[] = {
    {64, 64, FTRMA_MIRROR_WORDS}, {256, 16, FTRMA_MIRROR_HOT}, {512, 8, FTRMA_MIRROR_ALARM},
    {520, 8, FTRMA_MIRROR_CALM}, {1024, 8, FTRMA_MIRROR_ECHO}, {1032, 8, FTRMA_MIRROR_ECHO},
    {2048, 8, FTRMA_MIRROR_BELL}};
enum { REGIONS = sizeof regions / sizeof *regions };

static void fuzz_mirror(uint32_t node, unsigned long messages)
{
    struct ftrma_agent *a;
    unsigned char *file = make_file("shared");
    struct way way = {0};
    int fd = -1;
    for (int i = 0; i < REGIONS; i++)
        memset(file + regions[i].offset, 0, regions[i].bytes);
    unlink(path_of("ledger"));
    unlink(path_of("mirror"));
    must(ftrma_ledger_make(path_of("ledger"), ORIGINS, TARGETS, TARGETS));
    must(ftrma_mirror_make(path_of("mirror"), "shared", regions, REGIONS));
    must(ftrma_agent_open(path_of("ledger"), engine, &a));
    must(ftrma_spokes_open(a, path_of("mirror"), node));
    uint64_t number = 0;
    for (unsigned long i = 0; i < messages; i++) {
        if (fd < 0) {
            int both[2];
            pair(both);
            must(ftrma_spokes_adopt(a, both[1], node ? 0 : 1));
            fd = both[0];
        }
        struct ftrma_wire_head head = {
            .kind = one_in(4) ? FTRMA_WIRE_MIRRORED : FTRMA_WIRE_MIRROR,
            .format = FTRMA_WIRE_FORMAT};
        number = one_in(8) ? edge() : number + 1;
        head.number = node && head.kind == FTRMA_WIRE_MIRROR ? 0 : one_in(4) ? below(4) : number;
        size_t most = one_in(64) ? FTRMA_MIRROR_MESSAGE_WORDS : 5;
        size_t n = head.kind == FTRMA_WIRE_MIRRORED ? 0 : below(most);
        for (size_t w = 0; w < n; w++) {
            struct ftrma_wire_word word = {below(MIRRORED), any() >> below(64)};
            if (one_in(40))
                word.word = one_in(2) ? edge() : MIRRORED;
            memcpy(payload + w * sizeof word, &word, sizeof word);
        }
        head.length = (uint32_t)(n * sizeof(struct ftrma_wire_word));
        size_t bytes = head.length;
        if (one_in(8))
            spoil(&head);
        unsigned char before[FILE_BYTES];
        memcpy(before, file, FILE_BYTES);
        say(fd, &head, one_in(50) ? below(200) : bytes, &way);
        (void)ftrma_agent_serve(a, 0);
        expect(!way.flipped || !memcmp(before, file, 1024),
               "words that were changed on their way are not stored");
        if (one_in(8))
            file[64 + below(64)]++; /* a process of this node writes, too */
        (void)ftrma_agent_serve(a, 0);
        if (!look(&way, hear(fd, FTRMA_WIRE_REQUESTS | FTRMA_WIRE_REPLIES))) {
            close(fd);
            fd = -1;
        }
        size_t from = 0;
        for (int r = 0; r < REGIONS; r++) {
            untouched(file, from, regions[r].offset);
            from = regions[r].offset + regions[r].bytes;
        }
        untouched(file, from, FILE_BYTES);
    }
    ftrma_agent_close(a);
    close(fd);
    munmap(file, FILE_BYTES);
}

/* ---- an origin ------------------------------------------------------------------------------- */

static int other_end = -1; /* of the connection that the origin has asked for last */

static int connect_to(void *arg, int node, int timeout_ms)
{
    int fd[2];
    (void)arg, (void)node, (void)timeout_ms;
    if (other_end >= 0)
        close(other_end);
    pair(fd);
    other_end = fd[0];
    return fd[1];
}

static void take_acks(void *arg, int target, const struct ftrma_wire_ack *acks, size_t n)
{
    (void)arg, (void)acks, (void)n;
    expect(target >= 0 && target < TARGETS, "only puts of this origin are acknowledged");
}

/* A reply to what the origin has sent, or is about to ask, but for the numbers at edges. */
static void reply(struct ftrma_origin *o)
{
    struct ftrma_wire_head head = {
        .kind = (uint16_t)(FTRMA_WIRE_DONE + below(FTRMA_WIRE_BROKEN - FTRMA_WIRE_DONE)),
        .format = FTRMA_WIRE_FORMAT, .roles_number = o->roles_number,
        .target = (uint32_t)below(TARGETS), .generation = 1, .operand = below(5)};
    struct ftrma_origin_target *t = &o->targets[head.target];
    const struct ftrma_wire_head *first = ftrma_retransmit_first(&t->kept);
    uint64_t number = first ? first->number : 1, bytes = first ? first->length : 8;
    head.number = one_in(3) ? FTRMA_TOKEN | (o->token + 1) : number;
    size_t length = 0;
    fill(64);
    if (one_in(16))
        head.kind = FTRMA_WIRE_RELEASE;
    if (head.kind == FTRMA_WIRE_BROKEN || head.kind == FTRMA_WIRE_OLD_ROLES)
        head.kind = one_in(16) ? head.kind : FTRMA_WIRE_ACK;
    if (head.kind == FTRMA_WIRE_BROKEN)
        length = 1 + below(256);
    if (head.kind == FTRMA_WIRE_DATA)
        length = one_in(4) ? 1 + below(4096) : 64;
    if (head.kind == FTRMA_WIRE_ACK) {
        length = below(4) * sizeof(struct ftrma_wire_ack);
        for (size_t at = 0; at < length; at += sizeof(struct ftrma_wire_ack)) {
            struct ftrma_wire_ack ack = {number, 1 + below(3), any(), any()};
            if (one_in(8))
                ack.number = edge();
            if (one_in(8))
                ack.count = edge();
            memcpy(payload + at, &ack, sizeof ack);
        }
    }
    if (head.kind == FTRMA_WIRE_ANSWER) {
        uint64_t words[3] = {any(), any(), one_in(2) ? edge() : bytes};
        fill(length = 24 + 2 * (size_t)bytes);
        memcpy(payload, words, sizeof words);
    }
    if (head.kind == FTRMA_WIRE_REJECTED) {
        head.number = t->resends;
        head.offset = one_in(4) ? edge() : number - 1;
    }
    static struct way way; /* an origin may look at it later, if it has ended the connection */
    head.length = (uint32_t)length;
    if (one_in(4))
        spoil(&head);
    say(other_end, &head, one_in(50) ? below(200) : length, &way);
}

static void ask(struct ftrma_origin *o)
{
    uint32_t target = (uint32_t)below(TARGETS);
    struct ftrma_wire_run two[2] = {{8, 24}, {below(PART), 40}};
    int type = 1 + (int)below(FTRMA_WIRE_TYPES - 1), how = (int)below(FTRMA_WIRE_LOCKS);
    size_t size = ftrma_message_element(type), n = 1 + below(4);
    struct { unsigned char data[64]; struct ftrma_wire_answer answer; } *to = malloc(sizeof *to);
    must(to ? 0 : -1);
    fill(64);
    switch (below(9)) {
    case 0:
        (void)ftrma_origin_put(o, target, WINDOW, below(PART), payload, 1 + below(64));
        break;
    case 1:
        (void)ftrma_origin_putv(o, target, WINDOW, two, 2, payload);
        break;
    case 2:
        (void)ftrma_origin_get(o, target, WINDOW, 0, to->data, sizeof to->data);
        break;
    case 3:
        (void)ftrma_origin_getv(o, target, WINDOW, two, 2, to->data);
        break;
    case 4:
        (void)ftrma_origin_atomic_begin(o, FTRMA_WIRE_ACC, FTRMA_WIRE_SUM, type, target, WINDOW, 0,
                                        0, payload, n * size);
        break;
    case 5:
        (void)ftrma_origin_atomic_begin(o, FTRMA_WIRE_CAS, 0, type, target, WINDOW, 0, 1, payload,
                                        size);
        break;
    case 6:
        (void)ftrma_origin_lock(o, target, WINDOW, how);
        break;
    case 7:
        (void)ftrma_origin_unlock(o, target, WINDOW, how);
        break;
    default:
        (void)ftrma_origin_set(o, target, WINDOW, 16, any());
    }
    for (size_t i = below(6); i; i--)
        reply(o);
    (void)ftrma_origin_finish(o, target, &to->answer);
    (void)ftrma_origin_flush(o, target);
    free(to);
}

static void fuzz_origin(unsigned long messages)
{
    struct ftrma_origin *o;
    must(ftrma_origin_open(TARGETS, 1, engine, connect_to, take_acks, NULL, &o));
    ftrma_origin_set_timeout(o, 0);
    for (uint32_t t = 0; t < TARGETS; t++)
        must(ftrma_origin_locate(o, t, 0, 1));
    for (unsigned long until = done + messages; done < until;) {
        (void)ftrma_origin_set(o, 0, WINDOW, 16, 1); /* so that it connects */
        ask(o);
        (void)hear(other_end, FTRMA_WIRE_REQUESTS);
        if (*ftrma_origin_reason(o))
            ftrma_origin_retry(o);
        if (one_in(16)) {
            static uint32_t roles_number;
            ftrma_origin_take_roles(o, ++roles_number, 1);
        }
        if (other_end < 0)
            done++;
    }
    ftrma_origin_close(o);
    close(other_end);
    other_end = -1;
}

int main(int argc, char **argv)
{
    if (argc != 4 || snprintf(directory, sizeof directory, "%s", argv[1]) >= (int)sizeof directory)
        return 2;
    seed(argv[2]);
    unsigned long messages = strtoul(argv[3], NULL, 0);
    for (size_t turn = 0; done < messages; turn++) {
        if (!(engine = ftrma_engine_name(turn)))
            engine = ftrma_engine_name(turn = 0);
        fuzz_agent(LIFE);
        fuzz_mirror(0, LIFE / 4);
        fuzz_mirror(1, LIFE / 4);
        fuzz_origin(LIFE);
    }
    printf("%lu messages\n", done);
    return 0;
}
