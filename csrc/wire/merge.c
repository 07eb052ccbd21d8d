/* Words that come from other nodes, and words that were changed on this one.
 *
 * A word that comes is stored by compare-and-swap from its shadow, so that a change of this node
 * that has not been sent yet stays, and is ordered after the word. A change that was sent, and that
 * the hub has not taken yet, is ordered after all words that come until the hub takes it.
 *
 * The journal is valid from before the first store of a message until after the last. If the agent
 * is killed in between, the next one stores the rest, and does not mistake a word that has come for
 * a change of this node. It cannot know one thing: a process may have stored the old value once
 * more, after the word was stored and before its shadow was. That store is overwritten, as if it
 * had come first.
 */
#define _GNU_SOURCE
#include "merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failpoint.h"

#define FIFO "poke-" /* beginning of the names of FIFOs, beside the ledger */

int ftrma_merge_alarmed(const struct ftrma_mirror *m)
{
    return m->alarm && LOAD(m->alarm) != LOAD(m->calm);
}

/* ---- words that come ---- */

/* Raise the alarm and its shadow to a value. Returns 1 if the alarm is higher now. */
static int raise_alarm(struct ftrma_mirror *m, uint64_t word, uint64_t value)
{
    uint64_t now = LOAD(m->at[word]), raised = 0;
    while (now < value && !raised)
        raised = __atomic_compare_exchange_n(m->at[word], &now, value, 0, __ATOMIC_SEQ_CST,
                                             __ATOMIC_ACQUIRE);
    ftrma_failpoint(m->agent, FTRMA_WIRE_AT_SHADOW);
    if (m->shadow[word] < value)
        STORE(&m->shadow[word], value);
    return raised != 0;
}

/* Store a word that has come. Returns 1 if it has raised the alarm. */
static int take(struct ftrma_mirror *m, uint64_t word, uint64_t value)
{
    ftrma_failpoint(m->agent, FTRMA_WIRE_AT_MIRROR);
    if (m->kinds[word] == FTRMA_MIRROR_ALARM)
        return raise_alarm(m, word, value);
    if (m->pending[word] > m->header->acked)
        return 0;
    uint64_t before = m->shadow[word];
    __atomic_compare_exchange_n(m->at[word], &before, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
    ftrma_failpoint(m->agent, FTRMA_WIRE_AT_SHADOW);
    STORE(&m->shadow[word], value);
    return 0;
}

static void ring_all(struct ftrma_mirror *m)
{
    for (uint64_t i = 0; i < m->header->regions; i++)
        if (m->regions[i].kind == FTRMA_MIRROR_BELL)
            ftrma_parts_ring((struct ftrma_bell *)(void *)(m->file + m->regions[i].offset));
}

/* Write a byte to the FIFO of a process that does not sleep at a bell, if the process lives. */
static void wake_by_fifo(int directory, const char *name)
{
    struct stat st;
    int fd = openat(directory, name, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISFIFO(st.st_mode) && st.st_uid == geteuid())
        while (write(fd, "", 1) < 0 && errno == EINTR)
            ; /* EAGAIN: the FIFO is full */
    close(fd);
}

static void wake_by_fifos(const struct ftrma_mirror *m)
{
    int fd = openat(m->agent->ledger->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    if (!names && fd >= 0)
        close(fd);
    for (struct dirent *name; names && (name = readdir(names));)
        if (!strncmp(name->d_name, FIFO, sizeof FIFO - 1))
            wake_by_fifo(fd, name->d_name);
    if (names)
        closedir(names);
}

/* Store the words in the journal from `done` on. */
static void finish(struct ftrma_mirror *m, int raised)
{
    struct ftrma_mirror_header *h = m->header;
    for (uint64_t i = h->done; i < h->count; i++) {
        raised |= take(m, m->journal[i].word, m->journal[i].value);
        STORE(&h->done, i + 1);
    }
    ring_all(m);
    if (raised)
        wake_by_fifos(m);
    if (h->number)
        STORE(&m->taken[h->from], h->number);
    STORE(&h->valid, 0);
}

const char *ftrma_merge_stage(struct ftrma_mirror *m, const void *words, uint64_t n)
{
    memcpy(m->journal, words, n * sizeof *m->journal);
    for (uint64_t i = 0; i < n; i++)
        if (m->journal[i].word >= m->header->words)
            return "a word outside of the regions";
    return NULL;
}

void ftrma_merge_take(struct ftrma_mirror *m, uint32_t from, uint64_t number, uint64_t n)
{
    struct ftrma_mirror_header *h = m->header;
    h->from = from;
    h->number = number;
    h->count = n;
    h->done = 0;
    STORE(&h->valid, 1);
    finish(m, 0);
}

void ftrma_merge_finish(struct ftrma_mirror *m)
{
    int lost = 0;
    for (uint64_t i = 0; i < m->header->count; i++)
        lost |= m->journal[i].word >= m->header->words;
    if (LOAD(&m->header->valid) && !lost)
        finish(m, ftrma_merge_alarmed(m));
}

/* ---- words that were changed here ---- */

/* 1 if the word was sent over an earlier connection, and the hub did not take it. */
static int is_lost(const struct ftrma_mirror *m, uint64_t word)
{
    return m->pending[word] > m->header->acked && m->pending[word] <= m->resends;
}

static int is_changed(const struct ftrma_mirror *m, uint64_t word, uint64_t now)
{
    if (m->kinds[word] == FTRMA_MIRROR_ALARM)
        return now > m->shadow[word];
    return now != m->shadow[word];
}

static uint64_t find(struct ftrma_mirror *m, int all, int hot)
{
    uint64_t n = 0;
    for (uint64_t w = 0; w < m->header->words; w++) {
        int looked_at = hot || m->kinds[w] != FTRMA_MIRROR_HOT;
        uint64_t now = LOAD(m->at[w]);
        if (all || (looked_at && is_changed(m, w, now)) || is_lost(m, w))
            m->found[n++] = (struct ftrma_wire_word){w, now};
    }
    return n;
}

uint64_t ftrma_merge_find(struct ftrma_mirror *m, int all)
{
    /* Hot words are sent together with the word that raises the alarm, which may change during the
       search, and once more with the word that ends it. */
    int hot = ftrma_merge_alarmed(m), wide = all || hot || m->hot;
    uint64_t n = find(m, all, wide);
    if (!wide && (hot = ftrma_merge_alarmed(m)))
        n = find(m, all, 1);
    m->hot = all ? m->hot : hot;
    for (uint64_t i = 0; i < n / 2; i++) {
        struct ftrma_wire_word word = m->found[i];
        m->found[i] = m->found[n - 1 - i];
        m->found[n - 1 - i] = word;
    }
    return n;
}

void ftrma_merge_note(struct ftrma_mirror *m, uint64_t first, uint64_t n, uint64_t number)
{
    for (uint64_t i = first; i < first + n; i++) {
        if (number)
            STORE(&m->pending[m->found[i].word], number);
        STORE(&m->shadow[m->found[i].word], m->found[i].value);
    }
    if (number)
        STORE(&m->header->sent, number);
    ftrma_failpoint(m->agent, FTRMA_WIRE_AT_SCAN);
}

void ftrma_merge_note_ordered(struct ftrma_mirror *m)
{
    struct ftrma_mirror_header *h = m->header;
    if (h->ordered >= m->scan || (m->agent->node && h->acked < m->last))
        return;
    STORE(&h->ordered, m->scan);
    ring_all(m);
}
