/* What collective.c and reduction.c share. */
#ifndef FTRMA_COLLECTIVE_H
#define FTRMA_COLLECTIVE_H

#include "event.h"
#include "exchange.h"

/* First in every collective call: on other communicators it is the library's, guarded like all its
   calls; on the slots' world it goes on below, with ftrma_slot and ftrma_nslots known. */
#define OURS_OR(native)                                                                           \
    do {                                                                                          \
        size_t ours_room;                                                                         \
        ftrma_place(FTRMA_PLACE_CALL);                                                            \
        if (!ftrma_is_world(comm)) {                                                              \
            if (comm != MPI_COMM_SELF)                                                            \
                ftrma_foreign(__func__);                                                          \
            return GUARDED(native);                                                               \
        }                                                                                         \
        int ours_rc = ftrma_exchange_open(&ours_room);                                            \
        if (ours_rc)                                                                              \
            return ours_rc;                                                                       \
    } while (0)

/* Tell the communicator's error handler of a mistake; returns the class. */
int ftrma_collective_fail(int class);

#endif
