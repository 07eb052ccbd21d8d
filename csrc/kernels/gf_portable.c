/* The field's tables, and the erasure kernel that every processor runs; see gf.h and variant.h. */
#include "gf_pass.h"

#include <string.h>

/* x^8 modulo the field's polynomial. */
#define REDUCED 0x1Du

/* Bytes of a step of the portable kernel: its sums stay in the nearest cache. */
#define STEP ((size_t)256)

/* product[c][b] = c * b; filled at load. */
static uint8_t product[256][256];

/* Sets sum += c * from, for n bytes. c == 1 has a loop of its own, which compilers turn into vectors. */
static void portable_add(uint8_t *sum, const uint8_t *from, uint8_t c, size_t n)
{
    const uint8_t *const row = product[c];
    if (c == 1) {
        for (size_t b = 0; b < n; b++)
            sum[b] ^= from[b];
    } else if (c != 0) {
        size_t b = 0;
        for (; n - b >= 8; b += 8) {
            uint64_t word, old;
            memcpy(&word, from + b, 8);
            memcpy(&old, sum + b, 8);
            /* A shift reaches one place in both words, in either byte order. */
            for (unsigned at = 0; at < 64; at += 8)
                old ^= (uint64_t)row[word >> at & 255] << at;
            memcpy(sum + b, &old, 8);
        }
        for (; b < n; b++)
            sum[b] ^= row[from[b]];
    }
}

/* Processes any number of bytes, and so also those outside of the whole lines of the other
   variants. */
void ftrma_gf_lines_portable(const struct gf_pass *pass, size_t at, size_t end)
{
    for (; at < end; at += STEP) {
        const size_t n = end - at < STEP ? end - at : STEP;
        for (size_t j = 0; j < pass->nout; j++) {
            uint8_t sum[STEP] = {0};
            if (pass->add)
                memcpy(sum, pass->out[j] + at, n);
            for (size_t i = 0; i < pass->nin; i++) {
                const uint8_t c = j == 0 && pass->plain ? 1 : pass->coef[GF_WIDE * i + j];
                portable_add(sum, (const uint8_t *)pass->in[i] + at, c, n);
            }
            memcpy(pass->out[j] + at, sum, n);
        }
    }
}

/* ---------------------------------------------------------------------------------- tables -- */

static uint8_t times_x(uint8_t element)
{
    return (uint8_t)((unsigned)element << 1 ^ (element >> 7) * REDUCED);
}

#if HAVE_X86
uint64_t ftrma_gf_affine[256];
uint8_t ftrma_gf_nibbles[256][32];

/*
 * Bit b of c * v is the parity of row b of the matrix and v; column i of the matrix is c * x^i. The
 * instruction has row 0 in the highest byte.
 */
static uint64_t affine_of(size_t c)
{
    uint64_t matrix = 0;
    for (unsigned row = 0; row < 8; row++) {
        for (unsigned i = 0; i < 8; i++)
            matrix |= (uint64_t)(product[c][1u << i] >> row & 1) << (8 * (7 - row) + i);
    }
    return matrix;
}
#endif

void ftrma_gf_init(void)
{
    for (size_t c = 0; c < 256; c++) {
        product[c][1] = (uint8_t)c;
        for (size_t b = 2; b < 256; b++)
            product[c][b] = b & 1 ? (uint8_t)(product[c][b - 1] ^ c)
                                  : times_x(product[c][b / 2]);
    }
#if HAVE_X86
    for (size_t c = 0; c < 256; c++) {
        ftrma_gf_affine[c] = affine_of(c);
        for (size_t b = 0; b < 16; b++) {
            ftrma_gf_nibbles[c][b] = product[c][b];
            ftrma_gf_nibbles[c][16 + b] = product[c][16 * b];
        }
    }
#endif
}
