#include "server/api/choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/id_list.h"
#include "server/api/api.h"
#include "server/masks.h"
#include "text/rerank_template.h"

enum {
    TEXT_BYTES_MAX = 64 << 20,
    HELD_BYTES_MAX = 1 << 20,
    UNREAD_PARTS = 4, /* of what may be held for clients copies of all choices are one */
};

/* A finished slot's tokens and log probabilities from position first on; no log probabilities where none are
 * wanted. */
struct unread {
    size_t num_bytes; /* in the budget */
    enum finish_reason finish;
    int32_t num_published, min_tokens, stop_token_id, first;
    uint64_t last_token_ns;
    int32_t *tokens;
    struct token_logprobs logprobs[];
};

/* What there is to read, in the slot or in the copy of it. */
struct view {
    enum finish_reason finish;
    int32_t num_published, min_tokens;
    int32_t stop_token_id; /* the last token, once the finish is FINISH_STOP; else -1 */
    int32_t first;
    uint64_t last_token_ns; /* when the engine had it */
    const int32_t *tokens;  /* position p of the sequence is at p - first */
    const struct token_logprobs *logprobs;
};

static bool add_offsets(struct choice *c, const struct choice_context *context, const struct prompt *prompt,
                        struct arena *arena)
{
    const struct params *p = context->params;
    if (!p->logprobs || p->kind != API_COMPLETIONS) return true;
    c->offsets = arena_alloc(arena, sizeof *c->offsets);
    if (c->offsets)
        token_offsets_init(c->offsets, context->server->tokenizer, prompt, p->skip_special_tokens);
    return c->offsets != NULL;
}

static bool add_transcript(struct choice *c, const struct choice_context *context, struct arena *arena)
{
    const struct server *server = context->server;
    if (!server->makes_receipts || api_kind_has_rows(context->params->kind)) return true;
    c->transcript = arena_alloc(arena, sizeof *c->transcript);
    if (!c->transcript) return false;
    buffer_init(&c->transcript->ids, TRANSCRIPT_TOKENS_MAX * sizeof(int32_t));
    sha256_init(&c->transcript->tokens);
    sha256_init(&c->transcript->text);
    return true;
}

/* Where a chat's answer may hold more than text. */
static bool add_pieces(struct choice *c, const struct choice_context *context, const struct prompt *prompt)
{
    const struct params *p = context->params;
    const struct tool_format *f = context->server->tool_format;
    enum tool_reasoning reasoning = TOOL_REASONING_IN_TEXT;
    bool splits = (p->separate_reasoning || !p->include_reasoning) && f && tool_format_has_reasoning(f);
    if (p->kind != API_CHAT || !f || (!p->tools && !splits)) return true;
    if (splits) reasoning = prompt->opens_reasoning ? TOOL_REASONING_OPEN : TOOL_REASONING_SPLIT;
    c->pieces = pieces_create(f, p->tools, reasoning, p->parallel_tool_calls);
    if (c->pieces) c->pieces->hides_reasoning = !p->include_reasoning;
    return c->pieces != NULL;
}

bool choice_init(struct choice *c, const struct choice_context *context, const struct prompt *prompt,
                 struct arena *arena)
{
    const struct params *p = context->params;
    buffer_init(&c->ready, TEXT_BYTES_MAX);
    c->slot_idx = -1;
    c->num_prompt_tokens = prompt->tokens.num_ids;
    c->num_reported = p->kind == API_COMPLETIONS && p->echo && p->logprobs ? 0 : c->num_prompt_tokens;
    if (prompt->text) buffer_append(&c->ready, prompt->text, prompt->text_bytes);
    if (!add_pieces(c, context, prompt) || !add_transcript(c, context, arena)) return false;
    if (!text_stream_init(&c->text, context->server->tokenizer, p->skip_special_tokens && !c->pieces,
                          &p->stop, p->include_stop_str_in_output, HELD_BYTES_MAX, arena))
        return false;
    c->text.min_indent = p->n_indent;
    return add_offsets(c, context, prompt, arena) && !buffer_failed(&c->ready);
}

static void unread_free(struct choice *c, struct api *api)
{
    if (!c->unread) return;
    assert_debug(api->num_unread_bytes >= c->unread->num_bytes);
    api->num_unread_bytes -= c->unread->num_bytes;
    free(c->unread);
    c->unread = NULL;
}

void choice_deinit(struct choice *c, const struct choice_context *context)
{
    unread_free(c, context->server->api);
    text_stream_deinit(&c->text);
    buffer_deinit(&c->ready);
    pieces_free(c->pieces);
    if (c->offsets) token_offsets_deinit(c->offsets);
    if (c->transcript) buffer_deinit(&c->transcript->ids);
}

/* ---- reading ---- */

static struct request_slot *slot_of(const struct choice *c, const struct choice_context *context)
{
    return request_slots_get(context->server->slots, c->slot_idx);
}

static struct view view_slot(const struct choice *c, const struct choice_context *context)
{
    const struct request_slot *slot = slot_of(c, context);
    struct request_slots *slots = context->server->slots;
    /* The finish before the count: what is published before a finish is then seen. */
    struct view v = {
        .finish = (enum finish_reason)atomic_load_explicit(&slot->finish_reason, memory_order_acquire)};
    v.num_published = atomic_load_explicit(&slot->num_published, memory_order_acquire);
    v.min_tokens = slot->input.min_tokens;
    v.last_token_ns = atomic_load_explicit(&slot->last_token_ns, memory_order_relaxed);
    v.stop_token_id = v.finish == FINISH_STOP ? slot->stop_token_id : -1;
    v.tokens = request_slots_tokens(slots, c->slot_idx);
    v.logprobs = request_slots_logprobs(slots, c->slot_idx);
    return v;
}

/* Of a choice with a slot or a copy of one; nothing is published by neither. */
static struct view view_of(const struct choice *c, const struct choice_context *context)
{
    if (c->slot_idx >= 0) return view_slot(c, context);
    if (!c->unread) return (struct view){.finish = FINISH_NONE, .num_published = c->num_pulled};
    const struct unread *u = c->unread;
    return (struct view){u->finish, u->num_published, u->min_tokens, u->stop_token_id,
                         u->first,  u->last_token_ns, u->tokens,     u->logprobs};
}

static int32_t generated_token(const struct choice *c, const struct view *v, int32_t i)
{
    return v->tokens[c->num_prompt_tokens + i - v->first];
}

static bool is_stop_token(const struct choice_context *context, const struct request_slot_input *input,
                          int32_t id)
{
    const struct link_facts *model = context->server->facts;
    if (id_list_has(input->stop_token_ids, input->num_stop_token_ids, id)) return true;
    return !input->ignore_eos && (id == tokenizer_eos_id(context->server->tokenizer) ||
                                  id_list_has(model->eos_ids, model->num_eos_ids, id));
}

/* The engine publishes the last token before the finish: in between it is left where it is. */
static int32_t num_ready(const struct choice *c, const struct choice_context *context, const struct view *v)
{
    if (v->finish != FINISH_NONE || v->num_published == c->num_pulled || c->slot_idx < 0)
        return v->num_published;
    const struct request_slot_input *input = &slot_of(c, context)->input;
    int32_t last = generated_token(c, v, v->num_published - 1);
    bool ends = v->num_published == c->max_tokens || is_stop_token(context, input, last);
    return v->num_published - ends;
}

/* A control token that is none of the marks that the answer is taken apart by. */
static bool is_hidden(const struct choice *c, const struct choice_context *context, int32_t id)
{
    const struct tokenizer *t = context->server->tokenizer;
    size_t n;
    if (!c->pieces || !context->params->skip_special_tokens || !tokenizer_is_special(t, id)) return false;
    const char *text = tokenizer_token_bytes(t, id, &n);
    return !pieces_want(c->pieces, text, n);
}

static void note_logprob(struct choice *c, const struct choice_context *context, const struct view *v)
{
    if (context->params->n == context->params->num_returned) return;
    c->sum_logprob += (double)v->logprobs[c->num_prompt_tokens + c->num_pulled - 1 - v->first].logprob;
}

static void note_token(struct choice *c, int32_t id)
{
    if (!c->transcript) return;
    sha256_update(&c->transcript->tokens, sizeof id, (const uint8_t *)&id);
    if (c->num_pulled <= TRANSCRIPT_TOKENS_MAX) buffer_append(&c->transcript->ids, &id, sizeof id);
}

/* Of ready, from begin on. */
static void note_text(struct choice *c, size_t begin)
{
    if (c->transcript && c->ready.num_bytes > begin)
        sha256_update(&c->transcript->text, c->ready.num_bytes - begin,
                      (const uint8_t *)c->ready.data + begin);
}

/* A token that ends the answer leaves no text behind, whatever it stands for. */
static void decode_token(struct choice *c, const struct choice_context *context, const struct view *v)
{
    assert_debug(!c->failed && c->num_pulled < c->max_tokens);
    int32_t id = generated_token(c, v, c->num_pulled++);
    note_token(c, id);
    note_logprob(c, context, v);
    bool is_stop = id == v->stop_token_id && c->num_pulled == v->num_published;
    if ((is_stop && !context->params->include_stop_str_in_output) || is_hidden(c, context, id)) return;
    if (!text_stream_push(&c->text, id, c->num_pulled > v->min_tokens, &c->ready)) return;
    c->finish_reason = "stop";
    if (c->slot_idx >= 0) link_cancel(context->server->link, c->slot_idx);
}

/* Taken apart token by token, so that reasoning counts the same however the tokens came. */
static void take_token(struct choice *c, const struct choice_context *context, const struct view *v)
{
    size_t begin = c->ready.num_bytes;
    decode_token(c, context, v);
    note_text(c, begin);
    if (!c->pieces) return;
    pieces_take(c->pieces, &c->ready, false, false);
    c->num_reasoning += tool_parser_in_reasoning(c->pieces->parser);
}

/* Of a head's number, or of the logits of yes and of no. */
static double score_of(const struct link_facts *facts, const float *row)
{
    if (!facts->scores_pairs) return rerank_score(row);
    return facts->scores_are_plain ? (double)row[0] : 1 / (1 + exp(-(double)row[0]));
}

/* The row becomes text at once, while others are computed: all of them together would hold the loop up. */
static void take_row(struct choice *c, const struct choice_context *context)
{
    const float *row = request_slots_row(context->server->slots, c->slot_idx);
    if (context->params->kind == API_SCORING)
        c->score = score_of(context->server->facts, row);
    else
        embedding_append(&c->ready, row, &context->params->embedding);
    c->finish_reason = "stop";
}

static void take_finish(struct choice *c, const struct choice_context *context, enum finish_reason finish)
{
    if (finish == FINISH_LENGTH && api_kind_has_rows(context->params->kind)) {
        take_row(c, context);
    } else if (finish == FINISH_STOP || finish == FINISH_LENGTH) {
        size_t begin = c->ready.num_bytes;
        bool stopped = text_stream_finish(&c->text, &c->ready) || finish == FINISH_STOP;
        note_text(c, begin);
        c->finish_reason = stopped ? "stop" : "length";
    } else {
        c->failed = true;
        c->failure = finish;
    }
}

static void take_counts(struct choice *c, const struct request_slot *slot)
{
    c->energy_uj = atomic_load_explicit(&slot->energy_uj, memory_order_relaxed);
    c->num_predicted_accepted = atomic_load_explicit(&slot->num_predicted_accepted, memory_order_relaxed);
    c->num_predicted_rejected = atomic_load_explicit(&slot->num_predicted_rejected, memory_order_relaxed);
}

/* Only once the engine has written them: with the first token, or the end. */
static void take_times(struct choice *c, const struct choice_context *context, const struct view *v)
{
    if (c->slot_idx >= 0 && v->finish != FINISH_NONE)
        c->num_preemptions = slot_of(c, context)->num_preemptions;
    if (c->slot_idx >= 0) take_counts(c, slot_of(c, context));
    if (c->scheduled_ns || c->slot_idx < 0 || (v->num_published == 0 && v->finish == FINISH_NONE)) return;
    const struct request_slot *slot = slot_of(c, context);
    c->num_cached_tokens = slot->num_cached_tokens;
    c->cache_miss = slot->cache_miss;
    c->scheduled_ns = slot->scheduled_ns;
    c->first_token_ns = slot->first_token_ns;
}

/* The tokens that were there to take came evenly, as far as is known here. */
static void note_token_time(struct choice *c, const struct view *v, int32_t before)
{
    uint64_t from_ns = before > 0 ? c->last_token_ns : c->first_token_ns;
    int32_t num_gaps = v->num_published - before - (before == 0),
            num_taken = c->num_pulled - before - (before == 0);
    c->last_token_ns = from_ns;
    if (num_gaps > 0 && v->last_token_ns > from_ns)
        c->last_token_ns += (v->last_token_ns - from_ns) / (uint64_t)num_gaps * (uint64_t)num_taken;
}

/* A call that has broken off is none to make. */
static void take_pieces(struct choice *c)
{
    bool is_stopped = c->finish_reason && !strcmp(c->finish_reason, "stop");
    pieces_take(c->pieces, &c->ready, c->finish_reason != NULL, !is_stopped || c->text.stop_idx >= 0);
    if (is_stopped && pieces_call(c->pieces)) c->finish_reason = "tool_calls";
}

int choice_pull(struct choice *c, const struct choice_context *context, int max_tokens)
{
    const struct view v = view_of(c, context);
    int32_t before = c->num_pulled, end = num_ready(c, context, &v);
    assert_debug(v.num_published >= c->num_pulled);
    take_times(c, context, &v);
    end = min_of(end, before + max_tokens);
    while (c->num_pulled < end && !c->finish_reason) take_token(c, context, &v);
    if (c->num_pulled > before) note_token_time(c, &v, before);
    if (!c->finish_reason && c->num_pulled == v.num_published && v.finish != FINISH_NONE)
        take_finish(c, context, v.finish);
    if (c->pieces) take_pieces(c);
    return c->num_pulled - before;
}

bool choice_has(const struct choice *c, const struct choice_context *context, int32_t count)
{
    const struct view v = view_of(c, context);
    return v.finish != FINISH_NONE || num_ready(c, context, &v) - c->num_pulled >= count;
}

const int32_t *choice_tokens(const struct choice *c, const struct choice_context *context, int32_t position)
{
    const struct view v = view_of(c, context);
    assert_debug(position >= v.first);
    return v.tokens + position - v.first;
}

/* ---- log probabilities ---- */

static struct logprobs_part part_of(const struct choice *c, const struct choice_context *context)
{
    const struct view v = view_of(c, context);
    return (struct logprobs_part){.tokenizer = context->server->tokenizer,
                                  .token_ids_as_text = context->params->return_tokens_as_token_ids,
                                  .num_top = context->params->num_top_logprobs,
                                  .offsets = c->offsets,
                                  .first = v.first,
                                  .tokens = v.tokens,
                                  .logprobs = v.logprobs};
}

struct logprobs_part choice_next_logprobs(const struct choice *c, const struct choice_context *context,
                                          int32_t max_positions)
{
    struct logprobs_part part = part_of(c, context);
    int32_t known = c->num_pulled > 0 || c->finish_reason ? c->num_prompt_tokens + c->num_pulled : 0;
    part.begin = part.end = c->num_reported;
    if (context->params->logprobs && known > part.begin)
        part.end = part.begin + min_of(known - part.begin, max_positions);
    return part;
}

struct logprobs_part choice_prompt_logprobs(const struct choice *c, const struct choice_context *context)
{
    struct logprobs_part part = part_of(c, context);
    part.num_top = context->params->num_prompt_logprobs;
    part.end = c->num_prompt_tokens;
    return part;
}

/* ---- the end ---- */

bool choice_is_broken(const struct choice *c)
{
    if (c->transcript && buffer_failed(&c->transcript->ids)) return true;
    return buffer_failed(&c->ready) || buffer_failed(&c->text.held) || (c->pieces && c->pieces->failed);
}

/* Of a finished slot: the positions that will still be read. */
static void unread_range(const struct choice *c, const struct choice_context *context, const struct view *v,
                         int32_t *begin, int32_t *end)
{
    int32_t num_generated = c->finish_reason ? c->num_pulled : v->num_published;
    *end = c->num_prompt_tokens + num_generated;
    *begin = c->num_prompt_tokens + c->num_pulled;
    if (context->params->logprobs) *begin = min_of(*begin, c->num_reported);
    if (context->params->return_token_ids || context->params->return_prompt_text)
        *begin = min_of(*begin, c->num_ids_told);
    if (context->params->num_prompt_logprobs >= 0 || context->params->tells_prompt_last) *begin = 0;
}

static bool has_room(const struct api *api, size_t num_bytes)
{
    uint64_t most = api->server->config->max_buffered_bytes / UNREAD_PARTS;
    return num_bytes <= most && api->num_unread_bytes <= most - num_bytes;
}

/* False: it does not fit. */
static bool copy_unread(struct choice *c, const struct choice_context *context, const struct view *v,
                        int32_t begin, int32_t end)
{
    struct api *api = context->server->api;
    assert_debug(!c->unread && begin >= 0 && begin <= end);
    bool logprobs = context->params->logprobs || context->params->num_prompt_logprobs >= 0 ||
                    context->params->n > context->params->num_returned;
    size_t count = (size_t)(end - begin),
           tokens_at = sizeof *c->unread + logprobs * count * sizeof *v->logprobs;
    size_t num_bytes = tokens_at + count * sizeof *v->tokens;
    struct unread *u = has_room(api, num_bytes) ? malloc(num_bytes) : NULL;
    if (!u) return false;
    *u = (struct unread){num_bytes,        v->finish, v->num_published, v->min_tokens,
                         v->stop_token_id, begin,     v->last_token_ns, (int32_t *)((char *)u + tokens_at)};
    memcpy(u->tokens, v->tokens + begin, count * sizeof *u->tokens);
    if (logprobs) memcpy(u->logprobs, v->logprobs + begin, count * sizeof *u->logprobs);
    api->num_unread_bytes += num_bytes;
    c->unread = u;
    return true;
}

static void keep_slot(struct choice *c, struct api *api, bool keeps)
{
    api->num_kept_slots += keeps - c->keeps_slot;
    c->keeps_slot = keeps;
}

void choice_let_go(struct choice *c, const struct choice_context *context)
{
    int32_t begin, end;
    if (c->slot_idx < 0 || api_kind_has_rows(context->params->kind))
        return; /* slots bound what rows become */
    const struct view v = view_slot(c, context);
    bool answered = c->finish_reason || v.finish == FINISH_STOP || v.finish == FINISH_LENGTH;
    if (v.finish == FINISH_NONE || !answered) return; /* a failure's text is in the slot */
    take_times(c, context, &v);
    unread_range(c, context, &v, &begin, &end);
    bool has_unread = begin < end || !c->finish_reason;
    if (!has_unread || copy_unread(c, context, &v, begin, end))
        choice_release_slot(c, context);
    else
        keep_slot(c, context->server->api, true);
}

bool choice_release_slot(struct choice *c, const struct choice_context *context)
{
    if (c->slot_idx < 0) return true;
    const struct request_slot *slot = slot_of(c, context);
    if (atomic_load_explicit(&slot->finish_reason, memory_order_acquire) == FINISH_NONE) return false;
    assert_debug(c->num_pulled <= atomic_load_explicit(&slot->num_published, memory_order_relaxed));
    if (slot->input.constrained) masks_end(context->server->masks, c->slot_idx);
    request_slots_release(context->server->slots, c->slot_idx);
    keep_slot(c, context->server->api, false);
    c->slot_idx = -1;
    return true;
}
