/* References of the erasure kernels, for tests: the plainest code for the functions of gf.h. */
#include "gf.h"

/* The product by the definition: long multiplication, each power of x reduced as it arises. */
static uint8_t product(uint8_t a, uint8_t b)
{
    unsigned sum = 0, power = a;
    for (unsigned bit = 0; bit < 8; bit++) {
        if (b >> bit & 1)
            sum ^= power;
        power <<= 1;
        if (power & 0x100)
            power ^= 0x11D;
    }
    return (uint8_t)sum;
}

void ftrma_gf_fold_ref(void *const *out, size_t nout, const void *const *in, size_t nin,
                       const uint8_t *coef, size_t n)
{
    for (size_t j = 0; j < nout; j++) {
        for (size_t i = 0; i < nin; i++) {
            for (size_t b = 0; in[i] != NULL && b < n; b++)
                ((uint8_t *)out[j])[b] ^=
                    product(coef[j * nin + i], ((const uint8_t *)in[i])[b]);
        }
    }
}

void ftrma_gf_encode_ref(void *const *out, size_t nout, const void *const *in, size_t nin,
                         const uint8_t *coef, size_t n)
{
    for (size_t j = 0; j < nout; j++) {
        for (size_t b = 0; b < n; b++)
            ((uint8_t *)out[j])[b] = 0;
    }
    ftrma_gf_fold_ref(out, nout, in, nin, coef, n);
}
