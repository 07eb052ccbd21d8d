/* Hub and spokes: messages between agents, and their acknowledgements.
 *
 * A spoke numbers its messages; the words of messages without acknowledgement are pending. The hub
 * takes a message once, by its number. It passes the message on to all other spokes and
 * acknowledges it in one step: words that a spoke receives before an acknowledgement are ordered
 * before its own message, words that it receives afterwards are ordered after it.
 *
 * A connection begins with a MIRRORED in both directions. The hub's has the last number that it has
 * taken from this spoke, so that no message is sent again that others may have answered. Then the
 * hub sends all words, and the spoke sends again the words that the hub has not taken. The words of
 * a scan are ordered when the hub has acknowledged them over the present connection: by then all
 * words of the hub have come. A spoke that has nothing to send when a connection begins sends a
 * message without words, which the hub acknowledges.
 */
#define _GNU_SOURCE
#include "spokes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "failpoint.h"
#include "merge.h"
#include "peer.h"

#define PAUSE_MS 20 /* between scans, while the alarm is pending */
/* Messages of a spoke without acknowledgement, at most. Words that change meanwhile are sent later,
   in one message. So hub and spoke never have so much unsent that neither of them reads. */
#define AHEAD 3
/* Bytes that a spoke may leave untaken, in addition to all words once, before its connection is
   ended. */
#define SLOW (8u << 20)

/* ---- sending ---- */

static void tell(struct ftrma_peer *to, int kind, uint64_t number, const void *words, uint64_t n)
{
    struct ftrma_wire_head head = {
        .kind = (uint16_t)kind, .format = FTRMA_WIRE_FORMAT, .number = number,
        .length = (uint32_t)(n * sizeof(struct ftrma_wire_word))};
    ftrma_connection_send(to->connection, &head, words);
}

/* Send words to all spokes but one. A spoke that leaves too much untaken has to connect again. */
static void tell_all(struct ftrma_agent *a, const struct ftrma_peer *but, const void *words,
                     uint64_t n)
{
    size_t most = SLOW + a->mirror->header->words * sizeof(struct ftrma_wire_word);
    for (struct ftrma_peer *p = a->nodes, *next; p; p = next) {
        next = p->next;
        if (p == but || !p->greeted)
            continue;
        tell(p, FTRMA_WIRE_MIRROR, 0, words, n);
        if (ftrma_connection_unsent(p->connection) > most)
            ftrma_peer_leave(p);
    }
}

/* Greet a spoke: send the last number that was taken from it, then all words. */
static void greet(struct ftrma_peer *spoke)
{
    struct ftrma_mirror *m = spoke->agent->mirror;
    tell(spoke, FTRMA_WIRE_MIRRORED, m->taken[spoke->origin], NULL, 0);
    uint64_t n = ftrma_merge_find(m, 1);
    for (uint64_t first = 0; first < n; first += FTRMA_MIRROR_MESSAGE_WORDS) {
        uint64_t more = n - first;
        tell(spoke, FTRMA_WIRE_MIRROR, 0, m->found + first,
             more < FTRMA_MIRROR_MESSAGE_WORDS ? more : FTRMA_MIRROR_MESSAGE_WORDS);
    }
    spoke->greeted = 1;
}

/* Send the n words that were found, to the hub or to all spokes. Returns 0 if the hub has too much
   to take first; its acknowledgement then makes this agent scan again. */
static int send_found(struct ftrma_agent *a, struct ftrma_peer *hub, uint64_t n)
{
    struct ftrma_mirror *m = a->mirror;
    /* A spoke that has no words for a new hub sends a message without words: the acknowledgement
       comes after all words of the hub. */
    int nothing = hub && !n && !m->ahead && m->header->acked < m->header->sent;
    for (uint64_t first = 0; first < n || nothing;
         first += FTRMA_MIRROR_MESSAGE_WORDS, nothing = 0) {
        uint64_t number = hub ? m->header->sent + 1 : 0, some = n - first;
        some = some < FTRMA_MIRROR_MESSAGE_WORDS ? some : FTRMA_MIRROR_MESSAGE_WORDS;
        if (hub && m->ahead >= AHEAD)
            return 0;
        m->ahead += hub != NULL;
        ftrma_merge_note(m, first, some, number);
        if (hub)
            tell(hub, FTRMA_WIRE_MIRROR, number, m->found + first, some);
        else
            tell_all(a, NULL, m->found + first, some);
    }
    return 1;
}

void ftrma_spokes_scan(struct ftrma_agent *a)
{
    struct ftrma_mirror *m = a->mirror;
    struct ftrma_peer *hub = a->node ? a->nodes : NULL;
    a->scan_due = 0;
    if (!m || (a->node && !(hub && hub->greeted)) || (hub && m->ahead >= AHEAD))
        return; /* changed words differ from their shadows until they can be sent */
    uint64_t alarm = m->alarm ? LOAD(m->alarm) : 0, scan = m->header->scans + 1;
    STORE(&m->header->scans, scan);
    if (!send_found(a, hub, ftrma_merge_find(m, 0)))
        return;
    m->scan = scan;
    m->last = m->header->sent;
    ftrma_merge_note_ordered(m);
    if (m->echo && ftrma_merge_alarmed(m) && LOAD(m->echo) < alarm) {
        STORE(m->echo, alarm);
        a->scan_due = 1;
    }
}

int ftrma_spokes_scan_in_ms(const struct ftrma_agent *a)
{
    return a->mirror && ftrma_merge_alarmed(a->mirror) ? PAUSE_MS : -1;
}

/* ---- receiving ---- */

static const char *at_hub(struct ftrma_peer *spoke, const struct ftrma_wire_head *head,
                          const void *words, uint64_t n)
{
    struct ftrma_agent *a = spoke->agent;
    struct ftrma_mirror *m = a->mirror;
    if (ftrma_mirror_lost(m, spoke->origin))
        return "its node counts as lost";
    if (head->kind == FTRMA_WIRE_MIRRORED) {
        greet(spoke);
        return NULL;
    }
    if (!spoke->greeted)
        return "words before what was taken is known";
    if (!head->number)
        return "a number is missing";
    const char *fault = ftrma_merge_stage(m, words, n);
    if (fault)
        return fault;
    if (head->number > m->taken[spoke->origin]) {
        ftrma_merge_take(m, spoke->origin, head->number, n);
        if (n) {
            ftrma_failpoint(a, FTRMA_WIRE_AT_FORWARD);
            tell_all(a, spoke, words, n);
        }
    }
    tell(spoke, FTRMA_WIRE_MIRRORED, head->number, NULL, 0);
    return NULL;
}

static const char *at_spoke(struct ftrma_peer *hub, const struct ftrma_wire_head *head,
                            const void *words, uint64_t n)
{
    struct ftrma_mirror *m = hub->agent->mirror;
    struct ftrma_mirror_header *h = m->header;
    if (head->kind == FTRMA_WIRE_MIRRORED) {
        if (hub->greeted && (head->number > h->sent || !m->ahead))
            return "what was never sent is acknowledged";
        if (!hub->greeted) {
            /* The previous agent may have noted words of a message, and died before it stored their
               number. */
            STORE(&h->sent, (h->sent > head->number ? h->sent : head->number) + 1);
            m->resends = m->last = h->sent; /* this connection alone orders scans */
            m->ahead = 0;
            hub->greeted = 1;
        } else {
            m->ahead--;
        }
        if (head->number > h->acked)
            STORE(&h->acked, head->number);
        ftrma_merge_note_ordered(m);
        return NULL;
    }
    if (!hub->greeted)
        return "words before what was taken is known";
    if (head->number)
        return "a number where there is none";
    const char *fault = ftrma_merge_stage(m, words, n);
    if (!fault)
        ftrma_merge_take(m, 0, 0, n);
    return fault;
}

const char *ftrma_spokes_obey(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                              const void *payload)
{
    struct ftrma_agent *a = peer->agent;
    uint64_t n = head->length / sizeof(struct ftrma_wire_word);
    const char *fault = "only words of the mirror go between agents";
    if (head->kind == FTRMA_WIRE_BROKEN) {
        fault = "the other agent has ended it";
        if (a->node)
            snprintf(a->reason, sizeof a->reason, "%.*s", (int)head->length, (const char *)payload);
    } else if (head->kind == FTRMA_WIRE_MIRROR || head->kind == FTRMA_WIRE_MIRRORED) {
        fault = a->node ? at_spoke(peer, head, payload, n) : at_hub(peer, head, payload, n);
    }
    if (fault && a->node && !*a->reason)
        snprintf(a->reason, sizeof a->reason, "what the hub says: %s", fault);
    a->scan_due = 1;
    return fault;
}

/* ---- connections ---- */

int ftrma_spokes_adopt(struct ftrma_agent *a, int fd, uint32_t node)
{
    int error = !a->mirror || node >= FTRMA_WIRE_NODES || !node != !!a->node ? -EINVAL : 0;
    struct ftrma_peer *p = error ? NULL : calloc(1, sizeof *p);
    if (!p) {
        close(fd);
        return error ? error : -ENOMEM;
    }
    p->agent = a;
    p->origin = node;
    p->is_agent = 1;
    error = ftrma_engine_adopt(a->engine, (struct ftrma_stream){fd}, p, &p->connection);
    if (error) {
        free(p);
        return error;
    }
    for (struct ftrma_peer *other = a->nodes, *next; other; other = next) {
        next = other->next;
        if (other->origin == node)
            ftrma_peer_leave(other);
    }
    p->next = a->nodes;
    a->nodes = p;
    a->hub_lost = 0;
    if (a->node)
        tell(p, FTRMA_WIRE_MIRRORED, a->mirror->header->acked, NULL, 0);
    return 0;
}

int ftrma_spokes_open(struct ftrma_agent *a, const char *path, uint32_t node)
{
    if (a->mirror || node >= FTRMA_WIRE_NODES)
        return -EINVAL;
    int error = ftrma_mirror_open(path, node, &a->mirror);
    if (error)
        return error;
    a->node = node;
    a->scan_due = 1;
    a->mirror->agent = a;
    a->mirror->hot = 1; /* the previous agent may have been killed just when the alarm was over */
    ftrma_merge_finish(a->mirror);
    return 0;
}

void ftrma_spokes_close(struct ftrma_agent *a)
{
    while (a->nodes)
        ftrma_peer_leave(a->nodes);
    if (a->mirror)
        ftrma_mirror_close(a->mirror);
    a->mirror = NULL;
}

uint64_t ftrma_spokes_regions(const struct ftrma_agent *a)
{
    return a->mirror ? a->mirror->header->hash : 0;
}

int ftrma_spokes_lacks_hub(const struct ftrma_agent *a)
{
    return a->node && !a->nodes;
}

const char *ftrma_spokes_reason(const struct ftrma_agent *a)
{
    return a->reason;
}
