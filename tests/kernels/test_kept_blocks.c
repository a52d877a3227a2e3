/* test_kept_blocks.c - what a GPU without room for more keeps in a GGUF file's blocks, beside linears (test_quantised_table.c): experts, heads
 * and embeddings, through the kernel table. The bits are those of the same weights as bf16, for any number of tokens and whoever they
 * choose. */
#include "tests/kernels/gguf_blocks.h"

enum {
    TOKENS_MAX = 192,
    HIDDEN_MAX = 512,
    EXPERTS_MAX = 8,
    WEIGHTS_MAX = 1 << 19, /* of an expert, in all */
    BYTES_MAX = 4 * WEIGHTS_MAX,
    BIASES_MAX = 3 * HIDDEN_MAX,
    VOCAB = 40,
    HEADS_EVERY = 4,
    ROWS_MAX = 70 /* of logits: more than a kernel takes at a time */
};

/* Types of gate (where there is one), up and down. */
enum { OF_GATE, OF_UP, OF_DOWN, NUM_PRODUCTS };

struct mixture {
    const char *name;
    int32_t num_experts, num_chosen, hidden, inner, num_tokens;
    enum gate_function gate;
    enum dtype types[NUM_PRODUCTS];
    bool has_biases, has_shared;
};

static const struct mixture mixtures[] = {
    /* every width of tiles, and weights unpacked for more; rows of W and columns that nothing divides */
    {"three types", 2, 1, 288, 32, TOKENS_MAX, GATE_SILU, .types = {DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_IQ4_NL}},
    {"Q4_K_M", 4, 2, 512, 256, 20, GATE_SILU, .types = {DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K},
     .has_shared = true},
    {"biases", 4, 2, 96, 64, 20, GATE_CLAMPED_SWISH, .types = {DTYPE_Q5_0, DTYPE_Q5_0, DTYPE_Q5_0},
     .has_biases = true},
    {"GELU", 4, 2, 96, 64, 9, GATE_GELU_TANH, .types = {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q5_1}},
    {"up alone", 4, 2, 96, 64, 20, GATE_RELU_SQUARED, .types = {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q5_1}},
};

struct rig {
    struct device *device;
    struct test_step *step;
    struct random random;
    void *x, *out, *embedded;
};

/* A mixture's experts, and the shared one behind them, as a file has them and as the bf16 that they become. */
struct weights {
    uint8_t blocks[(EXPERTS_MAX + 1) * BYTES_MAX];
    uint16_t plain[(EXPERTS_MAX + 1) * WEIGHTS_MAX];
    float biases[BIASES_MAX];
    size_t num_bytes, num_plain;
    struct expert_desc kept[EXPERTS_MAX + 1], unpacked[EXPERTS_MAX + 1];
};

static void add_matrix(struct weights *w, struct random *random, enum dtype dtype, int32_t rows, int32_t cols,
                       struct weight_view *kept, struct weight_view *unpacked)
{
    float row[HIDDEN_MAX];
    const size_t row_bytes = (size_t)dtype_row_bytes(dtype, (uint64_t)cols);
    uint8_t *blocks = w->blocks + w->num_bytes;
    uint16_t *plain = w->plain + w->num_plain;
    fill_blocks(random, dtype, blocks, rows * cols);
    for (int32_t n = 0; n < rows; n++) {
        dtype_row_to_f32(dtype, blocks + (size_t)n * row_bytes, cols, row);
        for (int32_t k = 0; k < cols; k++) plain[n * cols + k] = dtype_f32_to_bf16(row[k]);
    }
    *kept = weight_view_plain(blocks, dtype, rows, cols);
    *unpacked = weight_view_plain(plain, DTYPE_BF16, rows, cols);
    w->num_bytes += (size_t)rows * row_bytes;
    w->num_plain += (size_t)(rows * cols);
}

static void add_expert(struct weights *w, struct random *random, const struct mixture *m, int32_t e)
{
    struct expert_desc kept = {0}, unpacked = {0};
    if (m->gate != GATE_RELU_SQUARED)
        add_matrix(w, random, m->types[OF_GATE], m->inner, m->hidden, &kept.gate, &unpacked.gate);
    add_matrix(w, random, m->types[OF_UP], m->inner, m->hidden, &kept.up, &unpacked.up);
    add_matrix(w, random, m->types[OF_DOWN], m->hidden, m->inner, &kept.down, &unpacked.down);
    if (m->has_biases) {
        kept.gate_bias = weight_view_plain(w->biases + e, DTYPE_F32, 1, m->inner);
        kept.up_bias = weight_view_plain(w->biases + m->hidden + e, DTYPE_F32, 1, m->inner);
        kept.down_bias = weight_view_plain(w->biases + 2 * e, DTYPE_F32, 1, m->hidden);
        unpacked.gate_bias = kept.gate_bias;
        unpacked.up_bias = kept.up_bias;
        unpacked.down_bias = kept.down_bias;
    }
    w->kept[e] = kept;
    w->unpacked[e] = unpacked;
}

static struct moe *make_moe(const struct rig *r, const struct mixture *m, const struct expert_desc *experts,
                            const float *router, bool keeps)
{
    struct error err = {0};
    struct moe *moe;
    struct moe_desc desc = {.num_experts = m->num_experts,
                            .num_chosen = m->num_chosen,
                            .scores = ROUTER_SOFTMAX,
                            .normalize = true,
                            .scale = 1,
                            .gate = m->gate,
                            .router = weight_view_plain(router, DTYPE_F32, m->num_experts, m->hidden),
                            .experts = experts};
    if (m->has_shared) desc.shared = experts[m->num_experts];
    r->device->keeps_packed = keeps;
    if (r->device->ops->moe_create(r->device, &desc, &moe, &err)) fail_msg("%s: %s", m->name, err.text);
    return moe;
}

static float *run(const struct rig *r, const struct mixture *m, const struct moe *moe, const float *x,
                  int32_t num_tokens)
{
    int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    struct device *d = r->device;
    const size_t count = (size_t)num_tokens * (size_t)m->hidden;
    float *out = malloc(count * sizeof *out);
    device_write(d, r->x, x, count, false);
    device_poison(d, r->out, count, false);
    test_step_clear(r->step);
    test_step_add(r->step, blocks, 0, num_tokens, false);
    struct batch *b = d->ops->step_begin(d, &r->step->step);
    d->ops->moe(d, b, ROWS_TOKENS, r->out, r->x, r->x, moe);
    test_step_end(d, NULL);
    device_read(d, out, r->out, count, false);
    return out;
}

static void compare(struct rig *r, const struct mixture *m, const struct moe *kept,
                    const struct moe *unpacked)
{
    static const int32_t sizes[] = {1, 2, 9, 20, 40, TOKENS_MAX};
    float *x = random_values(&r->random, (size_t)(m->num_tokens * m->hidden), 2, 1),
          *all = run(r, m, unpacked, x, m->num_tokens);
    for (int32_t i = 0; i < m->num_tokens * m->hidden; i++) assert_true(isfinite(all[i]));
    for (size_t i = 0; i < array_length(sizes) && sizes[i] <= m->num_tokens; i++) {
        const int32_t first = random_below(&r->random, m->num_tokens - sizes[i] + 1) * m->hidden;
        float *some = run(r, m, kept, x + first, sizes[i]);
        const int64_t different = num_bits_different(some, all + first, (size_t)(sizes[i] * m->hidden));
        if (different)
            fail_msg("%s, %d tokens: %lld results are not those of the unpacked weights", m->name, sizes[i],
                     (long long)different);
        free(some);
    }
    free(x);
    free(all);
}

static struct rig open_rig(int32_t num_tokens, int32_t num_logits)
{
    struct error err = {0};
    struct step_limits limits = {num_tokens, 1, num_logits, 1, num_tokens, 1, 1, 0, false, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    struct rig r = {.device = test_device_open("auto", 1), .random = {.seed = test_seed()}};
    assert_int_equal(
        r.device->ops->prepare(r.device, &limits, VOCAB, HIDDEN_MAX, HIDDEN_MAX, &attention, 1, &err), 0);
    r.x = device_floats(r.device, (size_t)TOKENS_MAX * HIDDEN_MAX, false);
    r.out = device_floats(r.device, (size_t)TOKENS_MAX * HIDDEN_MAX, false);
    r.embedded = device_floats(r.device, (size_t)TOKENS_MAX * HIDDEN_MAX, true);
    r.step = test_step_new(TOKENS_MAX, 1, TOKENS_MAX / BLOCK_SIZE + 1);
    return r;
}

static void close_rig(struct rig *r)
{
    test_step_free(r->step);
    r->device->ops->close(r->device);
}

static void fill_biases(struct weights *w, struct random *random)
{
    for (int i = 0; i < BIASES_MAX; i++) w->biases[i] = random_normal(random);
}

static void check_mixture(const struct mixture *m)
{
    static struct weights w;
    struct error err = {0};
    struct rig r = open_rig(m->num_tokens, 1);
    w.num_bytes = w.num_plain = 0;
    fill_biases(&w, &r.random);
    for (int32_t e = 0; e < m->num_experts + m->has_shared; e++) add_expert(&w, &r.random, m, e);
    float *router = random_values(&r.random, (size_t)(m->num_experts * m->hidden), 4, 0.1f);
    struct moe *kept = make_moe(&r, m, w.kept, router, true),
               *unpacked = make_moe(&r, m, w.unpacked, router, false);
    assert_int_equal(r.device->ops->weights_done(r.device, &err), 0);
    compare(&r, m, kept, unpacked);
    free(router);
    close_rig(&r);
}

/* ---- heads and embeddings ---- */

/* A matrix that is both, or one of them. */
struct table {
    bool is_head, is_embedding;
};

struct table_pair {
    struct table table;
    int32_t hidden;
    struct linear *kept, *unpacked;
};

static struct linear *make_table(const struct rig *r, const struct table *t, const struct weight_view *rows,
                                 const float *bias, bool keeps)
{
    struct error err = {0};
    struct linear *l;
    struct linear_desc desc = {.kind = LINEAR_PLAIN,
                               .num_parts = 1,
                               .parts = {*rows},
                               .wide_output = t->is_head,
                               .also_embedding = t->is_embedding};
    if (t->is_head) desc.biases[0] = weight_view_plain(bias, DTYPE_F32, 1, VOCAB);
    r->device->keeps_packed = keeps;
    if (r->device->ops->linear_create(r->device, &desc, &l, &err)) fail_msg("linear: %s", err.text);
    return l;
}

/* Of a step of so many tokens, each with a row of logits; a token's row of the table goes first. */
static void run_table(const struct rig *r, const struct table *t, const struct linear *l, const float *x,
                      int32_t num_rows, int32_t hidden, float *embedded, float *logits)
{
    const int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    struct device *d = r->device;
    struct test_step *s = r->step;
    struct sample_result results[ROWS_MAX];
    device_write(d, r->x, x, (size_t)(num_rows * hidden), false);
    test_step_clear(s);
    test_step_add(s, blocks, 0, num_rows, false);
    for (int32_t i = 0; i < num_rows; i++) {
        s->token_ids[i] = i * 31 % VOCAB;
        s->logit_rows[i] = i;
        s->sample[i] = (struct sample_params){
            .score_token_id = -1, .sampling = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1}};
    }
    s->step.num_logits = num_rows;
    struct batch *b = d->ops->step_begin(d, &s->step);
    if (t->is_embedding) {
        d->ops->embed(d, b, r->embedded, l, 3);
        device_read(d, embedded, r->embedded, (size_t)(num_rows * hidden), true);
    }
    if (t->is_head) {
        d->ops->logits(d, b, r->x, l);
        d->ops->sample(d, b);
        for (int32_t i = 0; i < num_rows; i++)
            assert_int_equal(d->ops->read_logits(d, i, logits + (size_t)i * VOCAB), 0);
    }
    test_step_end(d, results);
}

static void compare_tables(struct rig *r, const struct table_pair *p)
{
    static float embedded[2][ROWS_MAX * HIDDEN_MAX], logits[2][ROWS_MAX * VOCAB];
    static const int32_t sizes[] = {1, 9, 40, ROWS_MAX};
    const struct table *t = &p->table;
    float *x = random_values(&r->random, (size_t)(ROWS_MAX * p->hidden), 2, 1);
    run_table(r, t, p->unpacked, x, ROWS_MAX, p->hidden, embedded[0], logits[0]);
    for (size_t i = 0; i < array_length(sizes); i++) {
        run_table(r, t, p->kept, x, sizes[i], p->hidden, embedded[1], logits[1]);
        const size_t num_embedded = t->is_embedding ? (size_t)(sizes[i] * p->hidden) : 0,
                     num_logits = t->is_head ? (size_t)(sizes[i] * VOCAB) : 0;
        assert_int_equal(num_bits_different(embedded[0], embedded[1], num_embedded), 0);
        assert_int_equal(num_bits_different(logits[0], logits[1], num_logits), 0);
    }
    free(x);
}

static struct table_pair make_tables(struct rig *r, struct weights *w, struct table t, enum dtype dtype)
{
    const int32_t hidden = dtype_infos[dtype].block_values == 32 ? 96 : 256;
    struct weight_view kept_rows, unpacked_rows;
    w->num_bytes = w->num_plain = 0;
    add_matrix(w, &r->random, dtype, VOCAB, hidden, &kept_rows, &unpacked_rows);
    const struct table_pair p = {t, hidden, make_table(r, &t, &kept_rows, w->biases, true),
                                 make_table(r, &t, &unpacked_rows, w->biases, false)};
    assert_in_range(r->device->ops->linear_bytes(r->device, p.kept), w->num_bytes,
                    w->num_bytes + 4 * VOCAB + 256);
    return p;
}

/* ---- the tests ---- */

/* A CPU has products of its own for each type: test_moe.c. */
static bool is_gpu(void)
{
    const char *name = getenv("FLASHD_TEST_DEVICE");
    return name && !strcmp(name, "cuda");
}

static void experts_of_every_type(void **state)
{
    (void)state;
    if (!is_gpu()) skip();
    for (int i = 0; i < NUM_GGUF; i++) {
        const enum dtype dtype = gguf_type(i);
        const int32_t size = dtype_infos[dtype].block_values == 32 ? 96 : 256;
        const struct mixture m = {.name = dtype_infos[dtype].text,
                                  .num_experts = 3,
                                  .num_chosen = 2,
                                  .hidden = size,
                                  .inner = size,
                                  .num_tokens = 9,
                                  .types = {dtype, dtype, dtype}};
        check_mixture(&m);
    }
}

static void mixtures_of_types(void **state)
{
    (void)state;
    if (!is_gpu()) skip();
    for (size_t i = 0; i < array_length(mixtures); i++) check_mixture(&mixtures[i]);
}

static void heads_and_embeddings(void **state)
{
    (void)state;
    static const struct table both = {true, true}, head = {true, false}, embedding = {false, true};
    static struct weights w;
    if (!is_gpu()) skip();
    struct table_pair pairs[NUM_GGUF + 1];
    int num = 0;
    struct error err = {0};
    struct rig r = open_rig(ROWS_MAX, ROWS_MAX);
    fill_biases(&w, &r.random);
    for (int i = 0; i < NUM_GGUF;
         i++) { /* of a head's products, which take long on an emulated GPU, some in each run */
        const bool is_head = (uint64_t)i % HEADS_EVERY == r.random.seed % HEADS_EVERY;
        pairs[num++] = make_tables(&r, &w, is_head ? both : embedding, gguf_type(i));
    }
    pairs[num++] = make_tables(&r, &w, head, DTYPE_Q6_K);
    assert_int_equal(r.device->ops->weights_done(r.device, &err), 0);
    for (int i = 0; i < num; i++) compare_tables(&r, &pairs[i]);
    close_rig(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_of_every_type),
        cmocka_unit_test(mixtures_of_types),
        cmocka_unit_test(heads_and_embeddings),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
