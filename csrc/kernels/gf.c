/* Erasure kernels; see gf.h. The sums themselves are computed in gf_portable.c, and in gf_x86.c for
 * the instruction sets of x86-64. */
#include "gf.h"

#include <string.h>

#include "gf_pass.h"
#include "gf_run.h"
#include "variant.h"

/*
 * If there are more outputs than one pass has, passes alternate on parts of this many bytes, so
 * that the second pass finds the inputs in the second-level cache.
 */
#define PART ((size_t)8 << 10)

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

void ftrma_gf_run(struct gf_pass *pass, size_t at, size_t end, int stream)
{
    const size_t head = stream ? head_of(pass) : SIZE_MAX;
    pass->stream = head < end - at;
    const size_t begin = pass->stream ? at + head : at;
    const size_t rest = begin + (end - begin) / LINE * LINE;
    ftrma_gf_lines_portable(pass, at, begin);
    ftrma_kernels()->gf_lines(pass, begin, rest);
    ftrma_gf_lines_portable(pass, rest, end);
    stream_end(pass->stream);
}

/* Lists of a pass, on the caller's stack. */
struct lists {
    const char *in[FTRMA_GF_MAX_IN];
    uint8_t coef[FTRMA_GF_MAX_IN * GF_WIDE];
};

/* Fills the pass for up to GF_WIDE outputs from the first given on. Inputs that add nothing are left
 * out. */
static void pass_set(struct gf_pass *pass, struct lists *lists, void *const *out, size_t nout,
                     const void *const *in, size_t nin, const uint8_t *coef)
{
    pass->nout = nout < GF_WIDE ? nout : GF_WIDE;
    for (size_t j = 0; j < pass->nout; j++)
        pass->out[j] = out[j];
    pass->in = lists->in;
    pass->coef = lists->coef;
    pass->plain = 1;
    pass->nin = 0;
    for (size_t i = 0; i < nin; i++) {
        uint8_t *const column = lists->coef + GF_WIDE * pass->nin;
        unsigned any = 0;
        for (size_t j = 0; j < pass->nout; j++)
            any |= column[j] = coef[j * nin + i];
        if (in[i] == NULL || any == 0)
            continue;
        pass->plain &= column[0] == 1;
        lists->in[pass->nin++] = in[i];
    }
}

static void sums(void *const *out, size_t nout, const void *const *in, size_t nin,
                 const uint8_t *coef, size_t n, int add)
{
    const size_t part = nout > GF_WIDE ? PART : n;
    /* Bytes to which something is added are read anyway: storing past the cache would only evict
       them. */
    const int stream = n >= STREAM_MIN && !add;
    struct lists lists;
    struct gf_pass pass = {.add = add};
    for (size_t at = 0; at < n; at += part) {
        const size_t end = n - at < part ? n : at + part;
        for (size_t j = 0; j < nout; j += GF_WIDE) {
            pass_set(&pass, &lists, out + j, nout - j, in, nin, coef + j * nin);
            if (add && pass.nin == 0)
                continue;
            ftrma_gf_run(&pass, at, end, stream);
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
