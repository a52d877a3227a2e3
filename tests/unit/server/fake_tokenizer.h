/* fake_tokenizer.h - a tokenizer that a test can read: id b (0..255) is the byte b, ids from 256 are the
 * words given, the last of them special. Defines the functions of text/tokenizer.h, so that the linker takes
 * these. */
#ifndef TESTS_UNIT_SERVER_FAKE_TOKENIZER_H
#define TESTS_UNIT_SERVER_FAKE_TOKENIZER_H

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer.h"

enum { FAKE_WORD = 256, FAKE_BOS = 260, FAKE_EOS = 261, FAKE_VOCAB_SIZE = 262, FAKE_LOGITS_WIDTH = 270 };

static const char *const fake_words[] = {"hello", " world", "\xF0\x9F\x98\x80", "END", "<s>", "</s>"};

int32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    (void)t;
    return FAKE_VOCAB_SIZE;
}

int32_t tokenizer_bos_id(const struct tokenizer *t)
{
    return t ? FAKE_BOS : -1;
}

int32_t tokenizer_eos_id(const struct tokenizer *t)
{
    return t ? FAKE_EOS : -1;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    (void)t;
    return id == FAKE_BOS || id == FAKE_EOS;
}

/* Encoding adds BOS. */
int32_t tokenizer_num_before(const struct tokenizer *t)
{
    (void)t;
    return 1;
}

int32_t tokenizer_num_after(const struct tokenizer *t)
{
    (void)t;
    return 0;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *num_bytes)
{
    static char bytes[256];
    (void)t;
    *num_bytes = 0;
    if (id < 0 || id >= FAKE_VOCAB_SIZE) return "";
    if (id >= FAKE_WORD) {
        *num_bytes = strlen(fake_words[id - FAKE_WORD]);
        return fake_words[id - FAKE_WORD];
    }
    bytes[id] = (char)id;
    *num_bytes = 1;
    return &bytes[id];
}

static int fake_push(struct token_list *list, int32_t id, int32_t max_tokens)
{
    return token_list_append(list, &id, 1, max_tokens);
}

static bool fake_is_untrusted(size_t at, const struct text_range *untrusted, int num_untrusted)
{
    for (int i = 0; i < num_untrusted; i++)
        if (at >= untrusted[i].begin && at < untrusted[i].end) return true;
    return false;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t num_bytes,
                     const struct text_range *untrusted, int num_untrusted, unsigned flags,
                     int32_t max_tokens, struct token_list *list)
{
    (void)t;
    int status = 0;
    if (flags & TOKENIZER_ADD_SPECIAL) status = fake_push(list, FAKE_BOS, max_tokens);
    for (size_t i = 0; i < num_bytes && status == 0; i++) {
        bool special = flags & TOKENIZER_PARSE_SPECIAL && num_bytes - i >= 4 &&
                       !memcmp(text + i, "</s>", 4) && !fake_is_untrusted(i, untrusted, num_untrusted);
        status = fake_push(list, special ? FAKE_EOS : (unsigned char)text[i], max_tokens);
        if (special) i += 3;
    }
    return status;
}

bool tokenizer_has_pairs(const struct tokenizer *t)
{
    (void)t;
    return true;
}

/* BOS, first, EOS, second. */
int tokenizer_encode_pair(const struct tokenizer *t, const struct tokenizer_pair *pair, int32_t max_tokens,
                          struct token_list *list, int32_t *second_begin)
{
    int status = tokenizer_encode(t, pair->texts[0], pair->num_bytes[0], NULL, 0, TOKENIZER_ADD_SPECIAL,
                                  max_tokens, list);
    if (status == 0) status = fake_push(list, FAKE_EOS, max_tokens);
    *second_begin = list->num_ids;
    if (status) return status;
    return tokenizer_encode(t, pair->texts[1], pair->num_bytes[1], NULL, 0, 0, max_tokens, list);
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detokenizer){.tokenizer = t, .skip_special = skip_special, .at_start = true};
}

/* Holds bytes back until a character is whole. The tests feed valid UTF-8 only. */
void detokenizer_push(struct detokenizer *d, int32_t id, struct buffer *out)
{
    size_t n;
    const unsigned char *bytes = (const unsigned char *)tokenizer_token_bytes(d->tokenizer, id, &n);
    if (d->skip_special && tokenizer_is_special(d->tokenizer, id)) return;
    for (size_t i = 0; i < n; i++) {
        d->held[d->num_held++] = bytes[i];
        unsigned char lead = d->held[0];
        int length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        if (d->num_held < length) continue;
        buffer_append(out, d->held, (size_t)length);
        d->num_held = 0;
    }
}

void detokenizer_finish(struct detokenizer *d, struct buffer *out)
{
    if (d->num_held > 0) buffer_append_text(out, "\xEF\xBF\xBD");
    d->num_held = 0;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int32_t num_ids, bool skip_special,
                      struct buffer *out)
{
    struct detokenizer d;
    detokenizer_init(&d, t, skip_special);
    for (int32_t i = 0; i < num_ids; i++) detokenizer_push(&d, ids[i], out);
    detokenizer_finish(&d, out);
}

#endif
