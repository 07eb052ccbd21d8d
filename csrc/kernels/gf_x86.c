/*
 * The erasure kernels of the x86-64 instruction sets.
 *
 * There are two ways to multiply a vector of bytes by a constant. The first works everywhere: split
 * each byte into nibbles and look up each half's product in a table of 16 bytes with PSHUFB (Plank,
 * Greenan and Miller, FAST 2013). The second needs GFNI: multiplication by a constant is linear
 * over GF(2), so it is one GF2P8AFFINEQB with an 8 x 8 bit matrix. (GF2P8MULB would not do: its
 * field is that of AES.)
 */
#include "gf_pass.h"

#if HAVE_X86

/*
 * If there are more streams than the processors' own prefetchers follow, lines are prefetched this
 * many bytes ahead. Measured: 14 to 19 % faster with 14 to 26 streams (Xeon); with 8 it is slower
 * (Zen 5).
 */
#define STREAMS_MAX 12
#define AHEAD ((size_t)1 << 10)

#define INLINE static inline __attribute__((always_inline))

/* ---------------------------------------------------------------------------------- SSSE3 -- */

#define VARIANT ssse3
#define TARGET __attribute__((target("ssse3")))
#define V __m128i
#define WIDTH ((size_t)16)
#define LOAD(p) _mm_loadu_si128((const void *)(p))
#define STORE(p, v) _mm_storeu_si128((void *)(p), v)
#define STREAM(p, v) _mm_stream_si128((void *)(p), v)
#define XOR(a, b) _mm_xor_si128(a, b)
#define ZERO _mm_setzero_si128()

struct halves_ssse3 {
    __m128i low, high;
};

TARGET INLINE struct halves_ssse3 halves_ssse3(uint8_t c)
{
    const uint8_t *const table = ftrma_gf_nibbles[c];
    return (struct halves_ssse3){LOAD(table), LOAD(table + 16)};
}

TARGET INLINE __m128i times_ssse3(__m128i v, struct halves_ssse3 f)
{
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(v, mask);
    const __m128i high = _mm_and_si128(_mm_srli_epi64(v, 4), mask);
    return XOR(_mm_shuffle_epi8(f.low, low), _mm_shuffle_epi8(f.high, high));
}

#define FACTOR struct halves_ssse3
#define FACTOR_OF(c) halves_ssse3(c)
#define TIMES(v, f) times_ssse3(v, f)
#include "gf_tiles.h"

/* ----------------------------------------------------------------------------------- AVX2 -- */

#define VARIANT avx2
#define TARGET __attribute__((target("avx2")))
#define V __m256i
#define WIDTH ((size_t)32)
#define LOAD(p) _mm256_loadu_si256((const void *)(p))
#define STORE(p, v) _mm256_storeu_si256((void *)(p), v)
#define STREAM(p, v) _mm256_stream_si256((void *)(p), v)
#define XOR(a, b) _mm256_xor_si256(a, b)
#define ZERO _mm256_setzero_si256()

struct halves_avx2 {
    __m256i low, high;
};

TARGET INLINE struct halves_avx2 halves_avx2(uint8_t c)
{
    const uint8_t *const table = ftrma_gf_nibbles[c];
    return (struct halves_avx2){
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)),
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(table + 16)))};
}

TARGET INLINE __m256i times_avx2(__m256i v, struct halves_avx2 f)
{
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i low = _mm256_and_si256(v, mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi64(v, 4), mask);
    return XOR(_mm256_shuffle_epi8(f.low, low), _mm256_shuffle_epi8(f.high, high));
}

#define FACTOR struct halves_avx2
#define FACTOR_OF(c) halves_avx2(c)
#define TIMES(v, f) times_avx2(v, f)
#include "gf_tiles.h"

/* ---------------------------------------------------------------------------- AVX2, GFNI -- */

#define VARIANT gfni256
#define TARGET __attribute__((target("avx2,gfni")))
#define V __m256i
#define WIDTH ((size_t)32)
#define LOAD(p) _mm256_loadu_si256((const void *)(p))
#define STORE(p, v) _mm256_storeu_si256((void *)(p), v)
#define STREAM(p, v) _mm256_stream_si256((void *)(p), v)
#define XOR(a, b) _mm256_xor_si256(a, b)
#define ZERO _mm256_setzero_si256()
#define FACTOR __m256i
#define FACTOR_OF(c) _mm256_set1_epi64x((long long)ftrma_gf_affine[c])
#define TIMES(v, f) _mm256_gf2p8affine_epi64_epi8(v, f, 0)
#include "gf_tiles.h"

/* -------------------------------------------------------------------------------- AVX-512 -- */

#define VARIANT avx512
#define TARGET __attribute__((target("avx512f,avx512bw")))
#define V __m512i
#define WIDTH ((size_t)64)
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define XOR(a, b) _mm512_xor_si512(a, b)
#define ZERO _mm512_setzero_si512()

struct halves_avx512 {
    __m512i low, high;
};

TARGET INLINE struct halves_avx512 halves_avx512(uint8_t c)
{
    const uint8_t *const table = ftrma_gf_nibbles[c];
    return (struct halves_avx512){
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)),
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(table + 16)))};
}

TARGET INLINE __m512i times_avx512(__m512i v, struct halves_avx512 f)
{
    const __m512i mask = _mm512_set1_epi8(15);
    const __m512i low = _mm512_and_si512(v, mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi64(v, 4), mask);
    return XOR(_mm512_shuffle_epi8(f.low, low), _mm512_shuffle_epi8(f.high, high));
}

#define FACTOR struct halves_avx512
#define FACTOR_OF(c) halves_avx512(c)
#define TIMES(v, f) times_avx512(v, f)
#include "gf_tiles.h"

/* -------------------------------------------------------------------------- AVX-512, GFNI -- */

#define VARIANT gfni512
#define TARGET __attribute__((target("avx512f,avx512bw,gfni")))
#define V __m512i
#define WIDTH ((size_t)64)
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define XOR(a, b) _mm512_xor_si512(a, b)
#define ZERO _mm512_setzero_si512()
#define FACTOR __m512i
#define FACTOR_OF(c) _mm512_set1_epi64((long long)ftrma_gf_affine[c])
#define TIMES(v, f) _mm512_gf2p8affine_epi64_epi8(v, f, 0)
#include "gf_tiles.h"

#endif
