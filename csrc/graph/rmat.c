/* A generator of power-law graphs by counters; see graph.h. */
#include "graph.h"
#include "mix.h"

#define DRAWS 4 /* draws from one word */

void ftrma_graph_rmat(uint64_t seed, int scale, const uint8_t *pairs, uint64_t first, size_t count,
                      int64_t *source, int64_t *target)
{
    const int draws = (scale + 1) / 2, odd = scale % 2;
    const uint64_t start = mix(seed), words = (uint64_t)(draws + DRAWS - 1) / DRAWS;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = (first + i) * words, from = 0, to = 0, word = 0;
        for (int draw = 0; draw < draws; draw++) {
            if (draw % DRAWS == 0)
                word = mix(start + ++number * 0x9E3779B97F4A7C15u);
            const uint64_t pair = pairs[word & 0xFFFF];
            word >>= 16;
            from = from << 2 | pair >> 2;
            to = to << 2 | (pair & 3);
        }
        source[i] = (int64_t)(from >> odd);
        target[i] = (int64_t)(to >> odd);
    }
}
