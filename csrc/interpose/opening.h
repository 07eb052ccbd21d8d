/* Opening the boards of new communicators before anybody uses them (opening.c). */
#ifndef FTRMA_OPENING_H
#define FTRMA_OPENING_H

#include "communicator_state.h"

/* Note that this member of the parent has opened the board of its new communicator (spec: NULL: it
   gets none); error: 0, or the -errno of a failed attempt. Over several nodes this is collective
   over the parent, and an error of one member is returned to all. Returns an MPI code. */
int ftrma_opening_await(struct communicator *parent, const struct ftrma_spec *spec, int error);

#endif
