/*
 * Memory kernels: parity, the checkpoint's single pass, its undo, checksums, and a copy that writes
 * only changed pages.
 *
 * Every kernel exists for several instruction sets; the best one the processor offers is chosen
 * when the library is loaded. Beside each kernel stands a reference of the same signature (suffix
 * _ref), a byte at a time and plain enough to be checked by reading; kernel and reference agree
 * byte for byte.
 *
 * Common to all: no kernel allocates, aborts, prints or keeps state, so any number of threads may
 * call them on distinct buffers. With n = 0 the buffers are not touched and may be NULL. Buffers
 * have any alignment unless said otherwise. Buffers must not overlap, except where an argument
 * says that it may be the same. What a kernel has written is visible to whoever synchronises with
 * the caller afterwards, as after ordinary stores.
 */
#ifndef FTRMA_KERNELS_H
#define FTRMA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "block.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * dst ^= src.
 *   dst  [in/out] n bytes
 *   src  [in]     n bytes; may be dst itself, which becomes zero
 *   n    [in]     bytes, 0 .. SIZE_MAX
 */
void ftrma_xor_into(void *dst, const void *src, size_t n);
void ftrma_xor_into_ref(void *dst, const void *src, size_t n);

/*
 * dst = src[0] ^ ... ^ src[nsrc - 1], in one pass over memory.
 *   dst   [out] n bytes; may be one of the sources itself
 *   src   [in]  nsrc addresses of n bytes each; the same address may stand there more than once
 *   nsrc  [in]  number of sources, 0 .. SIZE_MAX; with 0 dst becomes zero and src may be NULL
 *   n     [in]  bytes, 0 .. SIZE_MAX
 */
void ftrma_xor_many(void *dst, const void *const *src, size_t nsrc, size_t n);
void ftrma_xor_many_ref(void *dst, const void *const *src, size_t nsrc, size_t n);

/*
 * The checkpoint's one pass: finds the blocks of a window that differ from its copy, stages their
 * deltas and brings the copy up to date.
 *
 * Block b covers the bytes from b * FTRMA_BLOCK on; the last one may be partial. For every block
 * that differs, in ascending order: now ^ copy is appended to the stage (a partial block filled up
 * with zeros to FTRMA_BLOCK), the block is copied from now to copy, first_block + b is appended to
 * dirty. Equal blocks are read only.
 *
 *   now          [in]     n bytes, the window's present content; nobody writes it meanwhile
 *   copy         [in/out] n bytes, aligned to FTRMA_BLOCK
 *   n            [in]     bytes, 0 .. SIZE_MAX
 *   first_block  [in]     number that block 0 gets in dirty; the last number, first_block +
 *                         ceil(n / FTRMA_BLOCK) - 1, must be <= UINT32_MAX
 *   stage        [in/out] aligned to 64 bytes; deltas packed at FTRMA_BLOCK bytes each, the first
 *                         ndirty of them left alone; room for ndirty + ceil(n / FTRMA_BLOCK)
 *   dirty        [in/out] block numbers, one per delta in the stage; room as the stage
 *   ndirty       [in/out] deltas in stage and dirty, blocks. Whoever finds the memory of a killed
 *                         process knows what to undo: the next number in dirty is stored before a
 *                         block is touched, ndirty after it, its checksum after that, and a block
 *                         is written from front to back
 *   crc          [in/out] one checksum of the copy per block (ftrma_block_crc), brought up to date; of
 *                         a block that did not match it stays wrong, so that undoing hides nothing;
 *                         NULL: none. With it, copy is whole blocks, filled up with zeros
 *   corrupt      [in/out] incremented for every differing block of the copy that did not match its
 *                         checksum, and so gave a wrong delta; NULL with crc NULL
 */
void ftrma_delta_stage(const void *now, void *copy, size_t n, uint32_t first_block, void *stage,
                       uint32_t *dirty, size_t *ndirty, uint32_t *crc, size_t *corrupt);
void ftrma_delta_stage_ref(const void *now, void *copy, size_t n, uint32_t first_block,
                           void *stage, uint32_t *dirty, size_t *ndirty, uint32_t *crc,
                           size_t *corrupt);

/*
 * Takes staged deltas back: block dirty[i] - base_block of copy ^= block i of the stage.
 *   copy        [in/out] whole blocks: a partial last block is filled up to FTRMA_BLOCK bytes
 *                        (the fill keeps its content, for the stage holds zeros there)
 *   stage       [in]     ndirty * FTRMA_BLOCK bytes, as ftrma_delta_stage left them
 *   dirty       [in]     ndirty block numbers, base_block .. UINT32_MAX, in any order
 *   ndirty      [in]     blocks, 0 .. SIZE_MAX / FTRMA_BLOCK
 *   base_block  [in]     number of the block at which copy begins
 */
void ftrma_delta_undo(void *copy, const void *stage, const uint32_t *dirty, size_t ndirty,
                      uint32_t base_block);
void ftrma_delta_undo_ref(void *copy, const void *stage, const uint32_t *dirty, size_t ndirty,
                          uint32_t base_block);

/*
 * CRC-32C (Castagnoli, RFC 3720 appendix B.4): "123456789" gives 0xE3069283.
 *   crc  [in] 0 at the beginning of a message, else the value returned for the bytes before
 *   buf  [in] n bytes
 *   n    [in] bytes, 0 .. SIZE_MAX
 * Returns the checksum of all bytes up to here.
 */
uint32_t ftrma_crc32c(uint32_t crc, const void *buf, size_t n);
uint32_t ftrma_crc32c_ref(uint32_t crc, const void *buf, size_t n);

/* CRC-32C of a block [in, FTRMA_BLOCK bytes] XOR that of a block of zeros: 0 for a block of zeros,
 * so that a fresh, sparse file needs no checksums, and linear: crc(a ^ b) = crc(a) ^ crc(b). */
uint32_t ftrma_block_crc(const void *block);

/*
 * dst = src, writing only blocks that differ, so that pages of equal content stay clean. Blocks
 * count from dst; the last one may be partial.
 *   dst  [in/out] n bytes
 *   src  [in]     n bytes; may be dst itself
 *   n    [in]     bytes, 0 .. SIZE_MAX
 * Returns the bytes written, all bytes of every differing block: 0 .. n.
 */
size_t ftrma_copy_changed(void *dst, const void *src, size_t n);
size_t ftrma_copy_changed_ref(void *dst, const void *src, size_t n);

/*
 * dst = src for a dst that nobody reads soon, and also = src in the same pass.
 *   dst   [out] n bytes
 *   src   [in]  n bytes
 *   n     [in]  bytes, 0 .. SIZE_MAX; from 4 KiB on, dst is written past the caches
 *   also  [out] n bytes, or NULL
 *   both  [in]  also is not read soon either: it is written past the caches, too
 *   crc   [in/out] becomes ftrma_crc32c of it and of these bytes, or NULL
 */
void ftrma_copy_past(void *dst, const void *src, size_t n, void *also, int both, uint32_t *crc);
void ftrma_copy_past_ref(void *dst, const void *src, size_t n, void *also, uint32_t *crc);

#ifdef __cplusplus
}
#endif

#endif
