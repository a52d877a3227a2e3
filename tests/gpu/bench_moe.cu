/* bench_moe.cu - a mixture of experts alone, of the shape of Qwen3-30B-A3B, Mixtral 8x7B or gpt-oss-20b: microseconds of a call by the number of tokens,
 * medians of replayed graphs, and what that is of reading the chosen experts once and of the products' operations. Calls rotate over layers.
 *
 *   bench_moe [qwen3 | qwen3-int4 | qwen3-fp8 | qwen3-q4_k | qwen3-q6_k | mixtral | mixtral-fp8 | mixtral-int8 | mixtral-q4_k | gpt-oss | gpt-oss-bf16] [profile]
 *
 * profile: one call each, for a profiler that tells the kernels apart. q4_k, q6_k: kept in a GGUF file's blocks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "kernels/cuda/device.cuh"
#include "tests/gpu/call_timer.cuh"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { EXPERTS_MAX = 128, LAYERS = 3, CALLS = 12, TOKENS_MAX = 8192 };

enum form { BF16, INT4, MXFP4, FP8_OF_ROWS, FP8_IN_BLOCKS, INT8, Q4_K, Q6_K };

static const double bytes_of_weight[] = {2, 0.53125, 0.53125, 1, 1, 1, 0.5625, 0.8203125};

static const struct shape {
    const char *name;
    int32_t num_experts, num_chosen, hidden, inner;
    enum gate_function gate;
    enum form form;
} shapes[] = {
    {"qwen3", 128, 8, 2048, 768, GATE_SILU, BF16},
    {"qwen3-int4", 128, 8, 2048, 768, GATE_SILU, INT4},
    {"qwen3-fp8", 128, 8, 2048, 768, GATE_SILU, FP8_IN_BLOCKS},
    {"qwen3-q4_k", 128, 8, 2048, 768, GATE_SILU, Q4_K},
    {"qwen3-q6_k", 128, 8, 2048, 768, GATE_SILU, Q6_K},
    {"mixtral", 8, 2, 4096, 14336, GATE_SILU, BF16},
    {"mixtral-q4_k", 8, 2, 4096, 14336, GATE_SILU, Q4_K},
    {"mixtral-fp8", 8, 2, 4096, 14336, GATE_SILU, FP8_OF_ROWS},
    {"mixtral-int8", 8, 2, 4096, 14336, GATE_SILU, INT8},
    {"gpt-oss", 32, 4, 2880, 2880, GATE_CLAMPED_SWISH, MXFP4},
    {"gpt-oss-bf16", 32, 4, 2880, 2880, GATE_CLAMPED_SWISH, BF16},
};

static const int32_t token_counts[] = {1, 2, 4, 8, 16, 17, 32, 64, 128, 256, 512, 1024, 2048, 8192};

static uint16_t random_bf16(uint32_t i, float deviation)
{
    float sum = 0;
    uint32_t bits, h = i * 2654435761u;
    for (int k = 0; k < 4; k++) {
        h = (h ^ h >> 16) * 0x45d9f3bu;
        h = (h ^ h >> 13) * 0x119de1f3u;
        sum += (float)(h >> 8) * 0x1p-24f;
    }
    float value = (sum - 2.0f) * 1.7320508f * deviation;
    memcpy(&bits, &value, 4);
    return (uint16_t)(bits >> 16);
}

static std::vector<uint16_t> random_matrix(size_t count, uint32_t seed, float deviation)
{
    std::vector<uint16_t> m(count);
    for (size_t i = 0; i < count; i++) m[i] = random_bf16((uint32_t)i + seed * 77777777u, deviation);
    return m;
}

/* Random codes with small scales of f16 where the blocks have them. */
static void fill_blocks(std::vector<uint16_t> &m, enum form form)
{
    const size_t block = form == Q4_K ? 72 : 105; /* halves of 256 values */
    for (size_t i = 0; i + block <= m.size(); i += block) {
        m[form == Q4_K ? i : i + 104] = form == Q4_K ? 0x0a00 : 0x00a8; /* 2e-4, 1e-5 */
        if (form == Q4_K) m[i + 1] = 0x1400;                            /* 1e-3 */
    }
}

static bool is_in_blocks(enum form form)
{
    return form == Q4_K || form == Q6_K;
}

/* Values of an expert's matrices, which all experts have, each in its place. */
struct expert_values {
    std::vector<uint16_t> bf16; /* or codes: halves of random ones; or blocks */
    std::vector<uint8_t> scales;
    std::vector<uint16_t> int4_scales;
    std::vector<float> fp8_scales;
};

/* One scale for scale_rows x scale_cols codes. */
static struct weight_view scaled_view(const struct expert_values &v, enum dtype dtype, int32_t rows,
                                      int32_t cols, const void *scales, enum scale_type type,
                                      int32_t scale_rows, int32_t scale_cols)
{
    struct weight_view view = weight_view_plain(v.bf16.data(), dtype, rows, cols);
    view.scheme = WEIGHT_SCALED;
    view.codes.scales = {scales, type, rows / scale_rows, cols / scale_cols};
    view.codes.scale_rows = scale_rows;
    view.codes.scale_cols = scale_cols;
    view.codes.scale_factor = view.codes.scale_divisor = 1;
    if (dtype == DTYPE_U4) view.codes.zero = 8;
    return view;
}

static struct weight_view view_of(const struct shape &s, const struct expert_values &v, int32_t rows,
                                  int32_t cols)
{
    switch (s.form) {
    case INT4:
        return scaled_view(v, DTYPE_U4, rows, cols, v.int4_scales.data(), SCALE_BF16, 1, 128);
    case MXFP4:
        return scaled_view(v, DTYPE_MXFP4, rows, cols, v.scales.data(), SCALE_E8M0, 1, 32);
    case FP8_OF_ROWS:
        return scaled_view(v, DTYPE_F8_E4M3, rows, cols, v.fp8_scales.data(), SCALE_F32, 1, cols);
    case FP8_IN_BLOCKS:
        return scaled_view(v, DTYPE_F8_E4M3, rows, cols, v.fp8_scales.data(), SCALE_F32, 128, 128);
    case INT8:
        return scaled_view(v, DTYPE_I8, rows, cols, v.fp8_scales.data(), SCALE_F32, 1, cols);
    case Q4_K:
        return weight_view_plain(v.bf16.data(), DTYPE_Q4_K, rows, cols);
    case Q6_K:
        return weight_view_plain(v.bf16.data(), DTYPE_Q6_K, rows, cols);
    default:
        return weight_view_plain(v.bf16.data(), DTYPE_BF16, rows, cols);
    }
}

static struct moe *make_layer(struct device *device, const struct shape &s, uint32_t seed)
{
    size_t num_router = (size_t)s.num_experts * s.hidden, num_inner = (size_t)s.inner * s.hidden;
    std::vector<uint16_t> router = random_matrix(num_router, seed, 0.02f);
    struct expert_values values = {random_matrix(num_inner, seed + 1, 0.02f),
                                   std::vector<uint8_t>(num_inner / 32, 120),
                                   std::vector<uint16_t>(num_inner / 128, 0x3c23), /* 0.01 */
                                   std::vector<float>((size_t)max(s.hidden, 2 * s.inner), 0.001f)};
    if (is_in_blocks(s.form)) fill_blocks(values.bf16, s.form);
    std::vector<float> biases((size_t)max(s.hidden, s.inner), 0.5f);
    struct expert_desc one = {}, experts[EXPERTS_MAX];
    one.gate = one.up = view_of(s, values, s.inner, s.hidden);
    one.down = view_of(s, values, s.hidden, s.inner);
    if (s.gate == GATE_CLAMPED_SWISH) {
        one.gate_bias = one.up_bias = weight_view_plain(biases.data(), DTYPE_F32, 1, s.inner);
        one.down_bias = weight_view_plain(biases.data(), DTYPE_F32, 1, s.hidden);
    }
    for (int e = 0; e < s.num_experts; e++) experts[e] = one;
    struct moe_desc desc = {};
    desc.num_experts = s.num_experts;
    desc.num_chosen = s.num_chosen;
    desc.scores = ROUTER_SOFTMAX;
    desc.normalize = true;
    desc.scale = 1;
    desc.gate = s.gate;
    desc.quantise_input = s.form == FP8_OF_ROWS || s.form == FP8_IN_BLOCKS || s.form == INT8;
    desc.router = weight_view_plain(router.data(), DTYPE_BF16, s.num_experts, s.hidden);
    desc.experts = experts;
    struct moe *moe;
    struct error err = {};
    if (device->ops->moe_create(device, &desc, &moe, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return moe;
}

int main(int argc, char **argv)
{
    bool profiles = argc > 1 && !strcmp(argv[argc - 1], "profile");
    const struct shape *shape = shapes;
    for (const struct shape &other : shapes)
        if (argc > 1 && !strcmp(argv[1], other.name)) shape = &other;
    const struct shape &s = *shape;
    struct device_options options = {};
    struct device *device;
    struct error err = {};
    struct attention_args attention = {};
    attention.num_heads = attention.num_kv_heads = 1;
    attention.head_dim = 64;
    struct step_limits limits = {TOKENS_MAX, 1, 1, 1, TOKENS_MAX, 1};
    struct moe *layers[LAYERS];
    if (cuda_device_open(&options, &device, &err) ||
        device->ops->prepare(device, &limits, 64, s.hidden, 256, &attention, 1, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    device->keeps_packed = is_in_blocks(s.form);
    for (uint32_t i = 0; i < LAYERS; i++) layers[i] = make_layer(device, s, 10 * i);
    if (device->ops->weights_done(device, &err)) return 1;
    std::vector<uint16_t> values = random_matrix((size_t)TOKENS_MAX * s.hidden, 99, 1);
    void *x, *out;
    check(cudaMalloc(&x, values.size() * 2), "x");
    check(cudaMalloc(&out, values.size() * 2), "out");
    check(cudaMemcpy(x, values.data(), values.size() * 2, cudaMemcpyHostToDevice), "x");
    for (int32_t num_tokens : token_counts) {
        struct batch b = {};
        b.num_tokens = num_tokens;
        auto call = [&](int i) {
            device->ops->moe(device, &b, ROWS_TOKENS, out, x, x, layers[i % LAYERS]);
            return true;
        };
        if (profiles) {
            call(0);
            check(cudaDeviceSynchronize(), "call");
            continue;
        }
        double us = time_graph(cuda_of(device), num_tokens >= 2048 ? LAYERS : CALLS, call);
        double chosen = s.num_experts * (1 - pow(1 - (double)s.num_chosen / s.num_experts, num_tokens));
        double weights = 3.0 * s.hidden * s.inner, bytes = bytes_of_weight[s.form];
        printf("%5d tokens: %8.1f us, %5.2f TB/s of weights, %6.1f TFLOP/s\n", num_tokens, us,
               chosen * weights * bytes / us * 1e-6, 2 * weights * s.num_chosen * num_tokens / us * 1e-6);
        fflush(stdout);
    }
    return 0;
}
