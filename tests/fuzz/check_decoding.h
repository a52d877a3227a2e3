/* check_decoding.h - what tokenizer.h promises of decoding: pushing ids one by one gives what decoding all of
 * them gives, in whole valid UTF-8. */
#ifndef TESTS_FUZZ_CHECK_DECODING_H
#define TESTS_FUZZ_CHECK_DECODING_H

#include <string.h>

#include "base/check.h"
#include "text/tokenizer.h"
#include "text/tokenizer/unicode.h"

enum { DECODED_BYTES_MAX = 16 << 20 };

static inline bool is_valid_text(const char *text, size_t n)
{
    return n == 0 || utf8_is_valid((const unsigned char *)text, n);
}

static inline void check_decoding(const struct tokenizer *t, const int32_t *ids, int32_t n, bool skip_special)
{
    struct buffer whole, pieces;
    struct detokenizer d;
    buffer_init(&whole, DECODED_BYTES_MAX);
    buffer_init(&pieces, DECODED_BYTES_MAX);
    tokenizer_decode(t, ids, n, skip_special, &whole);
    detokenizer_init(&d, t, skip_special);
    for (int32_t i = 0; i <= n; i++) {
        size_t before = pieces.num_bytes;
        if (i < n)
            detokenizer_push(&d, ids[i], &pieces);
        else
            detokenizer_finish(&d, &pieces);
        if (pieces.num_bytes > before)
            assert_always(is_valid_text(pieces.data + before, pieces.num_bytes - before));
    }
    assert_always(whole.num_bytes == pieces.num_bytes);
    assert_always(whole.num_bytes == 0 || !memcmp(whole.data, pieces.data, whole.num_bytes));
    buffer_deinit(&whole);
    buffer_deinit(&pieces);
}

#endif
