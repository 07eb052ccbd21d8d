/*
 * Every variant of the erasure kernels against the references: one line per law, exit 1 if one does
 * not hold.
 *
 *   cd csrc/kernels && cc -std=c11 -O1 -g -fsanitize=address,undefined -I. kernels.c variant.c \
 *      gf.c gf_portable.c gf_x86.c gf_ref.c ../../tests/c/test_gf.c -o test_gf && ./test_gf
 *
 * Every buffer ends where its allocation ends, so that the sanitizer sees a byte too many, and has
 * its own alignment; the bytes before it are compared as well.
 */
#include "gf.h"
#include "kernels.h"
#include "variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 9, MAX_IN = FTRMA_GF_MAX_IN, BEFORE = 64 };

static uint64_t rng_state = 0x9E3779B97F4A7C15u;

static size_t below(size_t limit)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (size_t)((rng_state >> 11) % limit);
}

struct buffer {
    unsigned char *all, *buf;
    size_t size;
};

static struct buffer make(size_t n, size_t offset)
{
    struct buffer b = {.size = BEFORE + offset + n};
    b.all = malloc(b.size);
    if (b.all == NULL)
        exit(2);
    for (size_t i = 0; i < b.size; i++)
        b.all[i] = (unsigned char)below(256);
    b.buf = b.all + BEFORE + offset;
    return b;
}

static struct buffer twin(const struct buffer *of)
{
    struct buffer b = *of;
    b.all = malloc(b.size);
    if (b.all == NULL)
        exit(2);
    memcpy(b.all, of->all, b.size);
    b.buf = b.all + (of->buf - of->all);
    return b;
}

/* apart: outputs have alignments of their own; else one in common, as stores past the caches need. */
static int sum_case(size_t nout, size_t nin, size_t n, int add, int plain, int apart)
{
    struct buffer out[MAX_OUT], ref[MAX_OUT], in[MAX_IN];
    void *to[MAX_OUT] = {NULL}, *ref_to[MAX_OUT] = {NULL};
    const void *from[MAX_IN] = {NULL}; /* or gcc -O3 believes that some are read unset */
    static uint8_t coef[MAX_OUT * MAX_IN];
    const size_t offset = below(64);
    for (size_t j = 0; j < nout; j++) {
        out[j] = make(n, apart ? below(64) : offset);
        ref[j] = twin(&out[j]);
        to[j] = out[j].buf;
        ref_to[j] = ref[j].buf;
    }
    for (size_t i = 0; i < nin; i++) {
        in[i] = make(n, below(64));
        from[i] = below(8) == 0 ? NULL : in[i].buf;
    }
    /* Many zeros and ones, which have ways of their own. */
    for (size_t c = 0; c < nout * nin; c++)
        coef[c] = (uint8_t)(below(4) == 0 ? below(2) : below(256));
    for (size_t i = 0; plain && i < nin; i++)
        coef[i] = 1;
    (add ? ftrma_gf_fold : ftrma_gf_encode)(to, nout, from, nin, coef, n);
    (add ? ftrma_gf_fold_ref : ftrma_gf_encode_ref)(ref_to, nout, from, nin, coef, n);
    int same = 1;
    for (size_t j = 0; j < nout; j++) {
        same &= memcmp(out[j].all, ref[j].all, out[j].size) == 0;
        free(out[j].all);
        free(ref[j].all);
    }
    for (size_t i = 0; i < nin; i++)
        free(in[i].all);
    return same;
}

static int sums(int add)
{
    int good = 1;
    for (size_t nout = 1; nout <= MAX_OUT; nout++) {
        for (size_t round = 0; round < 24; round++)
            good &= sum_case(nout, below(20), below(round < 12 ? 70 : 1500), add, below(2) != 0,
                             below(2) != 0);
    }
    return good & sum_case(3, MAX_IN, 333, add, 1, 0);
}

static int law_encode(void)
{
    return sums(0);
}

static int law_fold(void)
{
    return sums(1);
}

/* Past the length from which results bypass the caches, few and many streams, and in parts. */
static int law_large(void)
{
    const size_t n = ((size_t)2 << 20) + 4133;
    return sum_case(2, 3, n, 0, 1, 0) & sum_case(1, 20, n, 0, 0, 0) &
           sum_case(1, 1, n, 0, 0, 1) & sum_case(5, 2, n, 0, 1, 1) & sum_case(2, 1, n, 1, 0, 0);
}

/* c * b for all elements, by one byte after the other and by vectors. */
static int law_products(void)
{
    int good = 1;
    for (unsigned c = 0; c < 256; c++) {
        uint8_t elements[256], got[256], want[256];
        const void *const from[1] = {elements};
        void *const to[1] = {got};
        void *const ref_to[1] = {want};
        const uint8_t coef[1] = {(uint8_t)c};
        for (unsigned b = 0; b < 256; b++)
            elements[b] = (uint8_t)b;
        ftrma_gf_encode_ref(ref_to, 1, from, 1, coef, 256);
        ftrma_gf_encode(to, 1, from, 1, coef, 256);
        good &= memcmp(got, want, 256) == 0;
        for (unsigned b = 0; b < 256; b++) {
            const void *const one[1] = {elements + b};
            ftrma_gf_encode(to, 1, one, 1, coef, 1);
            good &= got[0] == want[b];
        }
    }
    return good;
}

static int law_empty(void)
{
    void *const out[1] = {NULL};
    const uint8_t coef[1] = {7};
    ftrma_gf_encode(NULL, 0, NULL, 0, NULL, 0);
    ftrma_gf_fold(out, 1, NULL, 0, NULL, 0);
    ftrma_gf_encode(out, 1, (const void *const *)out, 1, coef, 0);
    return sum_case(2, 0, 77, 0, 0, 1) & sum_case(2, 0, 77, 1, 0, 1);
}

static int report(const char *variant, const char *law, int good)
{
    printf("%-9s %-46s %s\n", variant, law, good ? "holds" : "FAILS");
    fflush(stdout);
    return good;
}

int main(void)
{
    static const struct {
        const char *text;
        int (*holds)(void);
    } laws[] = {
        {"all products are the reference's", law_products},
        {"encode equals its reference", law_encode},
        {"fold equals its reference", law_fold},
        {"both do past the caches and in parts", law_large},
        {"empty buffers and sums of nothing are fine", law_empty},
    };
    static const char *const variants[] = {"portable", "ssse3",  "avx2",
                                           "gfni256",  "avx512", "gfni512"};
    int good = 1;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        if (ftrma_kernel_select(variants[v]) != 0) {
            printf("%-9s not on this processor\n", variants[v]);
            continue;
        }
        for (size_t l = 0; l < sizeof laws / sizeof *laws; l++)
            good &= report(variants[v], laws[l].text, laws[l].holds());
    }
    return good ? 0 : 1;
}
