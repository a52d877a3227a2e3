/* A vocabulary for a model that has none: ids 0 to 255 are the bytes, each id above a short word that text
 * never becomes. What random weights say can then be sent and counted like any other text. */
#include <stdio.h>
#include <string.h>

#include "text/tokenizer/tables.h"

enum { NUM_BYTES = 256 };

/* " aaa", " baa", ...: different for the first 26 * 26 * 26 ids, which is enough to see that text moves. */
static void word_of(int32_t id, char word[5])
{
    word[0] = ' ';
    for (int i = 1; i < 4; i++, id /= 26) word[i] = (char)('a' + id % 26);
    word[4] = '\0';
}

static int add_tokens(struct tokenizer *t, int32_t vocab_size, struct error *err)
{
    int status = 0;
    for (int32_t id = 0; id < vocab_size && !status; id++) {
        char word[5] = {(char)id};
        if (id >= NUM_BYTES) word_of(id, word);
        size_t num_bytes = id < NUM_BYTES ? 1 : strlen(word);
        status = vocab_add(&t->vocab, id, word, num_bytes, word, num_bytes, id < NUM_BYTES ? 0 : TOKEN_NO_KEY,
                           err);
    }
    return status;
}

int tokenizer_open_plain(int32_t vocab_size, struct tokenizer **out, struct error *err)
{
    if (vocab_size < NUM_BYTES)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "A model with %d ids and no tokenizer.json cannot take text: %d are needed for bytes.",
            vocab_size, NUM_BYTES);
    struct tokenizer *t = tokenizer_create();
    if (!t) return error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    t->bpe.byte_level = t->decoder.byte_level = true;
    int status = add_tokens(t, vocab_size, err);
    if (!status) status = tables_index(t, false, err);
    if (!status) status = bpe_reserve(&t->bpe, 0, err);
    if (!status) status = tables_finish(t, err);
    if (status) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return 0;
}
