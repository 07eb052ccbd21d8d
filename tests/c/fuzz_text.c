/*
 * Edge lists that are almost ones, to the reader of csrc/graph/text.c. Law: it reads within the
 * text, writes an edge for a line at most, and names a line that is there; the sanitizers find
 * nothing.
 *
 *   cd csrc/graph && cc -std=gnu11 -O1 -g -fsanitize=address,undefined -I. text.c \
 *      ../../tests/c/fuzz_text.c -o fuzz_text && ./fuzz_text SEED TEXTS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "graph.h"

static const char *const words[] = {
    "0", "1", "7", "42", " ", " ", "\t", ",", "\n", "\n", "\r\n", "\r", "#", "%", "-", "+", ".",
    "e", "E9", "inf", "INFINITY", "infin", "nan", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "1e999999999999999999999", "0.000000000000000000000000000001", "1.5e-3",
    "000000000000000000000000000000000000000000000000000000001", "\xff", "x", ";", ";", "\"", "\"",
    "//", "9007199254740993"};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    seed(argv[1]);
    for (unsigned long i = strtoul(argv[2], NULL, 0); i; i--) {
        char text[4096];
        size_t size = 0, lines = 1;
        for (size_t n = below(60); n; n--) {
            const char *word = below(50) ? words[below(sizeof words / sizeof *words)] : "\0";
            size_t length = *word ? strlen(word) : 1;
            memcpy(text + size, word, length);
            size += length;
        }
        text[size++] = '\n';
        for (size_t at = 0; at + 1 < size; at++)
            lines += text[at] == '\n';
        /* Each ends where its allocation ends. */
        char *exact = malloc(size);
        int64_t *source = malloc(lines * sizeof *source), *target = malloc(lines * sizeof *target);
        double *weight = malloc(lines * sizeof *weight);
        if (!exact || !source || !target || !weight)
            return 2;
        memcpy(exact, text, size);
        struct ftrma_graph_form form = {
            .separator = "\0,;\t"[below(4)], .mark = below(9) ? '\0' : 'x', .columns = (int)below(4),
            .source = (int)below(3), .target = (int)below(3), .weight = (int)below(4) - 1,
            .base = (int64_t)below(2)};
        struct ftrma_graph_read read;
        int result = ftrma_graph_parse(exact, size, &form, &read, source, target, weight);
        int fits = read.edges <= lines && read.lines <= lines && read.begin <= size;
        for (size_t e = 0; e < read.edges && fits; e++)
            fits = source[e] >= 0 && target[e] >= 0;
        if (!fits || (result && result != -1)) {
            printf("FAILS: %zu edges and %zu of %zu lines, result %d\n", read.edges, read.lines,
                   lines, result);
            return 1;
        }
        free(exact);
        free(source);
        free(target);
        free(weight);
    }
    return 0;
}
