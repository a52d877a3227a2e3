#include "server/api/token_offsets.h"

enum { TOKEN_BYTES_MAX = 1 << 20 };

int64_t count_characters(const char *text, size_t n)
{
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += (text[i] & 0xC0) != 0x80;
    return count;
}

static void begin_answer(struct token_offsets *o)
{
    detokenizer_init(&o->detokenizer, o->detokenizer.tokenizer, o->skip_special);
    o->detokenizer.at_start = false;
    o->num_chars = o->prompt_chars;
}

void token_offsets_init(struct token_offsets *o, const struct tokenizer *tokenizer,
                        const struct prompt *prompt, bool skip_special)
{
    *o = (struct token_offsets){.skip_special = skip_special};
    buffer_init(&o->scratch, TOKEN_BYTES_MAX);
    detokenizer_init(&o->detokenizer, tokenizer, !prompt->text_has_special);
    if (!prompt->text) {
        begin_answer(o);
        return;
    }
    o->num_prompt = prompt->tokens.num_ids;
    o->num_hidden = prompt->num_added;
    o->prompt_chars = count_characters(prompt->text, prompt->text_bytes);
}

void token_offsets_deinit(struct token_offsets *o)
{
    buffer_deinit(&o->scratch);
}

static int64_t num_chars_of(struct token_offsets *o, int32_t token_id)
{
    buffer_clear(&o->scratch);
    detokenizer_push(&o->detokenizer, token_id, &o->scratch);
    return count_characters(o->scratch.data, o->scratch.num_bytes);
}

int64_t token_offsets_next(struct token_offsets *o, int32_t token_id)
{
    int64_t offset = o->num_chars;
    if (o->num_hidden > 0)
        o->num_hidden--;
    else
        o->num_chars += num_chars_of(o, token_id);
    if (o->num_prompt > 0 && --o->num_prompt == 0) begin_answer(o);
    return offset;
}
