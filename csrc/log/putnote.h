/* The note of a put that is under way.
 *
 * If a process dies after the bytes of its put are written and before the put's event has ended,
 * the replay would make the put again. Its target may have seen the bytes and changed them
 * meanwhile, for instance reset a flag, and would see them twice. So the put is noted in the slot's
 * words before its bytes are written; `put` is stored last. Nothing has to be cleared, since the
 * horizon passes the event. settle.c uses the note.
 */
#ifndef FTRMA_PUTNOTE_H
#define FTRMA_PUTNOTE_H

#include "chunks.h"
#include "event_clock.h"

#define FTRMA_PUT_SMALL 64 /* bytes: a process that copies so few is never found in the middle */

/* The words of `put`: event << 12 | target slot << 1 | whether it is small. */
#define FTRMA_PUT_EVENT(put) ((put) >> 12)
#define FTRMA_PUT_TARGET(put) ((int)((put) >> 1 & 0x7ff))
#define FTRMA_PUT_IS_SMALL(put) ((put) & 1)
_Static_assert(FTRMA_MAX_PROCS <= 0x7ff, "a slot has room in the note");

/* Note the put of the event that has begun. [in] logged: its record is the newest in the put
   log, and whole. */
static inline void ftrma_note_put(const struct ftrma_record *record, size_t bytes, int logged)
{
    struct ftrma_event_clock *t = &ftrma_event_clock;
    uint64_t event = t->events + 1, size = ftrma_record_size(bytes);
    t->slot->put_record = logged ? (uint64_t)(ftrma_pens[FTRMA_PUTS].at - (char *)ftrma_log) - size : 0;
    t->slot->put_clock = record->clock;
    t->slot->hash[event & 1] = ftrma_mix(t->hash, t->signature); /* in case it counts as done */
    __atomic_store_n(&t->slot->put, event << 12 | (uint64_t)(uint32_t)record->target << 1
                                        | (bytes <= FTRMA_PUT_SMALL), __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

#endif
