/* hash_model.h - a model whose next token is a hash of the K/V contents that its block table reaches.
 *
 * It has two "layers". Of each, a token writes a hash to its place in the pool; then it reads, through its
 * sequence's block table, every place from position 0 to its own and folds them; with a window, the last layer has a
 * block table of its own and folds only what the window leaves. What the second layer writes
 * depends on what the first read, as in a real model, and, where the model has states, on the state that all tokens of
 * the sequence up to this one have left in its batch_slot, and what is drawn depends on all that the second reads,
 * on the sampling parameters and, with penalties, on the history. So any wrong block, stale slot, lost token
 * or wrong position changes the output at once, and struct reference computes what a sequence gives alone,
 * with no blocks, no scheduler and no engine. */
#ifndef TESTS_HASH_MODEL_H
#define TESTS_HASH_MODEL_H

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kernels/step.h"
#include "link/request_slots.h"
#include "model/kv_layout.h"

enum { FAKE_LAYERS = 2, FAKE_WINDOW_MAX = 64, FAKE_VOCAB = 48, FAKE_EOS = 3, FAKE_HIDDEN = 4 };
/* With these tokens a chat template would begin an answer. */
enum { FAKE_HEADER = 2, FAKE_HEADER_FIRST = 5, FAKE_HEADER_LAST = 9 };
/* Of K and V of a block: the tokens of each layer. */
enum { FAKE_BLOCK_BYTES = FAKE_LAYERS * BLOCK_SIZE * sizeof(uint64_t) };

/* ---- the arithmetic, shared with the reference ---- */

static inline uint64_t fake_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b * 0x9E3779B97F4A7C15u)) + 0xD1B54A32D192ED03u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline uint64_t fake_kv(int layer, uint64_t input, int32_t position, bool decode)
{
    return fake_mix(fake_mix(input, (uint64_t)position), (uint64_t)layer * 2 + decode);
}

/* What a token leaves of the state that those before it have left: 0 before the first. */
static inline uint64_t fake_state(uint64_t state, uint64_t token_id, int32_t position, bool decode)
{
    return fake_mix(state, fake_kv(FAKE_LAYERS, token_id, position, decode));
}

static inline bool fake_uses_history(const struct sample_params *p)
{
    return p->sampling.presence_penalty != 0 || p->sampling.frequency_penalty != 0 ||
           p->sampling.repetition_penalty != 1;
}

/* A bit_set of the one word that it takes. */
static inline uint64_t fake_allowed_ids(const struct sample_params *p, uint64_t forbidden)
{
    uint64_t ids = (((uint64_t)1 << FAKE_VOCAB) - 1) & ~forbidden;
    if (p->allowed) ids &= p->allowed[0];
    for (int32_t i = 0; i < p->num_banned; i++) ids &= ~((uint64_t)1 << p->banned[i]);
    for (int32_t i = 0; i < p->num_logit_bias; i++)
        if (p->logit_bias[i].bias < -1e30f) ids &= ~((uint64_t)1 << p->logit_bias[i].token_id);
    return ids;
}

/* A request with this seed has a NaN in the row that draws position. */
static inline uint64_t fake_failing_seed(int32_t position)
{
    return 0xFA11000000000000u | (uint64_t)position;
}

static inline uint64_t fake_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* logits: the fold over all that the last layer reaches. history: hash of it, 0 where there is none. forbidden:
 * ids that no row draws. */
static inline struct sample_result fake_sample(uint64_t logits, const struct sample_params *p,
                                               uint64_t history, uint64_t forbidden)
{
    uint64_t allowed = fake_allowed_ids(p, forbidden);
    struct sample_result r = {.token_id = p->score_token_id, .withheld = p->withheld};
    if (p->withheld) return r;
    r.failed = p->sampling.seed == fake_failing_seed(p->position) || (p->score_token_id < 0 && allowed == 0);
    if (p->score_token_id < 0 && allowed != 0) {
        uint64_t h = fake_mix(fake_mix(logits, p->sampling.seed), (uint64_t)p->position);
        h = fake_mix(h, fake_float_bits(p->sampling.temperature) ^ fake_float_bits(p->sampling.top_p) << 16 ^
                            (uint64_t)p->sampling.top_k << 32);
        h = fake_mix(h, fake_float_bits(p->sampling.min_p) ^ history);
        for (int32_t i = 0; i < p->num_logit_bias; i++)
            h = fake_mix(h,
                         fake_float_bits(p->logit_bias[i].bias) ^ (uint64_t)p->logit_bias[i].token_id << 32);
        do h = fake_mix(h, 1);
        while (!(allowed >> h % FAKE_VOCAB & 1));
        r.token_id = (int32_t)(h % FAKE_VOCAB);
    }
    if (p->sampling.num_logprobs < 0) return r;
    r.logprobs.logprob = -(float)(fake_mix(logits, (uint64_t)r.token_id) >> 44) / 1024;
    r.logprobs.num_top = p->sampling.num_logprobs;
    for (int32_t i = 0; i < r.logprobs.num_top; i++) {
        r.logprobs.top_ids[i] = (int32_t)(fake_mix(logits, 1000u + (uint64_t)i) % FAKE_VOCAB);
        r.logprobs.top_logprobs[i] = -(float)(fake_mix(logits, 2000u + (uint64_t)i) >> 44) / 1024;
    }
    return r;
}

/* Of the "hidden state" behind what the last layer reads: a small integer, so that sums are exact. */
static inline float fake_hidden(uint64_t logits, int32_t i)
{
    return (float)(fake_mix(logits, 3000u + (uint64_t)i) >> 52);
}

/* What a row adds to its batch_slot's floats: sums, not means. */
static inline void fake_pool(float row[FAKE_HIDDEN], const struct sample_params *p, uint64_t logits)
{
    for (int32_t i = 0; i < p->num_row_logits && i < FAKE_HIDDEN; i++)
        row[i] = fake_hidden(logits, FAKE_HIDDEN + p->row_logits[i]);
    for (int32_t i = 0; sample_pools(p) && i < FAKE_HIDDEN; i++)
        row[i] = (p->position - 1 == p->pool_begin ? 0 : row[i]) + fake_hidden(logits, i);
}

static inline uint64_t fake_history_hash(const int32_t *ids, int32_t num_prompt, int32_t num_ids)
{
    uint64_t h = (uint64_t)num_prompt;
    for (int32_t i = 0; i < num_ids; i++) h = fake_mix(h, (uint64_t)ids[i]);
    return h;
}

/* Where its layers have K and V. */
static inline struct kv_layout fake_kv_layout(int32_t window, bool is_chunk)
{
    return window > 0 ? (struct kv_layout){1, 1, 1, 1, window, is_chunk}
                      : (struct kv_layout){FAKE_LAYERS, FAKE_LAYERS, 1, 0, 0, false};
}

/* The first position that a token sees. */
static inline int32_t fake_first_seen(int layer, int32_t window, bool is_chunk, int32_t position)
{
    if (layer != FAKE_LAYERS - 1 || window == 0) return 0;
    return is_chunk ? position - position % window : max_of(position + 1 - window, 0);
}

/* ---- what a sequence gives alone ---- */

struct reference {
    bool prefill_decode_equal, has_states;
    bool has_answers; /* what of a prompt looks like an answer goes through decode */
    bool in_answer;
    int32_t num_prompt, num_tokens;
    int32_t last_two[FAKE_HEADER];
    const struct logit_bias *logit_bias; /* the input's num_logit_bias */
    uint64_t forbidden;                  /* ids that no row draws */
    uint64_t allowed;                    /* constrained: those that the next row draws from */
    int32_t window;                      /* of the last layer, up to FAKE_WINDOW_MAX; 0: it sees all */
    bool window_is_chunk;
    uint64_t newest[FAKE_WINDOW_MAX]; /* what it has written last, by position */
    uint64_t reads[FAKE_LAYERS];      /* folds up to the last token */
    uint64_t state;
};

static inline void reference_fold_window(struct reference *ref, uint64_t kv)
{
    uint64_t fold = 0;
    ref->newest[ref->num_tokens % FAKE_WINDOW_MAX] = kv;
    int32_t p = fake_first_seen(FAKE_LAYERS - 1, ref->window, ref->window_is_chunk, ref->num_tokens);
    for (; p <= ref->num_tokens; p++) fold = fake_mix(fold, ref->newest[p % FAKE_WINDOW_MAX]);
    ref->reads[FAKE_LAYERS - 1] = fold;
}

/* Whether one more token goes through decode. */
static inline bool reference_decodes(struct reference *ref, int32_t token_id)
{
    bool follows = ref->num_tokens >= FAKE_HEADER && ref->last_two[0] == FAKE_HEADER_FIRST &&
                   ref->last_two[1] == FAKE_HEADER_LAST;
    ref->in_answer = (ref->in_answer || follows) && token_id != FAKE_EOS;
    ref->last_two[0] = ref->last_two[1];
    ref->last_two[1] = token_id;
    if (ref->prefill_decode_equal) return false;
    return ref->num_tokens >= ref->num_prompt || (ref->has_answers && ref->in_answer);
}

/* Computes one more token; afterwards reads[FAKE_LAYERS - 1] are its logits. */
static inline void reference_push(struct reference *ref, int32_t token_id)
{
    bool decode = reference_decodes(ref, token_id);
    uint64_t input = (uint64_t)token_id;
    if (ref->has_states) ref->state = fake_state(ref->state, input, ref->num_tokens, decode);
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        uint64_t kv = fake_kv(layer, input, ref->num_tokens, decode);
        ref->reads[layer] = fake_mix(ref->reads[layer], kv);
        if (layer == FAKE_LAYERS - 1 && ref->window > 0) reference_fold_window(ref, kv);
        input = fake_mix(ref->reads[layer] ^ ref->state, (uint64_t)token_id);
    }
    ref->num_tokens++;
}

/* What the last of the prompt's tokens so far adds to the request's row, zeros at first. */
static inline void reference_pool(const struct reference *ref, const struct request_slot_input *input,
                                  const int32_t *row_logits, float row[FAKE_HIDDEN])
{
    bool is_last = ref->num_tokens == input->num_prompt_tokens;
    struct sample_params p = {.position = ref->num_tokens};
    if (input->pooling == POOLING_MEAN || (input->pooling == POOLING_LAST && is_last)) {
        p.pool_begin = input->pooling == POOLING_MEAN ? 0 : ref->num_tokens - 1;
        p.pool_end = input->num_prompt_tokens;
    } else if (is_last) {
        p.num_row_logits = input->num_row_logits;
        p.row_logits = row_logits;
    }
    fake_pool(row, &p, ref->reads[FAKE_LAYERS - 1]);
}

static inline int reference_compare_ids(const void *a, const void *b)
{
    return (*(const int32_t *)a > *(const int32_t *)b) - (*(const int32_t *)a < *(const int32_t *)b);
}

/* The row of a request that draws (or scores) the token after the ones that ref has. tokens: all before it.
 */
static inline struct sample_result reference_row(const struct reference *ref,
                                                 const struct request_slot_input *input,
                                                 const int32_t *tokens, int32_t score_token_id)
{
    int32_t banned[STOP_TOKEN_IDS_MAX + 1], num_banned = 0;
    if (!input->ignore_eos) banned[num_banned++] = FAKE_EOS;
    for (int32_t i = 0; i < input->num_stop_token_ids; i++) banned[num_banned++] = input->stop_token_ids[i];
    qsort(banned, (size_t)num_banned, sizeof(banned[0]), reference_compare_ids);
    bool ban = score_token_id < 0 && ref->num_tokens - ref->num_prompt < input->min_tokens;
    struct sample_params p = {
        .position = ref->num_tokens,
        .score_token_id = score_token_id,
        .sampling = input->sampling,
        .num_logit_bias = input->num_logit_bias,
        .logit_bias = ref->logit_bias,
        .num_banned = ban ? num_banned : 0,
        .banned = banned,
        .allowed = input->constrained && score_token_id < 0 ? &ref->allowed : NULL,
    };
    if (score_token_id >= 0) p.sampling.num_logprobs = max_of(p.sampling.num_logprobs, 0);
    uint64_t history = fake_uses_history(&p) && score_token_id < 0
                           ? fake_history_hash(tokens, ref->num_prompt, ref->num_tokens)
                           : 0;
    return fake_sample(ref->reads[FAKE_LAYERS - 1], &p, history, ref->forbidden);
}

static inline bool logprobs_equal(const struct token_logprobs *a, const struct sample_result *b)
{
    const struct token_logprobs *l = &b->logprobs;
    size_t bytes = (size_t)l->num_top * sizeof(l->top_ids[0]);
    return a->logprob == l->logprob && a->num_top == l->num_top &&
           memcmp(a->top_ids, l->top_ids, bytes) == 0 && memcmp(a->top_logprobs, l->top_logprobs, bytes) == 0;
}

static inline bool reference_is_stop(const struct request_slot_input *input, int32_t token_id)
{
    if (token_id == FAKE_EOS && !input->ignore_eos) return true;
    for (int32_t i = 0; i < input->num_stop_token_ids; i++)
        if (input->stop_token_ids[i] == token_id) return true;
    return false;
}

#endif
