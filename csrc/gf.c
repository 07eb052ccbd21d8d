/* Erasure kernels; see gf.h. The x86-64 instruction sets are in gf_x86.c. */
#include "gf.h"

#include <string.h>

#include "kernels.h"
#include "variant.h"

/* x^8 modulo the field's polynomial. */
#define REDUCED 0x1Du

/*
 * From this length on results go past the caches, as in kernels.c, if they are only written: what
 * has been read is in the cache, and storing past it would only throw it out.
 */
#define STREAM_MIN ((size_t)2 << 20)

/*
 * With more outputs than one pass has, passes alternate on parts of this many bytes, so that the
 * second one finds the inputs in the second-level cache.
 */
#define PART ((size_t)8 << 10)

/* Bytes of a step of the portable kernel: eight words, which compilers turn into vectors. */
#define WORDS 8

/* product[c][b] = c * b, for what is left beside whole lines; filled at load. */
static uint8_t product[256][256];

/* -------------------------------------------------------------------------------- portable -- */

/* Eight elements times x: each byte shifted, and reduced where its top bit fell out. */
static inline uint64_t times_x(uint64_t word)
{
    const uint64_t top = word >> 7 & 0x0101010101010101u;
    return (word << 1 & 0xFEFEFEFEFEFEFEFEu) ^ top * REDUCED;
}

/*
 * Long multiplication of a line at a time: bit b of the coefficient takes x^b times the input. The
 * powers serve all outputs, no table is needed, and either byte order will do.
 */
void ftrma_gf_lines_portable(const struct gf_pass *pass, size_t at, size_t end)
{
    for (; at < end; at += LINE) {
        uint64_t sum[GF_WIDE][WORDS] = {{0}};
        for (size_t j = 0; pass->add && j < pass->nout; j++)
            memcpy(sum[j], pass->out[j] + at, LINE);
        for (size_t i = 0; i < pass->nin; i++) {
            uint64_t power[WORDS];
            memcpy(power, pass->in[i] + at, LINE);
            for (unsigned bit = 0; bit < 8; bit++) {
                for (size_t j = 0; j < pass->nout; j++) {
                    const uint64_t takes = 0 - (uint64_t)(pass->coef[GF_WIDE * i + j] >> bit & 1);
                    for (size_t w = 0; w < WORDS; w++)
                        sum[j][w] ^= power[w] & takes;
                }
                for (size_t w = 0; w < WORDS; w++)
                    power[w] = times_x(power[w]);
            }
        }
        for (size_t j = 0; j < pass->nout; j++)
            memcpy(pass->out[j] + at, sum[j], LINE);
    }
}

/* ---------------------------------------------------------------------------------- tables -- */

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
                                  : (uint8_t)times_x(product[c][b / 2]);
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

/* --------------------------------------------------------------------------------- kernels -- */

/* A byte at a time, for what is left beside the lines. */
static void bytes(const struct gf_pass *pass, size_t at, size_t end)
{
    for (size_t j = 0; j < pass->nout; j++) {
        for (size_t b = at; b < end; b++) {
            uint8_t sum = pass->add ? (uint8_t)pass->out[j][b] : 0;
            for (size_t i = 0; i < pass->nin; i++)
                sum ^= product[pass->coef[GF_WIDE * i + j]][(uint8_t)pass->in[i][b]];
            pass->out[j][b] = (char)sum;
        }
    }
}

/* Bytes up to the first line of the outputs; SIZE_MAX if they have none in common. */
static size_t head_of(const struct gf_pass *pass)
{
    const size_t head = (size_t)(0 - (uintptr_t)pass->out[0]) % LINE;
    for (size_t j = 1; j < pass->nout; j++) {
        if ((size_t)(0 - (uintptr_t)pass->out[j]) % LINE != head)
            return SIZE_MAX;
    }
    return head;
}

static void run(struct gf_pass *pass, size_t at, size_t end, int stream)
{
    const size_t head = stream ? head_of(pass) : SIZE_MAX;
    pass->stream = head < end - at;
    const size_t begin = pass->stream ? at + head : at;
    const size_t rest = begin + (end - begin) / LINE * LINE;
    bytes(pass, at, begin);
    if (begin < rest)
        ftrma_kernels()->gf_lines(pass, begin, rest);
    bytes(pass, rest, end);
    stream_end(pass->stream);
}

/* Lists of a pass, on the caller's stack. */
struct lists {
    const char *in[FTRMA_GF_MAX_IN];
    uint8_t coef[FTRMA_GF_MAX_IN * GF_WIDE];
};

/* The pass for up to GF_WIDE outputs from the first given on; inputs that add nothing are left out. */
static struct gf_pass pass_of(struct lists *lists, void *const *out, size_t nout,
                              const void *const *in, size_t nin, const uint8_t *coef, int add)
{
    struct gf_pass pass = {.add = add, .plain = 1, .in = lists->in, .coef = lists->coef};
    pass.nout = nout < GF_WIDE ? nout : GF_WIDE;
    for (size_t j = 0; j < pass.nout; j++)
        pass.out[j] = out[j];
    for (size_t i = 0; i < nin; i++) {
        uint8_t *const column = lists->coef + GF_WIDE * pass.nin;
        unsigned any = 0;
        for (size_t j = 0; j < pass.nout; j++)
            any |= column[j] = coef[j * nin + i];
        if (in[i] == NULL || any == 0)
            continue;
        pass.plain &= column[0] == 1;
        lists->in[pass.nin++] = in[i];
    }
    return pass;
}

static void sums(void *const *out, size_t nout, const void *const *in, size_t nin,
                 const uint8_t *coef, size_t n, int add)
{
    const size_t part = nout > GF_WIDE ? PART : n;
    struct lists lists;
    for (size_t at = 0; at < n; at += part) {
        const size_t end = n - at < part ? n : at + part;
        for (size_t j = 0; j < nout; j += GF_WIDE) {
            struct gf_pass pass =
                pass_of(&lists, out + j, nout - j, in, nin, coef + j * nin, add);
            run(&pass, at, end, n >= STREAM_MIN && !add);
        }
    }
}

void ftrma_gf_encode(void *const *out, size_t nout, const void *const *in, size_t nin,
                     const uint8_t *coef, size_t n)
{
    sums(out, nout, in, nin, coef, n, 0);
}

void ftrma_gf_fold(void *const *out, size_t nout, const void *const *in, size_t nin,
                   const uint8_t *coef, size_t n)
{
    sums(out, nout, in, nin, coef, n, 1);
}
