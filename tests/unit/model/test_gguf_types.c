/* GGUF files whose matrices are of a packed type, every one there is, beside the same model with each value as F32 has it
 * (test_dtype.c holds that to the Python package gguf): the portable set, which computes in f32, must give the same bits,
 * the others what quantised activations cost. A GPU that keeps its blocks gives the bits of one that has bf16 made of them. */
#include "model_bytes.h"

#include <math.h>

#include "files/weight_nvfp4.h"
#include "files/weight_ternary.h"
#include "kernels/cpu/isa.h"
#include "model_session.h"
#include "tests/kernels/random_weight.h"

enum {
    HIDDEN = 256,
    INTERMEDIATE = 512,
    LAYERS = 2,
    HEADS = 4,
    HEAD_DIM = 64,
    VOCAB = 96,
    EXPERTS = 4,
    CHOSEN_EXPERTS = 2,
    TOKENS = 40,
    LOGITS = TOKENS * VOCAB
};

struct types_file {
    struct gguf_builder builder;
    struct random_source random;
    enum dtype dtype;
    bool as_f32;
    bool
        is_nvfp4; /* matrices that have a scale more beside them are, in the place of dtype, which the embedding has */
    bool is_i2_s; /* matrices are, as above, with a scale behind them */
    bool has_bad_scale;
    bool has_experts; /* and a head that is not the embedding */
};

static void put_matrix(struct types_file *f, const char *name, int rows, int cols)
{
    const uint64_t row_bytes = dtype_row_bytes(f->dtype, (uint64_t)cols),
                   values = (uint64_t)rows * (uint64_t)cols;
    uint8_t *const packed = malloc((size_t)rows * row_bytes);
    float *const unpacked = malloc(values * sizeof *unpacked);
    random_weight(&f->random, f->dtype, rows, cols, packed);
    for (int r = 0; r < rows; r++)
        dtype_row_to_f32(f->dtype, packed + (uint64_t)r * row_bytes, cols, unpacked + (int64_t)r * cols);
    gguf_put_tensor_info(&f->builder, name, f->as_f32 ? DTYPE_F32 : f->dtype, (uint64_t)cols, (uint64_t)rows);
    if (f->as_f32)
        buffer_append(&f->builder.data, unpacked, values * sizeof *unpacked);
    else
        buffer_append(&f->builder.data, packed, (size_t)rows * row_bytes);
    free(packed);
    free(unpacked);
}

static float scale_of_nvfp4(int i)
{
    return (float)(3 + i) / 4;
}

/* num: of matrices, one below the other, each with a scale of its own; its name stands in front of what all end with, or behind. */
static void put_nvfp4(struct types_file *f, const char *name, int num, int rows, int cols, bool behind)
{
    const uint64_t num_bytes = (uint64_t)(num * rows) * weight_nvfp4_row_bytes((uint64_t)cols);
    uint8_t *const packed = malloc(num_bytes);
    float *const unpacked = malloc((size_t)(num * rows * cols) * sizeof *unpacked);
    char scale_name[80];
    const int stem = (int)strlen(name) - (int)strlen(".weight");
    for (uint64_t i = 0; i < num_bytes; i++)
        packed[i] = (uint8_t)(random_uniform(&f->random, 0, 1) * (i % NVFP4_BYTES < 4 ? 32 : 256));
    struct weight_view v = weight_nvfp4_view(packed, num * rows, cols);
    for (int r = 0; r < num * rows; r++) {
        v.codes.scale_factor = scale_of_nvfp4(r / rows);
        weight_nvfp4_to_f32(&v, r, 0, cols, unpacked + r * cols);
    }
    gguf_put_tensor_of(&f->builder, name, f->as_f32 ? 0 : NVFP4_GGUF_ID, (uint64_t)cols,
                       (uint64_t)(num * rows));
    if (f->as_f32)
        buffer_append(&f->builder.data, unpacked, (size_t)(num * rows * cols) * sizeof *unpacked);
    else
        buffer_append(&f->builder.data, packed, num_bytes);
    if (!f->as_f32) {
        snprintf(scale_name, sizeof scale_name, "%.*s.scale", behind ? stem + 7 : stem, name);
        gguf_put_tensor_info(&f->builder, scale_name, DTYPE_F32, (uint64_t)(f->has_bad_scale ? num + 1 : num),
                             0);
        for (int i = 0; i < num + f->has_bad_scale; i++) {
            const float scale = scale_of_nvfp4(i);
            buffer_append(&f->builder.data, &scale, sizeof scale);
        }
    }
    free(packed);
    free(unpacked);
}

/* Of one scale. */
static void put_i2_s(struct types_file *f, const char *name, int rows, int cols)
{
    const size_t num_bytes = weight_ternary_gguf_bytes((uint64_t)rows, (uint64_t)cols);
    uint8_t *const packed = malloc(num_bytes);
    float *const unpacked = malloc((size_t)(rows * cols) * sizeof *unpacked);
    const float scale = f->has_bad_scale ? 0 : 0.0625f;
    struct weight_view v = weight_ternary_gguf_view(rows, cols);
    v.data = packed;
    for (size_t i = 0; i < num_bytes; i++) packed[i] = (uint8_t)random_uniform(&f->random, 0, 255);
    memcpy(packed + rows * cols / 4, &scale, sizeof scale);
    assert_int_equal(weight_ternary_gguf_take_scale(&v), !f->has_bad_scale);
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < cols; k += 128) weight_ternary_to_f32(&v, r, k, 128, unpacked + r * cols + k);
    gguf_put_tensor_of(&f->builder, name, f->as_f32 ? 0 : TERNARY_GGUF_ID, (uint64_t)cols, (uint64_t)rows);
    if (f->as_f32)
        buffer_append(&f->builder.data, unpacked, (size_t)(rows * cols) * sizeof *unpacked);
    else
        buffer_append(&f->builder.data, packed, num_bytes);
    free(packed);
    free(unpacked);
}

/* num: of experts. */
static void put_matrices(struct types_file *f, const char *name, int num, int rows, int cols)
{
    if (f->is_i2_s)
        put_i2_s(f, name, num * rows, cols);
    else if (f->is_nvfp4)
        put_nvfp4(f, name, num, rows, cols, rows == INTERMEDIATE);
    else
        put_matrix(f, name, num * rows, cols);
}

static void put_ones(struct types_file *f, const char *name, int num)
{
    const float one = 1;
    gguf_put_tensor_info(&f->builder, name, DTYPE_F32, (uint64_t)num, 0);
    for (int i = 0; i < num; i++) buffer_append(&f->builder.data, &one, sizeof one);
}

static void put_router(struct types_file *f, const char *name)
{
    gguf_put_tensor_info(&f->builder, name, DTYPE_F32, HIDDEN, EXPERTS);
    for (int i = 0; i < EXPERTS * HIDDEN; i++) {
        const float value = (float)(i * 7919 % 1009 - 504) / 2000;
        buffer_append(&f->builder.data, &value, sizeof value);
    }
}

static void put_layer(struct types_file *f, int layer)
{
    char name[64];
#define NAME(text) (snprintf(name, sizeof name, "blk.%d." text ".weight", layer), name)
    put_ones(f, NAME("attn_norm"), HIDDEN);
    put_matrices(f, NAME("attn_q"), 1, HEADS * HEAD_DIM, HIDDEN);
    put_matrices(f, NAME("attn_k"), 1, HEADS / 2 * HEAD_DIM, HIDDEN);
    put_matrices(f, NAME("attn_v"), 1, HEADS / 2 * HEAD_DIM, HIDDEN);
    put_matrices(f, NAME("attn_output"), 1, HIDDEN, HEADS * HEAD_DIM);
    put_ones(f, NAME("ffn_norm"), HIDDEN);
    if (f->has_experts) {
        put_ones(f, NAME("attn_q_norm"), HEAD_DIM);
        put_ones(f, NAME("attn_k_norm"), HEAD_DIM);
        put_router(f, NAME("ffn_gate_inp"));
        put_matrices(f, NAME("ffn_gate_exps"), EXPERTS, INTERMEDIATE, HIDDEN);
        put_matrices(f, NAME("ffn_up_exps"), EXPERTS, INTERMEDIATE, HIDDEN);
        put_matrices(f, NAME("ffn_down_exps"), EXPERTS, HIDDEN, INTERMEDIATE);
        return;
    }
    put_matrices(f, NAME("ffn_gate"), 1, INTERMEDIATE, HIDDEN);
    put_matrices(f, NAME("ffn_up"), 1, INTERMEDIATE, HIDDEN);
    put_matrices(f, NAME("ffn_down"), 1, HIDDEN, INTERMEDIATE);
#undef NAME
}

static void put_keys(struct gguf_builder *g, bool has_experts)
{
    const char *architecture = has_experts ? "qwen3moe" : "llama";
    char key[64];
#define KEY(text) (snprintf(key, sizeof key, "%s." text, architecture), key)
    gguf_put_text(g, "general.architecture", architecture);
    gguf_put_u32(g, KEY("embedding_length"), HIDDEN);
    gguf_put_u32(g, KEY("feed_forward_length"), INTERMEDIATE);
    gguf_put_u32(g, KEY("block_count"), LAYERS);
    gguf_put_u32(g, KEY("attention.head_count"), HEADS);
    gguf_put_u32(g, KEY("attention.head_count_kv"), HEADS / 2);
    gguf_put_u32(g, KEY("context_length"), 2 * TOKENS);
    gguf_put_f32(g, KEY("attention.layer_norm_rms_epsilon"), 1e-5f);
    gguf_put_f32(g, KEY("rope.freq_base"), 10000);
    if (!has_experts) return;
    gguf_put_u32(g, KEY("expert_count"), EXPERTS);
    gguf_put_u32(g, KEY("expert_used_count"), CHOSEN_EXPERTS);
    gguf_put_u32(g, KEY("expert_feed_forward_length"), INTERMEDIATE);
#undef KEY
}

static void write_model(const char *directory, struct types_file f)
{
    struct buffer file;
    f.random = (struct random_source){.seed = 7};
    gguf_builder_init(&f.builder);
    put_keys(&f.builder, f.has_experts);
    put_matrix(&f, "token_embd.weight", VOCAB, HIDDEN);
    if (f.has_experts) put_matrix(&f, "output.weight", VOCAB, HIDDEN);
    for (int layer = 0; layer < LAYERS; layer++) put_layer(&f, layer);
    put_ones(&f, "output_norm.weight", HIDDEN);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&f.builder, &file);
    write_file(directory, "m.gguf", file.data, file.num_bytes);
    buffer_deinit(&file);
    gguf_builder_deinit(&f.builder);
}

/* Of all positions of one prompt. */
static void compute_logits_on(const char *device, const char *isa, const struct types_file *f,
                              float logits[LOGITS])
{
    char directory[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct session s;
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 37 + 11) % VOCAB;
    make_directory(directory);
    write_model(directory, *f);
    const struct session_options options = {.model_path = join_path(path, directory, "m.gguf"),
                                            .device = device,
                                            .isa = isa,
                                            .threads = 1,
                                            .kv_dtype = strcmp(device, "cpu") ? DTYPE_BF16 : DTYPE_F32,
                                            .num_seqs = 1,
                                            .max_model_len = TOKENS,
                                            .num_batched_tokens = TOKENS,
                                            .num_logits = TOKENS};
    session_open(&s, &options);
    session_step(&s, &(struct session_part){.num_tokens = TOKENS, .tokens = ids, .all_logits = true}, 1);
    for (int32_t i = 0; i < TOKENS; i++) session_logits(&s, i, logits + i * VOCAB);
    session_finish_step(&s);
    session_close(&s);
    remove_directory(directory);
}

static void compute_logits(enum dtype dtype, bool as_f32, const char *isa, float logits[LOGITS])
{
    compute_logits_on("cpu", isa, &(struct types_file){.dtype = dtype, .as_f32 = as_f32}, logits);
}

static bool is_packed_gguf(enum dtype dtype)
{
    return dtype_infos[dtype].block_values > 1 && dtype_infos[dtype].gguf_id != DTYPE_NOT_IN_GGUF;
}

static void the_portable_set_gives_the_bits_of_f32(void **state)
{
    (void)state;
    static float packed[LOGITS], plain[LOGITS];
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        if (!is_packed_gguf(dtype)) continue;
        compute_logits(dtype, false, "portable", packed);
        compute_logits(dtype, true, "portable", plain);
        if (memcmp(packed, plain, sizeof plain))
            fail_msg("%s differs from the same values as F32", dtype_infos[dtype].text);
    }
}

static void nvfp4_gives_the_bits_of_f32(void **state)
{
    (void)state;
    static float packed[LOGITS], plain[LOGITS];
    for (int has_experts = 0; has_experts < 2; has_experts++) {
        struct types_file f = {.dtype = DTYPE_F32, .is_nvfp4 = true, .has_experts = has_experts};
        compute_logits_on("cpu", "portable", &f, packed);
        f.as_f32 = true;
        compute_logits_on("cpu", "portable", &f, plain);
        assert_memory_equal(packed, plain, sizeof plain);
        f.as_f32 = false;
        compute_logits_on("cpu", "auto", &f, packed);
        for (int i = 0; i < LOGITS; i++) assert_float_equal(packed[i], plain[i], 1e-3);
    }
}

/* Which become TQ2_0, and their scale is one that it has. */
static void i2_s_gives_the_bits_of_f32(void **state)
{
    (void)state;
    static float packed[LOGITS], plain[LOGITS];
    for (int has_experts = 0; has_experts < 2; has_experts++) {
        struct types_file f = {.dtype = DTYPE_F32, .is_i2_s = true, .has_experts = has_experts};
        compute_logits_on("cpu", "portable", &f, packed);
        f.as_f32 = true;
        compute_logits_on("cpu", "portable", &f, plain);
        assert_memory_equal(packed, plain, sizeof plain);
    }
}

static void expect_refusal(struct types_file f, const char *sentence)
{
    char directory[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct model_files *files;
    struct error err;
    make_directory(directory);
    write_model(directory, f);
    assert_int_equal(model_files_open(join_path(path, directory, "m.gguf"), "auto", &files, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, sentence));
    remove_directory(directory);
}

static void scales_that_fit_nothing_are_named(void **state)
{
    (void)state;
    expect_refusal((struct types_file){.dtype = DTYPE_F32, .is_i2_s = true, .has_bad_scale = true},
                   "tensor blk.0.attn_q.weight has a scale that is 0, or no number");
    expect_refusal((struct types_file){.dtype = DTYPE_F32, .is_nvfp4 = true, .has_bad_scale = true},
                   "blk.0.attn_q.scale should be a number of type F32");
}

/* Activations of int8 cost up to 0.027 of the logits' size here. */
static void the_best_set_is_close(void **state)
{
    (void)state;
    static float best[LOGITS], plain[LOGITS];
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        double difference = 0, size = 0;
        if (!is_packed_gguf(dtype)) continue;
        compute_logits(dtype, false, "auto", best);
        compute_logits(dtype, true, "portable", plain);
        for (int i = 0; i < LOGITS; i++) {
            difference += pow((double)best[i] - (double)plain[i], 2);
            size += pow((double)plain[i], 2);
        }
        const double ratio = sqrt(difference / size);
        print_message("%-6s %.2g\n", dtype_infos[dtype].text, ratio);
        if (!(ratio <= 0.06))
            fail_msg("%s: logits are off by %g of their size", dtype_infos[dtype].text, ratio);
    }
}

static void check_kept(enum dtype dtype, bool has_experts)
{
    static float kept[LOGITS], plain[LOGITS];
    const struct types_file f = {.dtype = dtype, .has_experts = has_experts};
    setenv("FLASHD_CUDA_KEEP_PACKED", "1", 1);
    compute_logits_on("cuda", "auto", &f, kept);
    unsetenv("FLASHD_CUDA_KEEP_PACKED");
    compute_logits_on("cuda", "auto", &f, plain);
    for (int i = 0; i < LOGITS; i++) assert_true(isfinite(plain[i]));
    if (memcmp(kept, plain, sizeof plain))
        fail_msg("%s, %s: what is kept in blocks gives other bits", dtype_infos[dtype].text,
                 has_experts ? "experts" : "tied");
}

/* Embedding and head, one matrix or two, experts and all else. */
static void a_gpu_keeps_blocks_and_the_bits_of_bf16(void **state)
{
    (void)state;
    const char *device = getenv("FLASHD_TEST_DEVICE");
    if (!device || strcmp(device, "cuda")) skip();
    check_kept(DTYPE_Q4_K, false);
    check_kept(DTYPE_Q4_K, true);
    check_kept(DTYPE_Q6_K, true);
}

/* What has no kernels there becomes BF16 on its way, as F32 does. */
static void a_gpu_takes_rare_types_as_bf16(void **state)
{
    (void)state;
    static float packed[LOGITS], plain[LOGITS];
    const char *device = getenv("FLASHD_TEST_DEVICE");
    if (!device || strcmp(device, "cuda")) skip();
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        if (!dtype_is_rare(dtype)) continue;
        struct types_file f = {.dtype = dtype, .has_experts = dtype == DTYPE_IQ3_S};
        compute_logits_on("cuda", "auto", &f, packed);
        f.as_f32 = true;
        compute_logits_on("cuda", "auto", &f, plain);
        if (memcmp(packed, plain, sizeof plain))
            fail_msg("%s differs from the same values as F32", dtype_infos[dtype].text);
    }
}

/* Its codes stay packed on a Hopper: the same bits as of BF16. */
static void a_gpu_takes_nvfp4(void **state)
{
    (void)state;
    static float packed[LOGITS], plain[LOGITS];
    const char *device = getenv("FLASHD_TEST_DEVICE");
    if (!device || strcmp(device, "cuda")) skip();
    for (int has_experts = 0; has_experts < 2; has_experts++) {
        struct types_file f = {.dtype = DTYPE_F32, .is_nvfp4 = true, .has_experts = has_experts};
        compute_logits_on("cuda", "auto", &f, packed);
        f.as_f32 = true;
        compute_logits_on("cuda", "auto", &f, plain);
        assert_memory_equal(packed, plain, sizeof plain);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_portable_set_gives_the_bits_of_f32),
        cmocka_unit_test(the_best_set_is_close),
        cmocka_unit_test(nvfp4_gives_the_bits_of_f32),
        cmocka_unit_test(i2_s_gives_the_bits_of_f32),
        cmocka_unit_test(scales_that_fit_nothing_are_named),
        cmocka_unit_test(a_gpu_keeps_blocks_and_the_bits_of_bf16),
        cmocka_unit_test(a_gpu_takes_rare_types_as_bf16),
        cmocka_unit_test(a_gpu_takes_nvfp4),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
