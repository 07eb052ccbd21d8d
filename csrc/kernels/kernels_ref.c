/* References of the memory kernels, for tests: the plainest code for the functions of kernels.h. */
#include <string.h>

#include "kernels.h"

#define BLOCK FTRMA_BLOCK
#define CRC_POLY 0x82F63B78u

void ftrma_xor_into_ref(void *dst, const void *src, size_t n)
{
    unsigned char *const to = dst;
    const unsigned char *const from = src;
    for (size_t i = 0; i < n; i++)
        to[i] ^= from[i];
}

void ftrma_xor_many_ref(void *dst, const void *const *src, size_t nsrc, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char sum = 0;
        for (size_t s = 0; s < nsrc; s++)
            sum ^= ((const unsigned char *)src[s])[i];
        ((unsigned char *)dst)[i] = sum;
    }
}

void ftrma_delta_stage_ref(const void *now, void *copy, size_t n, uint32_t first_block,
                           void *stage, uint32_t *dirty, size_t *ndirty, uint32_t *crc,
                           size_t *corrupt)
{
    const unsigned char *const from = now;
    unsigned char *const to = copy;
    for (size_t b = 0; b * BLOCK < n; b++) {
        unsigned char *const out = (unsigned char *)stage + *ndirty * BLOCK;
        const size_t begin = b * BLOCK;
        const size_t size = n - begin < BLOCK ? n - begin : BLOCK;
        if (memcmp(from + begin, to + begin, size) == 0)
            continue;
        const uint32_t before = crc != NULL ? ftrma_block_crc(to + begin) : 0;
        if (crc != NULL && before != crc[b])
            ++*corrupt;
        dirty[*ndirty] = first_block + (uint32_t)b;
        for (size_t i = 0; i < BLOCK; i++)
            out[i] = i < size ? from[begin + i] ^ to[begin + i] : 0;
        memcpy(to + begin, from + begin, size);
        ++*ndirty;
        if (crc != NULL)
            crc[b] ^= before ^ ftrma_block_crc(to + begin);
    }
}

void ftrma_delta_undo_ref(void *copy, const void *stage, const uint32_t *dirty, size_t ndirty,
                          uint32_t base_block)
{
    for (size_t i = 0; i < ndirty; i++) {
        for (size_t j = 0; j < BLOCK; j++)
            ((unsigned char *)copy)[(dirty[i] - base_block) * BLOCK + j] ^=
                ((const unsigned char *)stage)[i * BLOCK + j];
    }
}

uint32_t ftrma_crc32c_ref(uint32_t crc, const void *buf, size_t n)
{
    uint32_t reg = ~crc;
    for (size_t i = 0; i < n; i++) {
        reg ^= ((const unsigned char *)buf)[i];
        for (size_t bit = 0; bit < 8; bit++)
            reg = reg & 1 ? reg >> 1 ^ CRC_POLY : reg >> 1;
    }
    return ~reg;
}

void ftrma_copy_past_ref(void *dst, const void *src, size_t n, void *also, uint32_t *crc)
{
    if (crc != NULL)
        *crc = ftrma_crc32c_ref(*crc, src, n);
    for (size_t i = 0; i < n; i++) {
        ((unsigned char *)dst)[i] = ((const unsigned char *)src)[i];
        if (also != NULL)
            ((unsigned char *)also)[i] = ((const unsigned char *)src)[i];
    }
}

size_t ftrma_copy_changed_ref(void *dst, const void *src, size_t n)
{
    size_t written = 0;
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const size_t size = n - begin < BLOCK ? n - begin : BLOCK;
        if (memcmp((const char *)dst + begin, (const char *)src + begin, size) == 0)
            continue;
        memcpy((char *)dst + begin, (const char *)src + begin, size);
        written += size;
    }
    return written;
}
