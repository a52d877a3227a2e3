/* bench_moe.cu - a mixture of experts of the Qwen3-30B-A3B shape alone: microseconds of a call by the number of tokens, medians of
 * replayed graphs, and what that is of reading the chosen experts once and of the products' operations. Calls rotate over layers.
 *
 *   bench_moe [profile]     profile: one call each, for a profiler that tells the kernels apart */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "kernels/cuda/device.cuh"
#include "tests/gpu/call_timer.cuh"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { EXPERTS = 128, CHOSEN = 8, HIDDEN = 2048, INNER = 768, LAYERS = 3, CALLS = 12, TOKENS_MAX = 8192 };

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

/* All experts have the same values, each in its place. */
static struct moe *make_layer(struct device *device, uint32_t seed)
{
    std::vector<uint16_t> router = random_matrix((size_t)EXPERTS * HIDDEN, seed, 0.02f),
                          inner = random_matrix((size_t)INNER * HIDDEN, seed + 1, 0.02f);
    struct expert_desc one = {}, experts[EXPERTS];
    one.gate = one.up = weight_view_plain(inner.data(), DTYPE_BF16, INNER, HIDDEN);
    one.down = weight_view_plain(inner.data(), DTYPE_BF16, HIDDEN, INNER);
    for (int e = 0; e < EXPERTS; e++) experts[e] = one;
    struct moe_desc desc = {};
    desc.num_experts = EXPERTS;
    desc.num_chosen = CHOSEN;
    desc.scores = ROUTER_SOFTMAX;
    desc.normalize = true;
    desc.scale = 1;
    desc.gate = GATE_SILU;
    desc.router = weight_view_plain(router.data(), DTYPE_BF16, EXPERTS, HIDDEN);
    desc.experts = experts;
    struct moe *moe;
    struct error err = {};
    if (cuda_moe_create(device, &desc, &moe, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return moe;
}

int main(int argc, char **argv)
{
    bool profiles = argc > 1 && !strcmp(argv[1], "profile");
    struct device_options options = {};
    struct device *device;
    struct error err = {};
    struct attention_args attention = {};
    attention.num_heads = attention.num_kv_heads = 1;
    attention.head_dim = 64;
    struct step_limits limits = {TOKENS_MAX, 1, 1, 1, TOKENS_MAX, 1};
    struct moe *layers[LAYERS];
    if (cuda_device_open(&options, &device, &err) ||
        device->ops->prepare(device, &limits, 64, HIDDEN, 256, &attention, 1, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (uint32_t i = 0; i < LAYERS; i++) layers[i] = make_layer(device, 10 * i);
    if (device->ops->weights_done(device, &err)) return 1;
    std::vector<uint16_t> values = random_matrix((size_t)TOKENS_MAX * HIDDEN, 99, 1);
    void *x, *out;
    check(cudaMalloc(&x, values.size() * 2), "x");
    check(cudaMalloc(&out, values.size() * 2), "out");
    check(cudaMemcpy(x, values.data(), values.size() * 2, cudaMemcpyHostToDevice), "x");
    for (int32_t num_tokens : token_counts) {
        struct batch b = {};
        b.num_tokens = num_tokens;
        auto call = [&](int i) {
            cuda_moe(device, &b, ROWS_TOKENS, out, x, layers[i % LAYERS]);
            return true;
        };
        if (profiles) {
            call(0);
            check(cudaDeviceSynchronize(), "call");
            continue;
        }
        double us = time_graph(cuda_of(device), num_tokens >= 2048 ? LAYERS : CALLS, call);
        double chosen = EXPERTS * (1 - pow(1 - (double)CHOSEN / EXPERTS, num_tokens));
        printf("%5d tokens: %8.1f us, %5.2f TB/s of weights, %6.1f TFLOP/s\n", num_tokens, us,
               chosen * 6 * HIDDEN * INNER / us * 1e-6,
               6.0 * HIDDEN * INNER * CHOSEN * num_tokens / us * 1e-6);
        fflush(stdout);
    }
    return 0;
}
