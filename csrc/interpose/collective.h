/* Definitions that collective.c and reduction.c share. */
#ifndef FTRMA_COLLECTIVE_H
#define FTRMA_COLLECTIVE_H

#include "communicator.h"
#include "errors.h"
#include "event.h"
#include "exchange.h"
#include "interrupt.h"
#include "killrules.h"

/* The beginning of every collective call: on a communicator of the library's own it calls the
   library, guarded like all calls; on one of ours it opens the exchange. */
#define OURS_OR(native)                                                                           \
    do {                                                                                          \
        size_t ours_room;                                                                         \
        struct communicator *ours_on = ftrma_communicator(comm);                                  \
        ftrma_failpoint(FTRMA_FAILPOINT_CALL);                                                    \
        if (unlikely(ftrma_finalized))                                                            \
            return ftrma_after_finalize();                                                        \
        if (!ours_on) {                                                                           \
            ftrma_foreign_on(comm, __func__);                                                     \
            return GUARDED(native);                                                               \
        }                                                                                         \
        int ours_rc = ftrma_exchange_open(ours_on, &ours_room);                                   \
        if (ours_rc)                                                                              \
            return ours_rc;                                                                       \
    } while (0)

/* Tell the communicator's error handler of a mistake; returns the class. */
int ftrma_collective_fail(int class);

#endif
