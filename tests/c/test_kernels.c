/*
 * Every variant of the memory kernels against the references: one line per law, exit 1 if one
 * does not hold.
 *
 *   cd csrc/kernels && cc -std=c11 -O1 -g -fsanitize=address,undefined -I. kernels.c variant.c \
 *      gf.c gf_portable.c gf_x86.c kernels_ref.c ../../tests/c/test_kernels.c -o test_kernels && ./test_kernels
 *
 * Every buffer lies in an arena with random bytes around it, and whole arenas are compared: a
 * byte changed beside the buffer is a failure like one changed wrongly within it.
 */
#define _DEFAULT_SOURCE
#include "kernels.h"
#include "variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK ((size_t)FTRMA_BLOCK)

enum { MAX_SRC = 17, GUARD = FTRMA_BLOCK };

/* Past the length from which results bypass the caches, and no multiple of anything. */
static const size_t large = ((size_t)2 << 20) + 3 * BLOCK + 77;

static uint64_t rng_state = 0x9E3779B97F4A7C15u;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

static size_t below(size_t limit)
{
    return (size_t)(rng() % limit);
}

static void randomise(unsigned char *buf, size_t n)
{
    for (; n >= 8; n -= 8, buf += 8) {
        const uint64_t word = rng();
        memcpy(buf, &word, 8);
    }
    for (; n > 0; n--)
        *buf++ = (unsigned char)rng();
}

/* An arena: GUARD bytes, n bytes rounded up to blocks and an offset's room, GUARD bytes. */
struct arena {
    unsigned char *all, *buf;
    size_t size;
};

static struct arena arena_make(size_t n, size_t offset)
{
    struct arena a;
    a.size = GUARD + (n / BLOCK + 2) * BLOCK + GUARD;
    a.all = aligned_alloc(BLOCK, a.size);
    if (a.all == NULL)
        exit(2);
    randomise(a.all, a.size);
    a.buf = a.all + GUARD + offset;
    return a;
}

static struct arena arena_twin(const struct arena *a)
{
    struct arena twin = *a;
    twin.all = aligned_alloc(BLOCK, a->size);
    if (twin.all == NULL)
        exit(2);
    memcpy(twin.all, a->all, a->size);
    twin.buf = twin.all + (a->buf - a->all);
    return twin;
}

/* Frees both. */
static int arena_same(struct arena *a, struct arena *b)
{
    const int same = memcmp(a->all, b->all, a->size) == 0;
    free(a->all);
    free(b->all);
    return same;
}

static int xor_into_case(size_t n, size_t to, size_t from)
{
    struct arena src = arena_make(n, from), dst = arena_make(n, to), ref = arena_twin(&dst);
    ftrma_xor_into(dst.buf, src.buf, n);
    ftrma_xor_into_ref(ref.buf, src.buf, n);
    free(src.all);
    return arena_same(&dst, &ref);
}

/* inplace: the source that dst is, or MAX_SRC for none. */
static int xor_many_case(size_t n, size_t nsrc, size_t offset, size_t inplace)
{
    struct arena dst = arena_make(n, offset), ref = arena_twin(&dst);
    /* One more than needed: gcc -O3 believes that the loop could reach it. */
    struct arena src[MAX_SRC + 1];
    const void *list[MAX_SRC + 1], *ref_list[MAX_SRC + 1];
    for (size_t s = 0; s < nsrc; s++) {
        src[s] = arena_make(n, below(64));
        list[s] = s == inplace ? dst.buf : src[s].buf;
        ref_list[s] = s == inplace ? ref.buf : src[s].buf;
    }
    ftrma_xor_many(dst.buf, nsrc > 0 ? list : NULL, nsrc, n);
    ftrma_xor_many_ref(ref.buf, nsrc > 0 ? ref_list : NULL, nsrc, n);
    for (size_t s = 0; s < nsrc; s++)
        free(src[s].all);
    return arena_same(&dst, &ref);
}

/* Makes about one block in `one_in` of b differ from a, in one byte or in many; 0: none. */
static void differ_some(const unsigned char *a, unsigned char *b, size_t n, size_t one_in)
{
    memcpy(b, a, n);
    for (size_t at = 0; one_in > 0 && at < n; at += BLOCK) {
        const size_t size = n - at < BLOCK ? n - at : BLOCK;
        if (below(one_in) != 0)
            continue;
        if (rng() % 2)
            b[at + below(size)] ^= (unsigned char)(1u << below(8));
        else
            randomise(b + at, size);
    }
}

/* Stages, compares with the reference, takes back, compares with what was before. */
typedef void stage_function(const void *, void *, size_t, uint32_t, void *, uint32_t *, size_t *,
                            uint32_t *, size_t *);

static size_t staged(stage_function *stage_blocks, const void *now, void *copy, size_t n,
                     uint32_t first, void *stage, uint32_t *dirty, size_t ndirty)
{
    stage_blocks(now, copy, n, first, stage, dirty, &ndirty, NULL, NULL);
    return ndirty;
}

/* Checksums of the copy are kept up to date; a differing block that does not match is counted. */
static int law_stage_crc(void)
{
    enum { BLOCKS = 5, LAST = 100 };
    static _Alignas(4096) unsigned char copy[BLOCKS * BLOCK], stage[BLOCKS * BLOCK];
    static unsigned char now[BLOCKS * BLOCK];
    uint32_t crc[BLOCKS] = {0}, dirty[BLOCKS];
    size_t n = (BLOCKS - 1) * BLOCK + LAST, ndirty = 0, corrupt = 0;
    memset(copy, 0, sizeof copy);
    int good = ftrma_block_crc(copy) == 0;
    for (size_t i = 0; i < n; i++)
        now[i] = (unsigned char)(i * 131 >> 3);
    ftrma_delta_stage(now, copy, n, 0, stage, dirty, &ndirty, crc, &corrupt);
    good &= ndirty == BLOCKS && corrupt == 0;
    for (size_t b = 0; b < BLOCKS; b++)
        good &= crc[b] == ftrma_block_crc(copy + b * BLOCK);
    for (size_t b = 0; b < BLOCKS; b += 2) { /* the blocks 0, 2 and the partial 4 are damaged */
        ndirty = corrupt = 0;
        copy[b * BLOCK + 7] ^= 64;
        ftrma_delta_stage(now, copy, n, 0, stage, dirty, &ndirty, crc, &corrupt);
        good &= ndirty == 1 && corrupt == 1 && crc[b] != ftrma_block_crc(copy + b * BLOCK);
    }
    return good;
}

static int delta_case(size_t n, size_t from, size_t one_in, size_t before)
{
    const size_t nblocks = (n + BLOCK - 1) / BLOCK;
    const uint32_t first = (uint32_t)below(UINT32_MAX - nblocks);
    struct arena now = arena_make(n, from), copy = arena_make(n, 0);
    differ_some(now.buf, copy.buf, n, one_in);
    struct arena old = arena_twin(&copy), ref = arena_twin(&copy);
    struct arena stage = arena_make((before + nblocks) * BLOCK, 64);
    struct arena stage_ref = arena_twin(&stage);
    struct arena dirty = arena_make((before + nblocks) * 4, 0), dirty_ref = arena_twin(&dirty);
    uint32_t *const list = (uint32_t *)(void *)dirty.buf;

    const size_t got = staged(ftrma_delta_stage, now.buf, copy.buf, n, first, stage.buf, list, before);
    const size_t want = staged(ftrma_delta_stage_ref, now.buf, ref.buf, n, first, stage_ref.buf,
                                              (uint32_t *)(void *)dirty_ref.buf, before);
    int good = got == want && memcmp(now.buf, copy.buf, n) == 0;
    if (good) {
        const unsigned char *const deltas = stage.buf + before * BLOCK;
        struct arena undone = arena_twin(&copy), undone_ref = arena_twin(&copy);
        ftrma_delta_undo(undone.buf, deltas, list + before, got - before, first);
        ftrma_delta_undo_ref(undone_ref.buf, deltas, list + before, got - before, first);
        good &= memcmp(undone.all, old.all, old.size) == 0;
        good &= arena_same(&undone, &undone_ref);
    }
    free(now.all);
    free(old.all);
    good &= arena_same(&copy, &ref);
    good &= arena_same(&stage, &stage_ref);
    good &= arena_same(&dirty, &dirty_ref);
    return good;
}

static int crc_case(size_t n, size_t offset)
{
    struct arena a = arena_make(n, offset);
    const uint32_t start = (uint32_t)rng();
    const size_t cut = below(n + 1);
    const uint32_t whole = ftrma_crc32c(start, a.buf, n);
    const int good = whole == ftrma_crc32c_ref(start, a.buf, n) &&
                     whole == ftrma_crc32c(ftrma_crc32c(start, a.buf, cut), a.buf + cut, n - cut);
    free(a.all);
    return good;
}

static int copy_case(size_t n, size_t to, size_t from, size_t one_in)
{
    struct arena src = arena_make(n, from), dst = arena_make(n, to);
    differ_some(src.buf, dst.buf, n, one_in);
    struct arena ref = arena_twin(&dst);
    int good = ftrma_copy_changed(dst.buf, src.buf, n) ==
               ftrma_copy_changed_ref(ref.buf, src.buf, n);
    good &= memcmp(dst.buf, src.buf, n) == 0;
    good &= ftrma_copy_changed(dst.buf, src.buf, n) == 0;
    free(src.all);
    return good & arena_same(&dst, &ref);
}

static int past_case(size_t n, size_t to, size_t from, size_t second, size_t copies)
{
    struct arena src = arena_make(n, from), dst = arena_make(n, to), also = arena_make(n, second);
    struct arena dst_ref = arena_twin(&dst), also_ref = arena_twin(&also);
    uint32_t crc = (uint32_t)n, crc_ref = crc;
    ftrma_copy_past(dst.buf, src.buf, n, copies > 1 ? also.buf : NULL, copies > 2,
                    from & 1 ? &crc : NULL);
    ftrma_copy_past_ref(dst_ref.buf, src.buf, n, copies > 1 ? also_ref.buf : NULL,
                        from & 1 ? &crc_ref : NULL);
    free(src.all);
    int good = arena_same(&dst, &dst_ref) & (crc == crc_ref);
    return good & arena_same(&also, &also_ref);
}

/* ----------------------------------------------------------------------------------- laws -- */

/* The i-th length: 0 .. 300, around multiples of a block, around the CRC's steps, large. */
static int length(size_t i, size_t *n)
{
    static const size_t around[] = {384,       512,       BLOCK,     2 * BLOCK,
                                    3 * BLOCK, 7 * BLOCK, 3 * 1360u, 6 * 1360u};
    if (i <= 300)
        *n = i;
    else if ((i - 301) / 5 < sizeof around / sizeof *around)
        *n = around[(i - 301) / 5] + (i - 301) % 5 - 2;
    else if ((i - 301) / 5 == sizeof around / sizeof *around)
        *n = BLOCK * below(9) + below(BLOCK);
    else
        return 0;
    return 1;
}

static int law_xor_into(void)
{
    int good = xor_into_case(large, 5, 0) && xor_into_case(large, 0, 3);
    for (size_t i = 0, n; length(i, &n); i++)
        good &= xor_into_case(n, below(64), below(64)) && xor_into_case(n, 0, below(64));
    for (size_t offset = 0; offset < 64; offset++)
        good &= xor_into_case(777, offset, 0) && xor_into_case(777, 0, offset);
    struct arena a = arena_make(BLOCK, 9);
    ftrma_xor_into(a.buf, a.buf, BLOCK);
    for (size_t i = 0; i < BLOCK; i++)
        good &= a.buf[i] == 0;
    free(a.all);
    return good;
}

static int law_xor_many(void)
{
    int good = xor_many_case(large, 3, 7, MAX_SRC) && xor_many_case(large, 2, 0, 1);
    for (size_t nsrc = 0; nsrc <= MAX_SRC; nsrc++) {
        for (size_t i = below(7), n; length(i, &n); i += 1 + below(13))
            good &= xor_many_case(n, nsrc, below(64), MAX_SRC);
        for (size_t in = 0; in < nsrc; in++)
            good &= xor_many_case(below(3000), nsrc, below(64), in);
    }
    for (size_t offset = 0; offset < 64; offset++)
        good &= xor_many_case(555, 5, offset, MAX_SRC);
    return good;
}

static int law_delta(void)
{
    int good = delta_case(large, 0, 2, 0) && delta_case(large, 13, 1, 2);
    for (size_t i = 0, n; length(i, &n); i++)
        good &= delta_case(n, below(64), i % 4, below(3));
    for (size_t offset = 0; offset < 64; offset++)
        good &= delta_case(5 * BLOCK + 100, offset, 2, 1);
    return good;
}

/* A single differing bit is found wherever it lies, by both kernels that compare. */
static int law_one_bit(void)
{
    struct arena now = arena_make(BLOCK, 1), copy = arena_make(BLOCK, 0);
    struct arena stage = arena_make(BLOCK, 0);
    int good = 1;
    memcpy(copy.buf, now.buf, BLOCK);
    for (size_t bit = 0; bit < 8 * BLOCK; bit += 1 + below(8)) {
        uint32_t dirty = 0;
        copy.buf[bit / 8] ^= (unsigned char)(1u << bit % 8);
        good &= staged(ftrma_delta_stage, now.buf, copy.buf, BLOCK, 6, stage.buf, &dirty, 0) == 1;
        good &= dirty == 6 && stage.buf[bit / 8] == 1u << bit % 8;
        good &= staged(ftrma_delta_stage, now.buf, copy.buf, BLOCK, 6, stage.buf, &dirty, 0) == 0;
        copy.buf[bit / 8] ^= (unsigned char)(1u << bit % 8);
        good &= ftrma_copy_changed(copy.buf, now.buf, BLOCK) == BLOCK;
    }
    free(now.all);
    free(copy.all);
    free(stage.all);
    return good;
}

static int law_crc(void)
{
    static const unsigned char zeros[32];
    int good = ftrma_crc32c(0, "123456789", 9) == 0xE3069283u;
    good &= ftrma_crc32c(0, zeros, 32) == 0x8A9136AAu; /* RFC 3720, appendix B.4 */
    good &= ftrma_crc32c(77, NULL, 0) == 77;
    good &= crc_case(large, 3);
    for (size_t i = 0, n; length(i, &n); i++)
        good &= crc_case(n, below(64));
    for (size_t n = 300; n < 13000; n += 1 + below(60))
        good &= crc_case(n, below(64));
    return good;
}

static int law_copy(void)
{
    int good = copy_case(large, 0, 1, 2);
    for (size_t i = 0, n; length(i, &n); i++)
        good &= copy_case(n, below(64), below(64), i % 4) && copy_case(n, 0, 0, 1);
    struct arena a = arena_make(large, 0), ref = arena_twin(&a);
    good &= ftrma_copy_changed(a.buf, a.buf, large) == 0;
    return good & arena_same(&a, &ref);
}

static int law_past(void)
{
    int good = past_case(large, 8, 1, 40, 2) & past_case(large, 8, 1, 40, 3);
    for (size_t i = 0, n; length(i, &n); i++)
        good &= past_case(n, below(64), below(64), below(64), 1 + i % 3);
    for (size_t n = BLOCK - 70; n < BLOCK + 150; n++)
        good &= past_case(n, below(64), below(64), below(64), 1 + n % 3);
    for (size_t n = 8 * BLOCK - 70; n < 8 * BLOCK + 150; n++)
        good &= past_case(n, below(64), below(64), below(64), 3);
    return good;
}

/* Equal blocks lie in pages that may not be written: a store to one would end the program. */
static int law_equal_untouched(void)
{
    const size_t n = 5 * BLOCK;
    unsigned char *const copy =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return 0;
    struct arena now = arena_make(n, 11), stage = arena_make(n, 0);
    uint32_t dirty[5];
    memcpy(copy, now.buf, n);
    copy[2 * BLOCK + 17] ^= 1;
    int good = mprotect(copy, 2 * BLOCK, PROT_READ) == 0 &&
               mprotect(copy + 3 * BLOCK, 2 * BLOCK, PROT_READ) == 0;
    good = good && staged(ftrma_delta_stage, now.buf, copy, n, 0, stage.buf, dirty, 0) == 1;
    copy[2 * BLOCK + 17] ^= 1;
    good = good && ftrma_copy_changed(copy, now.buf, n) == BLOCK;
    munmap(copy, n);
    free(now.all);
    free(stage.all);
    return good;
}

static unsigned char *exact(size_t n)
{
    void *buf; /* aligned_alloc would want n rounded up, and hide the end */
    if (posix_memalign(&buf, BLOCK, n) != 0)
        exit(2);
    memset(buf, 0x5A, n);
    return buf;
}

/* Buffers that end where the heap's block ends: the address sanitizer sees a byte too many. */
static int law_bounds(void)
{
    int good = 1;
    for (size_t i = 1, n; length(i, &n); i += 3) {
        const size_t room = (n / BLOCK + 1) * BLOCK;
        unsigned char *const a = exact(n), *const b = exact(n), *const stage = exact(room);
        const void *const list[2] = {a, b};
        uint32_t dirty[16];
        ftrma_xor_many(a, list, 2, n);
        ftrma_xor_into(a, b, n);
        a[n - 1] ^= 1;
        good &= staged(ftrma_delta_stage, a, b, n, 0, stage, dirty, 0) == 1;
        a[0] ^= 1;
        good &= ftrma_copy_changed(b, a, n) > 0 && memcmp(a, b, n) == 0;
        good &= ftrma_crc32c(0, a, n) == ftrma_crc32c_ref(0, b, n);
        free(a);
        free(b);
        free(stage);
    }
    return good;
}

/* Nothing to do is done with no buffers at all. */
static int law_empty(void)
{
    ftrma_xor_into(NULL, NULL, 0);
    ftrma_xor_many(NULL, NULL, 0, 0);
    ftrma_delta_undo(NULL, NULL, NULL, 0, 0);
    ftrma_copy_past(NULL, NULL, 0, NULL, 0, NULL);
    return staged(ftrma_delta_stage, NULL, NULL, 0, 0, NULL, NULL, 4) == 4 &&
           ftrma_copy_changed(NULL, NULL, 0) == 0;
}

static int report(const char *variant, const char *law, int good)
{
    printf("%-9s %-46s %s\n", variant, law, good ? "holds" : "FAILS");
    fflush(stdout);
    return good;
}

static int law_select(void)
{
    const char *const best = ftrma_kernel_name();
    int good = ftrma_kernel_select("none") == -1 && strcmp(ftrma_kernel_name(), best) == 0;
    good &= ftrma_kernel_select("portable") == 0 && strcmp(ftrma_kernel_name(), "portable") == 0;
    good &= ftrma_kernel_select(NULL) == 0 && strcmp(ftrma_kernel_name(), best) == 0;
    return good;
}

int main(void)
{
    static const struct {
        const char *text;
        int (*holds)(void);
    } laws[] = {
        {"xor_into equals its reference", law_xor_into},
        {"xor_many equals its reference", law_xor_many},
        {"delta_stage equals its reference, undo reverts", law_delta},
        {"delta_stage keeps checksums and counts damaged blocks", law_stage_crc},
        {"a single differing bit is found", law_one_bit},
        {"crc32c equals its reference and the standard", law_crc},
        {"copy_changed equals its reference", law_copy},
        {"copy_past equals its reference", law_past},
        {"equal blocks are not written", law_equal_untouched},
        {"nothing beyond the buffers is touched", law_bounds},
        {"empty buffers may be absent", law_empty},
    };
    static const char *const variants[] = {"portable", "ssse3",   "avx2",
                                           "gfni256",  "avx512", "gfni512"};
    int good = report("all", "the choice is kept, refused and reset", law_select());

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
