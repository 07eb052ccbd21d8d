/*
 * One pass of an erasure kernel, by instruction set (gf_portable.c, gf_x86.c); variant.c chooses
 * one, gf.c runs it, and no other file includes this.
 */
#ifndef FTRMA_GF_PASS_H
#define FTRMA_GF_PASS_H

#include "kernel_table.h"

/* Fills the tables of gf_portable.c; runs when the library is loaded. */
void ftrma_gf_init(void);

/* The sums at offsets [at, end): any number of bytes; the other variants only do whole lines. */
void ftrma_gf_lines_portable(const struct gf_pass *pass, size_t at, size_t end);
#if HAVE_X86
/* affine[c]: the matrix that multiplies by c, as GF2P8AFFINEQB reads it. */
extern uint64_t ftrma_gf_affine[256];
/* nibbles[c]: products of c with 0 .. 15, then with 0, 16 .. 240. */
extern uint8_t ftrma_gf_nibbles[256][32];

void ftrma_gf_lines_ssse3(const struct gf_pass *pass, size_t at, size_t end);
void ftrma_gf_lines_avx2(const struct gf_pass *pass, size_t at, size_t end);
void ftrma_gf_lines_gfni256(const struct gf_pass *pass, size_t at, size_t end);
void ftrma_gf_lines_avx512(const struct gf_pass *pass, size_t at, size_t end);
void ftrma_gf_lines_gfni512(const struct gf_pass *pass, size_t at, size_t end);
#endif

#endif
