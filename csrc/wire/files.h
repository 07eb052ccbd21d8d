/* Plain files that origins of other nodes have made, and look at (files.c). */
#ifndef FTRMA_WIRE_FILES_H
#define FTRMA_WIRE_FILES_H

#include "agent_state.h"

/* Carry out a FILE request. NULL, or why nobody can. */
const char *ftrma_files_serve(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                              const void *payload);

#endif
