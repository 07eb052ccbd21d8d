/*
 * Edge lists as text; see graph.h. A wrong line is only found here; the caller says what is wrong
 * with it.
 *
 * The text ends with a line feed, so every loop over characters ends there at the latest.
 */
#define _GNU_SOURCE
#include <locale.h>
#include <stdio.h>
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

/* A text's form, and whether the field that is read is between quotes. */
struct reading {
    const struct ftrma_graph_form *form;
    locale_t plain;
    int quoted;
};

static int is_blank(char c, char separator)
{
    return c == ' ' || (c == '\t' && separator != '\t') || (c == ',' && separator == '\0');
}

static int is_word_end(const char *p, const struct reading *how)
{
    if (how->quoted)
        return *p == '"';
    const char separator = how->form->separator;
    return is_blank(*p, separator) || (separator != '\0' && *p == separator) || is_line_end(p);
}

static const char *skip_blanks(const char *p, const struct reading *how)
{
    while (is_blank(*p, how->form->separator))
        p++;
    return p;
}

/* Reads an id. Returns the end of its word, or NULL if it is none, is below the base, or is 2^63 or
   more. */
static const char *read_id(const char *p, int64_t *id, const struct reading *how)
{
    uint64_t value = 0;
    const char *const begin = p;
    for (; is_digit(*p); p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (value > ((uint64_t)INT64_MAX - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    *id = (int64_t)value - how->form->base;
    return p > begin && *id >= 0 && is_word_end(p, how) ? p : NULL;
}

/* Reads an infinity. Returns the end of its word, or NULL. NaN is refused. */
static const char *read_infinity(const char *p, double *value, const struct reading *how)
{
    const size_t length = strncasecmp_l(p, "infinity", 8, how->plain) == 0 ? 8 : 3;
    if (strncasecmp_l(p, "inf", 3, how->plain) != 0 || !is_word_end(p + length, how))
        return NULL;
    *value = __builtin_inf();
    return p + length;
}

/* A number as it is written: digits times ten to the power. */
struct decimal {
    uint64_t digits; /* the first ones, without leading zeros */
    int ndigits;     /* all of them; MOST_DIGITS + 1: more than `digits` has */
    long power;
};

/* Reads digits with at most one point. Returns their end, or NULL if there is no digit. */
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

/* Reads "e" and a power of ten, if they are there. Returns their end, or NULL if the power has no
   digit. */
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

/* An integer of more than 53 bits, written without a point, is a double without rounding. */
static int is_exact(const char *digits, size_t length, double value)
{
    char whole[400]; /* a double has at most 309 digits before the point */
    while (length > 1 && *digits == '0') {
        digits++;
        length--;
    }
    const int written = snprintf(whole, sizeof whole, "%.0f", value);
    return written > 0 && (size_t)written == length && memcmp(whole, digits, length) == 0;
}

/*
 * Reads a weight, rounded to nearest. Returns the end of its word, or NULL. If digits and power of
 * ten are doubles, one operation rounds correctly (Clinger, "How to read floating point numbers
 * accurately", PLDI 1990); the C library reads all others. An integer that would be rounded is
 * refused: it may be an id, or a count.
 */
static const char *read_weight(const char *begin, double *weight, const struct reading *how)
{
    const char *p = begin;
    const int negative = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    const char *const first = p;
    if (!is_digit(*p) && *p != '.') {
        p = read_infinity(p, weight, how);
        if (p != NULL && negative)
            *weight = -*weight;
        return p;
    }
    struct decimal d = {0, 0, 0};
    p = read_digits(p, &d);
    const char *const after = p;
    if (p != NULL)
        p = read_power(p, &d);
    if (p == NULL || !is_word_end(p, how))
        return NULL;
    if (d.ndigits > MOST_DIGITS || d.digits > EXACT || d.power < -EXACT_TEN || d.power > EXACT_TEN) {
        *weight = strtod_l(begin, NULL, how->plain);
        const size_t length = (size_t)(after - first);
        const int whole = after == p && memchr(first, '.', length) == NULL;
        return whole && !is_exact(first, length, negative ? -*weight : *weight) ? NULL : p;
    }
    const double whole = (double)d.digits;
    const double size = d.power < 0 ? whole / tens[-d.power] : whole * tens[d.power];
    *weight = negative ? -size : size;
    return p;
}

/* Passes over a field. Returns the end of its word, or NULL if a quote is not closed. */
static const char *skip_field(const char *p, const struct reading *how)
{
    const char separator = how->form->separator;
    for (; how->quoted && !is_line_end(p); p++) {
        if (*p == '"' && p[1] == '"')
            p++;
        else if (*p == '"')
            return p;
    }
    if (how->quoted)
        return NULL;
    while (!is_line_end(p) && (separator != '\0' ? *p != separator : !is_word_end(p, how)))
        p++;
    return p;
}

/* Goes from a word's end to the next field. Returns the field's beginning, or the line's end, or
   NULL if neither is there. */
static const char *next_field(const char *p, const struct reading *how, int *more)
{
    const char separator = how->form->separator;
    const char *const end = p;
    p = skip_blanks(p, how);
    *more = !is_line_end(p);
    if (!*more)
        return p;
    if (separator == '\0')
        return p > end ? p : NULL;
    return *p == separator ? skip_blanks(p + 1, how) : NULL;
}

/* Reads one line that has an edge, from its first field on. Returns the line's end, or NULL. */
static const char *read_edge(const char *p, struct reading *how, int64_t *source, int64_t *target,
                             double *weight)
{
    const struct ftrma_graph_form *const form = how->form;
    int column = 0, more = 1, read = 0;
    for (; more; column++) {
        how->quoted = *p == '"';
        p += how->quoted;
        read++;
        if (column == form->source)
            p = read_id(p, source, how);
        else if (column == form->target)
            p = read_id(p, target, how);
        else if (column == form->weight)
            p = read_weight(p, weight, how);
        else {
            p = skip_field(p, how);
            read--;
        }
        if (p != NULL)
            p = next_field(p + how->quoted, how, &more);
        if (p == NULL)
            return NULL;
    }
    const int right = form->columns == 0 || form->columns == column;
    return right && read == 2 + (form->weight >= 0) ? p : NULL;
}

/* Reads an id of up to 18 digits. Returns their end, or NULL if there are more, or none. */
static inline const char *read_digits_alone(const char *p, int64_t *id)
{
    const char *const begin = p;
    uint64_t value = 0;
    for (; is_digit(*p); p++)
        value = value * 10 + (uint64_t)(*p - '0');
    *id = (int64_t)value;
    return p > begin && p - begin <= MOST_DIGITS - 1 ? p : NULL;
}

/*
 * Reads the usual line, if the form has such lines: two ids in front, one separator between fields.
 * Returns the line's end, or NULL if it is another line, which read_edge() reads. Measured: twice
 * as fast.
 */
static const char *read_usual(const char *p, struct reading *how, int64_t *source, int64_t *target,
                              double *weight)
{
    const struct ftrma_graph_form *const form = how->form;
    const char separator = form->separator;
    p = read_digits_alone(p, source);
    if (p == NULL || (separator != '\0' ? *p != separator : !is_blank(*p, separator)))
        return NULL;
    p = read_digits_alone(p + 1, target);
    if (p == NULL || *source < form->base || *target < form->base)
        return NULL;
    *source -= form->base;
    *target -= form->base;
    if (form->weight >= 0) {
        if (separator != '\0' ? *p != separator : !is_blank(*p, separator))
            return NULL;
        how->quoted = 0;
        p = read_weight(p + 1, weight, how);
    }
    return p != NULL && is_line_end(p) ? p : NULL;
}

static int has_usual_lines(const struct ftrma_graph_form *form)
{
    const int columns = form->weight >= 0 ? 3 : 2;
    return form->source == 0 && form->target == 1 && form->mark == '\0' &&
           (form->weight < 0 || form->weight == 2) &&
           (form->columns == 0 || form->columns == columns);
}

static int is_comment(const char *p)
{
    return *p == '#' || *p == '%' || (*p == '/' && p[1] == '/');
}

int ftrma_graph_parse(const char *text, size_t size, const struct ftrma_graph_form *form,
                      struct ftrma_graph_read *read, int64_t *source, int64_t *target, double *weight)
{
    struct reading how = {form, newlocale(LC_ALL_MASK, "C", (locale_t)0), 0};
    if (how.plain == (locale_t)0)
        return -2;
    const int usual = has_usual_lines(form);
    int result = 0;
    const char *line = text;
    read->edges = read->lines = 0;
    while (line < text + size) {
        const size_t next = read->edges;
        const char *p = usual && is_digit(*line)
            ? read_usual(line, &how, &source[next], &target[next], &weight[next]) : NULL;
        if (p != NULL) {
            read->edges++;
            line = p + (*p == '\r') + 1;
            read->lines++;
            continue;
        }
        p = skip_blanks(line, &how);
        if (is_comment(p) || (form->mark != '\0' && *p != form->mark && !is_line_end(p))) {
            p = memchr(p, '\n', size - (size_t)(p - text));
        } else if (!is_line_end(p)) {
            const size_t i = read->edges;
            p = read_edge(p, &how, &source[i], &target[i], &weight[i]);
            if (p == NULL) {
                result = -1;
                break;
            }
            read->edges++;
        }
        line = p + (*p == '\r') + 1;
        read->lines++;
    }
    read->begin = (size_t)(line - text);
    freelocale(how.plain);
    return result;
}
