/*
 * Edge lists as text; see graph.h. A line that is wrong is only found here: who has called says
 * what is wrong with it.
 *
 * The text ends with a line feed, so every loop over characters ends there at the latest.
 */
#define _GNU_SOURCE
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "graph.h"

/* Powers of ten that are doubles without rounding. */
static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { EXACT_TEN = sizeof tens / sizeof *tens - 1 };
#define EXACT ((uint64_t)1 << 53) /* integers up to here are doubles without rounding */
#define MOST_DIGITS 19            /* digits that a 64-bit word has room for */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_line_end(const char *p)
{
    return *p == '\n' || (*p == '\r' && p[1] == '\n');
}

static int is_word_end(const char *p)
{
    return *p == ' ' || *p == '\t' || *p == ',' || is_line_end(p);
}

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t' || *p == ',')
        p++;
    return p;
}

/* Reads an id; the end of its word, or NULL: it is none, or 2^63 and more. */
static const char *read_id(const char *p, int64_t *id)
{
    uint64_t value = 0;
    const char *const begin = p;
    for (; is_digit(*p); p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (value > ((uint64_t)INT64_MAX - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    *id = (int64_t)value;
    return p > begin && is_word_end(p) ? p : NULL;
}

/* Reads an infinity; the end of its word, or NULL. NaN is refused. */
static const char *read_infinity(const char *p, double *value, locale_t plain)
{
    const size_t length = strncasecmp_l(p, "infinity", 8, plain) == 0 ? 8 : 3;
    if (strncasecmp_l(p, "inf", 3, plain) != 0 || !is_word_end(p + length))
        return NULL;
    *value = __builtin_inf();
    return p + length;
}

/* A number as it is written: digits times ten to the power. */
struct decimal {
    uint64_t digits; /* the first ones, without zeros in front */
    int ndigits;     /* all of them; MOST_DIGITS + 1: more than `digits` has */
    long power;
};

/* Reads digits with at most one point; their end, or NULL if there is no digit. */
static inline const char *read_digits(const char *p, struct decimal *d)
{
    int any = 0;
    for (int point = 0; is_digit(*p) || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = 1;
            continue;
        }
        any = 1;
        if (d->ndigits <= MOST_DIGITS && (d->digits != 0 || *p != '0'))
            d->ndigits++;
        if (d->ndigits <= MOST_DIGITS)
            d->digits = d->digits * 10 + (uint64_t)(*p - '0');
        d->power -= point;
    }
    return any ? p : NULL;
}

/* Reads "e" and a power of ten, if they are there; their end, or NULL if the power has no digit. */
static inline const char *read_power(const char *p, struct decimal *d)
{
    if (*p != 'e' && *p != 'E')
        return p;
    const char *const sign = ++p;
    if (*p == '-' || *p == '+')
        p++;
    if (!is_digit(*p))
        return NULL;
    long given = 0;
    for (; is_digit(*p); p++)
        given = given < 100000 ? given * 10 + (*p - '0') : given;
    d->power += *sign == '-' ? -given : given;
    return p;
}

/*
 * Reads a weight, rounded to nearest; the end of its word, or NULL. Where digits and power of ten are
 * doubles, one operation rounds as is right (Clinger, "How to read floating point numbers
 * accurately", PLDI 1990); the C library reads all others.
 */
static const char *read_weight(const char *begin, double *weight, locale_t plain)
{
    const char *p = begin;
    const int negative = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    if (!is_digit(*p) && *p != '.') {
        p = read_infinity(p, weight, plain);
        if (p != NULL && negative)
            *weight = -*weight;
        return p;
    }
    struct decimal d = {0, 0, 0};
    p = read_digits(p, &d);
    if (p != NULL)
        p = read_power(p, &d);
    if (p == NULL || !is_word_end(p))
        return NULL;
    if (d.ndigits > MOST_DIGITS || d.digits > EXACT || d.power < -EXACT_TEN || d.power > EXACT_TEN) {
        *weight = strtod_l(begin, NULL, plain);
        return p;
    }
    const double whole = (double)d.digits;
    const double size = d.power < 0 ? whole / tens[-d.power] : whole * tens[d.power];
    *weight = negative ? -size : size;
    return p;
}

/* Reads one line that has an edge; the end of its words, or NULL. */
static const char *read_edge(const char *p, int *weighted, int64_t *source, int64_t *target,
                             double *weight, locale_t plain)
{
    p = read_id(p, source);
    if (p == NULL)
        return NULL;
    p = read_id(skip_blanks(p), target);
    if (p == NULL)
        return NULL;
    p = skip_blanks(p);
    const int has = !is_line_end(p);
    if (*weighted >= 0 && *weighted != has)
        return NULL;
    *weighted = has;
    if (has)
        p = read_weight(p, weight, plain);
    return p;
}

int ftrma_graph_parse(const char *text, size_t size, struct ftrma_graph_read *read, int64_t *source,
                      int64_t *target, double *weight)
{
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return -2;
    int result = 0;
    const char *line = text;
    read->edges = read->lines = 0;
    while (line < text + size) {
        const char *p = skip_blanks(line);
        if (*p == '#' || *p == '%') {
            p = memchr(p, '\n', size - (size_t)(p - text));
        } else if (!is_line_end(p)) {
            const size_t i = read->edges;
            p = read_edge(p, &read->weighted, &source[i], &target[i], &weight[i], plain);
            if (p != NULL)
                p = skip_blanks(p);
            if (p == NULL || !is_line_end(p)) {
                result = -1;
                break;
            }
            read->edges++;
        }
        line = p + (*p == '\r') + 1;
        read->lines++;
    }
    read->begin = (size_t)(line - text);
    freelocale(plain);
    return result;
}
