/* Checksums of log records, by which a replay detects bits that have changed.
 *
 * A payload of up to FTRMA_SUM_SHORT bytes is summed with the record, by multiplications for which
 * its writer does not wait; a longer one has a CRC-32C. The counter of a REPEAT record and its last
 * event change after the append and have no sum: if they are wrong, the calls of the replay do not
 * match.
 */
#ifndef FTRMA_RECORD_SUM_H
#define FTRMA_RECORD_SUM_H

#include <string.h>

#include "chunks.h"
#include "event_clock.h"
#include "kernels.h"

#define FTRMA_SUM_SHORT 64

/* Combine two words into one: the halves of their 128-bit product, added without carries. */
static inline uint64_t ftrma_fold(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 product =
        (unsigned __int128)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd1b54a32d192ed03u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Sum n <= FTRMA_SUM_SHORT bytes in the pass that copies them to `to` and `also`, unless those are
   NULL. */
static inline uint64_t ftrma_sum_short(const char *from, size_t n, char *to, char *also)
{
    uint64_t sum = 0, word;
    size_t at = 0;
    for (; n - at >= sizeof word; at += sizeof word) {
        memcpy(&word, from + at, sizeof word);
        if (to)
            memcpy(to + at, &word, sizeof word);
        if (also)
            memcpy(also + at, &word, sizeof word);
        sum = ftrma_mix(sum, word);
    }
    if (at == n)
        return sum;
    word = 0;
    memcpy(&word, from + at, n - at);
    if (to)
        memcpy(to + at, &word, n - at);
    if (also)
        memcpy(also + at, &word, n - at);
    return ftrma_mix(sum, word);
}

/* The sum of a payload; ftrma_crc32c is 0 at its beginning. */
static inline uint64_t ftrma_payload_sum(const char *bytes, size_t n)
{
    return n > FTRMA_SUM_SHORT ? ftrma_crc32c(0, bytes, n) : ftrma_sum_short(bytes, n, NULL, NULL);
}

/* The sum of a record: of all fields except clock and number, and `order`, which is the sum of
   these. */
static inline uint32_t ftrma_record_sum(const struct ftrma_record *r, uint64_t payload_sum)
{
    uint64_t kind = r->kind | (uint64_t)r->what << 8 | (uint64_t)r->bytes << 32;
    uint64_t target = (uint32_t)r->target;
    uint64_t counters = ftrma_fold(r->ec | (uint64_t)r->gc << 32, r->sc | (uint64_t)r->gnc << 32);
    uint64_t place = ftrma_fold(kind, r->window) ^ ftrma_fold(r->at, r->event) << 1;
    uint64_t sum = ftrma_fold(place ^ target, counters ^ payload_sum);
    return (uint32_t)(sum ^ sum >> 32);
}

/* The sum of a record's clock and number. A put to another node gets them when it is acknowledged. */
static inline uint16_t ftrma_record_order(const struct ftrma_record *r)
{
    uint64_t sum = ftrma_fold(r->clock, r->seq);
    sum ^= sum >> 32;
    return (uint16_t)(sum ^ sum >> 16);
}

/* The next record, by ftrma_log_next; a record whose bytes have changed also counts as damage. */
const struct ftrma_record *ftrma_log_next_whole(struct ftrma_reader *reader);

#endif
