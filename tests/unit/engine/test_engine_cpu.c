/* The engine over the real CPU device: the same bits whatever happens around a request.
 *
 * Sixteen mixed requests, and four that pool, are run one by one; then all at once, in chunks of 16, 64 and 512 tokens, after
 * prefix hits, in a pool so small that some are preempted, and with engines that die under them. Tokens must be equal, and the log
 * probabilities of each token and of the 20 best at its position, computed from the raw logits, equal to the
 * last bit; for some requests those of the prompt too. For each instruction set that the machine has.
 *
 *   test_engine_cpu [MODEL [TEST]]    default: a tiny model with random weights, all tests */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "model/model.h"
#include "engine/engine.h"
#include "unit/link/link_rig.h"

enum { NUM_REQUESTS = 20, FIRST_POOLED = 16, MAX_MODEL_LEN = 256, HIDDEN = 96 };

static const char tiny_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":96,"
    "\"intermediate_size\":256,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"head_dim\":16,"
    "\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,"
    "\"torch_dtype\":\"bfloat16\",\"eos_token_id\":2,\"bos_token_id\":1}";

/* One layer in four sees all, the others 24 tokens: four groups of a layer each. */
static const char windowed_config[] =
    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\",\"hidden_size\":96,"
    "\"intermediate_size\":256,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"head_dim\":16,"
    "\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,"
    "\"sliding_window\":24,\"query_pre_attn_scalar\":16,\"rope_theta\":10000.0,\"rope_local_base_freq\":"
    "10000.0,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"sliding_attention\"],"
    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"torch_dtype\":\"bfloat16\",\"eos_token_id\":2,\"bos_token_"
    "id\":1}";

/* The same of chunks. */
static const char chunked_config[] =
    "{\"architectures\":[\"Llama4ForCausalLM\"],\"model_type\":\"llama4_text\",\"hidden_size\":96,"
    "\"intermediate_size\":64,\"intermediate_size_mlp\":256,\"num_hidden_layers\":4,\"num_attention_heads\":"
    "4,"
    "\"head_dim\":16,\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_embeddings\":512,"
    "\"rms_norm_eps\":1e-5,\"num_local_experts\":3,\"interleave_moe_layer_step\":2,\"num_experts_per_tok\":1,"
    "\"attention_chunk_size\":90,\"floor_scale\":40,\"eos_token_id\":2,\"bos_token_id\":1}";

/* Heads of layers that see all are twice as wide, the last two layers see K and V of others, tokens add to each layer: a group of one
 * layer and one of two. */
static const char shared_config[] =
    "{\"architectures\":[\"Gemma4ForCausalLM\"],\"model_type\":\"gemma4_text\",\"hidden_size\":96,"
    "\"intermediate_size\":128,\"num_hidden_layers\":5,\"num_attention_heads\":4,\"head_dim\":16,"
    "\"global_head_dim\":32,\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_embeddings\":512,"
    "\"vocab_size_per_layer_input\":320,\"hidden_size_per_layer_input\":8,\"num_kv_shared_layers\":2,"
    "\"use_double_wide_mlp\":true,\"rope_parameters\":{},\"sliding_window\":24,\"layer_types\":[\"sliding_"
    "attention\","
    "\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\"],"
    "\"eos_token_id\":2,\"bos_token_id\":1}";

/* Several residual streams, gates that are cut, ids that layers' embeddings have no row for. */
static const char altup_config[] =
    "{\"architectures\":[\"Gemma3nForCausalLM\"],\"model_type\":\"gemma3n_text\",\"hidden_size\":96,"
    "\"intermediate_size\":128,\"num_hidden_layers\":5,\"num_attention_heads\":4,\"head_dim\":16,"
    "\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_embeddings\":512,"
    "\"vocab_size_per_layer_input\":300,\"hidden_size_per_layer_input\":8,\"num_kv_shared_layers\":2,"
    "\"laurel_rank\":16,\"activation_sparsity_pattern\":[0.95,0.95,0,0,0],\"sliding_window\":24,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"sliding_attention\","
    "\"full_attention\"],\"eos_token_id\":2,\"bos_token_id\":1}";

static const char *model_path;
static char tiny_path[64];

struct setup {
    const char *cpu_isa;
    int num_threads;
    enum dtype kv_dtype;
    int32_t max_num_seqs, max_num_batched_tokens, num_blocks, num_host_blocks;
    bool enable_prefix_caching;
    bool has_groups; /* layers with windows give back what they do not see any more */
};

struct rig {
    struct model_files *files;
    struct device *device;
    struct model *model;
    struct link *link;
    struct request_slots *slots;
    struct engine *engine;
};

struct answer {
    int32_t num_tokens; /* prompt and generated */
    int32_t tokens[MAX_MODEL_LEN];
    struct token_logprobs logprobs[MAX_MODEL_LEN];
    int32_t num_floats;
    float row[ROW_FLOATS_MAX];
};

/* False when the machine has no such instruction set. */
static bool start_engine(struct rig *rig, const struct setup *setup)
{
    struct error err = {0};
    struct device_options device_options = {.cpu_isa = setup->cpu_isa, .num_threads = setup->num_threads};
    int status = cpu_device_open(&device_options, &rig->device, &err);
    if (status == STATUS_UNSUPPORTED) return false;
    assert_int_equal(status, 0);
    struct engine_options options = {.max_model_len = MAX_MODEL_LEN,
                                     .max_num_seqs = setup->max_num_seqs,
                                     .max_num_batched_tokens = setup->max_num_batched_tokens,
                                     .max_num_logits = 24,
                                     .num_blocks = setup->num_blocks,
                                     .num_host_blocks = setup->num_host_blocks,
                                     .enable_prefix_caching = setup->enable_prefix_caching,
                                     .kv_dtype = setup->kv_dtype};
    struct step_limits limits;
    const char *format = model_path == tiny_path ? "dummy" : "auto";
    status = model_files_open(model_path, format, &rig->files, &err);
    if (!status)
        options.kv_layout = setup->has_groups ? kv_layout_of(model_files_config(rig->files), MAX_MODEL_LEN)
                                              : kv_layout_single(model_files_config(rig->files));
    engine_step_limits(&options, rig->device, &limits);
    if (!status)
        status = model_create(rig->device, rig->files, &limits, MAX_MODEL_LEN, NULL, NULL, &rig->model, &err);
    if (!status)
        status = model_kv_pool_create(rig->model, setup->num_blocks, setup->num_host_blocks, setup->kv_dtype,
                                      &err);
    if (!status) options.kv_block_bytes = model_kv_block_bytes(rig->model, setup->kv_dtype);
    if (!status) status = engine_create(rig->model, rig->link, &options, &rig->engine, &err);
    if (status) fail_msg("%s", err.text);
    rig->device->ops->seal(rig->device);
    return true;
}

static void end_engine(struct rig *rig)
{
    engine_destroy(rig->engine);
    model_destroy(rig->model);
    rig->device->ops->close(rig->device);
    model_files_close(rig->files);
}

static bool rig_create(struct rig *rig, const struct setup *setup)
{
    rig->link = link_rig_create(NUM_REQUESTS, MAX_MODEL_LEN);
    rig->slots = link_slots(rig->link);
    if (start_engine(rig, setup)) return true;
    link_destroy(rig->link);
    return false;
}

static void rig_destroy(struct rig *rig)
{
    engine_wind_up(rig->engine);
    engine_check(rig->engine);
    end_engine(rig);
    link_destroy(rig->link);
}

/* Only the link stays. */
static void replace_engine(struct rig *rig, const struct setup *setup)
{
    end_engine(rig);
    link_reset(rig->link);
    assert_true(start_engine(rig, setup));
    link_let_through(rig->link);
}

static void ask_for_row(struct rig *rig, int32_t slot_idx, enum pooling pooling)
{
    struct request_slot_input *in = &request_slots_get(rig->slots, slot_idx)->input;
    in->max_tokens = 0;
    in->prompt_logprobs = false;
    in->sampling.num_logprobs = -1;
    in->pooling = pooling;
    if (pooling != POOLING_LOGITS) return;
    in->num_row_logits = ROW_LOGITS_MAX;
    for (int32_t i = 0; i < ROW_LOGITS_MAX; i++)
        request_slots_payload(rig->slots, slot_idx)->row_logits[i] = 3 + 39 * i;
}

/* Request i, the same in every run. Half of the prompts begin alike. */
static int32_t submit(struct rig *rig, int32_t i)
{
    static const int32_t prompt_lengths[NUM_REQUESTS] = {1,  150, 16, 33, 64, 7,  128, 48,  100, 5,
                                                         97, 32,  2,  80, 31, 17, 140, 150, 99,  57};
    static const enum pooling poolings[] = {POOLING_LAST, POOLING_MEAN, POOLING_LOGITS, POOLING_MEAN};
    int32_t slot_idx, vocab_size = model_config(rig->model)->vocab_size;
    assert_int_equal(request_slots_acquire(rig->slots, 1, &slot_idx), 0);
    struct request_slot_input *in = &request_slots_get(rig->slots, slot_idx)->input;
    *in = (struct request_slot_input){.num_prompt_tokens = prompt_lengths[i],
                                      .max_tokens = 8 + 5 * (i % 7),
                                      .ignore_eos = true,
                                      .prompt_logprobs = i % 5 == 2,
                                      .sampling = {.num_logprobs = TOP_LOGPROBS_MAX,
                                                   .temperature = i % 3 ? 0.9f : 0.0f,
                                                   .top_p = i % 4 ? 1.0f : 0.9f,
                                                   .top_k = i % 6 == 5 ? 40 : 0,
                                                   .presence_penalty = i % 7 == 3 ? 0.5f : 0.0f,
                                                   .repetition_penalty = i % 7 == 4 ? 1.2f : 1.0f,
                                                   .seed = (uint64_t)i}};
    int32_t *tokens = request_slots_tokens(rig->slots, slot_idx);
    for (int32_t p = 0; p < prompt_lengths[i]; p++)
        tokens[p] =
            (int32_t)(rng_philox(i % 2 ? (uint64_t)i : 1000, (uint64_t)p, 0).word[0] % (uint32_t)vocab_size);
    if (i >= FIRST_POOLED) ask_for_row(rig, slot_idx, poolings[i - FIRST_POOLED]);
    link_submit(rig->link, slot_idx);
    return slot_idx;
}

static void collect(struct rig *rig, int32_t slot_idx, struct answer *answer)
{
    struct request_slot *slot = request_slots_get(rig->slots, slot_idx);
    assert_int_equal(slot->finish_reason, FINISH_LENGTH);
    int32_t num_prompt = slot->input.num_prompt_tokens;
    memset(answer, 0, sizeof(*answer));
    answer->num_tokens = num_prompt + slot->num_published;
    memcpy(answer->tokens, request_slots_tokens(rig->slots, slot_idx),
           (size_t)answer->num_tokens * sizeof(int32_t));
    answer->num_floats = slot->num_row_floats;
    assert_int_equal(answer->num_floats > 0, slot->input.pooling != POOLING_NONE);
    memcpy(answer->row, request_slots_row(rig->slots, slot_idx), (size_t)answer->num_floats * sizeof(float));
    int32_t first = slot->input.prompt_logprobs ? 1 : num_prompt;
    for (int32_t p = first; p < answer->num_tokens; p++) {
        answer->logprobs[p] = request_slots_logprobs(rig->slots, slot_idx)[p];
        assert_int_equal(answer->logprobs[p].num_top, TOP_LOGPROBS_MAX);
        assert_true(answer->logprobs[p].logprob <= 0);
    }
    request_slots_release(rig->slots, slot_idx);
}

static void run_to_end(struct rig *rig)
{
    while (engine_step(rig->engine)) continue;
    engine_check(rig->engine);
}

static void run_together(struct rig *rig, struct answer *answers)
{
    int32_t slots[NUM_REQUESTS];
    for (int32_t i = 0; i < NUM_REQUESTS; i++) slots[i] = submit(rig, i);
    run_to_end(rig);
    for (int32_t i = 0; i < NUM_REQUESTS; i++) collect(rig, slots[i], &answers[i]);
}

static void expect_same(const struct answer *solo, const struct answer *other, const char *what)
{
    for (int32_t i = 0; i < NUM_REQUESTS; i++) {
        assert_int_equal(solo[i].num_tokens, other[i].num_tokens);
        if (memcmp(solo[i].row, other[i].row, sizeof(solo[i].row)) != 0)
            fail_msg("%s: the row of request %d differs", what, i);
        for (int32_t p = 0; p < solo[i].num_tokens; p++) {
            bool same = solo[i].tokens[p] == other[i].tokens[p] &&
                        memcmp(&solo[i].logprobs[p], &other[i].logprobs[p], sizeof(solo[i].logprobs[p])) == 0;
            if (!same)
                fail_msg("%s: request %d differs at position %d: token %d, logprob %.9g; alone %d, %.9g",
                         what, i, p, other[i].tokens[p], (double)other[i].logprobs[p].logprob,
                         solo[i].tokens[p], (double)solo[i].logprobs[p].logprob);
        }
    }
}

static struct answer solo[NUM_REQUESTS], together[NUM_REQUESTS];

static void compare(struct setup setup, int num_rounds, const char *what)
{
    struct rig rig;
    struct link_stats stats;
    assert_true(rig_create(&rig, &setup));
    for (int round = 0; round < num_rounds; round++) {
        run_together(&rig, together);
        expect_same(solo, together, what);
    }
    link_stats(rig.link, &stats);
    if (setup.enable_prefix_caching) assert_true(stats.prefix_hit_tokens > 500);
    if (setup.num_blocks < 40) assert_true(stats.num_preemptions > 0);
    assert_int_equal(stats.num_saved > 0, setup.num_host_blocks > 0);
    rig_destroy(&rig);
}

/* Three engines die, after so many turns each. */
static void compare_resumed(struct setup setup)
{
    static const int num_turns[] = {3, 9, 12};
    struct rig rig;
    int32_t slots[NUM_REQUESTS];
    assert_true(rig_create(&rig, &setup));
    for (int32_t i = 0; i < NUM_REQUESTS; i++) slots[i] = submit(&rig, i);
    for (size_t k = 0; k < array_length(num_turns); k++) {
        for (int i = 0; i < num_turns[k]; i++) assert_true(engine_step(rig.engine));
        replace_engine(&rig, &setup);
    }
    run_to_end(&rig);
    for (int32_t i = 0; i < NUM_REQUESTS; i++) collect(&rig, slots[i], &together[i]);
    expect_same(solo, together, "resumed");
    rig_destroy(&rig);
}

static void rewrite_tiny_model(const char *config)
{
    char file_path[96];
    snprintf(file_path, sizeof(file_path), "%s/config.json", tiny_path);
    FILE *file = fopen(file_path, "w");
    assert_always(file && fputs(config, file) >= 0 && fclose(file) == 0);
    model_path = tiny_path;
}

static void make_tiny_folder(void)
{
    strcpy(tiny_path, "/tmp/flashd-tiny-XXXXXX");
    assert_always(mkdtemp(tiny_path) != NULL);
}

static void run_alone(const struct setup *setup)
{
    struct rig rig;
    if (!rig_create(&rig, setup)) skip();
    for (int32_t i = 0; i < NUM_REQUESTS; i++) {
        int32_t slot_idx = submit(&rig, i);
        run_to_end(&rig);
        collect(&rig, slot_idx, &solo[i]);
    }
    rig_destroy(&rig);
}

static void compare_all(const char *cpu_isa, int num_threads, enum dtype kv_dtype)
{
    struct setup setup = {.cpu_isa = cpu_isa,
                          .num_threads = num_threads,
                          .kv_dtype = kv_dtype,
                          .max_num_seqs = 16,
                          .max_num_batched_tokens = 512,
                          .num_blocks = 256};
    run_alone(&setup);
    compare(setup, 1, "together");
    setup.max_num_batched_tokens = 64;
    compare(setup, 1, "chunks of 64");
    setup.max_num_batched_tokens = 16;
    compare(setup, 1, "chunks of 16");
    compare_resumed(setup);
    setup.max_num_batched_tokens = 512;
    setup.enable_prefix_caching = true;
    compare(setup, 2, "prefix hits");
    setup.enable_prefix_caching = false;
    setup.num_blocks = 18;
    compare(setup, 1, "preempted");
    setup.num_host_blocks = 18;
    compare(setup, 1, "preempted and saved");
}

/* The oracle: each request alone, with K and V of all tokens in all layers (which are alike), against all together in groups. num_blocks: what
 * the longest request takes, which has 12 blocks of tokens, in steps of 16 tokens: not 48 but 12 and three times 4, of
 * chunks 8; where a group has two layers with a window 12 and 4, and 2 more. */
static void compare_groups(const char *config, int32_t num_blocks)
{
    struct setup setup = {.cpu_isa = "auto",
                          .num_threads = 2,
                          .kv_dtype = DTYPE_BF16,
                          .max_num_seqs = 16,
                          .max_num_batched_tokens = 512,
                          .num_blocks = 256};
    const char *model_before = model_path;
    rewrite_tiny_model(config);
    run_alone(&setup);
    setup.has_groups = true; /* test_kv_layout: four */
    setup.num_blocks = 1024;
    compare(setup, 1, "groups together");
    setup.max_num_batched_tokens = 16;
    compare(setup, 1, "groups in chunks of 16");
    compare_resumed(setup);
    setup.enable_prefix_caching = true;
    compare(setup, 2, "groups and prefix hits");
    setup.enable_prefix_caching = false;
    setup.num_blocks = num_blocks;
    compare(setup, 1, "groups preempted");
    setup.num_host_blocks = num_blocks;
    compare(setup, 1, "groups preempted and saved");
    rewrite_tiny_model(tiny_config);
    model_path = model_before;
}

static void test_windows(void **state)
{
    (void)state;
    compare_groups(windowed_config, 24);
}

static void test_chunks(void **state)
{
    (void)state;
    compare_groups(chunked_config, 36);
}

static void test_layers_that_differ(void **state)
{
    (void)state;
    compare_groups(shared_config, 18);
}

static void test_streams(void **state)
{
    (void)state;
    compare_groups(altup_config, 19);
}

/* ---- what rows hold ---- */

static void pool(struct rig *rig, const int32_t *tokens, int32_t num_tokens, enum pooling pooling, float *row)
{
    static struct answer answer;
    int32_t slot_idx;
    assert_int_equal(request_slots_acquire(rig->slots, 1, &slot_idx), 0);
    request_slots_get(rig->slots, slot_idx)->input.num_prompt_tokens = num_tokens;
    memcpy(request_slots_tokens(rig->slots, slot_idx), tokens, (size_t)num_tokens * sizeof(*tokens));
    ask_for_row(rig, slot_idx, pooling);
    link_submit(rig->link, slot_idx);
    run_to_end(rig);
    collect(rig, slot_idx, &answer);
    memcpy(row, answer.row, (size_t)answer.num_floats * sizeof(*row));
}

/* The mean of the states of all prefixes' last tokens, and logits as products with them. */
static void test_rows_against_double(void **state)
{
    (void)state;
    enum { LENGTH = 41 };
    static float last[LENGTH][ROW_FLOATS_MAX], mean[ROW_FLOATS_MAX], logits[ROW_FLOATS_MAX];
    struct setup setup = {.cpu_isa = "portable",
                          .num_threads = 1,
                          .kv_dtype = DTYPE_F32,
                          .max_num_seqs = 4,
                          .max_num_batched_tokens = 16,
                          .num_blocks = 64};
    struct rig rig;
    if (model_path != tiny_path) skip();
    assert_true(rig_create(&rig, &setup));
    int32_t tokens[LENGTH];
    for (int32_t i = 0; i < LENGTH; i++) tokens[i] = (7 + 31 * i) % 320;
    for (int32_t i = 0; i < LENGTH; i++) pool(&rig, tokens, i + 1, POOLING_LAST, last[i]);
    pool(&rig, tokens, LENGTH, POOLING_MEAN, mean);
    pool(&rig, tokens, LENGTH, POOLING_LOGITS, logits);
    for (int32_t k = 0; k < HIDDEN; k++) {
        double sum = 0;
        for (int32_t i = 0; i < LENGTH; i++) sum += (double)last[i][k];
        assert_float_equal(mean[k], (float)(sum / LENGTH), 0);
    }
    struct weight_view embedding = model_files_weight(rig.files, WEIGHT_TOKEN_EMBEDDING, 0);
    for (int32_t i = 0; i < ROW_LOGITS_MAX; i++) {
        float row[HIDDEN];
        double sum = 0;
        const char *at = (const char *)embedding.data;
        at += (size_t)(3 + 39 * i) * dtype_row_bytes(embedding.dtype, HIDDEN);
        dtype_row_to_f32(embedding.dtype, at, HIDDEN, row);
        for (int32_t k = 0; k < HIDDEN; k++) sum += (double)row[k] * (double)last[LENGTH - 1][k];
        assert_float_equal(logits[i], (float)sum, 1e-5f);
    }
    rig_destroy(&rig);
}

static void test_portable(void **state)
{
    (void)state;
    compare_all("portable", 1, DTYPE_F32);
}

static void test_avx2(void **state)
{
    (void)state;
    compare_all("avx2", 1, DTYPE_BF16);
}

static void test_avx512(void **state)
{
    (void)state;
    compare_all("avx512", 1, DTYPE_F32);
}

static void test_two_threads(void **state)
{
    (void)state;
    compare_all("auto", 2, DTYPE_BF16);
}

static void remove_tiny_model(void)
{
    char file_path[96];
    snprintf(file_path, sizeof(file_path), "%s/config.json", tiny_path);
    unlink(file_path);
    rmdir(tiny_path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_against_double),
        cmocka_unit_test(test_portable),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_layers_that_differ),
        cmocka_unit_test(test_streams),
    };
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    make_tiny_folder();
    rewrite_tiny_model(tiny_config);
    if (argc > 1) model_path = argv[1];
    int num_failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tiny_model();
    return num_failed;
}
