/* A GGUF file: opened on its own and as a model, every weight looked at from its first to its last byte, its
 * tokenizer and template used. */
#include "fuzz/memory_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "files/dtype.h"
#include "text/model_text.h"
#include "files/gguf.h"
#include "model/model_files.h"
#include "text/tokenizer.h"

#define PATH MEMORY_DIRECTORY "/model.gguf"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void touch(const void *bytes, uint64_t n)
{
    if (n == 0) return;
    sink = ((const unsigned char *)bytes)[0];
    sink = ((const unsigned char *)bytes)[n - 1];
}

static void walk_array(const struct gguf *g, const char *key)
{
    struct gguf_array array;
    const char *text;
    size_t n;
    int64_t integer;
    double real;
    if (!gguf_find_array(g, key, &array)) return;
    struct gguf_array again = array, third = array;
    while (gguf_array_next_text(&array, &text, &n)) touch(text, n);
    while (gguf_array_next_int(&again, &integer)) sink = (unsigned char)integer;
    while (gguf_array_next_real(&third, &real)) sink = real > 0;
}

static void use_file(const struct gguf *g)
{
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.scores", "general.architecture"};
    const char *text;
    size_t n;
    int64_t integer;
    double real;
    bool flag;
    for (size_t i = 0; i < array_length(keys); i++) {
        walk_array(g, keys[i]);
        if (gguf_find_text(g, keys[i], &text, &n)) touch(text, n);
        if (gguf_find_int(g, keys[i], &integer)) sink = (unsigned char)integer;
        if (gguf_find_real(g, keys[i], &real)) sink = real > 0;
        if (gguf_find_bool(g, keys[i], &flag)) sink = flag;
    }
    struct weight_view view = gguf_find_tensor(g, "token_embd.weight");
    if (view.data) touch(view.data, weight_view_bytes(&view));
    sink = (unsigned char)gguf_tensor_bytes(g);
}

static void use_tokenizer(const struct gguf *g)
{
    static const char text[] = "Hello, w\xC3\xB6rld <|im_end|> 123";
    struct tokenizer *t = NULL;
    struct error err = {0};
    struct token_list list = {0};
    if (tokenizer_open_gguf(g, &t, &err)) {
        assert_always(err.text[0]);
        return;
    }
    int status = tokenizer_encode(t, text, sizeof text - 1, NULL, 0,
                                  TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, 1000, &list);
    struct buffer out;
    buffer_init(&out, 1 << 20);
    for (int32_t i = 0; i < list.num_ids; i++)
        assert_always(list.ids[i] >= 0 && list.ids[i] < tokenizer_vocab_size(t));
    if (!status) tokenizer_decode(t, list.ids, list.num_ids, false, &out);
    buffer_deinit(&out);
    token_list_deinit(&list);
    tokenizer_close(t);
}

static void use_model(const struct model_files *f)
{
    const struct model_config *c = model_files_config(f);
    for (int32_t layer = 0; layer < c->num_layers; layer++)
        for (int role = 0; role < WEIGHT_ROLE_COUNT; role++) {
            struct weight_view v = model_files_weight(f, (enum weight_role)role, layer);
            if (v.data) touch(v.data, weight_view_bytes(&v));
        }
}

static void use_template(const struct gguf *g)
{
    struct chat_template *chat_template;
    char *source = NULL;
    if (template_source_of_gguf(g, PATH, &source, NULL) == 0 && source &&
        chat_template_parse(source, &chat_template, NULL) == 0)
        chat_template_free(chat_template);
    free(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g = NULL;
    struct model_files *f = NULL;
    struct error err = {0};
    memory_files_add("model.gguf", data, size, 0);
    if (gguf_open(PATH, &g, &err) == 0) {
        use_file(g);
        use_tokenizer(g);
        use_template(g);
        gguf_close(g);
    } else {
        assert_always(err.text[0]);
    }
    err = (struct error){0};
    if (model_files_open(PATH, "auto", &f, &err) == 0) {
        use_model(f);
        model_files_close(f);
    } else {
        assert_always(err.text[0]);
    }
    memory_files_clear();
    return 0;
}
