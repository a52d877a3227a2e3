/* tokenize_main.c - the tokenizer on a pipe, for compare_tokenizers.py.
 *
 * Usage: tokenize_main MODEL (a .gguf file or a directory). Reads commands from standard input, all numbers
 * 32-bit little-endian, and answers each: 'e' flags, number of untrusted ranges, pairs of begin and end,
 * bytes of text, text -> number of ids, ids 'd' skip_special, number of ids, ids -> bytes of text, text. The
 * detokenizer's appends are checked on the way. 't' flags, repetitions, bytes of text, text -> microseconds
 * for all repetitions */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "files/gguf.h"
#include "text/tokenizer.h"
#include "text/tokenizer/unicode.h"

enum { TEXT_BYTES_MAX = 1 << 28 };

static void fail(const char *what)
{
    fprintf(stderr, "tokenize_main: %s\n", what);
    exit(1);
}

static void read_bytes(void *to, size_t n)
{
    if (n > 0 && fread(to, 1, n, stdin) != n) fail("the input ends in the middle of a command");
}

static uint32_t read_number(void)
{
    uint32_t n;
    read_bytes(&n, sizeof n);
    return n;
}

static void *read_block(size_t n, size_t item_bytes)
{
    if (n > TEXT_BYTES_MAX / item_bytes) fail("a block is too long");
    void *block = malloc(n * item_bytes + 1);
    if (!block) fail("out of memory");
    read_bytes(block, n * item_bytes);
    return block;
}

static void write_block(const void *items, uint32_t n, size_t item_bytes)
{
    fwrite(&n, sizeof n, 1, stdout);
    if (n > 0) fwrite(items, item_bytes, n, stdout);
    fflush(stdout);
}

static void encode(const struct tokenizer *t)
{
    uint32_t flags = read_number(), num_ranges = read_number();
    uint32_t *numbers = read_block(num_ranges, 2 * sizeof *numbers);
    struct text_range *ranges = calloc(num_ranges + 1, sizeof *ranges);
    if (!ranges) fail("out of memory");
    for (uint32_t i = 0; i < num_ranges; i++)
        ranges[i] = (struct text_range){numbers[2 * i], numbers[2 * i + 1]};
    uint32_t num_bytes = read_number();
    char *text = read_block(num_bytes, 1);
    struct token_list list = {0};
    if (tokenizer_encode(t, text, num_bytes, ranges, (int)num_ranges, flags, INT32_MAX, &list))
        fail("encode failed");
    write_block(list.ids, (uint32_t)list.num_ids, sizeof *list.ids);
    token_list_deinit(&list);
    free(text);
    free(ranges);
    free(numbers);
}

static void decode(const struct tokenizer *t)
{
    uint32_t skip_special = read_number(), num_ids = read_number();
    int32_t *ids = read_block(num_ids, sizeof *ids);
    struct buffer whole, parts;
    buffer_init(&whole, TEXT_BYTES_MAX);
    buffer_init(&parts, TEXT_BYTES_MAX);
    tokenizer_decode(t, ids, (int32_t)num_ids, skip_special, &whole);
    struct detokenizer d;
    detokenizer_init(&d, t, skip_special);
    for (uint32_t i = 0; i <= num_ids; i++) {
        size_t before = parts.num_bytes;
        if (i < num_ids)
            detokenizer_push(&d, ids[i], &parts);
        else
            detokenizer_finish(&d, &parts);
        if (parts.num_bytes > before &&
            !utf8_is_valid((const unsigned char *)parts.data + before, parts.num_bytes - before))
            fail("the detokenizer appended what is not whole UTF-8");
    }
    if (whole.num_bytes != parts.num_bytes ||
        (whole.num_bytes > 0 && memcmp(whole.data, parts.data, whole.num_bytes) != 0))
        fail("the detokenizer's appends are not what decode gives");
    write_block(whole.data, (uint32_t)whole.num_bytes, 1);
    buffer_deinit(&whole);
    buffer_deinit(&parts);
    free(ids);
}

static void measure(const struct tokenizer *t)
{
    uint32_t flags = read_number(), repetitions = read_number(), num_bytes = read_number();
    char *text = read_block(num_bytes, 1);
    clock_t start = clock();
    for (uint32_t i = 0; i < repetitions; i++) {
        struct token_list list = {0};
        if (tokenizer_encode(t, text, num_bytes, NULL, 0, flags, INT32_MAX, &list)) fail("encode failed");
        token_list_deinit(&list);
    }
    uint32_t us = (uint32_t)((double)(clock() - start) * 1e6 / CLOCKS_PER_SEC);
    write_block(&us, 1, sizeof us);
    free(text);
}

static struct tokenizer *open_tokenizer(const char *path)
{
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct error err = {0};
    size_t n = strlen(path);
    int status;
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) {
        status = gguf_open(path, &g, &err);
        if (!status) status = tokenizer_open_gguf(g, &t, &err);
        if (g) gguf_close(g);
    } else {
        status = tokenizer_open_directory(path, &t, &err);
    }
    if (status) fail(err.text);
    return t;
}

int main(int argc, char **argv)
{
    if (argc != 2) fail("usage: tokenize_main MODEL");
    clock_t start = clock();
    struct tokenizer *t = open_tokenizer(argv[1]);
    fprintf(stderr, "loaded %s in %.1f ms of processor time\n", argv[1],
            (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC);
    int command;
    while ((command = getchar()) != EOF) {
        switch (command) {
        case 'e':
            encode(t);
            break;
        case 'd':
            decode(t);
            break;
        case 't':
            measure(t);
            break;
        default:
            fail("unknown command");
        }
    }
    tokenizer_close(t);
    return 0;
}
