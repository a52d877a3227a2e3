/* fuzz_server.h - what the API's fuzzers share: a small byte-level tokenizer, templates, and a struct server
 * around them. Files come from memory_files.h. */
#ifndef TESTS_FUZZ_FUZZ_SERVER_H
#define TESTS_FUZZ_FUZZ_SERVER_H

#include <cjson/cJSON.h>

#include "base/arena.h"
#include "fuzz/memory_files.h"
#include "server/grammars.h"
#include "server/server.h"
#include "text/fim_tokens.h"
#include "text/rerank_template.h"
#include "unit/text/small_tokenizer.h"

enum { FUZZ_MODEL_LEN = 256, FUZZ_SPARE_LOGITS = 8 };

#define IM_START "<|im_start|>"
#define IM_END "<|im_end|>"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct small_merge fuzz_merges[] = {{"h", "e"}, {"l", "l"},       {"he", "ll"}, {"hell", "o"},
                                                 {" ", "w"}, {"\xC3", "\xA9"}, {"\n", "\n"}, {"a", "a"},
                                                 {"y", "e"}, {"ye", "s"},      {"n", "o"}};
static const struct small_merge fuzz_text_merges[] = {
    {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"\u2581", "w"}, {"a", "a"}, {"\u2581", "\u2581"}};
static const struct small_added fuzz_added[] = {
    {.content = IM_START, .special = true},
    {.content = IM_END, .special = true},
    {.content = "<tool>"},
    {.content = "<mask>", .special = true, .lstrip = true, .rstrip = true},
    {.content = "word", .single_word = true}};

static inline struct tokenizer *fuzz_tokenizer_open(bool byte_level)
{
    struct buffer b;
    struct tokenizer *t = NULL;
    buffer_init(&b, TEST_FILE_BYTES_MAX);
    buffer_append_char(&b, '{');
    if (byte_level) {
        append_llama3_pipeline(&b);
        append_model(&b, true, fuzz_merges, array_length(fuzz_merges), fuzz_added, array_length(fuzz_added));
    } else {
        append_llama2_pipeline(&b);
        append_model(&b, false, fuzz_text_merges, array_length(fuzz_text_merges), fuzz_added,
                     array_length(fuzz_added));
    }
    buffer_append_char(&b, '}');
    memory_files_add("tokenizer.json", b.data, b.num_bytes, 0);
    struct error err = {0};
    int status = tokenizer_open_directory(MEMORY_DIRECTORY, &t, &err);
    if (status) fprintf(stderr, "%s\n", err.text);
    assert_always(!status);
    memory_files_clear();
    buffer_deinit(&b);
    return t;
}

#define FUZZ_TEMPLATE                                                                                        \
    "{% for m in messages %}" IM_START "{{ m.role }}\n{{ m.content }}" IM_END "\n{% endfor %}"               \
    "{% if add_generation_prompt %}" IM_START "assistant\n{% endif %}"

/* Templates of other kinds: one that wants parts and asks for order; one with tools and reasoning that refuses some roles. */
#define FUZZ_PARTS_TEMPLATE                                                                                  \
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                           \
    "{{ raise_exception('roles must alternate') }}{% endif %}" IM_START "{{ m.role }}\n"                     \
    "{% for p in m.content %}{{ p.text }}{% endfor %}" IM_END "\n{% endfor %}"                               \
    "{% if add_generation_prompt %}" IM_START "assistant\n{% endif %}"
#define FUZZ_TOOLS_TEMPLATE                                                                                  \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"                                   \
    "{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}"                                         \
    "{{ raise_exception('no role ' + m.role) }}{% endif %}" IM_START "{{ m.role }}\n"                        \
    "{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}"      \
    "{{ m.content.strip() if m.content else '' }}{% for c in m.tool_calls %}"                                \
    "{{ '\n<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}"                         \
    "{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}" IM_END "\n{% endfor %}"         \
    "{% if add_generation_prompt %}" IM_START "assistant\n"                                                  \
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"     \
    "{% endif %}"

enum { FUZZ_NUM_TEMPLATES = 3 };

static struct config fuzz_config;
static struct link_facts fuzz_facts;
static size_t fuzz_arena_bytes; /* of the templates; nothing more may be left after an input */
static const char *const fuzz_names[] = {"m"};

/* The first is the server's own. */
static struct {
    struct chat_template *chat_template;
    struct tool_format *tool_format;
} fuzz_templates[FUZZ_NUM_TEMPLATES];

static inline void fuzz_server_use_template(struct server *server, int which)
{
    server->chat_template = fuzz_templates[which].chat_template;
    server->tool_format = fuzz_templates[which].tool_format;
}

static inline void fuzz_templates_init(void)
{
    static const char *const sources[] = {FUZZ_TEMPLATE, FUZZ_PARTS_TEMPLATE, FUZZ_TOOLS_TEMPLATE};
    cJSON *variables = cJSON_CreateObject();
    for (int i = 0; i < FUZZ_NUM_TEMPLATES; i++) {
        struct chat_template **t = &fuzz_templates[i].chat_template;
        assert_always(!chat_template_parse(sources[i], t, NULL));
        assert_always(!tool_format_derive(*t, variables, &fuzz_templates[i].tool_format, NULL));
    }
    assert_always(chat_template_wants_parts(fuzz_templates[1].chat_template));
    cJSON_Delete(variables);
}

static inline void fuzz_server_init(struct server *server)
{
    static const struct fim_tokens fim = {'P', 'S', 'M', 'R', 'F', false, {'E', 'R'}, 2};
    struct tokenizer *t = fuzz_tokenizer_open(true);
    int32_t eos_id = tokenizer_find(t, IM_END, strlen(IM_END));
    assert_always(!config_init(&fuzz_config, NULL));
    fuzz_templates_init();
    fuzz_config.log_requests = false;
    fuzz_arena_bytes = arena_total_bytes();
    fuzz_facts = (struct link_facts){.vocab_size = tokenizer_vocab_size(t) + FUZZ_SPARE_LOGITS,
                                     .eos_ids = {eos_id},
                                     .num_eos_ids = 1,
                                     .max_model_len = FUZZ_MODEL_LEN,
                                     .embedding_size = 64,
                                     .pooling = POOLING_LAST,
                                     .generation = {-1, -1, -1, -1, -1, -1},
                                     .num_blocks = 8};
    *server = (struct server){.config = &fuzz_config,
                              .state = SERVER_READY,
                              .facts = &fuzz_facts,
                              .tokenizer = t,
                              .chat_template = fuzz_templates[0].chat_template,
                              .tool_format = fuzz_templates[0].tool_format,
                              .fim = &fim,
                              .model_names = fuzz_names,
                              .num_model_names = 1};
    assert_always(!grammars_create(t, &fuzz_facts, &server->grammars, NULL));
}

/* The tokenizer's bytes are tokens, and so are a reranker's answers here. */
static inline void fuzz_server_open_reranker(struct server *server)
{
    assert_always(!rerank_template_open(NULL, server->tokenizer, &server->reranker, NULL));
}

#endif
