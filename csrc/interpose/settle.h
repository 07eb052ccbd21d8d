/* Settling what a dead slot left half done in windows (settle.c). */
#ifndef FTRMA_SETTLE_H
#define FTRMA_SETTLE_H

#include "window.h"

/* Settle what the dead process left in the words of this slot's part. Called in a replay, when the
   window is found again, by a replacement that is alone on its node, where nobody else can do
   it. */
void ftrma_window_settle_own(struct window *w);

#endif
