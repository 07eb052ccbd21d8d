/*
 * Erasure kernels: sums of products in GF(2^8), the arithmetic of Reed-Solomon groups.
 *
 * Parity j of a group is the sum over its members i of g(j, i) * bytes of i; a lost member is such
 * a sum over k remaining members and parities. Both are one operation with different coefficients
 * (ftrma/vault/erasure.py computes them), and folding deltas into a parity is the same with "add
 * to" in place of "set to". Addition is XOR; multiplication is that of polynomials over GF(2)
 * modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11D), the field that ISA-L and most storage codes use.
 *
 * What kernels.h says of all kernels holds for these too, the choice of the instruction set with
 * ftrma_kernel_select included.
 */
#ifndef FTRMA_GF_H
#define FTRMA_GF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most inputs of one call: the members of a group and its parities are elements of the field
 * without zero. */
#define FTRMA_GF_MAX_IN 255

/*
 * out[j] = sum over i of coef[j * nin + i] * in[i], in as few passes over memory as there are
 * fours of outputs.
 *   out   [out] nout addresses of n bytes each, overlapping neither each other nor an input
 *   nout  [in]  number of outputs, 0 .. SIZE_MAX / FTRMA_GF_MAX_IN
 *   in    [in]  nin addresses of n bytes each; the same may stand there more than once; NULL stands
 *               for n zeros, for members differ in size
 *   nin   [in]  number of inputs, 0 .. FTRMA_GF_MAX_IN; with 0 the outputs become zero and in may
 *               be NULL
 *   coef  [in]  nout rows of nin elements of the field
 *   n     [in]  bytes, 0 .. SIZE_MAX
 */
void ftrma_gf_encode(void *const *out, size_t nout, const void *const *in, size_t nin,
                     const uint8_t *coef, size_t n);
void ftrma_gf_encode_ref(void *const *out, size_t nout, const void *const *in, size_t nin,
                         const uint8_t *coef, size_t n);

/*
 * out[j] ^= sum over i of coef[j * nin + i] * in[i]: folds deltas into parities. Arguments as
 * above, but out is [in/out].
 */
void ftrma_gf_fold(void *const *out, size_t nout, const void *const *in, size_t nin,
                   const uint8_t *coef, size_t n);
void ftrma_gf_fold_ref(void *const *out, size_t nout, const void *const *in, size_t nin,
                       const uint8_t *coef, size_t n);

#ifdef __cplusplus
}
#endif

#endif
