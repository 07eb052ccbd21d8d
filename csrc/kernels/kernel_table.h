/*
 * A table of functions that differ by instruction set, and definitions for all files that implement
 * kernels; no other file includes this.
 */
#ifndef FTRMA_KERNEL_TABLE_H
#define FTRMA_KERNEL_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "block.h"

/* With FTRMA_PORTABLE the library has only the portable variant, as on other processors. */
#if defined(__x86_64__) && !defined(FTRMA_PORTABLE)
#define HAVE_X86 1
#include <immintrin.h>
#else
#define HAVE_X86 0
#endif

/* Bytes of a cache line; more than the alignment that the vectors' stores need. */
#define LINE ((size_t)64)

/*
 * From this length on results are stored past the caches. Measured (Zen 4, 1 MiB second-level
 * cache): ordinary stores are a fifth faster at 1 MiB and leave the result where its reader finds
 * it; at 4 MiB they are a fifth slower and at 64 MiB a third, for they read what they overwrite.
 */
#define STREAM_MIN ((size_t)2 << 20)

/* Most outputs of one pass: with four, accumulators still fit the registers. */
#define GF_WIDE 4

/* One pass of an erasure kernel: up to GF_WIDE sums over the same inputs. An output may be one of
 * the inputs if it is the only one. */
struct gf_pass {
    char *out[GF_WIDE];
    size_t nout;          /* 1 .. GF_WIDE */
    int add;              /* the outputs' present content is part of the sums */
    int stream;           /* store past the caches; the outputs are then aligned to lines */
    int plain;            /* all coefficients of output 0 are one */
    size_t nin;
    const char *const *in;
    const uint8_t *coef;  /* GF_WIDE for each input; unused: those beyond nout, of a plain output */
};

/* The parts of the kernels that depend on the instruction set. */
struct kernels {
    const char *name;
    /* 1 if two blocks differ. */
    int (*differ)(const char *a, const char *b);
    /* stage = now ^ copy, copy = now, for one block. */
    void (*delta)(const char *now, char *copy, char *stage, int stream);
    /* The checksum's register after n more bytes, without the inversions at both ends. */
    uint32_t (*crc)(uint32_t reg, const unsigned char *buf, size_t n);
    /* dst = from past the caches and also = from, unless that is NULL: whole lines, dst aligned. */
    void (*past)(char *dst, const char *from, size_t n, char *also);
    /* Both of these in one pass; NULL: nothing is gained by that. Returns the register. */
    uint32_t (*past_crc)(uint32_t reg, char *dst, const char *from, size_t n, char *also);
    /* The sums of a pass at offsets [at, end): end - at whole lines. */
    void (*gf_lines)(const struct gf_pass *pass, size_t at, size_t end);
};

/* kernels.past of the portable variant; it also copies the bytes beside whole lines. */
static inline void past_portable(char *dst, const char *from, size_t n, char *also)
{
    memcpy(dst, from, n);
    if (also != NULL)
        memcpy(also, from, n);
}

/* End non-temporal stores by a fence: nothing else orders them, not even a later unlock. */
static inline void stream_end(int stream)
{
#if HAVE_X86
    if (stream)
        _mm_sfence();
#else
    (void)stream;
#endif
}

#endif
