/* test_load.c - the arithmetic of the memory plan, and on a GPU (FLASHD_TEST_DEVICE=cuda) whether a loaded engine keeps to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "engine/load.h"

/* The option speaks of the GPU's memory, not of what the weights leave. */
static void the_share_is_of_the_whole_memory(void **state)
{
    (void)state;
    static const uint64_t gib = 1ull << 30;
    assert_int_equal(load_kv_bytes_left(80 * gib, 80 * gib, 1.0), 80 * gib);
    assert_int_equal(load_kv_bytes_left(80 * gib, 64 * gib, 1.0), 64 * gib);
    assert_int_equal(load_kv_bytes_left(80 * gib, 64 * gib, 0.75), 44 * gib); /* 16 + 44 are 75 % of 80 */
    assert_int_equal(load_kv_bytes_left(80 * gib, 20 * gib, 0.75), 0);
    assert_int_equal(load_kv_bytes_left(80 * gib, 10 * gib, 0.75),
                     0); /* the weights alone are more than that */
    assert_int_equal(load_kv_bytes_left(0, 0, 0.5), 0);
}

/* 1.25 GiB of 80 are kept for activations. */
static void weights_have_room_beside_activations(void **state)
{
    (void)state;
    static const uint64_t gib = 1ull << 30;
    assert_true(load_has_room(80 * gib, 79 * gib, 0.9, 0, 70 * gib - gib / 2));
    assert_false(load_has_room(80 * gib, 79 * gib, 0.9, 0, 70 * gib));
    assert_false(load_has_room(80 * gib, 79 * gib, 0.9, 0, 130 * gib));
    assert_true(load_has_room(80 * gib, 79 * gib, 0.9, 4 * gib, 73 * gib)); /* whatever the share is */
    assert_false(load_has_room(80 * gib, 79 * gib, 0.9, 8 * gib, 70 * gib));
}

/* An eighth of the memory that may be used, of files of less than half of bf16's bytes, beside a pool whose size is told. */
static void copies_take_a_small_part(void **state)
{
    (void)state;
    static const uint64_t gib = 1ull << 30;
    assert_true(load_has_room_for_copies(140 * gib, 139 * gib, 0.92, 0, 5 * gib, 15 * gib));
    assert_false(load_has_room_for_copies(140 * gib, 139 * gib, 0.92, 0, 8 * gib, 15 * gib));
    assert_false(load_has_room_for_copies(140 * gib, 139 * gib, 0.92, 0, 5 * gib, 17 * gib));
    assert_false(load_has_room_for_copies(140 * gib, 139 * gib, 0.5, 0, 5 * gib, 15 * gib));
    assert_false(load_has_room_for_copies(140 * gib, 80 * gib, 0.92, 0, 5 * gib, 15 * gib));
    assert_true(load_has_room_for_copies(140 * gib, 139 * gib, 0.92, 116 * gib, 5 * gib, 15 * gib));
    assert_false(load_has_room_for_copies(140 * gib, 139 * gib, 0.92, 117 * gib, 5 * gib, 15 * gib));
    assert_false(load_has_room_for_copies(0, 0, 0.92, 0, 5 * gib, 15 * gib));
}

/* Two states of each sequence and what drafts leave, both for each step in flight, a kept one, and eight more kept. */
static void so_many_sequences_run_as_their_states_have_room(void **state)
{
    (void)state;
    static const uint64_t mib = 1ull << 20;
    assert_int_equal(load_num_seqs(776 * mib, mib, 0, 1, 256), 256);
    assert_int_equal(load_num_seqs(776 * mib - 1, mib, 0, 1, 256), 255);
    assert_int_equal(load_num_seqs(20000 * mib, mib, 0, 1, 256), 256);
    assert_int_equal(load_num_seqs(38 * mib, mib, 0, 1, 256), 10);
    assert_int_equal(load_num_seqs(81 * mib / 2, mib, mib / 4, 1, 256), 10);
    assert_int_equal(load_num_seqs(81 * mib / 2 - 1, mib, mib / 4, 1, 256), 9);
    assert_int_equal(load_num_seqs(8 * mib, mib, 0, 1, 256), 1);
    assert_int_equal(load_num_seqs(0, mib, mib, 1, 256), 1);
    assert_int_equal(load_num_seqs(58 * mib, mib, 0, 2, 256), 10);
    assert_int_equal(load_num_seqs(63 * mib, mib, mib / 4, 2, 256), 10);
    assert_int_equal(load_num_seqs(63 * mib - 1, mib, mib / 4, 2, 256), 9);
}

#define TINY_PATH "/tmp/flashd-load-XXXXXX"

static const char tiny_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":128,"
    "\"intermediate_size\":256,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"head_dim\":64,"
    "\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,"
    "\"torch_dtype\":\"bfloat16\",\"eos_token_id\":2,\"bos_token_id\":1}";

static void configure(struct config *config, const char *kv_dtype, char *folder)
{
    const char *const options[][2] = {{"device", "cuda"},           {"load-format", "dummy"},
                                      {"kv-cache-dtype", kv_dtype}, {"gpu-memory-utilization", "0.05"},
                                      {"max-num-seqs", "4"},        {"max-num-batched-tokens", "64"}};
    struct error err = {0};
    char path[sizeof TINY_PATH + 16];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    assert_true(file && fputs(tiny_config, file) >= 0 && fclose(file) == 0);
    assert_int_equal(config_init(config, &err), 0);
    for (size_t i = 0; i < array_length(options); i++)
        if (config_set(config, options[i][0], options[i][1], "the test", &err)) fail_msg("%s", err.text);
    config->model = strdup(folder);
}

static void forget(struct config *config, const char *folder)
{
    char path[sizeof TINY_PATH + 16];
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
    config_deinit(config);
}

/* Bytes in use beyond the share, less than 0 where there are some left. What the GPU's driver needs for kernels and graphs is not flashd's to
 * count: it is printed. */
static void check_share(const struct load *load, const char *kv_dtype)
{
    const struct device *d = load->device;
    const int64_t total = (int64_t)d->gpu_bytes,
                  kept_free = (int64_t)((double)total * (1 - load->config->gpu_memory_utilization)),
                  beyond = kept_free - (int64_t)load->device->ops->free_bytes(load->device);
    printf("%s: %.1f of %.1f MiB beyond the share\n", kv_dtype, (double)beyond / (1 << 20),
           (double)total / (1 << 20));
    if (strstr(d->description, "emulated")) assert_in_range(-beyond, 0, load->kv_block_bytes);
}

static void a_loaded_engine_keeps_to_the_share(void **state)
{
    (void)state;
    static const char *const kv_dtypes[] = {"bf16", "fp8"};
    const char *device = getenv("FLASHD_TEST_DEVICE");
    if (!device || strcmp(device, "cuda") != 0) skip();
    for (size_t i = 0; i < array_length(kv_dtypes); i++) {
        struct config config;
        struct link *link;
        struct error err = {0};
        char folder[] = TINY_PATH;
        configure(&config, kv_dtypes[i], folder);
        assert_int_equal(link_create(&link, &err), 0);
        struct load load = {.config = &config, .link = link};
        const int status = load_run(&load, &err);
        if (!status)
            check_share(&load, kv_dtypes[i]);
        else if (status != STATUS_UNSUPPORTED)
            fail_msg("%s", err.text);
        load_release(&load);
        link_destroy(link);
        forget(&config, folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_share_is_of_the_whole_memory),
                                       cmocka_unit_test(weights_have_room_beside_activations),
                                       cmocka_unit_test(copies_take_a_small_part),
                                       cmocka_unit_test(so_many_sequences_run_as_their_states_have_room),
                                       cmocka_unit_test(a_loaded_engine_keeps_to_the_share)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
