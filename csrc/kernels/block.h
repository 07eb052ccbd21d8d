/* The unit of change detection. */
#ifndef FTRMA_BLOCK_H
#define FTRMA_BLOCK_H

/* Bytes of a block: the page size of x86-64. */
#define FTRMA_BLOCK 4096

#endif
