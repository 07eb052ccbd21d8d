/*
 * The kernels of each instruction set, and the choice among them; see variant.h. Those of the erasure
 * codes are in gf_portable.c and gf_x86.c.
 */
#include "variant.h"

#include <string.h>

#include "gf_pass.h"

#if HAVE_X86
#define AVX2 __attribute__((target("avx2,sse4.2,pclmul")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,sse4.2,pclmul,vpclmulqdq")))
#endif

#define BLOCK ((size_t)FTRMA_BLOCK)

/* The Castagnoli polynomial, bits reversed (RFC 3720). */
#define CRC_POLY 0x82F63B78u

/* ------------------------------------------------------------------------------- portable -- */

/* crc_table[k][b]: the register that byte b leaves after k more zero bytes; filled at load. */
static uint32_t crc_table[8][256];

static inline uint64_t load64(const void *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static int differ_portable(const char *a, const char *b)
{
    for (size_t i = 0; i < BLOCK; i += LINE) {
        uint64_t diff = 0;
        for (size_t w = 0; w < LINE; w += 8)
            diff |= load64(a + i + w) ^ load64(b + i + w);
        if (diff != 0)
            return 1;
    }
    return 0;
}

/* A line at a time. Measured from memory: 5 to 7 GB/s; word by word it fell to 1.4 at times. */
static void delta_portable(const char *now, char *copy, char *stage, int stream)
{
    (void)stream;
    for (size_t i = 0; i < BLOCK; i += LINE) {
        uint64_t line[8], diff[8];
        memcpy(line, now + i, LINE);
        memcpy(diff, copy + i, LINE);
        for (size_t w = 0; w < 8; w++)
            diff[w] ^= line[w];
        memcpy(stage + i, diff, LINE);
        memcpy(copy + i, line, LINE);
    }
}

/* Eight bytes a step, one table for each ("slicing by 8"), in either byte order. */
static uint32_t crc_portable(uint32_t reg, const unsigned char *buf, size_t n)
{
    for (; n >= 8; n -= 8, buf += 8) {
        reg ^= (uint32_t)buf[0] | (uint32_t)buf[1] << 8 | (uint32_t)buf[2] << 16 |
               (uint32_t)buf[3] << 24;
        reg = crc_table[7][reg & 255] ^ crc_table[6][reg >> 8 & 255] ^
              crc_table[5][reg >> 16 & 255] ^ crc_table[4][reg >> 24] ^ crc_table[3][buf[4]] ^
              crc_table[2][buf[5]] ^ crc_table[1][buf[6]] ^ crc_table[0][buf[7]];
    }
    for (; n > 0; n--, buf++)
        reg = crc_table[0][(reg ^ *buf) & 255] ^ reg >> 8;
    return reg;
}

static const struct kernels portable = {"portable", differ_portable, delta_portable, crc_portable,
                                        past_portable, NULL, ftrma_gf_lines_portable};

#if HAVE_X86

/* ----------------------------------------------------------------------------------- AVX2 -- */

#define LOAD2(p) _mm256_loadu_si256((const void *)(p))

AVX2 static int differ_avx2(const char *a, const char *b)
{
    for (size_t i = 0; i < BLOCK; i += 128) {
        const __m256i d0 = _mm256_xor_si256(LOAD2(a + i), LOAD2(b + i));
        const __m256i d1 = _mm256_xor_si256(LOAD2(a + i + 32), LOAD2(b + i + 32));
        const __m256i d2 = _mm256_xor_si256(LOAD2(a + i + 64), LOAD2(b + i + 64));
        const __m256i d3 = _mm256_xor_si256(LOAD2(a + i + 96), LOAD2(b + i + 96));
        const __m256i any = _mm256_or_si256(_mm256_or_si256(d0, d1), _mm256_or_si256(d2, d3));
        if (!_mm256_testz_si256(any, any))
            return 1;
    }
    return 0;
}

AVX2 static void delta_avx2(const char *now, char *copy, char *stage, int stream)
{
    for (size_t i = 0; i < BLOCK; i += 32) {
        const __m256i bytes = LOAD2(now + i);
        const __m256i diff = _mm256_xor_si256(bytes, LOAD2(copy + i));
        if (stream)
            _mm256_stream_si256((void *)(stage + i), diff);
        else
            _mm256_store_si256((void *)(stage + i), diff);
        _mm256_store_si256((void *)(copy + i), bytes);
    }
}

/*
 * The crc32 instruction takes three cycles and can start every cycle: three lanes keep it busy.
 * Their registers are joined by moving the first past two lanes and the second past one, which is a
 * multiplication by x^(8 * bytes) modulo the polynomial. Long lanes cover a block except for its
 * last 16 bytes; short ones serve the rest and small messages.
 */
#define LANE_LONG ((size_t)1360)
#define LANE_SHORT ((size_t)128)

/* Factors that move a register past one and two lanes; filled at load. */
struct past {
    uint64_t one, two;
};
static struct past past_long, past_short;

AVX2 static inline uint32_t crc_three(uint32_t reg, const unsigned char *buf, size_t lane,
                                      struct past past)
{
    uint64_t a = reg, b = 0, c = 0;
    for (size_t i = 0; i < lane; i += 8) {
        a = _mm_crc32_u64(a, load64(buf + i));
        b = _mm_crc32_u64(b, load64(buf + lane + i));
        c = _mm_crc32_u64(c, load64(buf + 2 * lane + i));
    }
    const __m128i factors = _mm_set_epi64x((long long)past.two, (long long)past.one);
    const __m128i ends = _mm_set_epi64x((long long)a, (long long)b);
    const __m128i moved = _mm_xor_si128(_mm_clmulepi64_si128(ends, factors, 0x11),
                                        _mm_clmulepi64_si128(ends, factors, 0x00));
    return (uint32_t)(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(moved)) ^ c);
}

AVX2 static uint32_t crc_avx2(uint32_t reg, const unsigned char *buf, size_t n)
{
    for (; n >= 3 * LANE_LONG; n -= 3 * LANE_LONG, buf += 3 * LANE_LONG) {
        /* Three lanes confuse the hardware's prefetching: measured 23 instead of 8 GB/s from
           memory, for 25 instead of 28 in cache. */
        for (size_t i = LANE_LONG * 3; i < n && i < LANE_LONG * 6; i += LINE)
            _mm_prefetch((const char *)buf + i, _MM_HINT_T0);
        reg = crc_three(reg, buf, LANE_LONG, past_long);
    }
    for (; n >= 3 * LANE_SHORT; n -= 3 * LANE_SHORT, buf += 3 * LANE_SHORT)
        reg = crc_three(reg, buf, LANE_SHORT, past_short);
    for (; n >= 8; n -= 8, buf += 8)
        reg = (uint32_t)_mm_crc32_u64(reg, load64(buf));
    for (; n > 0; n--, buf++)
        reg = _mm_crc32_u8(reg, *buf);
    return reg;
}

AVX2 static void past_avx2(char *dst, const char *from, size_t n, char *also)
{
    for (size_t i = 0; i < n; i += LINE) {
        const __m256i low = LOAD2(from + i), high = LOAD2(from + i + 32);
        _mm256_stream_si256((void *)(dst + i), low);
        _mm256_stream_si256((void *)(dst + i + 32), high);
        if (also != NULL) {
            _mm256_storeu_si256((void *)(also + i), low);
            _mm256_storeu_si256((void *)(also + i + 32), high);
        }
    }
}

static const struct kernels avx2 = {"avx2", differ_avx2, delta_avx2, crc_avx2, past_avx2,
                                    NULL, ftrma_gf_lines_avx2};
static const struct kernels gfni256 = {"gfni256", differ_avx2, delta_avx2, crc_avx2, past_avx2,
                                       NULL, ftrma_gf_lines_gfni256};
/* Without AVX2 only the erasure codes' table look-ups need more than plain words. */
static const struct kernels ssse3 = {"ssse3", differ_portable, delta_portable, crc_portable,
                                     past_portable, NULL, ftrma_gf_lines_ssse3};

/* -------------------------------------------------------------------------------- AVX-512 -- */

#define LOAD5(p) _mm512_loadu_si512((const void *)(p))

/* Factors that fold the two halves of 16 bytes onto those 64 and 256 bytes on; filled at load. */
static uint64_t fold_64[2], fold_256[2];

AVX512 static inline __m512i crc_fold(__m512i sum, __m512i factors, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, factors, 0x00),
                                     _mm512_clmulepi64_epi128(sum, factors, 0x11), next,
                                     0x96); /* the truth table of a three-way xor */
}

/* The register of 256 bytes. */
AVX512 static inline uint32_t crc_folded(const __m512i s[4])
{
    const __m512i by_64 = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)fold_64));
    const __m512i sum = crc_fold(crc_fold(crc_fold(s[0], by_64, s[1]), by_64, s[2]), by_64, s[3]);
    uint64_t words[8], folded = 0;
    _mm512_storeu_si512(words, sum);
    for (size_t w = 0; w < 8; w++)
        folded = _mm_crc32_u64(folded, words[w]);
    return (uint32_t)folded;
}

/* Folds the message 256 bytes at a time into 64 bytes of the same checksum. */
AVX512 static uint32_t crc_avx512(uint32_t reg, const unsigned char *buf, size_t n)
{
    if (n < 512) /* at least two steps, else there is nothing to fold */
        return crc_avx2(reg, buf, n);
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)fold_256));
    __m512i s[4] = {LOAD5(buf), LOAD5(buf + 64), LOAD5(buf + 128), LOAD5(buf + 192)};
    s[0] = _mm512_xor_si512(s[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)reg)));
    for (n -= 256, buf += 256; n >= 256; n -= 256, buf += 256)
        for (size_t i = 0; i < 4; i++)
            s[i] = crc_fold(s[i], by_256, LOAD5(buf + i * LINE));
    return crc_avx2(crc_folded(s), buf, n);
}

/* Copies each line by one store, so that no line is sent to memory half full. */
AVX512 static void past_avx512(char *dst, const char *from, size_t n, char *also)
{
    for (size_t i = 0; i < n; i += LINE) {
        const __m512i line = LOAD5(from + i);
        _mm512_stream_si512((void *)(dst + i), line);
        if (also != NULL)
            _mm512_storeu_si512((void *)(also + i), line);
    }
}

AVX512 static inline __m512i line_past(char *dst, const char *from, char *also, size_t at)
{
    const __m512i line = LOAD5(from + at);
    _mm512_stream_si512((void *)(dst + at), line);
    if (also != NULL)
        _mm512_storeu_si512((void *)(also + at), line);
    return line;
}

/* Folds as crc_avx512 does; while a line is in a register it goes past the caches. */
AVX512 static uint32_t past_crc_avx512(uint32_t reg, char *dst, const char *from, size_t n,
                                       char *also)
{
    size_t at = 0;
    if (n >= 512) {
        const __m512i by_256 = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)fold_256));
        __m512i s[4];
        for (size_t i = 0; i < 4; i++, at += LINE)
            s[i] = line_past(dst, from, also, at);
        s[0] = _mm512_xor_si512(s[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)reg)));
        while (n - at >= 256)
            for (size_t i = 0; i < 4; i++, at += LINE)
                s[i] = crc_fold(s[i], by_256, line_past(dst, from, also, at));
        reg = crc_folded(s);
    }
    past_avx512(dst + at, from + at, n - at, also ? also + at : NULL);
    return crc_avx2(reg, (const unsigned char *)from + at, n - at);
}

/*
 * Checksum, copies and sums gain from the wider vectors. Measured (Zen 4): comparing blocks from
 * memory with 512-bit loads is 15 % slower than with 256-bit ones, and delta is no faster.
 */
static const struct kernels avx512 = {"avx512", differ_avx2, delta_avx2, crc_avx512, past_avx512,
                                      past_crc_avx512, ftrma_gf_lines_avx512};
static const struct kernels gfni512 = {"gfni512", differ_avx2, delta_avx2, crc_avx512,
                                       past_avx512, past_crc_avx512, ftrma_gf_lines_gfni512};

#endif

/* --------------------------------------------------------------------------------- choice -- */

/* Best first, the last one runs everywhere. */
static const struct kernels *const variants[] = {
#if HAVE_X86
    &gfni512, &avx512, &gfni256, &avx2, &ssse3,
#endif
    &portable};

_Atomic(const struct kernels *) ftrma_kernels_chosen = &portable;

static int runs_here(const struct kernels *kernel)
{
#if HAVE_X86
    const int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("sse4.2") &&
                         __builtin_cpu_supports("pclmul");
    const int has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("vpclmulqdq");
    const int has_gfni = __builtin_cpu_supports("gfni");
    if (kernel == &ssse3)
        return __builtin_cpu_supports("ssse3");
    if (kernel == &avx2 || kernel == &gfni256)
        return has_avx2 && (kernel == &avx2 || has_gfni);
    if (kernel == &avx512 || kernel == &gfni512)
        return has_avx512 && (kernel == &avx512 || has_gfni);
#endif
    return kernel == &portable;
}

const char *ftrma_kernel_name(void)
{
    return ftrma_kernels()->name;
}

int ftrma_kernel_select(const char *name)
{
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        if ((name == NULL || strcmp(name, variants[v]->name) == 0) && runs_here(variants[v])) {
            atomic_store_explicit(&ftrma_kernels_chosen, variants[v], memory_order_relaxed);
            return 0;
        }
    }
    return -1;
}

/* One zero bit more: the register times x modulo the polynomial. */
static uint32_t crc_times_x(uint32_t reg)
{
    return reg >> 1 ^ (CRC_POLY & (0u - (reg & 1)));
}

#if HAVE_X86
/*
 * The factor that a carry-less multiplication needs to move something past so many bits. The
 * product of two bit-reversed factors is one bit too high, and a 32-bit factor in 64 bits stands
 * for itself times x^32: so 33 bits are subtracted.
 */
static uint64_t crc_past(size_t bits)
{
    uint32_t power = 0x80000000u; /* x^0, bits reversed */
    for (size_t i = 0; i < bits - 33; i++)
        power = crc_times_x(power);
    return power;
}
#endif

/* Runs when the library is loaded, before any thread could call a kernel. */
__attribute__((constructor)) static void kernels_init(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t reg = b;
        for (size_t bit = 0; bit < 8; bit++)
            reg = crc_times_x(reg);
        crc_table[0][b] = reg;
    }
    for (size_t k = 1; k < 8; k++) {
        for (size_t b = 0; b < 256; b++)
            crc_table[k][b] = crc_table[k - 1][b] >> 8 ^ crc_table[0][crc_table[k - 1][b] & 255];
    }
#if HAVE_X86
    __builtin_cpu_init();
    past_long = (struct past){crc_past(8 * LANE_LONG), crc_past(16 * LANE_LONG)};
    past_short = (struct past){crc_past(8 * LANE_SHORT), crc_past(16 * LANE_SHORT)};
    /* The first half of 16 bytes has 64 bits further to go. */
    fold_64[0] = crc_past(8 * 64 + 64);
    fold_64[1] = crc_past(8 * 64);
    fold_256[0] = crc_past(8 * 256 + 64);
    fold_256[1] = crc_past(8 * 256);
#endif
    ftrma_gf_init();
    (void)ftrma_kernel_select(NULL);
}
