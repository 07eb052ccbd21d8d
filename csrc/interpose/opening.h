/* Boards of new communicators are there before anybody uses them (opening.c). */
#ifndef FTRMA_OPENING_H
#define FTRMA_OPENING_H

#include "comm.h"

/* This member of the parent has opened the board of the communicator that it is in, or comes
   without (spec: NULL); error: 0, or the -errno that it has ended with.  Over several nodes
   collective over the parent, and the error of one is everybody's.  Returns an MPI code. */
int ftrma_opening_await(struct communicator *parent, const struct ftrma_spec *spec, int error);

#endif
