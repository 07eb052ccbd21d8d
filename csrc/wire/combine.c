/* The operations of accumulates, for elements of 4 and 8 bytes.  Integers wrap around like unsigned
 * ones. */
#include "combine.h"

#include <stdint.h>
#include <string.h>

#include "wire.h"

#define EACH(T, U, change)                                                                        \
    for (size_t i = 0; i < bytes; i += sizeof(T)) {                                               \
        T a, b;                                                                                   \
        memcpy(&a, (char *)to + i, sizeof a);                                                     \
        memcpy(&b, (const char *)with + i, sizeof b);                                             \
        a = (T)(change);                                                                          \
        memcpy((char *)to + i, &a, sizeof a);                                                     \
    }                                                                                             \
    break

#define ARITHMETIC(T, U)                                                                          \
    case FTRMA_WIRE_SUM: EACH(T, U, (U)a + (U)b);                                                 \
    case FTRMA_WIRE_PROD: EACH(T, U, (U)a * (U)b);                                                \
    case FTRMA_WIRE_MIN: EACH(T, U, b < a ? b : a);                                               \
    case FTRMA_WIRE_MAX: EACH(T, U, b > a ? b : a);                                               \
    case FTRMA_WIRE_REPLACE: memcpy(to, with, bytes); break

#define BITWISE(T, U)                                                                             \
    case FTRMA_WIRE_BAND: EACH(T, U, (U)a & (U)b);                                                \
    case FTRMA_WIRE_BOR: EACH(T, U, (U)a | (U)b);                                                 \
    case FTRMA_WIRE_BXOR: EACH(T, U, (U)a ^ (U)b)

#define OF(type, T, U, more)                                                                      \
    case type:                                                                                    \
        switch (op) {                                                                             \
            ARITHMETIC(T, U);                                                                     \
            more                                                                                  \
        default: break; /* NO_OP */                                                               \
        }                                                                                         \
        break

void ftrma_combine(int op, int type, void *to, const void *with, size_t bytes)
{
    switch (type) {
        OF(FTRMA_WIRE_I32, int32_t, uint32_t, BITWISE(int32_t, uint32_t););
        OF(FTRMA_WIRE_U32, uint32_t, uint32_t, BITWISE(uint32_t, uint32_t););
        OF(FTRMA_WIRE_I64, int64_t, uint64_t, BITWISE(int64_t, uint64_t););
        OF(FTRMA_WIRE_U64, uint64_t, uint64_t, BITWISE(uint64_t, uint64_t););
        OF(FTRMA_WIRE_F32, float, float, );
        OF(FTRMA_WIRE_F64, double, double, );
    }
}
