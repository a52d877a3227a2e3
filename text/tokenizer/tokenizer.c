#include "text/tokenizer.h"

#include <string.h>

#include "base/check.h"
#include "text/tokenizer/tables.h"

int32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->vocab.num_ids;
}

int32_t tokenizer_bos_id(const struct tokenizer *t)
{
    return t->bos_id;
}

int32_t tokenizer_eos_id(const struct tokenizer *t)
{
    return t->eos_id;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t num_bytes)
{
    int32_t id = added_tokens_find(&t->added, text, num_bytes);
    return id >= 0 ? id : vocab_find(&t->vocab, text, num_bytes);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return vocab_has(&t->vocab, id) && vocab_is_hidden(&t->vocab, id);
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *num_bytes)
{
    if (vocab_has(&t->vocab, id)) return vocab_text(&t->vocab, id, num_bytes);
    *num_bytes = 0;
    return "";
}

int32_t tokenizer_num_before(const struct tokenizer *t)
{
    return t->num_before;
}

int32_t tokenizer_num_after(const struct tokenizer *t)
{
    return t->num_after;
}
