/* Text to ids. The text is cut in stages, each working on what the one before left:
 *
 *   1. control tokens, looked for only within the stretches of text that are trusted;
 *   2. between them, other added tokens in the text as it is, with no regard to trust;
 *   3. between those, the text is normalised, and added tokens that match normalised text are cut out;
 *   4. the pre-tokenizer cuts the rest into pieces, and the merges, word pieces, or scores make tokens of each.
 *
 * Stage 1 never looks at a byte that is not trusted, except for white space that a control token swallows. So
 * no text that a user types can add a control token, or break one that the template wrote. Where everything
 * is trusted, stages 1 and 2 together find what one leftmost-longest search over all added tokens finds,
 * which is the reference. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/tables.h"

struct encoder {
    const struct tokenizer *t;
    const char *text;
    size_t num_bytes;
    struct token_list *list;
    int32_t max_tokens;
    struct bpe_work work;
    struct unigram_work unigram_work;
    struct buffer normalized[2], rewritten[2];
};

static int append_ids(void *context, const int32_t *ids, int32_t num_ids)
{
    struct encoder *e = context;
    return token_list_append(e->list, ids, num_ids, e->max_tokens);
}

static int encode_piece(struct encoder *e, const char *piece, size_t num_bytes)
{
    const struct tokenizer *t = e->t;
    if (t->wordpiece.is_used)
        return wordpiece_encode(&t->wordpiece, &t->vocab, piece, num_bytes, append_ids, e);
    if (t->unigram.is_used)
        return unigram_encode(&t->unigram, &t->vocab, piece, num_bytes, &e->unigram_work, append_ids, e);
    return bpe_encode(&t->bpe, &t->vocab, piece, num_bytes, &e->work, append_ids, e);
}

static int encode_pieces(struct encoder *e, const char *text, size_t num_bytes, bool is_first)
{
    const struct tokenizer *t = e->t;
    text = normalizer_run(&t->piece_rewrite, text, num_bytes, is_first, e->rewritten, &num_bytes);
    if (!text) return STATUS_NO_MEMORY;
    struct piece_walk walk = piece_walk_start(&t->pretokenizer, text, num_bytes);
    const char *piece;
    size_t piece_bytes;
    while (piece_walk_next(&walk, &piece, &piece_bytes)) {
        int status = encode_piece(e, piece, piece_bytes);
        if (status) return status;
    }
    return 0;
}

static int encode_normalized(struct encoder *e, size_t begin, size_t end)
{
    if (begin == end) return 0;
    size_t num_bytes, done = 0;
    const char *text = normalizer_run(&e->t->normalizer, e->text + begin, end - begin, begin == 0,
                                      e->normalized, &num_bytes);
    if (!text) return STATUS_NO_MEMORY;
    struct added_search search = {
        .tokens = &e->t->added_normalized, .text = text, .end = num_bytes, .swallow_end = num_bytes};
    struct added_match match;
    while (added_search_next(&search, &match)) {
        int status = encode_pieces(e, text + done, match.begin - done, begin == 0 && done == 0);
        if (!status) status = append_ids(e, &match.id, 1);
        if (status) return status;
        done = match.end;
    }
    return encode_pieces(e, text + done, num_bytes - done, begin == 0 && done == 0);
}

static int encode_between_controls(struct encoder *e, size_t begin, size_t end)
{
    struct added_search search = {.tokens = &e->t->added,
                                  .text = e->text,
                                  .begin = begin,
                                  .end = end,
                                  .swallow_begin = begin,
                                  .swallow_end = end,
                                  .skip_special = true,
                                  .at = begin};
    struct added_match match;
    while (added_search_next(&search, &match)) {
        int status = encode_normalized(e, begin, match.begin);
        if (!status) status = append_ids(e, &match.id, 1);
        if (status) return status;
        begin = match.end;
    }
    return encode_normalized(e, begin, end);
}

/* Encodes the text from *done up to the last control token in begin to end, which are trusted, and moves
 * *done. */
static int encode_trusted(struct encoder *e, size_t begin, size_t end, size_t *done)
{
    begin = max_of(begin, *done);
    struct added_search search = {.tokens = &e->t->added,
                                  .text = e->text,
                                  .begin = begin,
                                  .end = end,
                                  .swallow_begin = *done,
                                  .swallow_end = e->num_bytes,
                                  .at = begin};
    struct added_match match;
    while (added_search_next(&search, &match)) {
        if (!(vocab_flags(&e->t->vocab, match.id) & TOKEN_SPECIAL)) continue;
        int status = encode_between_controls(e, *done, match.begin);
        if (!status) status = append_ids(e, &match.id, 1);
        if (status) return status;
        *done = match.end;
    }
    return 0;
}

static int encode_text(struct encoder *e, const struct text_range *untrusted, int num_untrusted,
                       bool parse_special)
{
    size_t done = 0, at = 0;
    for (int i = 0; parse_special && i <= num_untrusted; i++) {
        size_t end = i < num_untrusted ? min_of(untrusted[i].begin, e->num_bytes) : e->num_bytes;
        int status = at < end ? encode_trusted(e, at, end, &done) : 0;
        if (status) return status;
        if (i < num_untrusted) at = max_of(at, untrusted[i].end);
    }
    return encode_between_controls(e, done, e->num_bytes);
}

/* Room for what the normalizers may make of a text, far above any that a server lets in. */
static size_t rewritten_bytes_max(size_t num_bytes)
{
    uint64_t bytes;
    if (!checked_mul(num_bytes, NORMALIZER_TEXT_BYTES * 4, &bytes) || bytes > SIZE_MAX / 4)
        return SIZE_MAX / 4;
    return (size_t)bytes + 4096;
}

static void encoder_init(struct encoder *e)
{
    size_t max_bytes = rewritten_bytes_max(e->num_bytes);
    for (int i = 0; i < 2; i++) {
        buffer_init(&e->normalized[i], max_bytes);
        buffer_init(&e->rewritten[i], max_bytes);
    }
}

static void encoder_deinit(struct encoder *e)
{
    for (int i = 0; i < 2; i++) {
        buffer_deinit(&e->normalized[i]);
        buffer_deinit(&e->rewritten[i]);
    }
    bpe_work_deinit(&e->work);
    unigram_work_deinit(&e->unigram_work);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t num_bytes,
                     const struct text_range *untrusted, int num_untrusted, unsigned flags,
                     int32_t max_tokens, struct token_list *list)
{
    struct encoder e = {.t = t, .text = text, .num_bytes = num_bytes, .list = list, .max_tokens = max_tokens};
    encoder_init(&e);
    int status = 0;
    if (flags & TOKENIZER_ADD_SPECIAL) status = append_ids(&e, t->before, t->num_before);
    if (!status) status = encode_text(&e, untrusted, num_untrusted, flags & TOKENIZER_PARSE_SPECIAL);
    if (!status && (flags & TOKENIZER_ADD_SPECIAL)) status = append_ids(&e, t->after, t->num_after);
    encoder_deinit(&e);
    return status;
}

bool tokenizer_has_pairs(const struct tokenizer *t)
{
    return t->pair.is_there;
}

int tokenizer_encode_pair(const struct tokenizer *t, const struct tokenizer_pair *pair, int32_t max_tokens,
                          struct token_list *list, int32_t *second_begin)
{
    const struct pair_template *p = &t->pair;
    int status = 0;
    *second_begin = 0;
    for (int i = 0; i < 3 && !status; i++) {
        struct encoder e = {.t = t, .list = list, .max_tokens = max_tokens};
        if (i == 1 && p->num_first >= 0) *second_begin = list->num_ids + p->num_first;
        status = append_ids(&e, p->ids[i], p->num[i]);
        if (i < 2 && !status)
            status = tokenizer_encode(t, pair->texts[i], pair->num_bytes[i], NULL, 0, 0, max_tokens, list);
    }
    return status;
}
