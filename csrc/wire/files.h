/* Plain files that origins of other nodes make and look at (files.c). */
#ifndef FTRMA_WIRE_FILES_H
#define FTRMA_WIRE_FILES_H

#include "agent_state.h"

/* Carry out a FILE request. NULL, or why it cannot be carried out. */
const char *ftrma_files_serve(struct ftrma_peer *peer, const struct ftrma_wire_head *head,
                              const void *payload);

#endif
