/* Boards: memory that the members of a communicator share (board.c). */
#ifndef FTRMA_BOARD_H
#define FTRMA_BOARD_H

#include "communicator_state.h"
#include "wire.h"

/* Map the board; the first member on this node makes it. 0 or -errno; -EPROTO: there is a board of
   other members; -EEXIST: another board has the same number on the wire; -EMFILE: there are too
   many. */
int ftrma_board_open(struct communicator *c);
/* Map the board if it exists: 0, or -ENOENT. */
int ftrma_board_find(struct communicator *c);
void ftrma_board_close(struct communicator *c);
void ftrma_board_remove(uint64_t id);
/* Make boards that are mapped from now on reachable from other nodes: enter them in this ledger,
   for this target. */
void ftrma_boards_reach(struct ftrma_ledger *ledger, uint32_t target);
/* The window number under which a board is known on the wire. */
uint32_t ftrma_board_window(uint64_t id);
size_t ftrma_area_bytes(const struct ftrma_spec *spec);
/* Read the spec from the board of this id. 0 or -errno. */
int ftrma_spec_find(uint64_t id, struct ftrma_spec *spec);
/* List all derived communicators that exist, in the same order on all slots: [out] list[*n], to be
   * freed by the caller. 0 or -errno. */
int ftrma_specs(struct ftrma_spec **list, size_t *n);

#endif
