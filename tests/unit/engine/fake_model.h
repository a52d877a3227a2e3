/* fake_model.h - the device of the tests: the hash model (hash_model.h) behind model/model.h.
 *
 * It takes the place of model/model.c at link time and plays the strict device: it refuses (aborts on) steps
 * that break step.h's contract, host memory that changes while a step is in flight, and blocks or sequence
 * slots that are given away too early. Steps run when they are ended, in order, from copies. */
#ifndef TESTS_FAKE_MODEL_H
#define TESTS_FAKE_MODEL_H

#include "kernels/device.h"
#include "kernels/state_runs.h"
#include "model/model.h"
#include "unit/engine/hash_model.h"

enum {
    FAKE_FLIGHTS_MAX = 2,
    FAKE_HOST_BLOCKS = 64,
    FAKE_COPIES_MAX = 64,
    FAKE_LOG_MAX = DRAFT_TOKENS_MAX + 1
};

struct fake_options {
    int num_steps_in_flight;
    bool prefill_decode_equal;
    bool has_answers; /* fake_engine.h */
    int32_t num_blocks;
    int32_t window;       /* of the last layer (hash_model.h), which is a group then */
    bool window_is_chunk; /* (kv_groups.h) */
    bool has_states;
    uint64_t forbidden;      /* a bit_set of ids that no row draws, beside the silent ones */
    int64_t fail_at_step;    /* this step_end (from 0) fails; -1: none */
    int64_t fail_at_history; /* this history_set (from 1) fails; 0: none */
    void (*on_begin)(const struct step *step); /* a checked step was launched; may be NULL */
    void (*on_wait)(void);                     /* the host waits for the oldest step; may be NULL */
    bool (*has_ended)(void);                   /* whether it would not have to; NULL: it would */
    /* Blocks are about to be saved or loaded; may be NULL, and fail. */
    int (*on_copy)(bool save, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks);
    int (*on_state_copies)(const struct state_copy *copies, int32_t num_copies); /* the same for states */
};

/* What a batch_slot's sequence has left, and what was there before its last token. */
struct fake_states {
    int32_t position;
    uint64_t newest, before;
    int32_t num_logged; /* behind each of so many tokens of a draft's run */
    uint64_t logged[FAKE_LOG_MAX];
};

struct fake_kept {
    int32_t position;
    uint64_t state;
};

struct fake_history {
    int32_t *ids, num_prompt;
};

struct fake_flight {
    const struct step *original;
    uint64_t checksum;
    struct step step; /* with arrays of its own */
    int32_t *token_ids, *positions, *slot_mapping, *cu_seqlens_q, *batch_slots, *seqlens_k, *block_tables,
        *logit_rows;
    struct state_copy copies[FAKE_COPIES_MAX]; /* before it */
    int32_t num_copies;
    struct sample_params *sample;
    uint64_t *allowed; /* [num_logits] masks as they were when it was sampled */
    bool sampled;
};

struct model {
    struct device device;
    struct kernel_table ops;
    struct model_config config;
    struct fake_options options;
    struct step_limits limits;
    uint64_t *kv[FAKE_LAYERS];                 /* [num_blocks * BLOCK_SIZE] */
    uint64_t *saved;                           /* [FAKE_HOST_BLOCKS][FAKE_LAYERS][BLOCK_SIZE] */
    uint64_t *reads;                           /* [num_tokens] */
    uint64_t *state_of_token;                  /* [num_tokens] */
    struct fake_states *states;                /* [num_batch_slots] */
    struct state_run *runs;                    /* [num_seqs] */
    struct fake_kept *kept;                    /* [num_states] */
    struct state_copy copies[FAKE_COPIES_MAX]; /* for the next step */
    int32_t num_copies;
    int32_t *last_tokens;       /* [num_batch_slots] */
    float (*rows)[FAKE_HIDDEN]; /* [num_batch_slots] */
    struct fake_history *histories;
    struct fake_flight flights[FAKE_FLIGHTS_MAX];
    int oldest, num_in_flight;
    uint64_t forbidden; /* a bit_set */
    uint8_t *written;   /* [num_blocks * BLOCK_SIZE], by the step being checked */
    int64_t num_steps_ended, num_tokens_computed, num_mixed_steps, num_late_inputs, num_histories,
        num_blocks_loaded, num_states_kept, num_states_loaded, num_lora_layers;
    int32_t lora_place;
};

/* ---- the strict device ---- */

static inline uint64_t fake_bytes_hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}

static inline uint64_t fake_step_checksum(const struct step *s)
{
    size_t tokens = (size_t)s->num_tokens, seqs = (size_t)s->num_seqs, logits = (size_t)s->num_logits,
           groups = (size_t)step_num_kv_groups(s);
    uint64_t h = fake_bytes_hash(0xCBF29CE484222325u, s, sizeof(*s));
    h = fake_bytes_hash(h, s->token_ids, tokens * sizeof(int32_t));
    h = fake_bytes_hash(h, s->positions, tokens * sizeof(int32_t));
    h = fake_bytes_hash(h, s->slot_mapping, groups * tokens * sizeof(int32_t));
    h = fake_bytes_hash(h, s->cu_seqlens_q, (seqs + 1) * sizeof(int32_t));
    h = fake_bytes_hash(h, s->batch_slots, seqs * sizeof(int32_t));
    h = fake_bytes_hash(h, s->seqlens_k, seqs * sizeof(int32_t));
    h = fake_bytes_hash(h, s->block_tables, groups * seqs * (size_t)s->block_table_stride * sizeof(int32_t));
    h = fake_bytes_hash(h, s->logit_rows, logits * sizeof(int32_t));
    for (size_t i = 0; i < logits; i++) {
        const struct sample_params *p = &s->sample[i];
        h = fake_bytes_hash(h, p->logit_bias, (size_t)p->num_logit_bias * sizeof(p->logit_bias[0]));
        h = fake_bytes_hash(h, p->banned, (size_t)p->num_banned * sizeof(p->banned[0]));
        h = fake_mix(h, p->sampling.seed ^ (uint64_t)p->position << 32 ^ (uint64_t)p->batch_slot ^
                            (uint64_t)p->num_drafted << 16);
    }
    return h;
}

/* It is the next decoding row of the one before. */
static inline bool fake_goes_on(const struct step *s, int32_t seq)
{
    return seq > s->num_prefill_seqs && seq < s->num_seqs && s->batch_slots[seq] == s->batch_slots[seq - 1] &&
           s->seqlens_k[seq] == s->seqlens_k[seq - 1] + 1;
}

static inline int32_t fake_num_tokens(const struct step *s, int32_t seq)
{
    return s->cu_seqlens_q[seq + 1] - s->cu_seqlens_q[seq];
}

/* A batch_slot's part of a step, which may be several of the step's sequences: tokens [begin, end), and behind which it goes
 * on, since tokens whose rows were withheld are computed again. */
struct fake_part {
    int32_t begin, end, next, num_tokens;
};

static inline struct fake_part fake_part_of(const struct step *s, int32_t batch_slot)
{
    struct fake_part part = {.begin = INT32_MAX};
    for (int32_t seq = 0; seq < s->num_seqs; seq++) {
        if (s->batch_slots[seq] != batch_slot) continue;
        part.begin = min_of(part.begin, s->seqlens_k[seq] - fake_num_tokens(s, seq));
        part.end = max_of(part.end, s->seqlens_k[seq]);
        part.num_tokens += fake_num_tokens(s, seq);
    }
    part.next = part.end;
    for (int32_t r = 0; r < s->num_logits; r++)
        if (s->sample[r].batch_slot == batch_slot && s->sample[r].withheld)
            part.next = min_of(part.next, s->sample[r].position - 1);
    return part;
}

/* No two tokens of a step write to the same place, in whichever group. */
static inline void fake_check_writes(const struct model *m, const struct step *s)
{
    int32_t num_writes = step_num_kv_groups(s) * s->num_tokens;
    for (int32_t t = 0; t < num_writes; t++) {
        assert_always(s->slot_mapping[t] >= 0 && s->slot_mapping[t] < m->options.num_blocks * BLOCK_SIZE);
        assert_always(!m->written[s->slot_mapping[t]]);
        m->written[s->slot_mapping[t]] = true;
    }
    for (int32_t t = 0; t < num_writes; t++) m->written[s->slot_mapping[t]] = false;
}

static inline const int32_t *fake_table(const struct step *s, int32_t group, int32_t seq)
{
    return step_block_tables(s, group) + (size_t)seq * (size_t)s->block_table_stride;
}

static inline void fake_check_blocks(const struct model *m, const struct step *s, int32_t group, int32_t seq)
{
    const int32_t *table = fake_table(s, group, seq), *slots = step_slot_mapping(s, group);
    for (int32_t i = 0; i < (int32_t)div_up(s->seqlens_k[seq], BLOCK_SIZE); i++)
        assert_always(table[i] >= 0 && table[i] < m->options.num_blocks);
    for (int32_t t = s->cu_seqlens_q[seq]; t < s->cu_seqlens_q[seq + 1]; t++) {
        int32_t p = s->positions[t];
        assert_always(slots[t] == table[p / BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE);
    }
}

static inline void fake_check_tokens(const struct model *m, const struct step *s, int32_t seq)
{
    int32_t begin = s->cu_seqlens_q[seq], end = s->cu_seqlens_q[seq + 1];
    assert_always(end > begin && end <= s->num_tokens);
    if (seq >= s->num_prefill_seqs) assert_always(end == begin + 1);
    struct fake_part part = fake_part_of(s, s->batch_slots[seq]);
    assert_always(part.num_tokens == part.end - part.begin);
    assert_always(s->seqlens_k[seq] == s->positions[end - 1] + 1 &&
                  s->seqlens_k[seq] <= m->limits.max_model_len);
    for (int32_t t = begin; t < end; t++) {
        assert_always(s->positions[t] == s->positions[begin] + t - begin);
        assert_always(s->token_ids[t] < FAKE_VOCAB);
        if (s->token_ids[t] < 0)
            assert_always(~s->token_ids[t] < m->limits.num_batch_slots && m->num_in_flight > 0);
    }
}

/* A step still in flight writes blocks; whoever writes the same block now must be the same sequence, going on
 * where that step leaves it. */
static inline void fake_check_overlap(const struct step *now, const struct step *before)
{
    for (int32_t a = 0; a < before->num_seqs; a++) {
        int32_t next = fake_part_of(before, before->batch_slots[a]).next;
        for (int32_t b = 0; b < now->num_seqs; b++) {
            bool same = now->batch_slots[b] == before->batch_slots[a];
            for (int32_t i = before->cu_seqlens_q[a]; i < before->cu_seqlens_q[a + 1]; i++)
                for (int32_t j = now->cu_seqlens_q[b]; j < now->cu_seqlens_q[b + 1]; j++)
                    same |= before->slot_mapping[i] / BLOCK_SIZE == now->slot_mapping[j] / BLOCK_SIZE;
            if (same) assert_always(fake_part_of(now, now->batch_slots[b]).begin == next);
        }
    }
}

static inline int32_t fake_slot_of_token(const struct step *s, int32_t token)
{
    int32_t seq = 0;
    while (s->cu_seqlens_q[seq + 1] <= token) seq++;
    return s->batch_slots[seq];
}

static inline void fake_check_rows(const struct step *s)
{
    int32_t num_pooled = 0;
    for (int32_t r = 0; r < s->num_logits; r++) {
        const struct sample_params *p = &s->sample[r];
        int32_t t = s->logit_rows[r];
        assert_always(t >= 0 && t < s->num_tokens && (r == 0 || t > s->logit_rows[r - 1]));
        assert_always(p->position == s->positions[t] + 1 && p->score_token_id < FAKE_VOCAB);
        assert_always(p->batch_slot == fake_slot_of_token(s, t));
        assert_always(p->num_drafted >= 0 && p->num_drafted <= t);
        for (int32_t i = 1; i < p->num_banned; i++) assert_always(p->banned[i] > p->banned[i - 1]);
        assert_always(p->constrained ? p->score_token_id < 0 : !p->allowed && !p->withheld);
        if (sample_pools(p)) assert_always(p->pool_begin < p->position && p->position <= p->pool_end);
        num_pooled += sample_pools(p);
    }
    assert_always(num_pooled == s->num_pooled);
}

static inline void fake_check_step(const struct model *m, const struct step *s)
{
    const struct step_limits *l = &m->limits;
    assert_always(s->num_tokens >= 1 && s->num_tokens <= l->num_tokens && s->num_seqs <= l->num_seqs);
    assert_always(s->num_logits <= l->num_logits && s->num_prefill_seqs <= s->num_seqs);
    assert_always(s->cu_seqlens_q[0] == 0 && s->cu_seqlens_q[s->num_seqs] == s->num_tokens);
    assert_always(s->cu_seqlens_q[s->num_prefill_seqs] == s->num_prefill_tokens);
    assert_always(step_num_kv_groups(s) == (m->options.window > 0 ? FAKE_LAYERS : 1));
    for (int32_t seq = 0; seq < s->num_seqs; seq++) {
        fake_check_tokens(m, s, seq);
        for (int32_t g = 0; g < step_num_kv_groups(s); g++) fake_check_blocks(m, s, g, seq);
    }
    fake_check_writes(m, s);
    fake_check_rows(s);
    for (int i = 0; i < m->num_in_flight; i++)
        fake_check_overlap(s, &m->flights[(m->oldest + i) % FAKE_FLIGHTS_MAX].step);
}

static inline int32_t *fake_copy_ids(int32_t *to, const int32_t *from, size_t count)
{
    memcpy(to, from, count * sizeof(*to));
    return to;
}

static inline struct fake_flight *fake_newest_flight(struct model *m)
{
    assert_always(m->num_in_flight > 0);
    return &m->flights[(m->oldest + m->num_in_flight - 1) % FAKE_FLIGHTS_MAX];
}

void model_step_begin(struct model *m, const struct step *s)
{
    assert_always(m->num_in_flight < m->options.num_steps_in_flight);
    if (m->num_in_flight > 0) assert_always(fake_newest_flight(m)->sampled);
    fake_check_step(m, s);
    struct fake_flight *f = &m->flights[(m->oldest + m->num_in_flight++) % FAKE_FLIGHTS_MAX];
    size_t tokens = (size_t)s->num_tokens, seqs = (size_t)s->num_seqs, logits = (size_t)s->num_logits,
           groups = (size_t)step_num_kv_groups(s);
    f->original = s;
    f->checksum = fake_step_checksum(s);
    f->step = *s;
    f->step.token_ids = fake_copy_ids(f->token_ids, s->token_ids, tokens);
    f->step.positions = fake_copy_ids(f->positions, s->positions, tokens);
    f->step.slot_mapping = fake_copy_ids(f->slot_mapping, s->slot_mapping, groups * tokens);
    f->step.cu_seqlens_q = fake_copy_ids(f->cu_seqlens_q, s->cu_seqlens_q, seqs + 1);
    f->step.batch_slots = fake_copy_ids(f->batch_slots, s->batch_slots, seqs);
    f->step.seqlens_k = fake_copy_ids(f->seqlens_k, s->seqlens_k, seqs);
    memcpy(f->copies, m->copies, sizeof f->copies);
    f->num_copies = m->num_copies;
    m->num_copies = 0;
    f->step.block_tables =
        fake_copy_ids(f->block_tables, s->block_tables, groups * seqs * (size_t)s->block_table_stride);
    f->step.logit_rows = fake_copy_ids(f->logit_rows, s->logit_rows, logits);
    memcpy(f->sample, s->sample, logits * sizeof(f->sample[0]));
    f->step.sample = f->sample;
    f->sampled = false;
    if (m->options.on_begin) m->options.on_begin(s);
}

/* Only now is it read what constrained rows may draw. */
void model_step_sample(struct model *m)
{
    struct fake_flight *f = fake_newest_flight(m);
    assert_always(!f->sampled);
    f->sampled = true;
    for (int32_t r = 0; r < f->step.num_logits; r++) {
        const struct sample_params *p = &f->original->sample[r];
        f->sample[r].withheld = p->withheld;
        f->sample[r].allowed = p->allowed ? &f->allowed[r] : NULL;
        if (p->allowed) f->allowed[r] = p->allowed[0];
    }
}

/* With a window each layer is a group, and a block has one layer. */
static inline uint64_t *fake_kv_of(const struct model *m, int layer)
{
    return m->kv[m->options.window > 0 ? 0 : layer];
}

static inline int32_t fake_group_of(const struct model *m, int layer)
{
    return m->options.window > 0 ? layer : 0;
}

/* What each of the sequence's tokens in the step reads: all that it sees, up to its own. */
static inline void fake_read(struct model *m, int layer, const struct step *s, int32_t seq)
{
    const uint64_t *kv = fake_kv_of(m, layer);
    const int32_t *table = fake_table(s, fake_group_of(m, layer), seq);
    bool windowed = layer == FAKE_LAYERS - 1 && m->options.window > 0;
    uint64_t fold = 0;
    int32_t p = 0;
    for (int32_t t = s->cu_seqlens_q[seq]; t < s->cu_seqlens_q[seq + 1]; t++) {
        if (windowed) {
            p = fake_first_seen(layer, m->options.window, m->options.window_is_chunk, s->positions[t]);
            fold = 0;
        }
        for (; p <= s->positions[t]; p++)
            fold = fake_mix(fold, kv[table[p / BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE]);
        m->reads[t] = fold;
    }
}

/* ---- states ---- */

int model_states_copy(struct model *m, const struct state_copy *copies, int32_t num_copies)
{
    assert_always(num_copies == 0 || m->options.has_states);
    for (int32_t i = 0; i < num_copies; i++) {
        const struct state_copy *c = &copies[i];
        assert_always(c->batch_slot >= 0 && c->batch_slot < m->limits.num_batch_slots && c->position > 0);
        assert_always(c->state >= 0 && c->state < m->limits.num_states && m->num_copies < FAKE_COPIES_MAX);
        m->copies[m->num_copies++] = *c;
        m->num_states_kept += c->keeps;
        m->num_states_loaded += !c->keeps;
    }
    return num_copies > 0 && m->options.on_state_copies ? m->options.on_state_copies(copies, num_copies) : 0;
}

/* The first tokens of the newest run, which had a draft, have counted. */
static inline void fake_catch_up(struct fake_states *states, int32_t position)
{
    int32_t count = position - states->position;
    if (count <= 0) return;
    assert_always(count <= states->num_logged);
    *states = (struct fake_states){position, states->logged[count - 1], 0xBAD, .num_logged = 0};
}

static inline void fake_copy_state(struct model *m, const struct state_copy *c)
{
    struct fake_states *of_slot = &m->states[c->batch_slot];
    struct fake_kept *kept = &m->kept[c->state];
    if (c->keeps) {
        fake_catch_up(of_slot, c->position);
        assert_always(c->position == of_slot->position || c->position == of_slot->position - 1);
        *kept = (struct fake_kept){c->position,
                                   c->position == of_slot->position ? of_slot->newest : of_slot->before};
    } else {
        assert_always(c->position == kept->position);
        *of_slot = (struct fake_states){c->position, kept->state, 0xBAD, .num_logged = 0};
    }
}

/* Goes on behind its sequence's newest state, or with its last token again. */
static inline void fake_run_state(struct model *m, const struct fake_flight *f, const struct state_run *run)
{
    struct fake_states *states = &m->states[run->batch_slot], now;
    if (run->position == 0) *states = (struct fake_states){0};
    fake_catch_up(states, run->position);
    assert_always(run->position == states->position || run->position == states->position - 1);
    if (run->position < states->position) states->newest = states->before;
    now = *states;
    for (int32_t t = run->begin; t < run->end; t++) {
        bool decode = !m->options.prefill_decode_equal && t >= f->step.num_prefill_tokens;
        now.before = now.newest;
        now.newest = fake_state(now.newest, (uint64_t)f->token_ids[t], f->step.positions[t], decode);
        m->state_of_token[t] = now.newest;
        if (!run->has_draft) continue;
        assert_always(t - run->begin < FAKE_LOG_MAX);
        states->logged[t - run->begin] = now.newest;
    }
    now.position = run->position + run->end - run->begin;
    now.num_logged = 0;
    states->num_logged = run->end - run->begin;
    if (run->has_draft)
        states->position = run->position;
    else
        *states = now;
}

static inline void fake_run_states(struct model *m, const struct fake_flight *f)
{
    const struct step *s = &f->step;
    for (int32_t i = 0; i < f->num_copies; i++) fake_copy_state(m, &f->copies[i]);
    int32_t num_runs = state_runs_find(s, m->runs);
    for (int32_t i = 0; i < num_runs; i++) fake_run_state(m, f, &m->runs[i]);
}

static inline void fake_run_layer(struct model *m, const struct fake_flight *f, int layer)
{
    const struct step *s = &f->step;
    uint64_t *kv = fake_kv_of(m, layer);
    const int32_t *slots = step_slot_mapping(s, fake_group_of(m, layer));
    for (int32_t t = 0; t < s->num_tokens; t++) {
        bool decode = !m->options.prefill_decode_equal && t >= s->num_prefill_tokens;
        uint64_t input = (uint64_t)f->token_ids[t];
        if (layer > 0) input = fake_mix(m->reads[t] ^ m->state_of_token[t], input);
        kv[slots[t]] = fake_kv(layer, input, s->positions[t], decode);
    }
    for (int32_t seq = 0; seq < s->num_seqs; seq++) fake_read(m, layer, s, seq);
}

/* What came before the row's token: where a draft follows what was drawn, that counts as drawn, too. */
static inline uint64_t fake_history_of(const struct model *m, const struct step *s, int32_t row)
{
    const struct sample_params *p = &s->sample[row];
    const struct fake_history *h = &m->histories[p->batch_slot];
    uint64_t hash = fake_history_hash(h->ids, h->num_prompt, p->position - p->num_drafted);
    for (int32_t i = p->num_drafted - 1; i >= 0; i--)
        hash = fake_mix(hash, (uint64_t)s->token_ids[s->logit_rows[row] - i]);
    return hash;
}

/* Once all rows have drawn: none sees what another one has. */
static inline void fake_remember(struct model *m, const struct sample_params *p, int32_t token_id)
{
    if (p->score_token_id >= 0 || p->withheld || sample_pools(p)) return;
    m->last_tokens[p->batch_slot] = p->num_drafted > 0 ? FAKE_VOCAB : token_id;
    if (fake_uses_history(p)) m->histories[p->batch_slot].ids[p->position] = token_id;
}

static inline void fake_run_rows(struct model *m, const struct step *s, struct sample_result *results)
{
    for (int32_t r = 0; r < s->num_logits; r++) {
        const struct sample_params *p = &s->sample[r];
        fake_pool(m->rows[p->batch_slot], p, m->reads[s->logit_rows[r]]);
        bool with_history = fake_uses_history(p) && p->score_token_id < 0;
        uint64_t hash = with_history ? fake_history_of(m, s, r) : 0;
        results[r] = fake_sample(m->reads[s->logit_rows[r]], p, hash, m->forbidden | m->options.forbidden);
    }
    for (int32_t r = 0; r < s->num_logits; r++) fake_remember(m, &s->sample[r], results[r].token_id);
}

int model_step_end(struct model *m, struct sample_result *results, struct error *err)
{
    assert_always(m->num_in_flight > 0);
    if (m->options.on_wait) m->options.on_wait();
    struct fake_flight *f = &m->flights[m->oldest];
    m->oldest = (m->oldest + 1) % FAKE_FLIGHTS_MAX;
    m->num_in_flight--;
    if (m->num_steps_ended++ == m->options.fail_at_step)
        return error_set(err, STATUS_DEVICE, "the fake device broke");
    assert_always(f->sampled && fake_step_checksum(f->original) == f->checksum);
    const struct step *s = &f->step;
    for (int32_t t = 0; t < s->num_tokens; t++) {
        if (f->token_ids[t] >= 0) continue;
        f->token_ids[t] = m->last_tokens[~f->token_ids[t]];
        m->num_late_inputs++;
    }
    if (m->options.has_states) fake_run_states(m, f);
    for (int layer = 0; layer < FAKE_LAYERS; layer++) fake_run_layer(m, f, layer);
    fake_run_rows(m, s, results);
    m->num_tokens_computed += s->num_tokens;
    m->num_mixed_steps += s->num_prefill_seqs > 0 && s->num_prefill_seqs < s->num_seqs;
    return 0;
}

bool model_step_has_ended(struct model *m)
{
    assert_always(m->num_in_flight > 0);
    return m->options.has_ended && m->options.has_ended();
}

const float *model_row(struct model *m, int32_t batch_slot)
{
    assert_always(batch_slot >= 0 && batch_slot < m->limits.num_batch_slots);
    return m->rows[batch_slot];
}

const float *model_embedding(struct model *m, int32_t batch_slot)
{
    return model_row(m, batch_slot);
}

float model_score(struct model *m, int32_t batch_slot)
{
    return model_row(m, batch_slot)[0];
}

static inline int fake_history_set(struct device *d, int32_t batch_slot, const int32_t *token_ids,
                                   int32_t num_prompt, int32_t num_tokens)
{
    struct model *m = (struct model *)((char *)d - offsetof(struct model, device));
    struct fake_history *history = &m->histories[batch_slot];
    if (++m->num_histories == m->options.fail_at_history) return STATUS_DEVICE;
    memcpy(history->ids, token_ids, (size_t)num_tokens * sizeof(token_ids[0]));
    history->num_prompt = num_prompt;
    return 0;
}

static inline void fake_forbid(struct device *d, const uint64_t *ids)
{
    struct model *m = (struct model *)((char *)d - offsetof(struct model, device));
    assert_always(m->num_in_flight == 0);
    m->forbidden = ids[0];
}

/* Host memory: [FAKE_LAYERS][BLOCK_SIZE] a block. */
static inline uint64_t *fake_host_block(struct model *m, int32_t host_id, int layer)
{
    assert_always(host_id >= 0 && host_id < FAKE_HOST_BLOCKS);
    return m->saved + ((size_t)host_id * FAKE_LAYERS + (size_t)layer) * BLOCK_SIZE;
}

static inline int fake_copy(struct model *m, bool save, const int32_t *block_ids, const int32_t *host_ids,
                            int32_t num_blocks)
{
    int status = 0;
    if (num_blocks > 0 && m->options.on_copy)
        status = m->options.on_copy(save, block_ids, host_ids, num_blocks);
    for (int32_t i = 0; i < num_blocks && status == 0; i++)
        for (int layer = 0; layer < FAKE_LAYERS; layer++) {
            uint64_t *saved = fake_host_block(m, host_ids[i], layer);
            uint64_t *block = &m->kv[layer][block_ids[i] * BLOCK_SIZE];
            memcpy(save ? saved : block, save ? block : saved, BLOCK_SIZE * sizeof(uint64_t));
        }
    return status;
}

/* Steps run when they are ended: what one in flight has still to write would not be saved. */
int model_kv_save(struct model *m, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks)
{
    assert_always(num_blocks == 0 || m->num_in_flight == 0);
    return fake_copy(m, true, block_ids, host_ids, num_blocks);
}

int model_kv_load(struct model *m, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks)
{
    m->num_blocks_loaded += num_blocks;
    return fake_copy(m, false, block_ids, host_ids, num_blocks);
}

/* It has no adapters: what is put into a place is counted. */
int model_lora_set(struct model *m, int32_t place, const struct lora_files *f, int32_t layer,
                   struct error *err)
{
    (void)f, (void)layer, (void)err;
    m->lora_place = place;
    m->num_lora_layers++;
    return STATUS_OK;
}

const struct model_config *model_config(const struct model *m)
{
    return &m->config;
}

struct device *model_device(struct model *m)
{
    return &m->device;
}

/* ---- life: the device first (the engine's limits ask it), then the rest ---- */

static inline void *fake_alloc(size_t count, size_t bytes)
{
    void *p = calloc(count, bytes);
    assert_always(p);
    return p;
}

static inline struct model *fake_model_create(const struct fake_options *options)
{
    struct model *m = fake_alloc(1, sizeof(*m));
    m->options = *options;
    m->ops.history_set = fake_history_set;
    m->ops.forbid = fake_forbid;
    m->device.ops = &m->ops;
    m->device.name = "fake";
    m->device.num_steps_in_flight_max = options->num_steps_in_flight;
    m->device.prefill_decode_equal = options->prefill_decode_equal;
    m->device.prefill_tile = options->prefill_decode_equal ? 1 : BLOCK_SIZE;
    static const struct family family = {.names = {"fake", "FakeForCausalLM", "fake"}};
    m->config = (struct model_config){.family = &family,
                                      .vocab_size = FAKE_VOCAB,
                                      .hidden_size = FAKE_HIDDEN,
                                      .eos_ids = {FAKE_EOS},
                                      .num_eos_ids = 1,
                                      .bos_id = -1};
    return m;
}

static inline void fake_model_prepare(struct model *m, const struct step_limits *limits)
{
    size_t tokens = (size_t)limits->num_tokens, seqs = (size_t)limits->num_seqs;
    size_t groups = (size_t)limits->num_kv_groups,
           tables = groups * seqs * (size_t)div_up(limits->max_model_len, BLOCK_SIZE);
    size_t places = (size_t)m->options.num_blocks * BLOCK_SIZE;
    m->limits = *limits;
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        m->kv[layer] = fake_alloc(places, sizeof(uint64_t));
        for (size_t i = 0; i < places; i++) m->kv[layer][i] = fake_mix(i, 0xBAD);
    }
    m->written = fake_alloc(places, sizeof(uint8_t));
    m->saved = fake_alloc((size_t)FAKE_HOST_BLOCKS * FAKE_LAYERS * BLOCK_SIZE, sizeof(uint64_t));
    m->reads = fake_alloc(tokens, sizeof(uint64_t));
    m->state_of_token = fake_alloc(tokens, sizeof(uint64_t));
    m->states = fake_alloc((size_t)limits->num_batch_slots, sizeof(m->states[0]));
    m->runs = fake_alloc((size_t)limits->num_seqs, sizeof(m->runs[0]));
    m->kept = fake_alloc((size_t)limits->num_states + 1, sizeof(m->kept[0]));
    m->last_tokens = fake_alloc((size_t)limits->num_batch_slots, sizeof(int32_t));
    m->rows = fake_alloc((size_t)limits->num_batch_slots, sizeof(m->rows[0]));
    m->histories = fake_alloc((size_t)limits->num_batch_slots, sizeof(m->histories[0]));
    for (int32_t i = 0; i < limits->num_batch_slots; i++)
        m->histories[i].ids = fake_alloc((size_t)limits->max_model_len, sizeof(int32_t));
    for (int i = 0; i < FAKE_FLIGHTS_MAX; i++) {
        struct fake_flight *f = &m->flights[i];
        f->token_ids = fake_alloc(tokens, sizeof(int32_t));
        f->positions = fake_alloc(tokens, sizeof(int32_t));
        f->slot_mapping = fake_alloc(groups * tokens, sizeof(int32_t));
        f->cu_seqlens_q = fake_alloc(seqs + 1, sizeof(int32_t));
        f->batch_slots = fake_alloc(seqs, sizeof(int32_t));
        f->seqlens_k = fake_alloc(seqs, sizeof(int32_t));
        f->block_tables = fake_alloc(tables, sizeof(int32_t));
        f->logit_rows = fake_alloc((size_t)limits->num_logits, sizeof(int32_t));
        f->sample = fake_alloc((size_t)limits->num_logits, sizeof(f->sample[0]));
        f->allowed = fake_alloc((size_t)limits->num_logits, sizeof(f->allowed[0]));
    }
}

static inline void fake_model_destroy(struct model *m)
{
    for (int layer = 0; layer < FAKE_LAYERS; layer++) free(m->kv[layer]);
    for (int32_t i = 0; i < m->limits.num_batch_slots; i++) free(m->histories[i].ids);
    for (int i = 0; i < FAKE_FLIGHTS_MAX; i++) {
        struct fake_flight *f = &m->flights[i];
        int32_t *arrays[] = {f->token_ids,   f->positions, f->slot_mapping, f->cu_seqlens_q,
                             f->batch_slots, f->seqlens_k, f->block_tables, f->logit_rows};
        for (size_t k = 0; k < array_length(arrays); k++) free(arrays[k]);
        free(f->sample);
        free(f->allowed);
    }
    free(m->written);
    free(m->saved);
    free(m->reads);
    free(m->state_of_token);
    free(m->states);
    free(m->runs);
    free(m->kept);
    free(m->last_tokens);
    free(m->rows);
    free(m->histories);
    free(m);
}

#endif
