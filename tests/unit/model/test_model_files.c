/* A model's files as a whole: GGUF keys, names and shapes of weights, chat templates, dummy weights. */
#include "tiny_model.h"

#include <math.h>

#include "files/gguf.h"
#include "model/gguf_config.h"
#include "model/model_files.h"
#include "unit/model/in_directory.h"

static struct model_files *open_good(const char *name, const char *load_format)
{
    char path[TEST_PATH_BYTES];
    struct model_files *f = NULL;
    struct error err = {0};
    if (model_files_open(name ? join_path(path, directory, name) : directory, load_format, &f, &err))
        fail_msg("%s", err.text);
    return f;
}

static void expect_refusal(const char *name, const char *load_format, int status,
                           const char *part_of_sentence)
{
    char path[TEST_PATH_BYTES];
    struct model_files *f = NULL;
    struct error err = {0};
    int got = model_files_open(name ? join_path(path, directory, name) : directory, load_format, &f, &err);
    if (got != status || !strstr(err.text, part_of_sentence))
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", status, part_of_sentence, got, err.text);
}

/* ---- GGUF ---- */

struct gguf_case {
    const char *architecture;
    void (*more_keys)(struct gguf_builder *g); /* NULL: none */
    bool array_of_heads;                       /* head_count_kv as a list with one number a layer */
    uint32_t second_kv_heads;
    uint32_t num_layers;              /* block_count; 0: the two that there are */
    const char *widths;               /* feed_forward_length as such a list; NULL: it is one number */
    const char *left_out, *misshapen; /* names of tensors */
    bool qkv_bias, qk_norm, with_output;
    enum dtype dtype;
};

static void put_key_under(struct gguf_builder *g, const char *architecture, const char *suffix,
                          uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", architecture, suffix);
    gguf_put_u32(g, key, value);
}

static void put_case_keys(struct gguf_builder *g, const struct gguf_case *c)
{
    static const char *const tokens[] = {"<unk>",         "a",          "<|im_end|>", "b",
                                         "<|endoftext|>", "<|eot_id|>", "|eot_id|",   "<|end|>"};
    char key[96];
    gguf_put_text(g, "general.architecture", c->architecture);
    put_key_under(g, c->architecture, "embedding_length", 64);
    put_key_under(g, c->architecture, "block_count", c->num_layers ? c->num_layers : 2);
    snprintf(key, sizeof key, "%s.feed_forward_length", c->architecture);
    if (c->widths)
        gguf_put_integers(g, key, c->widths);
    else
        gguf_put_u32(g, key, 96);
    put_key_under(g, c->architecture, "context_length", 512);
    put_key_under(g, c->architecture, "attention.head_count", 4);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", c->architecture);
    gguf_put_f32(g, key, 1e-5f);
    snprintf(key, sizeof key, "%s.rope.freq_base", c->architecture);
    gguf_put_f32(g, key, 50000);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", c->architecture);
    gguf_put_key(g, key, c->array_of_heads ? 9 : 4);
    if (c->array_of_heads) {
        put_u32(&g->keys, 4);
        put_u64(&g->keys, 2);
    }
    put_u32(&g->keys, 2);
    if (c->array_of_heads) put_u32(&g->keys, c->second_kv_heads);
    gguf_put_u32(g, "tokenizer.ggml.eos_token_id", 3);
    gguf_put_u32(g, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_texts(g, "tokenizer.ggml.tokens", tokens, array_length(tokens));
    gguf_put_text(g, "tokenizer.chat_template", "from the file");
    if (c->more_keys) c->more_keys(g);
}

static void put_case_tensor(struct gguf_builder *g, const struct gguf_case *c, const char *name,
                            uint64_t cols, uint64_t rows)
{
    if (c->left_out && !strcmp(name, c->left_out)) return;
    if (c->misshapen && !strcmp(name, c->misshapen)) cols *= 2;
    gguf_put_tensor(g, name, rows ? c->dtype : DTYPE_F32, cols, rows);
}

static void put_case_layer(struct gguf_builder *g, const struct gguf_case *c, int layer)
{
    static const struct {
        const char *name;
        uint64_t cols, rows;
        char when; /* b: bias, n: norm of q and k */
    } tensors[] = {{"attn_norm.weight", 64, 0, 0},     {"attn_q.weight", 64, 64, 0},
                   {"attn_k.weight", 64, 32, 0},       {"attn_v.weight", 64, 32, 0},
                   {"attn_output.weight", 64, 64, 0},  {"attn_q.bias", 64, 0, 'b'},
                   {"attn_k.bias", 32, 0, 'b'},        {"attn_v.bias", 32, 0, 'b'},
                   {"attn_q_norm.weight", 16, 0, 'n'}, {"attn_k_norm.weight", 16, 0, 'n'},
                   {"ffn_norm.weight", 64, 0, 0},      {"ffn_gate.weight", 64, 96, 0},
                   {"ffn_up.weight", 64, 96, 0},       {"ffn_down.weight", 96, 64, 0}};
    for (size_t i = 0; i < array_length(tensors); i++) {
        char name[64];
        if ((tensors[i].when == 'b' && !c->qkv_bias) || (tensors[i].when == 'n' && !c->qk_norm)) continue;
        snprintf(name, sizeof name, "blk.%d.%s", layer, tensors[i].name);
        put_case_tensor(g, c, name, tensors[i].cols, tensors[i].rows);
    }
}

static void write_gguf(const struct gguf_case *c)
{
    struct gguf_builder g;
    struct buffer file;
    gguf_builder_init(&g);
    put_case_keys(&g, c);
    put_case_tensor(&g, c, "token_embd.weight", 64, 8);
    if (c->with_output) put_case_tensor(&g, c, "output.weight", 64, 8);
    for (int layer = 0; layer < 2; layer++) put_case_layer(&g, c, layer);
    put_case_tensor(&g, c, "output_norm.weight", 64, 0);
    gguf_put_tensor(&g, "rope_freqs.weight", DTYPE_F32, 8, 0);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&g, &file);
    write_file(directory, "m.gguf", file.data, file.num_bytes);
    buffer_deinit(&file);
    gguf_builder_deinit(&g);
}

static void reads_a_gguf_llama(void **state)
{
    (void)state;
    write_gguf(&(struct gguf_case){.architecture = "llama", .dtype = DTYPE_Q4_1});
    struct model_files *f = open_good("m.gguf", "auto");
    const struct model_config *c = model_files_config(f);
    assert_string_equal(family_name(c->family), "llama");
    assert_true(c->hidden_size == 64 && c->num_layers == 2 && c->num_heads == 4 && c->num_kv_heads == 2);
    assert_true(c->head_dim == 16 && c->vocab_size == 8 && c->tie_word_embeddings && !c->qkv_bias &&
                !c->qk_norm);
    assert_true(c->rope.style == ROPE_PAIRS && c->rope.type == ROPE_DEFAULT && c->rope.theta == 50000);
    assert_true(c->bos_id == 1 && c->num_eos_ids == 5 && c->eos_ids[0] == 3); /* and four by name */
    assert_true(c->eos_ids[1] == 2 && c->eos_ids[2] == 4 && c->eos_ids[3] == 5 && c->eos_ids[4] == 7);
    struct weight_view k = model_files_weight(f, WEIGHT_K, 1),
                       embedding = model_files_weight(f, WEIGHT_TOKEN_EMBEDDING, 0);
    assert_true(k.dtype == DTYPE_Q4_1 && k.rows == 32 && k.cols == 64);
    assert_ptr_equal(model_files_weight(f, WEIGHT_LM_HEAD, 0).data, embedding.data);
    assert_null(model_files_weight(f, WEIGHT_Q_BIAS, 0).data);
    assert_int_equal(model_files_weight(f, WEIGHT_ROPE_DIVISORS, 0).cols, 8);
    assert_true(model_files_weight(f, WEIGHT_Q, 0).data != model_files_weight(f, WEIGHT_Q, 1).data);
    uint64_t layer = (64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 96) / 32 * 20 + 2 * 64 * 4;
    assert_int_equal(model_files_weight_bytes(f), 8 * 64 / 32 * 20 + 2 * layer + 64 * 4 + 8 * 4);
    model_files_close(f);
}

static void reads_other_gguf_architectures(void **state)
{
    (void)state;
    write_gguf(&(struct gguf_case){.architecture = "qwen2",
                                   .qkv_bias = true,
                                   .with_output = true,
                                   .array_of_heads = true,
                                   .second_kv_heads = 2});
    struct model_files *f = open_good("m.gguf", "auto");
    assert_true(model_files_config(f)->rope.style == ROPE_HALVES && model_files_config(f)->num_kv_heads == 2);
    assert_true(!model_files_config(f)->tie_word_embeddings);
    assert_int_equal(model_files_weight(f, WEIGHT_K_BIAS, 1).cols, 32);
    assert_true(model_files_weight(f, WEIGHT_LM_HEAD, 0).data !=
                model_files_weight(f, WEIGHT_TOKEN_EMBEDDING, 0).data);
    model_files_close(f);
    write_gguf(&(struct gguf_case){.architecture = "qwen3", .qk_norm = true});
    f = open_good("m.gguf", "auto");
    assert_true(model_files_config(f)->qk_norm && model_files_config(f)->rope.style == ROPE_HALVES);
    assert_int_equal(model_files_weight(f, WEIGHT_Q_NORM, 1).cols, 16);
    model_files_close(f);
}

/* Nemotron-H's: the second one is the first one's MLP. */
static void layers_may_be_mlps(void **state)
{
    (void)state;
    write_gguf(&(struct gguf_case){.architecture = "nemotron_h", .array_of_heads = true, .widths = "0 96"});
    struct model_files *f = open_good("m.gguf", "auto");
    const struct model_config *c = model_files_config(f);
    assert_true(c->num_layers == 1 && c->num_kv_heads == 2 && c->intermediate_size == 96);
    assert_true(!model_config_layer(c, 0).rope && !model_config_has_states(c));
    assert_true(model_files_weight(f, WEIGHT_UP, 0).rows == 96 &&
                !model_files_weight(f, WEIGHT_GATE, 0).data);
    assert_true(model_files_weight(f, WEIGHT_MLP_NORM, 0).data !=
                model_files_weight(f, WEIGHT_ATTENTION_NORM, 0).data);
    model_files_close(f);
}

static void put_linear_scaling(struct gguf_builder *g)
{
    gguf_put_text(g, "llama.rope.scaling.type", "linear");
    gguf_put_f32(g, "llama.rope.scaling.factor", 4);
}

static void put_yarn_scaling(struct gguf_builder *g)
{
    gguf_put_text(g, "llama.rope.scaling.type", "yarn");
    gguf_put_f32(g, "llama.rope.scaling.factor", 4);
    gguf_put_u32(g, "llama.rope.scaling.original_context_length", 128);
}

static void put_longrope_scaling(struct gguf_builder *g)
{
    gguf_put_text(g, "llama.rope.scaling.type", "longrope");
}

static void put_experts(struct gguf_builder *g)
{
    gguf_put_u32(g, "qwen2.expert_count", 8);
}

static void put_nemotron_experts(struct gguf_builder *g)
{
    gguf_put_u32(g, "nemotron_h_moe.expert_count", 4);
}

static void put_latent_experts(struct gguf_builder *g)
{
    gguf_put_u32(g, "qwen2.moe_latent_size", 32);
}

static void put_gpt_oss_experts(struct gguf_builder *g)
{
    gguf_put_u32(g, "gpt-oss.expert_count", 4);
    gguf_put_u32(g, "gpt-oss.expert_used_count", 2);
}

static void put_no_experts(struct gguf_builder *g)
{
    gguf_put_u32(g, "llama.expert_count", 0);
}

static void put_window(struct gguf_builder *g)
{
    gguf_put_u32(g, "llama.attention.sliding_window", 100);
}

static void put_half_rotation(struct gguf_builder *g)
{
    gguf_put_u32(g, "llama.rope.dimension_count", 17);
}

static void put_long_values(struct gguf_builder *g)
{
    gguf_put_u32(g, "llama.attention.value_length", 8);
}

static void put_four_taps(struct gguf_builder *g)
{
    gguf_put_u32(g, "lfm2.shortconv.l_cache", 4);
}

static void reads_gguf_options(void **state)
{
    (void)state;
    write_gguf(&(struct gguf_case){.architecture = "llama", .more_keys = put_linear_scaling});
    struct model_files *f = open_good("m.gguf", "auto");
    assert_true(model_files_config(f)->rope.type == ROPE_LINEAR && model_files_config(f)->rope.factor == 4);
    model_files_close(f);
    write_gguf(&(struct gguf_case){.architecture = "llama", .more_keys = put_yarn_scaling});
    f = open_good("m.gguf", "auto");
    const struct rope_config *rope = &model_files_config(f)->rope;
    assert_true(rope->type == ROPE_YARN && rope->factor == 4 && rope->original_max_position == 128);
    assert_true(fabs(rope->attention_factor - (0.1 * log(4) + 1)) < 1e-12 && rope->beta_fast == 32 &&
                rope->beta_slow == 1);
    model_files_close(f);
    write_gguf(&(struct gguf_case){.architecture = "llama", .more_keys = put_no_experts});
    model_files_close(open_good("m.gguf", "auto"));
    write_gguf(&(struct gguf_case){.architecture = "llama", .more_keys = put_window});
    f = open_good("m.gguf", "auto");
    assert_int_equal(model_files_config(f)->sliding_window, 100);
    model_files_close(f);
}

/* <|end|> ends a message of harmony, behind which the turn goes on. */
static void a_message_end_of_gpt_oss_ends_no_turn(void **state)
{
    (void)state;
    struct gguf *g = NULL;
    struct model_config c;
    struct error err = {0};
    char path[TEST_PATH_BYTES];
    write_gguf(&(struct gguf_case){
        .architecture = "gpt-oss", .dtype = DTYPE_BF16, .more_keys = put_gpt_oss_experts});
    assert_int_equal(gguf_open(join_path(path, directory, "m.gguf"), &g, &err), 0);
    if (gguf_config_read(g, path, &c, &err)) fail_msg("%s", err.text);
    assert_true(c.num_eos_ids == 2 && c.eos_ids[0] == 3 && c.eos_ids[1] == 4);
    gguf_close(g);
}

static float said_temp;

static void put_sampling(struct gguf_builder *g)
{
    gguf_put_f32(g, "general.sampling.temp", said_temp);
    gguf_put_f32(g, "general.sampling.top_p", 0.875f);
    gguf_put_u32(g, "general.sampling.top_k", 64);
    gguf_put_f32(g, "general.sampling.penalty_repeat", 1.0625f);
}

/* What its publisher recommends is the default of requests. */
static void a_gguf_file_says_how_to_sample(void **state)
{
    (void)state;
    said_temp = 0.25f;
    write_gguf(&(struct gguf_case){.architecture = "llama", .dtype = DTYPE_BF16, .more_keys = put_sampling});
    struct model_files *f = open_good("m.gguf", "auto");
    const struct generation_defaults *d = model_files_generation_defaults(f);
    assert_true(d->temperature == 0.25f && d->top_p == 0.875f && d->repetition_penalty == 1.0625f);
    assert_true(d->top_k == 64 && d->min_p < 0 && d->max_new_tokens < 0);
    model_files_close(f);
    said_temp = -1;
    write_gguf(&(struct gguf_case){.architecture = "llama", .dtype = DTYPE_BF16, .more_keys = put_sampling});
    expect_refusal("m.gguf", "auto", STATUS_INVALID, "general.sampling.temp must be from 0");
}

static void refuses_gguf_files_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        struct gguf_case file;
        int status;
        const char *sentence;
    } cases[] = {
        {{.architecture = "qwen3next"}, STATUS_INVALID, "qwen3next.expert_count is missing"},
        {{.architecture = "gpt-oss"}, STATUS_INVALID, "gpt-oss.expert_count is missing"},
        {{.architecture = "mistral"}, STATUS_UNSUPPORTED, "not supported; llama, qwen2, qwen3, "},
        {{.architecture = "llama", .more_keys = put_longrope_scaling}, STATUS_UNSUPPORTED, "\"longrope\""},
        {{.architecture = "qwen2", .more_keys = put_experts}, STATUS_UNSUPPORTED, "qwen2.expert_count"},
        {{.architecture = "llama", .more_keys = put_half_rotation},
         STATUS_INVALID,
         "rope.dimension_count is 17"},
        {{.architecture = "llama", .more_keys = put_long_values}, STATUS_UNSUPPORTED, "keys have 16"},
        {{.architecture = "llama", .array_of_heads = true, .second_kv_heads = 4},
         STATUS_UNSUPPORTED,
         "layer to layer"},
        {{.architecture = "lfm2", .array_of_heads = true, .second_kv_heads = 4},
         STATUS_UNSUPPORTED,
         "layer to layer"},
        {{.architecture = "lfm2", .array_of_heads = true, .second_kv_heads = UINT32_MAX},
         STATUS_INVALID,
         "no list of possible numbers"},
        {{.architecture = "lfm2", .array_of_heads = true},
         STATUS_INVALID,
         "lfm2.shortconv.l_cache is missing"},
        {{.architecture = "lfm2", .array_of_heads = true, .more_keys = put_four_taps},
         STATUS_UNSUPPORTED,
         "lfm2.shortconv.l_cache is not supported unless it is 3"},
        {{.architecture = "granitehybrid", .array_of_heads = true},
         STATUS_INVALID,
         "granitehybrid.ssm.group_count is missing"},
        {{.architecture = "granitehybrid", .num_layers = 2000000000},
         STATUS_INVALID,
         "the number of layers is 2000000000"},
        {{.architecture = "nemotron_h", .array_of_heads = true},
         STATUS_INVALID,
         "nemotron_h.feed_forward_length has too few numbers"},
        {{.architecture = "nemotron_h", .array_of_heads = true, .widths = "96 96"},
         STATUS_UNSUPPORTED,
         "both attention and an MLP"},
        {{.architecture = "nemotron_h", .array_of_heads = true, .widths = "0 0"},
         STATUS_INVALID,
         "nemotron_h.ssm.group_count is missing"},
        {{.architecture = "nemotron_h_moe",
          .array_of_heads = true,
          .widths = "0 96",
          .more_keys = put_nemotron_experts},
         STATUS_INVALID,
         "nemotron_h_moe.expert_used_count is missing"},
        {{.architecture = "qwen2", .more_keys = put_latent_experts},
         STATUS_UNSUPPORTED,
         "qwen2.moe_latent_size is set"},
        {{.architecture = "llama", .left_out = "token_embd.weight"},
         STATUS_INVALID,
         "token_embd.weight is missing"},
        {{.architecture = "llama", .left_out = "blk.1.ffn_up.weight"},
         STATUS_INVALID,
         "blk.1.ffn_up.weight is missing"},
        {{.architecture = "qwen2"}, STATUS_INVALID, "blk.0.attn_q.bias is missing"},
        {{.architecture = "qwen3"}, STATUS_INVALID, "blk.0.attn_q_norm.weight is missing"},
        {{.architecture = "llama", .misshapen = "blk.1.attn_v.weight"},
         STATUS_INVALID,
         "blk.1.attn_v.weight is 32 x 128 where the config asks for 32 x 64"},
        {{.architecture = "llama", .misshapen = "output_norm.weight"}, STATUS_INVALID, "1 x 128"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        write_gguf(&cases[i].file);
        expect_refusal("m.gguf", "auto", cases[i].status, cases[i].sentence);
    }
    expect_refusal("m.gguf", "dummy", STATUS_INVALID, "needs a directory");
    expect_refusal("m.gguf", "pt", STATUS_INVALID, "--load-format");
    expect_refusal("none.gguf", "auto", STATUS_NOT_FOUND, "no such file");
}

/* ---- directories ---- */

static const char tiny_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"vocab_size\":96}";
static const struct tiny_model tiny = {.config = tiny_config, .head_dim = 16, .prefix = "model."};

static void reads_a_directory(void **state)
{
    (void)state;
    struct tiny_model m = tiny;
    for (m.padding = 0; m.padding < 2; m.padding++) {
        uint16_t expected[64];
        tiny_model_write(&m, directory);
        struct model_files *f = open_good(NULL, "auto");
        struct weight_view norm = model_files_weight(f, WEIGHT_ATTENTION_NORM, 0),
                           q = model_files_weight(f, WEIGHT_Q, 0);
        assert_true(norm.rows == 1 && norm.cols == 64 && norm.dtype == DTYPE_BF16 && q.rows == 64 &&
                    q.cols == 64);
        fill_values(expected, 64, 2, 1, 0.5f);
        assert_memory_equal(norm.data, expected, sizeof expected);
        fill_values(expected, 64, 3, 0, 0.25f);
        assert_memory_equal(q.data, expected, sizeof expected);
        assert_null(model_files_weight(f, WEIGHT_Q_BIAS, 0).data);
        assert_null(model_files_weight(f, WEIGHT_ROPE_DIVISORS, 0).data);
        assert_int_equal(model_files_weight_bytes(f), 2 * model_config_num_parameters(model_files_config(f)));
        model_files_close(f);
    }
}

static void takes_names_without_the_prefix(void **state)
{
    (void)state;
    struct tiny_model m = tiny;
    m.prefix = "";
    tiny_model_write(&m, directory);
    struct model_files *f = open_good(NULL, "auto");
    assert_non_null(model_files_weight(f, WEIGHT_DOWN, 1).data);
    model_files_close(f);
}

static void uses_biases_that_are_there(void **state)
{
    (void)state;
    struct tiny_model m = tiny;
    m.qkv_bias = m.o_bias = true;
    tiny_model_write(&m, directory);
    struct model_files *f = open_good(NULL, "auto");
    assert_int_equal(model_files_weight(f, WEIGHT_V_BIAS, 1).cols, 32);
    assert_int_equal(model_files_weight(f, WEIGHT_O_BIAS, 1).cols, 64);
    model_files_close(f);
}

/* What a config.json says of the head counts where there is none, or a copy. */
static void a_head_of_its_own_is_not_tied(void **state)
{
    (void)state;
    struct tiny_model m = tiny;
    m.config =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"vocab_size\":96,"
        "\"tie_word_embeddings\":true}";
    for (int kind = 0; kind < 3; kind++) {
        m.tied = kind == 1;
        m.has_copy = kind == 2;
        tiny_model_write(&m, directory);
        struct model_files *f = open_good(NULL, "auto");
        assert_int_equal(model_files_config(f)->tie_word_embeddings, kind > 0);
        assert_true((model_files_weight(f, WEIGHT_LM_HEAD, 0).data ==
                     model_files_weight(f, WEIGHT_TOKEN_EMBEDDING, 0).data) == (kind > 0));
        model_files_close(f);
    }
}

static void refuses_directories_that_do_not_fit(void **state)
{
    (void)state;
    struct tiny_model m = tiny;
    expect_refusal(NULL, "auto", STATUS_NOT_FOUND, "no config.json");
    write_text(directory, "config.json", tiny_config);
    expect_refusal(NULL, "auto", STATUS_NOT_FOUND, "neither model.safetensors nor");
    m.head_dim = 32;
    tiny_model_write(&m, directory);
    expect_refusal(NULL, "auto", STATUS_INVALID,
                   "q_proj.weight is 128 x 64 where the config asks for 64 x 64");
    m = tiny;
    m.tied = true; /* the config does not say so */
    tiny_model_write(&m, directory);
    expect_refusal(NULL, "auto", STATUS_INVALID, "lm_head.weight is missing");
    write_text(directory, "model.safetensors", "x");
    expect_refusal(NULL, "auto", STATUS_INVALID, "truncated");
}

static void refuses_types_and_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *sentence;
        int status;
    } cases[] = {
        {"{\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[64],\"data_offsets\":[0,128]},"
         "\"model.embed_tokens.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[96,64],\"data_offsets\":[128,6272]}"
         "}",
         "embed_tokens.weight is of type F8_E4M3", STATUS_UNSUPPORTED},
        {"{\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[64],\"data_offsets\":[0,128]},"
         "\"model.embed_tokens.weight\":{\"dtype\":\"U8\",\"shape\":[6144],\"data_offsets\":[128,6272]}}",
         "is of type U8", STATUS_UNSUPPORTED},
        {"{\"model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[64],\"data_offsets\":[0,128]},"
         "\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[3072],\"data_offsets\":[128,6272]}}",
         "has 1 dimensions where 2 are expected", STATUS_INVALID},
    };
    write_text(directory, "config.json", tiny_config);
    for (size_t i = 0; i < array_length(cases); i++) {
        struct buffer file;
        buffer_init(&file, TEST_FILE_BYTES_MAX);
        put_u64(&file, strlen(cases[i].entry));
        buffer_append_text(&file, cases[i].entry);
        for (int j = 0; j < 6272; j++) buffer_append_char(&file, 0);
        write_file(directory, "model.safetensors", file.data, file.num_bytes);
        buffer_deinit(&file);
        expect_refusal(NULL, "auto", cases[i].status, cases[i].sentence);
    }
}

/* ---- dummy weights ---- */

static const char dummy_config[] =
    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_size\":1024,\"intermediate_size\":3000,\"num_"
    "attention_heads\":16,"
    "\"num_key_value_heads\":4,\"num_hidden_layers\":2,\"vocab_size\":5000,\"tie_word_embeddings\":true}";

static void dummy_weights_keep_activations_near_one(void **state)
{
    (void)state;
    write_text(directory, "config.json", dummy_config);
    struct model_files *f = open_good(NULL, "dummy");
    struct weight_view up = model_files_weight(f, WEIGHT_UP, 1);
    float row[1024];
    double sum = 0, squares = 0;
    assert_true(up.dtype == DTYPE_BF16 && up.rows == 3000 && up.cols == 1024);
    for (int64_t r = 0; r < up.rows; r++) {
        dtype_row_to_f32(up.dtype, (const uint16_t *)up.data + r * up.cols, up.cols, row);
        for (int i = 0; i < 1024; i++) {
            assert_true(isfinite(row[i]));
            sum += (double)row[i];
            squares += (double)row[i] * (double)row[i];
        }
    }
    double n = 3000.0 * 1024;
    assert_true(fabs(sum / n) < 1e-3);
    assert_true(fabs(squares / n * 1024 - 1) < 0.01); /* variance 1 / cols */
    dtype_row_to_f32(DTYPE_BF16, model_files_weight(f, WEIGHT_MLP_NORM, 0).data, 1024, row);
    for (int i = 0; i < 1024; i++) assert_true(fabsf(row[i] - 1) < 0.25f);
    assert_non_null(model_files_weight(f, WEIGHT_V_BIAS, 0).data);
    assert_null(model_files_weight(f, WEIGHT_O_BIAS, 0).data);
    assert_ptr_equal(model_files_weight(f, WEIGHT_LM_HEAD, 0).data,
                     model_files_weight(f, WEIGHT_TOKEN_EMBEDDING, 0).data);
    model_files_close(f);
}

static void dummy_weights_of_fp8_have_blocks(void **state)
{
    (void)state;
    char config[1024];
    snprintf(config, sizeof config,
             "%.*s,\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}",
             (int)sizeof dummy_config - 2, dummy_config);
    write_text(directory, "config.json", config);
    struct model_files *f = open_good(NULL, "dummy");
    struct weight_view up = model_files_weight(f, WEIGHT_UP, 1);
    const float *scales = up.codes.scales.data;
    double squares = 0;
    assert_true(up.dtype == DTYPE_F8_E4M3 && up.scheme == WEIGHT_SCALED);
    assert_true(up.rows == 3000 && up.cols == 1024);
    assert_true(up.codes.scales.rows == 24 && up.codes.scales.cols == 8);
    for (int64_t i = 0; i < up.rows * up.cols; i++) {
        double value = (double)dtype_e4m3_to_f32(((const uint8_t *)up.data)[i]) * (double)scales[0];
        assert_true(isfinite(value));
        squares += value * value;
    }
    assert_true(fabs(squares / 3000 - 1) < 0.02); /* variance 1 / cols */
    assert_true(model_files_weight(f, WEIGHT_TOKEN_EMBEDDING, 0).dtype == DTYPE_BF16);
    model_files_close(f);
}

/* compressed-tensors without zero points: integers less 8. */
static void dummy_weights_of_four_bits_are_balanced(void **state)
{
    (void)state;
    char config[1024];
    snprintf(
        config, sizeof config,
        "%.*s,\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
        "\"config_groups\":{\"a\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"int\","
        "\"strategy\":\"group\",\"group_size\":128,\"symmetric\":true}}}}}",
        (int)sizeof dummy_config - 2, dummy_config);
    write_text(directory, "config.json", config);
    struct model_files *f = open_good(NULL, "dummy");
    struct weight_view up = model_files_weight(f, WEIGHT_UP, 1);
    assert_true(up.dtype == DTYPE_U4 && up.scheme == WEIGHT_SCALED && !up.codes.zeros.data);
    assert_true(up.codes.scales.type == SCALE_BF16 && up.codes.scales.rows == 3000 &&
                up.codes.scales.cols == 8);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < up.rows * up.cols; i++) {
        const int code = ((const uint8_t *)up.data)[i / 2] >> (4 * (i % 2)) & 15;
        const uint16_t scale = ((const uint16_t *)up.codes.scales.data)[i / 128];
        const double value = (code - up.codes.zero) * (double)dtype_bf16_to_f32(scale);
        sum += value;
        squares += value * value;
    }
    assert_true(fabs(sum / 3000 / 1024) < 1e-3);
    assert_true(fabs(squares / 3000 - 1) < 0.02); /* variance 1 / cols */
    model_files_close(f);
}

/* Of experts alone, as gpt-oss has them. */
static void dummy_experts_of_mxfp4_have_blocks(void **state)
{
    (void)state;
    static const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    write_text(directory, "config.json",
               "{\"architectures\":[\"GptOssForCausalLM\"],\"hidden_size\":256,\"intermediate_size\":192,"
               "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":64,"
               "\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":128,\"vocab_size\":500,"
               "\"eos_token_id\":2,\"quantization_config\":{\"quant_method\":\"mxfp4\"}}");
    struct model_files *f = open_good(NULL, "dummy");
    struct weight_view up = model_files_expert(f, WEIGHT_EXPERT_UP, 1, 3);
    const uint8_t *codes = up.data, *scales = up.codes.scales.data;
    double squares = 0;
    assert_true(up.dtype == DTYPE_MXFP4 && up.scheme == WEIGHT_SCALED && up.rows == 192 && up.cols == 256);
    assert_true(up.codes.scales.rows == 192 && up.codes.scales.cols == 8 && up.codes.scale_cols == 32);
    for (int64_t i = 0; i < up.rows * up.cols; i++) {
        const double value = ldexp(magnitudes[codes[i / 2] >> (i % 2 * 4) & 7], scales[i / 32] - 127);
        squares += value * value;
    }
    assert_true(squares / 192 > 0.5 &&
                squares / 192 < 2); /* variance 1 / cols, but that scales are powers of 2 */
    assert_true(model_files_expert(f, WEIGHT_EXPERT_UP_BIAS, 1, 3).data);
    assert_true(model_files_weight(f, WEIGHT_Q, 0).dtype == DTYPE_BF16);
    model_files_close(f);
}

static int compare_rows(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

static void dummy_rows_are_distinct_and_repeatable(void **state)
{
    (void)state;
    write_text(directory, "config.json", dummy_config);
    struct model_files *f = open_good(NULL, "dummy"), *again = open_good(NULL, "dummy");
    struct weight_view gate = model_files_weight(f, WEIGHT_GATE, 0), up = model_files_weight(f, WEIGHT_UP, 0);
    size_t bytes = (size_t)gate.rows * (size_t)gate.cols * 2;
    assert_memory_equal(gate.data, model_files_weight(again, WEIGHT_GATE, 0).data, bytes);
    assert_true(memcmp(gate.data, up.data, 64) != 0);
    char *heads = malloc((size_t)gate.rows * 16); /* the first eight values of each row */
    for (int64_t r = 0; r < gate.rows; r++)
        memcpy(heads + r * 16, (const uint16_t *)gate.data + r * gate.cols, 16);
    qsort(heads, (size_t)gate.rows, 16, compare_rows);
    for (int64_t r = 1; r < gate.rows; r++)
        assert_true(compare_rows(heads + (r - 1) * 16, heads + r * 16) != 0);
    free(heads);
    uint16_t first = *(const uint16_t *)gate.data;
    model_files_drop_weights(f);
    assert_int_equal(*(const uint16_t *)model_files_weight(f, WEIGHT_GATE, 0).data, first); /* made anew */
    model_files_close(f);
    model_files_close(again);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(reads_a_gguf_llama),
        TEST(reads_other_gguf_architectures),
        TEST(layers_may_be_mlps),
        TEST(reads_gguf_options),
        TEST(a_message_end_of_gpt_oss_ends_no_turn),
        TEST(a_gguf_file_says_how_to_sample),
        TEST(refuses_gguf_files_that_do_not_fit),
        TEST(reads_a_directory),
        TEST(takes_names_without_the_prefix),
        TEST(uses_biases_that_are_there),
        TEST(a_head_of_its_own_is_not_tied),
        TEST(refuses_directories_that_do_not_fit),
        TEST(refuses_types_and_ranks),
        TEST(dummy_weights_keep_activations_near_one),
        TEST(dummy_weights_of_fp8_have_blocks),
        TEST(dummy_weights_of_four_bits_are_balanced),
        TEST(dummy_experts_of_mxfp4_have_blocks),
        TEST(dummy_rows_are_distinct_and_repeatable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
