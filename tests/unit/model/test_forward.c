/* The forward pass of each family on the CPU device: logits against transformers (tiny_goldens.h), and the
 * same bits however a sequence is cut into steps and whatever runs beside it. */
#include "model_bytes.h"

#include <math.h>

#include "kernels/cpu/isa.h"
#include "model/warm_up.h"
#include "model_session.h"
#include "tiny_gguf.h"
#include "tiny_goldens.h"

enum { STEP_TOKENS = 2 * TINY_TOKENS, SEQS = 6 };

struct tiny_run {
    struct session session;
    char directory[TEST_PATH_BYTES];
    int32_t ids[TINY_TOKENS];
};

/* name: a file in the directory, or NULL for the directory itself. */
static void run_open_files(struct tiny_run *r, const char *name, const char *isa, int threads,
                           enum dtype kv_dtype)
{
    char path[TEST_PATH_BYTES];
    for (int i = 0; i < TINY_TOKENS; i++) r->ids[i] = (i * 37 + 11) % TINY_VOCAB;
    struct session_options options = {.model_path = name ? join_path(path, r->directory, name) : r->directory,
                                      .device = "cpu",
                                      .isa = isa,
                                      .threads = threads,
                                      .kv_dtype = kv_dtype,
                                      .num_seqs = SEQS,
                                      .max_model_len = 2 * TINY_TOKENS,
                                      .num_batched_tokens = STEP_TOKENS,
                                      .num_logits = STEP_TOKENS};
    session_open(&r->session, &options);
}

static void run_open(struct tiny_run *r, const struct tiny_golden *golden, const char *isa, int threads,
                     enum dtype kv_dtype)
{
    make_directory(r->directory);
    tiny_model_write(&golden->model, r->directory);
    run_open_files(r, NULL, isa, threads, kv_dtype);
}

static void run_close(struct tiny_run *r)
{
    session_close(&r->session);
    remove_directory(r->directory);
}

/* All positions' logits of sequence seq, computed in steps of chunk tokens; steps of one token are decode
 * steps. beside: tokens of the other sequence in each step. */
static void run_logits(struct tiny_run *r, int32_t chunk, bool decode, int32_t beside, float *logits)
{
    for (int32_t done = 0; done < TINY_TOKENS; done += chunk) {
        int32_t n = min_of(chunk, TINY_TOKENS - done);
        struct session_part parts[2] = {
            {.seq = 1, .num_tokens = beside, .tokens = r->ids + 3, .no_logits = true},
            {.seq = 0,
             .num_done = done,
             .num_tokens = n,
             .tokens = r->ids + done,
             .all_logits = true,
             .decode = decode},
        };
        session_step(&r->session, beside ? parts : parts + 1, beside ? 2 : 1);
        for (int32_t i = 0; i < n; i++) session_logits(&r->session, i, logits + (done + i) * TINY_VOCAB);
        session_finish_step(&r->session);
    }
}

static void compare_with_golden(struct tiny_run *r, const struct tiny_golden *golden)
{
    static float logits[TINY_TOKENS * TINY_VOCAB];
    float largest = 0;
    run_logits(r, TINY_TOKENS, false, 0, logits);
    for (int p = 0; p < TINY_POSITIONS; p++)
        for (int v = 0; v < TINY_VOCAB; v++) {
            float expected = golden->logits[p * TINY_VOCAB + v];
            float difference = fabsf(logits[tiny_positions[p] * TINY_VOCAB + v] - expected);
            if (!(difference <= largest)) largest = difference;
        }
    /* both sum in f32, in different orders; logits are of size 1 to 4, and 5e-6 was seen */
    if (!(largest <= 2e-5f)) fail_msg("%s: logits differ by %g", golden->name, (double)largest);
}

static void portable_logits_equal_transformers(void **state)
{
    (void)state;
    for (size_t g = 0; g < array_length(tiny_goldens); g++) {
        struct tiny_run r;
        run_open(&r, &tiny_goldens[g], "portable", 2, DTYPE_F32);
        compare_with_golden(&r, &tiny_goldens[g]);
        run_close(&r);
    }
}

/* The same model as a GGUF file has it: rows of Q and K reordered per head, llama3's rotation as a tensor of
 * divisors. */
static void a_gguf_file_gives_the_same_logits(void **state)
{
    (void)state;
    struct tiny_run r;
    make_directory(r.directory);
    tiny_gguf_write(&tiny_goldens[0].model, r.directory);
    run_open_files(&r, "m.gguf", "portable", 2, DTYPE_F32);
    compare_with_golden(&r, &tiny_goldens[0]);
    run_close(&r);
}

static bool machine_has(const char *isa)
{
    enum cpu_isa_level level;
    struct error err;
    return cpu_isa_parse(isa, &level, &err) == STATUS_OK;
}

static void the_same_bits_in_every_cut(void **state)
{
    (void)state;
    static const char *const isas[] = {"portable", "avx2", "auto"};
    static const struct {
        int32_t chunk;
        bool decode;
        int32_t beside;
    } cuts[] = {{1, true, 0},   {1, false, 0}, {7, false, 0},           {16, false, 0},
                {33, false, 5}, {1, true, 3},  {TINY_TOKENS, false, 17}};
    static float whole[TINY_TOKENS * TINY_VOCAB], cut[TINY_TOKENS * TINY_VOCAB];
    for (size_t isa = 0; isa < array_length(isas); isa++)
        for (size_t g = 0; g < array_length(tiny_goldens) && machine_has(isas[isa]); g++) {
            struct tiny_run r;
            run_open(&r, &tiny_goldens[g], isas[isa], 1, DTYPE_BF16);
            run_logits(&r, TINY_TOKENS, false, 0, whole);
            for (size_t c = 0; c < array_length(cuts); c++) {
                memset(cut, 0, sizeof cut);
                run_logits(&r, cuts[c].chunk, cuts[c].decode, cuts[c].beside, cut);
                if (memcmp(whole, cut, sizeof whole))
                    fail_msg("%s, %s: steps of %d tokens (%s) beside %d others give other bits", isas[isa],
                             tiny_goldens[g].name, cuts[c].chunk, cuts[c].decode ? "decode" : "prefill",
                             cuts[c].beside);
            }
            run_close(&r);
        }
}

static void steps_without_logits_fill_the_cache(void **state)
{
    (void)state;
    struct tiny_run r;
    static float whole[TINY_TOKENS * TINY_VOCAB], last[TINY_VOCAB];
    run_open(&r, &tiny_goldens[0], "auto", 2, DTYPE_BF16);
    run_logits(&r, TINY_TOKENS, false, 0, whole);
    struct session_part parts[2] = {
        {.num_tokens = 50, .tokens = r.ids, .no_logits = true},
        {.num_done = 50, .num_tokens = TINY_TOKENS - 50, .tokens = r.ids + 50},
    };
    session_step(&r.session, &parts[0], 1);
    session_finish_step(&r.session);
    session_step(&r.session, &parts[1], 1);
    session_logits(&r.session, 0, last);
    session_finish_step(&r.session);
    assert_memory_equal(last, whole + (TINY_TOKENS - 1) * TINY_VOCAB, sizeof last);
    run_close(&r);
}

static void a_warm_up_leaves_nothing_behind(void **state)
{
    (void)state;
    struct tiny_run r;
    struct error err = {0};
    static float cold[TINY_TOKENS * TINY_VOCAB], warm[TINY_TOKENS * TINY_VOCAB];
    run_open(&r, &tiny_goldens[0], "auto", 2, DTYPE_BF16);
    run_logits(&r, TINY_TOKENS, false, 0, cold);
    for (int32_t num_tokens = 1; num_tokens < 2 * TINY_TOKENS; num_tokens += 31) {
        struct warm_up_times times;
        if (model_warm_up(r.session.model, num_tokens, &times, &err)) fail_msg("%s", err.text);
        run_logits(&r, 16, false, 0, warm);
        assert_memory_equal(cold, warm, sizeof cold);
    }
    run_close(&r);
}

static const struct kernel_table *plain_ops;
static int num_decodes[SEQS + 1]; /* by sequences, in a rehearsal */
static bool rehearses;

static struct batch *count_decode(struct device *d, const struct step *step)
{
    if (step->num_prefill_seqs == 0 && rehearses) num_decodes[step->num_seqs]++;
    return plain_ops->step_begin(d, step);
}

static void rehearse(struct device *d, bool on)
{
    (void)d;
    rehearses = on;
}

static int32_t size_of_graph(const struct device *d, int32_t n)
{
    (void)d;
    return n <= 2 ? n : (int32_t)align_up((size_t)n, 4);
}

/* As a device that records would see it, with two steps in flight: each size twice, the largest as it can be. */
static void every_size_of_graphs_is_met(void **state)
{
    (void)state;
    struct tiny_run r;
    struct error err = {0};
    static const int expected[SEQS + 1] = {[1] = 2, [2] = 2, [4] = 2, [SEQS] = 2};
    run_open(&r, &tiny_goldens[0], "auto", 1, DTYPE_F32);
    struct device *d = r.session.device;
    assert_int_equal(model_record_graphs(r.session.model, SEQS, &err), 0); /* a CPU records nothing */
    struct kernel_table ops = *d->ops;
    plain_ops = d->ops;
    ops.step_begin = count_decode;
    ops.graph_size = size_of_graph;
    ops.rehearse = rehearse;
    d->ops = &ops;
    d->num_steps_in_flight_max = 2;
    if (model_record_graphs(r.session.model, SEQS, &err)) fail_msg("%s", err.text);
    assert_memory_equal(num_decodes, expected, sizeof expected);
    assert_false(rehearses);
    run_close(&r);
}

/* The same model from config.json alone: finite logits of a sensible size. */
static void dummy_weights_run(void **state)
{
    (void)state;
    char directory[TEST_PATH_BYTES];
    struct device *d = NULL;
    struct model_files *f = NULL;
    struct model *m = NULL;
    struct error err = {0};
    make_directory(directory);
    write_text(directory, "config.json", tiny_goldens[3].model.config);
    struct step_limits limits = {.num_tokens = 16,
                                 .num_seqs = 1,
                                 .num_logits = 1,
                                 .num_batch_slots = 1,
                                 .max_model_len = 16,
                                 .num_steps_in_flight = 1};
    if (device_open("cpu", &(struct device_options){.cpu_isa = "auto", .num_threads = 1}, &d, &err) ||
        model_files_open(directory, "dummy", &f, &err) ||
        model_create(d, f, &limits, 16, NULL, NULL, &m, &err) ||
        model_kv_pool_create(m, 1, 0, DTYPE_BF16, &err))
        fail_msg("%s", err.text);
    int32_t ids[16], positions[16], slots[16], cu_seqlens[2] = {0, 16}, seqlen = 16, block = 0, row = 15;
    for (int i = 0; i < 16; i++) ids[i] = positions[i] = slots[i] = i;
    struct sample_params greedy = {.position = 16,
                                   .score_token_id = -1,
                                   .sampling.top_p = 1,
                                   .sampling.repetition_penalty = 1,
                                   .sampling.num_logprobs = -1};
    struct step step = {.num_tokens = 16,
                        .num_seqs = 1,
                        .num_logits = 1,
                        .num_prefill_tokens = 16,
                        .num_prefill_seqs = 1,
                        .block_table_stride = 1,
                        .token_ids = ids,
                        .positions = positions,
                        .slot_mapping = slots,
                        .cu_seqlens_q = cu_seqlens,
                        .seqlens_k = &seqlen,
                        .block_tables = &block,
                        .logit_rows = &row,
                        .sample = &greedy};
    struct sample_result result;
    float logits[TINY_VOCAB];
    double squares = 0;
    model_step_begin(m, &step);
    assert_int_equal(d->ops->read_logits(d, 0, logits), 0);
    model_step_sample(m);
    assert_int_equal(model_step_end(m, &result, &err), 0);
    for (int v = 0; v < TINY_VOCAB; v++) squares += (double)logits[v] * (double)logits[v];
    assert_true(squares / TINY_VOCAB > 0.2 && squares / TINY_VOCAB < 5);
    assert_true(!result.failed && result.token_id >= 0 && result.token_id < TINY_VOCAB);
    for (int v = 0; v < TINY_VOCAB; v++) assert_true(logits[v] <= logits[result.token_id]);
    model_destroy(m);
    d->ops->close(d);
    model_files_close(f);
    remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(portable_logits_equal_transformers),
        cmocka_unit_test(a_gguf_file_gives_the_same_logits),
        cmocka_unit_test(the_same_bits_in_every_cut),
        cmocka_unit_test(steps_without_logits_fill_the_cache),
        cmocka_unit_test(a_warm_up_leaves_nothing_behind),
        cmocka_unit_test(every_size_of_graphs_is_met),
        cmocka_unit_test(dummy_weights_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
