/* What a dead slot left half done in windows (settle.c). */
#ifndef FTRMA_SETTLE_H
#define FTRMA_SETTLE_H

#include "window.h"

/* In a replay, by a replacement that is alone on its node, when it has found the window again:
   nobody else there could settle what the dead left in the own part's words. */
void ftrma_window_settle_own(struct window *w);

#endif
