/* test_step.c - whole steps through a small model: what the forward pass does, in miniature.
 *
 * Two layers with grouped heads, of which the second sees a window, and tied embeddings, random f32 weights. Checked are the
 * things that only show across operations: logits do not depend on chunking, neighbours, blocks, groups of layers or threads,
 * not in one bit; a token can be fed by "the last sampled"; blocks survive saving and loading; logits are about right. */
#include "fixture.h"

enum {
    HIDDEN = 64,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 64,
    INNER = 96,
    VOCAB = 200,
    LAYERS = 2,
    WINDOW = 40,
    LENGTH_MAX = 272, /* a little more than one split of the CPU's attention */
    SEQS = 6,
    TOKENS_MAX = 600,
    NUM_BLOCKS = SEQS * LENGTH_MAX / BLOCK_SIZE,
    QKV = (HEADS + 2 * KV_HEADS) * DIM,
};

struct weights {
    float *embedding, *norm, *cos_sin;
    float *qkv[LAYERS], *o[LAYERS], *gate_up[LAYERS], *down[LAYERS];
};

struct small_model {
    struct device *d;
    struct kv_pool *pool;
    struct linear *embedding, *qkv[LAYERS], *o[LAYERS], *gate_up[LAYERS], *down[LAYERS];
    float *norm;
    struct rope_args rope;
    struct attention_args attention[LAYERS];
    bool has_groups;                  /* each layer has blocks of its own, of one layer */
    bool records;                     /* steps that can be */
    void *x, *normed, *wide, *narrow; /* residual; activations */
    void *picked_x, *picked_attended; /* logit rows */
    struct test_step *step;
    int32_t blocks[LAYERS][SEQS]
                  [LENGTH_MAX / BLOCK_SIZE]; /* without groups the first layer's are both layers' */
    bool withholds;                          /* rows draw nothing */
};

static void weights_init(struct weights *w, struct random *random)
{
    w->embedding = random_values(random, VOCAB * HIDDEN, 2, 1.0f);
    w->norm = random_values(random, HIDDEN, 4, 1.0f);
    for (int i = 0; i < LAYERS; i++) {
        w->qkv[i] = random_values(random, QKV * HIDDEN, 2, 0.15f);
        w->o[i] = random_values(random, HIDDEN * HEADS * DIM, 2, 0.1f);
        w->gate_up[i] = random_values(random, 2 * INNER * HIDDEN, 2, 0.15f);
        w->down[i] = random_values(random, HIDDEN * INNER, 2, 0.1f);
    }
    w->cos_sin = malloc(LENGTH_MAX * DIM * sizeof(float));
    for (int p = 0; p < LENGTH_MAX; p++) {
        for (int i = 0; i < DIM / 2; i++) {
            double angle = p * pow(10000.0, -2.0 * i / DIM);
            w->cos_sin[p * DIM + 2 * i] = (float)cos(angle);
            w->cos_sin[p * DIM + 2 * i + 1] = (float)sin(angle);
        }
    }
}

static void weights_free(struct weights *w)
{
    for (int i = 0; i < LAYERS; i++) {
        free(w->qkv[i]);
        free(w->o[i]);
        free(w->gate_up[i]);
        free(w->down[i]);
    }
    free(w->embedding);
    free(w->norm);
    free(w->cos_sin);
}

static struct linear *take(struct device *d, enum linear_kind kind, const float *weight, int64_t rows,
                           int64_t cols, bool embedding)
{
    struct linear *l = NULL;
    struct error err = {0};
    struct linear_desc desc = {.kind = kind, .num_parts = kind == LINEAR_GATE_UP ? 2 : 1};
    desc.wide_output = desc.also_embedding = embedding;
    for (int i = 0; i < desc.num_parts; i++) {
        int64_t part_rows = rows / desc.num_parts;
        desc.parts[i] = weight_view_plain(weight + i * part_rows * cols, DTYPE_F32, part_rows, cols);
    }
    if (d->ops->linear_create(d, &desc, &l, &err)) fail_msg("linear: %s", err.text);
    return l;
}

static void model_shuffle_blocks(struct small_model *m, struct random *random)
{
    int32_t order[LAYERS * NUM_BLOCKS];
    random_permutation(random, order, m->has_groups ? LAYERS * NUM_BLOCKS : NUM_BLOCKS);
    memcpy(m->blocks, order, (m->has_groups ? LAYERS : 1) * sizeof m->blocks[0]);
}

/* For steps of so many tokens, sequences and rows of logits. */
static struct small_model *model_new_sized(const char *isa, int num_threads, const struct weights *w,
                                           int32_t num_tokens, int32_t num_seqs, int32_t num_logits,
                                           int32_t num_slots, bool has_groups)
{
    struct small_model *m = calloc(1, sizeof *m);
    struct device *d = m->d = test_device_open(isa, num_threads);
    struct error err = {0};
    struct step_limits limits = {
        num_tokens, num_seqs, num_logits, num_slots, LENGTH_MAX, 1, has_groups ? LAYERS : 1, 0, false, 0};
    size_t tokens = (size_t)num_tokens;
    m->has_groups = has_groups;
    for (int i = 0; i < LAYERS; i++)
        m->attention[i] = (struct attention_args){.num_heads = HEADS,
                                                  .num_kv_heads = KV_HEADS,
                                                  .head_dim = DIM,
                                                  .kv_group = has_groups ? i : 0,
                                                  .sliding_window = i == LAYERS - 1 ? WINDOW : 0,
                                                  .scale = 1.0f / sqrtf(DIM)};
    if (d->ops->prepare(d, &limits, VOCAB, HIDDEN, INNER, m->attention, LAYERS, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < LAYERS; i++) {
        m->qkv[i] = take(d, LINEAR_PLAIN, w->qkv[i], QKV, HIDDEN, false);
        m->o[i] = take(d, LINEAR_PLAIN, w->o[i], HIDDEN, HEADS * DIM, false);
        m->gate_up[i] = take(d, LINEAR_GATE_UP, w->gate_up[i], 2 * INNER, HIDDEN, false);
        m->down[i] = take(d, LINEAR_PLAIN, w->down[i], HIDDEN, INNER, false);
    }
    m->embedding = take(d, LINEAR_PLAIN, w->embedding, VOCAB, HIDDEN, true);
    if (d->ops->weights_done(d, &err)) fail_msg("%s", err.text);
    struct kv_shape kv = {.num_layers = has_groups ? 1 : LAYERS,
                          .num_blocks = has_groups ? LAYERS * NUM_BLOCKS : NUM_BLOCKS,
                          .num_kv_heads = KV_HEADS,
                          .head_dim = DIM,
                          .dtype = !d->is_gpu ? DTYPE_F32 : DTYPE_BF16,
                          .num_host_blocks = NUM_BLOCKS};
    if (d->ops->kv_pool_create(d, &kv, &m->pool, &err)) fail_msg("%s", err.text);
    m->norm = device_upload(d, w->norm, HIDDEN);
    m->rope =
        (struct rope_args){.num_heads = HEADS, .num_kv_heads = KV_HEADS, .head_dim = DIM, .rotary_dim = DIM};
    m->rope.style = ROPE_HALVES;
    m->rope.cos_sin = device_upload(d, w->cos_sin, LENGTH_MAX * DIM);
    m->x = device_floats(d, tokens * HIDDEN, true);
    m->normed = device_floats(d, tokens * HIDDEN, false);
    m->narrow = device_floats(d, tokens * HEADS * DIM, false);
    m->picked_x = device_floats(d, tokens * HIDDEN, true);
    m->picked_attended = device_floats(d, tokens * HEADS * DIM, false);
    m->wide = device_floats(d, tokens * QKV, false);
    m->step = test_step_new_groups(num_tokens, num_seqs, LENGTH_MAX / BLOCK_SIZE, limits.num_kv_groups);
    d->ops->seal(d);
    return m;
}

static struct small_model *model_new_groups(const char *isa, int num_threads, const struct weights *w,
                                            struct random *random, bool has_groups)
{
    struct small_model *m =
        model_new_sized(isa, num_threads, w, TOKENS_MAX, SEQS, TOKENS_MAX, SEQS, has_groups);
    model_shuffle_blocks(m, random);
    return m;
}

static struct small_model *model_new(const char *isa, int num_threads, const struct weights *w,
                                     struct random *random)
{
    return model_new_groups(isa, num_threads, w, random, false);
}

static void model_free(struct small_model *m)
{
    m->d->ops->close(m->d);
    test_step_free(m->step);
    free(m);
}

/* As model/forward.c has it: after the last attention only the rows with logits. */
static void forward(struct small_model *m, struct batch *b, const struct step *s)
{
    struct device *d = m->d;
    const struct kernel_table *ops = d->ops;
    enum row_set rows = ROWS_TOKENS;
    void *x = m->x, *attended = m->narrow;
    const struct norm_args norm = {.weight = m->norm, .delta_scale = 1, .eps = 1e-5f, .hidden_size = HIDDEN};
    ops->embed(d, b, x, m->embedding, 1);
    for (int i = 0; i < LAYERS; i++) {
        ops->rms_norm(d, b, rows, m->normed, x, i == 0 ? NULL : m->narrow, &norm);
        ops->linear(d, b, rows, m->wide, m->normed, m->qkv[i]);
        struct rope_args rope = m->rope;
        const int kv_layer = m->has_groups ? 0 : i;
        rope.kv_group = m->attention[i].kv_group;
        ops->rope_kv_write(d, b, m->wide, m->pool, kv_layer, &rope);
        if (i == LAYERS - 1 && s->num_logits == 0) return;
        ops->attention(d, b, m->narrow, m->wide, m->pool, kv_layer, &m->attention[i]);
        if (i == LAYERS - 1 && s->num_logits < s->num_tokens) {
            rows = ROWS_LOGITS;
            x = m->picked_x;
            attended = m->picked_attended;
            ops->pick_logit_rows(d, b, x, m->x, (size_t)HIDDEN * (size_t)d->res_bytes);
            ops->pick_logit_rows(d, b, attended, m->narrow, (size_t)HEADS * DIM * (size_t)d->act_bytes);
        }
        ops->linear(d, b, rows, m->wide, attended, m->o[i]);
        ops->rms_norm(d, b, rows, m->normed, x, m->wide, &norm);
        ops->linear_gated(d, b, rows, m->wide, m->normed, m->gate_up[i]);
        ops->linear(d, b, rows, m->narrow, m->wide, m->down[i]);
    }
    ops->rms_norm(d, b, rows, m->normed, x, m->narrow, &norm);
    ops->logits(d, b, m->normed, m->embedding);
}

/* Tokens [first, first + count) of a sequence, with one logit row each. */
struct part {
    int32_t seq, first, count;
    bool decode;
    const int32_t *token_ids;
    float *logits; /* [count][VOCAB] or NULL: no logit rows */
};

static void model_run(struct small_model *m, const struct part *parts, int num_parts,
                      struct sample_result *results)
{
    struct device *d = m->d;
    struct step *s = &m->step->step;
    struct sample_result unused[TOKENS_MAX];
    int32_t batch_slots[TOKENS_MAX]; /* as an engine says of any model */
    test_step_clear(m->step);
    s->batch_slots = batch_slots;
    for (int i = 0; i < num_parts; i++) {
        const struct part *p = &parts[i];
        batch_slots[i] = p->seq;
        test_step_add(m->step, m->blocks[0][p->seq], p->first, p->count, p->decode);
        for (int32_t t = 0; t < p->count; t++) {
            int32_t token = s->num_tokens - p->count + t;
            m->step->token_ids[token] = p->token_ids[t];
            if (!p->logits) continue;
            m->step->logit_rows[s->num_logits] = token;
            m->step->sample[s->num_logits++] = (struct sample_params){
                .batch_slot = p->seq,
                .score_token_id = -1,
                .sampling.top_p = 1.0f,
                .sampling.repetition_penalty = 1.0f,
                .sampling.num_logprobs = -1,
                .constrained = m->withholds,
                .withheld = m->withholds,
            };
        }
    }
    for (int32_t g = 0; g < s->num_kv_groups && m->has_groups; g++)
        for (int i = 0; i < num_parts; i++) test_step_set_blocks(m->step, g, i, m->blocks[g][parts[i].seq]);
    struct batch *b = d->ops->step_begin(d, s);
    const bool records = m->records && d->ops->replay;
    if (!records || !d->ops->replay(d, b)) {
        if (records) d->ops->record_begin(d, b);
        forward(m, b, s);
        if (records) d->ops->record_end(d, b);
    }
    d->ops->sample(d, b);
    int32_t row = 0;
    for (int i = 0; i < num_parts; i++)
        for (int32_t t = 0; parts[i].logits && t < parts[i].count; t++)
            assert_int_equal(d->ops->read_logits(d, row++, parts[i].logits + t * VOCAB), 0);
    test_step_end(d, results ? results : unused);
}

static int32_t *random_tokens(struct random *random, int32_t count)
{
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    for (int32_t i = 0; i < count; i++) ids[i] = random_below(random, VOCAB);
    return ids;
}

/* Sequence 0 in chunks (0: one prompt token, then decoding), others beside it if asked. */
static void run_in_chunks(struct small_model *m, const int32_t *ids, int32_t chunk, bool neighbours,
                          struct random *random, float *logits)
{
    int32_t done[SEQS] = {0};
    float *unused = malloc(40 * VOCAB * sizeof *unused);
    int32_t *other = random_tokens(random, 40);
    while (done[0] < LENGTH_MAX) {
        struct part parts[SEQS];
        int num_parts = 0;
        bool decode = chunk == 0 && done[0] > 0;
        int32_t count = chunk == 0 ? 1 : min_of(chunk, LENGTH_MAX - done[0]);
        struct part mine = {0, done[0], count, decode, ids + done[0], logits + done[0] * VOCAB};
        if (!decode) parts[num_parts++] = mine;
        for (int32_t s = 1; neighbours && s < SEQS; s++) {
            int32_t n = 1 + random_below(random, 40);
            if (done[s] + n > LENGTH_MAX) continue;
            parts[num_parts++] = (struct part){s, done[s], n, false, other, s % 2 ? unused : NULL};
            done[s] += n;
        }
        if (decode) parts[num_parts++] = mine;
        model_run(m, parts, num_parts, NULL);
        done[0] += count;
    }
    free(unused);
    free(other);
}

static void same_logits(const char *isa)
{
    static const int32_t chunks[] = {LENGTH_MAX, 64, 17, 16, 1, 0};
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    int32_t *ids = random_tokens(&random, LENGTH_MAX);
    size_t count = LENGTH_MAX * VOCAB;
    float *first = malloc(count * sizeof *first), *other = malloc(count * sizeof *other);
    for (int num_threads = 1; num_threads <= 3; num_threads++) {
        struct small_model *m = model_new_groups(isa, num_threads, &w, &random, num_threads == 2);
        for (size_t i = 0; i < array_length(chunks); i++) {
            bool is_first = num_threads == 1 && i == 0;
            if (chunks[i] == 0 && !m->d->prefill_decode_equal) continue;
            if (num_threads > 1 && (i + (size_t)num_threads) % 2 == 0)
                continue; /* half of them, to save time */
            model_shuffle_blocks(m, &random);
            run_in_chunks(m, ids, chunks[i], !is_first && i % 2, &random, is_first ? first : other);
            int64_t different = is_first ? 0 : num_bits_different(first, other, count);
            if (different)
                fail_msg("%s: %lld of %zu bit patterns differ in chunks of %d", m->d->description,
                         (long long)different, count, chunks[i]);
        }
        model_free(m);
    }
    for (size_t i = 0; i < count; i++) assert_true(isfinite(first[i]));
    free(first);
    free(other);
    free(ids);
    weights_free(&w);
}

static void test_same_logits(void **state)
{
    (void)state;
    for_each_isa(same_logits);
}

/* Tokens behind a prompt, one decoding row in each step or several of them, of which the last has a row of logits, as an answer
 * is computed again, or all, as a draft. */
static void decode_in_runs(struct small_model *m, const int32_t *ids, int32_t num_prompt, int32_t run,
                           bool all_rows, struct random *random, float *logits)
{
    model_shuffle_blocks(m, random);
    model_run(m, &(struct part){0, 0, num_prompt, false, ids, NULL}, 1, NULL);
    for (int32_t at = num_prompt; at < LENGTH_MAX;) {
        struct part parts[SEQS];
        int n = 0;
        for (; n < run && at < LENGTH_MAX; n++, at++)
            parts[n] = (struct part){0, at, 1, true, ids + at, all_rows ? logits + at * VOCAB : NULL};
        parts[n - 1].logits = logits + (at - 1) * VOCAB;
        model_run(m, parts, n, NULL);
    }
}

static void decode_runs(const char *isa)
{
    enum { PROMPT = 32 };
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    int32_t *ids = random_tokens(&random, LENGTH_MAX);
    size_t bytes = LENGTH_MAX * VOCAB * sizeof(float);
    float *alone = calloc(1, bytes), *together = calloc(1, bytes);
    struct small_model *m = model_new(isa, 2, &w, &random);
    decode_in_runs(m, ids, PROMPT, 1, true, &random, alone);
    for (int32_t run = 2; run <= SEQS; run++) {
        decode_in_runs(m, ids, PROMPT, run, true, &random, together);
        assert_memory_equal(alone + PROMPT * VOCAB, together + PROMPT * VOCAB,
                            (LENGTH_MAX - PROMPT) * VOCAB * sizeof(float));
        decode_in_runs(m, ids, PROMPT, run, false, &random, together);
        for (int32_t end = PROMPT + run; end <= LENGTH_MAX; end += run)
            assert_memory_equal(alone + (end - 1) * VOCAB, together + (end - 1) * VOCAB,
                                VOCAB * sizeof(float));
    }
    model_free(m);
    free(alone);
    free(together);
    free(ids);
    weights_free(&w);
}

static void test_decode_runs(void **state)
{
    (void)state;
    for_each_isa(decode_runs);
}

/* In the batch_slot of a sequence that ended with a draft, one begins behind tokens that a prefix cache has, fewer and more of them
 * than the other had. */
static void slots_change_hands(const char *isa)
{
    enum { PROMPT = 40, DRAFTED = 3, FIRST = 32, SECOND = 48, COUNT = 8 };
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    int32_t *ids = random_tokens(&random, LENGTH_MAX);
    static float before[LENGTH_MAX * VOCAB], after[COUNT * VOCAB];
    struct small_model *m = model_new(isa, 2, &w, &random);
    model_run(m, &(struct part){1, 0, SECOND + COUNT, false, ids, before}, 1, NULL);
    for (int i = 0; i < 2; i++) {
        const int32_t first = i ? SECOND : FIRST;
        struct part drafts[DRAFTED];
        for (int k = 0; k < DRAFTED; k++)
            drafts[k] = (struct part){1, PROMPT + k, 1, true, ids + PROMPT + k, NULL};
        drafts[DRAFTED - 1].logits = after;
        model_run(m, drafts, DRAFTED, NULL);
        model_run(m, &(struct part){1, first, COUNT, false, ids + first, after}, 1, NULL);
        assert_int_equal(num_bits_different(before + first * VOCAB, after, COUNT * VOCAB), 0);
    }
    model_free(m);
    free(ids);
    weights_free(&w);
}

static void test_slots_change_hands(void **state)
{
    (void)state;
    for_each_isa(slots_change_hands);
}

/* Runs of a sequence's tokens, by turns through prefill and through decode. */
enum { MIXED = 150, MIXED_RUNS = 6 };

static int add_run(struct part *parts, int n, int i, const int32_t *ids, float *logits)
{
    static const int32_t ends[MIXED_RUNS] = {17, 40, 41, 75, 108, MIXED};
    bool decodes = i % 2;
    for (int32_t at = i ? ends[i - 1] : 0, count; at < ends[i]; at += count) {
        count = decodes ? 1 : ends[i] - at;
        parts[n++] = (struct part){0, at, count, decodes, ids + at, logits + at * VOCAB};
    }
    return n;
}

/* All in one step, in which another prompt stands before them; or only the last token has logits. */
static void run_mixed(struct small_model *m, const int32_t *ids, bool all_logits, float *logits)
{
    struct part parts[MIXED + 1] = {{1, 0, 20, false, ids, NULL}};
    int n = 1;
    for (int i = 0; i < MIXED_RUNS; i += 2) n = add_run(parts, n, i, ids, logits);
    for (int i = 1; i < MIXED_RUNS; i += 2) n = add_run(parts, n, i, ids, logits);
    for (int i = 0; i < n - 1 && !all_logits; i++) parts[i].logits = NULL;
    model_run(m, parts, n, NULL);
}

static void mixed_runs(const char *isa)
{
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    int32_t *ids = random_tokens(&random, MIXED);
    float *alone = malloc(MIXED * VOCAB * sizeof *alone), *mixed = calloc(MIXED * VOCAB, sizeof *mixed);
    for (int has_groups = 0; has_groups < 2; has_groups++) {
        struct small_model *m = model_new_sized(isa, 2, &w, TOKENS_MAX, MIXED, TOKENS_MAX, SEQS, has_groups);
        struct part parts[MIXED];
        int n = 0;
        model_shuffle_blocks(m, &random);
        for (int i = 0; i < MIXED_RUNS; i++) n = add_run(parts, n, i, ids, alone);
        for (int i = 0; i < n; i++) model_run(m, &parts[i], 1, NULL);
        model_shuffle_blocks(m, &random);
        run_mixed(m, ids, true, mixed);
        assert_int_equal(num_bits_different(alone, mixed, MIXED * VOCAB), 0);
        model_shuffle_blocks(m, &random);
        memset(mixed, 0, MIXED * VOCAB * sizeof *mixed);
        run_mixed(m, ids, false, mixed);
        assert_memory_equal(alone + (MIXED - 1) * VOCAB, mixed + (MIXED - 1) * VOCAB, VOCAB * sizeof *mixed);
        m->records = true; /* more decoding rows than graphs are made for */
        for (int i = 0; i < MIXED_RUNS; i++) model_run(m, parts, add_run(parts, 0, i, ids, mixed), NULL);
        assert_int_equal(num_bits_different(alone, mixed, MIXED * VOCAB), 0);
        model_free(m);
    }
    free(alone);
    free(mixed);
    free(ids);
    weights_free(&w);
}

static void test_mixed_runs(void **state)
{
    (void)state;
    for_each_isa(mixed_runs);
}

/* The next tokens of five sequences, one after the other or in steps of all. Logits: [NEXT][FIVE][VOCAB]. */
enum { FIVE = 5, NEXT = 6 };

static void decode_five(struct small_model *m, const int32_t *ids, bool together, struct random *random,
                        float *logits)
{
    static const int32_t prompts[FIVE] = {1, 17, 100, 150, 40};
    model_shuffle_blocks(m, random);
    for (int32_t s = 0; s < FIVE; s++)
        model_run(m, &(struct part){s, 0, prompts[s], false, ids + s, NULL}, 1, NULL);
    for (int32_t n = 0; n < NEXT; n++) {
        struct part parts[FIVE];
        for (int32_t s = 0; s < FIVE; s++)
            parts[s] = (struct part){s,    prompts[s] + n,           1,
                                     true, ids + s + prompts[s] + n, logits + (n * FIVE + s) * VOCAB};
        for (int32_t s = 0; s < FIVE && !together; s++) model_run(m, &parts[s], 1, NULL);
        if (together) model_run(m, parts, FIVE, NULL);
    }
}

/* What a GPU does with steps of decoding sequences alone: it pads them, records them and plays them again. */
static void groups_of_layers(const char *isa)
{
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    int32_t *ids = random_tokens(&random, LENGTH_MAX);
    size_t bytes = NEXT * FIVE * VOCAB * sizeof(float);
    float *first = malloc(bytes), *other = malloc(bytes);
    for (int i = 0; i < 4; i++) {
        struct small_model *m = model_new_groups(isa, 2, &w, &random, i / 2);
        m->records = i % 2;
        decode_five(m, ids, i % 2, &random, i ? other : first);
        if (i > 0) assert_memory_equal(first, other, bytes);
        model_free(m);
    }
    free(first);
    free(other);
    free(ids);
    weights_free(&w);
}

static void test_groups_of_layers(void **state)
{
    (void)state;
    for_each_isa(groups_of_layers);
}

/* Greedy tokens fed as ids, and as "the token last sampled", make the same sequence; a step that draws nothing
 * leaves that token as it is. */
static void last_sampled(const char *isa)
{
    enum { STEPS = 20, SLOT = 4 };
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    struct small_model *m = model_new(isa, 2, &w, &random);
    int32_t prompt = random_below(&random, VOCAB), by_id[STEPS], by_slot[STEPS];
    float logits[VOCAB];
    for (int way = 0; way < 2; way++) {
        int32_t *out = way ? by_slot : by_id, id = prompt;
        for (int32_t i = 0; i < STEPS; i++) {
            struct sample_result result;
            int32_t fed = way && i > 0 ? ~SLOT : id;
            struct part part = {SLOT, i, 1, i > 0, &fed, logits};
            m->withholds = i % 2;
            if (m->withholds) model_run(m, &part, 1, &result);
            if (m->withholds) assert_true(result.withheld && !result.failed);
            m->withholds = false;
            model_run(m, &part, 1, &result);
            assert_false(result.failed || result.withheld);
            for (int32_t v = 0; v < VOCAB; v++) {
                assert_true(logits[v] <= logits[result.token_id]);
                if (v < result.token_id) assert_true(logits[v] < logits[result.token_id]);
            }
            out[i] = id = result.token_id;
        }
    }
    assert_memory_equal(by_id, by_slot, sizeof by_id);
    model_free(m);
    weights_free(&w);
}

static void test_last_sampled(void **state)
{
    (void)state;
    for_each_isa(last_sampled);
}

/* A sequence's blocks go to the host and come back elsewhere: it goes on with the same bits. */
static void saved_blocks(const char *isa)
{
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    struct small_model *m = model_new(isa, 2, &w, &random);
    struct device *d = m->d;
    enum { LENGTH = 100, BLOCKS = (LENGTH + BLOCK_SIZE - 1) / BLOCK_SIZE };
    int32_t host_ids[BLOCKS]; /* in no order */
    for (int i = 0; i < BLOCKS; i++) host_ids[i] = (i * 3 + 1) % BLOCKS;
    int32_t *ids = random_tokens(&random, LENGTH);
    float before[VOCAB], after[VOCAB];
    model_run(m, &(struct part){1, 0, LENGTH - 1, false, ids, NULL}, 1, NULL);
    assert_int_equal(d->ops->kv_blocks_save(d, m->pool, m->blocks[0][1], host_ids, BLOCKS), 0);
    model_run(m, &(struct part){1, LENGTH - 1, 1, true, ids + LENGTH - 1, before}, 1, NULL);
    int32_t *others = random_tokens(&random, LENGTH);
    model_run(m, &(struct part){1, 0, LENGTH, false, others, NULL}, 1, NULL); /* overwrites them */
    assert_int_equal(d->ops->kv_blocks_load(d, m->pool, m->blocks[0][2], host_ids, BLOCKS), 0);
    model_run(m, &(struct part){2, LENGTH - 1, 1, true, ids + LENGTH - 1, after}, 1, NULL);
    assert_int_equal(num_bits_different(before, after, VOCAB), 0);
    free(ids);
    free(others);
    model_free(m);
    weights_free(&w);
}

static void test_saved_blocks(void **state)
{
    (void)state;
    for_each_isa(saved_blocks);
}

/* ---- the first token's logits against a reference: with one token, attention returns its v ---- */

static void reference_norm(double *out, const double *x, const float *weight)
{
    double sum = 0;
    for (int i = 0; i < HIDDEN; i++) sum += x[i] * x[i];
    for (int i = 0; i < HIDDEN; i++) out[i] = x[i] / sqrt(sum / HIDDEN + 1e-5) * (double)weight[i];
}

static void reference_linear(double *out, const double *x, const float *weight, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        out[r] = 0;
        for (int c = 0; c < cols; c++) out[r] += (double)weight[r * cols + c] * x[c];
    }
}

static void reference_logits(const struct weights *w, int32_t token_id, double *logits)
{
    double x[HIDDEN], normed[HIDDEN], v[QKV], heads[HEADS * DIM], gate_up[2 * INNER], delta[HIDDEN];
    for (int i = 0; i < HIDDEN; i++) x[i] = (double)w->embedding[token_id * HIDDEN + i];
    for (int layer = 0; layer < LAYERS; layer++) {
        reference_norm(normed, x, w->norm);
        reference_linear(v, normed, w->qkv[layer], QKV, HIDDEN);
        for (int i = 0; i < HEADS * DIM; i++)
            heads[i] = v[(HEADS + KV_HEADS) * DIM + i / DIM / (HEADS / KV_HEADS) * DIM + i % DIM];
        reference_linear(delta, heads, w->o[layer], HIDDEN, HEADS * DIM);
        for (int i = 0; i < HIDDEN; i++) x[i] += delta[i];
        reference_norm(normed, x, w->norm);
        reference_linear(gate_up, normed, w->gate_up[layer], 2 * INNER, HIDDEN);
        for (int i = 0; i < INNER; i++) gate_up[i] = gate_up[i] / (1 + exp(-gate_up[i])) * gate_up[INNER + i];
        reference_linear(delta, gate_up, w->down[layer], HIDDEN, INNER);
        for (int i = 0; i < HIDDEN; i++) x[i] += delta[i];
    }
    reference_norm(normed, x, w->norm);
    reference_linear(logits, normed, w->embedding, VOCAB, HIDDEN);
}

static void first_logits(const char *isa)
{
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    struct small_model *m = model_new(isa, 2, &w, &random);
    double tolerance = m->d->act_bytes == 2 ? 0.25 : 1e-4, expected[VOCAB];
    for (int32_t i = 0; i < 10; i++) {
        int32_t id = random_below(&random, VOCAB);
        float logits[VOCAB];
        model_run(m, &(struct part){0, 0, 1, false, &id, logits}, 1, NULL);
        reference_logits(&w, id, expected);
        for (int32_t v = 0; v < VOCAB; v++)
            if (!(fabs((double)logits[v] - expected[v]) <= tolerance))
                fail_msg("logit %d of token %d: %g, not %g", v, id, (double)logits[v], expected[v]);
    }
    model_free(m);
    weights_free(&w);
}

static void test_first_logits(void **state)
{
    (void)state;
    for_each_isa(first_logits);
}

/* More rows than the second dimension of a GPU's grids can have: as many times the same sequence, in the same blocks.
 * Only on a GPU; a CPU would take long. */
static void many_rows(const char *isa)
{
    enum { LENGTH = 164, MANY_SEQS = 401 };
    struct random random = {.seed = test_seed()};
    struct weights w;
    weights_init(&w, &random);
    struct small_model *m =
        model_new_sized(isa, 1, &w, LENGTH * MANY_SEQS, MANY_SEQS, MANY_SEQS, MANY_SEQS, false);
    struct step *s = &m->step->step;
    int32_t *ids = random_tokens(&random, LENGTH);
    for (int32_t i = 0; i < LENGTH_MAX / BLOCK_SIZE; i++) m->blocks[0][0][i] = i;
    static float alone[VOCAB], logits[VOCAB];
    static struct sample_result results[MANY_SEQS];
    for (int32_t num_seqs = 1; num_seqs <= MANY_SEQS; num_seqs += MANY_SEQS - 1) {
        test_step_clear(m->step);
        for (int32_t i = 0; i < num_seqs; i++) {
            test_step_add(m->step, m->blocks[0][0], 0, LENGTH, false);
            memcpy(m->step->token_ids + i * LENGTH, ids, LENGTH * sizeof *ids);
            m->step->logit_rows[i] = s->num_tokens - 1;
            m->step->sample[i] = (struct sample_params){.batch_slot = i,
                                                        .score_token_id = -1,
                                                        .sampling.top_p = 1.0f,
                                                        .sampling.repetition_penalty = 1.0f,
                                                        .sampling.num_logprobs = -1};
        }
        s->num_logits = num_seqs;
        struct batch *b = m->d->ops->step_begin(m->d, s);
        forward(m, b, s);
        m->d->ops->sample(m->d, b);
        for (int32_t i = 0; i < num_seqs; i++) {
            assert_int_equal(m->d->ops->read_logits(m->d, i, num_seqs == 1 ? alone : logits), 0);
            if (num_seqs > 1) assert_int_equal(num_bits_different(alone, logits, VOCAB), 0);
        }
        test_step_end(m->d, results);
        for (int32_t i = 1; i < num_seqs; i++) assert_int_equal(results[i].token_id, results[0].token_id);
    }
    free(ids);
    model_free(m);
    weights_free(&w);
}

static void test_many_rows(void **state)
{
    (void)state;
    if (getenv("FLASHD_TEST_DEVICE") && !getenv("FLASHD_TEST_SMALL")) for_each_isa(many_rows);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_logits),       cmocka_unit_test(test_same_logits),
        cmocka_unit_test(test_decode_runs),        cmocka_unit_test(test_mixed_runs),
        cmocka_unit_test(test_last_sampled),       cmocka_unit_test(test_saved_blocks),
        cmocka_unit_test(test_groups_of_layers),   cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_slots_change_hands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
