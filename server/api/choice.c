#include "server/api/choice.h"

#include "base/check.h"
#include "base/clock.h"

enum { TEXT_BYTES_MAX = 64 << 20, HELD_BYTES_MAX = 1 << 20 };

bool choice_init(struct choice *c, const struct choice_context *context, const struct prompt *prompt,
                 struct arena *arena)
{
    const struct params *p = context->params;
    const struct tokenizer *tokenizer = context->server->tokenizer;
    buffer_init(&c->ready, TEXT_BYTES_MAX);
    logprobs_text_init(&c->logprobs, p->kind, tokenizer, p->return_tokens_as_token_ids, TEXT_BYTES_MAX);
    c->slot_idx = -1;
    c->num_prompt_tokens = prompt->tokens.num_ids;
    c->num_reported = p->input->prompt_logprobs ? 0 : c->num_prompt_tokens;
    if (prompt->text) buffer_append(&c->ready, prompt->text, prompt->text_bytes);
    return text_stream_init(&c->text, tokenizer, p->skip_special_tokens, &p->stop,
                            p->include_stop_str_in_output, HELD_BYTES_MAX, arena) &&
           !buffer_failed(&c->ready);
}

void choice_deinit(struct choice *c)
{
    text_stream_deinit(&c->text);
    buffer_deinit(&c->ready);
    logprobs_text_deinit(&c->logprobs);
}

static struct request_slot *slot_of(const struct choice *c, const struct choice_context *context)
{
    return request_slots_get(context->server->slots, c->slot_idx);
}

/* A token that ends the answer leaves no text behind, whatever it stands for. */
static bool is_stop_token(const struct choice_context *context, const struct request_slot_input *input,
                          int32_t id)
{
    const struct link_facts *model = context->server->facts;
    for (int i = 0; i < input->num_stop_token_ids; i++)
        if (input->stop_token_ids[i] == id) return true;
    for (int i = 0; !input->ignore_eos && i < model->num_eos_ids; i++)
        if (model->eos_ids[i] == id) return true;
    return false;
}

static void take_token(struct choice *c, const struct choice_context *context,
                       const struct request_slot_input *input, int32_t id)
{
    c->num_pulled++;
    if (is_stop_token(context, input, id) && !context->params->include_stop_str_in_output) return;
    if (!text_stream_push(&c->text, id, c->num_pulled > input->min_tokens, &c->ready)) return;
    c->finish_reason = "stop";
    link_cancel(context->server->link, c->slot_idx);
}

static void take_finish(struct choice *c, enum finish_reason finish)
{
    if (finish == FINISH_STOP || finish == FINISH_LENGTH) {
        bool stopped = text_stream_finish(&c->text, &c->ready) || finish == FINISH_STOP;
        c->finish_reason = stopped ? "stop" : "length";
    } else {
        c->failed = true;
        c->failure = finish;
    }
}

/* Only once the engine has written them: with the first token, or the end. */
static void take_times(struct choice *c, const struct request_slot *slot, enum finish_reason finish)
{
    if (c->scheduled_ns || (c->num_pulled == 0 && finish == FINISH_NONE)) return;
    c->num_cached_tokens = slot->num_cached_tokens;
    c->scheduled_ns = slot->scheduled_ns;
    c->first_token_ns = slot->first_token_ns;
}

/* Log probabilities of the prompt come first; those of generated tokens up to the last one pulled. */
static void report_logprobs(struct choice *c, const struct choice_context *context,
                            const struct request_slot *slot, int max_positions)
{
    struct request_slots *slots = context->server->slots;
    const int32_t *tokens = request_slots_tokens(slots, c->slot_idx);
    const struct token_logprobs *logprobs = request_slots_logprobs(slots, c->slot_idx);
    int32_t end = c->num_prompt_tokens + c->num_pulled;
    if (slot->input.prompt_logprobs && c->num_reported < c->num_prompt_tokens) {
        int32_t known = atomic_load_explicit(&slot->num_prompt_published, memory_order_acquire);
        if (known < c->num_prompt_tokens) end = known;
    }
    end = min_of(end, c->num_reported + max_positions);
    for (; c->num_reported < end; c->num_reported++)
        logprobs_text_add(&c->logprobs, tokens[c->num_reported],
                          c->num_reported > 0 ? &logprobs[c->num_reported] : NULL);
}

int choice_pull(struct choice *c, const struct choice_context *context, int max_tokens)
{
    if (c->slot_idx < 0) return 0;
    const struct request_slot *slot = slot_of(c, context);
    /* The finish before the count: what is published before a finish is then seen. */
    enum finish_reason finish =
        (enum finish_reason)atomic_load_explicit(&slot->finish_reason, memory_order_acquire);
    int32_t published = atomic_load_explicit(&slot->num_published, memory_order_acquire),
            before = c->num_pulled;
    const int32_t *tokens = request_slots_tokens(context->server->slots, c->slot_idx) + c->num_prompt_tokens;
    int32_t end = min_of(published, before + max_tokens);
    while (c->num_pulled < end && !c->finish_reason)
        take_token(c, context, &slot->input, tokens[c->num_pulled]);
    take_times(c, slot, finish);
    if (!c->finish_reason && c->num_pulled == published && finish != FINISH_NONE) take_finish(c, finish);
    if (context->params->logprobs) report_logprobs(c, context, slot, max_tokens);
    return c->num_pulled - before;
}

bool choice_is_complete(const struct choice *c, const struct choice_context *context)
{
    if (!c->finish_reason) return false;
    return !context->params->logprobs || c->num_reported == c->num_prompt_tokens + c->num_pulled;
}

bool choice_is_broken(const struct choice *c)
{
    return buffer_failed(&c->ready) || buffer_failed(&c->text.held) || logprobs_text_failed(&c->logprobs);
}

bool choice_release_slot(struct choice *c, const struct choice_context *context)
{
    if (c->slot_idx < 0) return true;
    const struct request_slot *slot = slot_of(c, context);
    if (atomic_load_explicit(&slot->finish_reason, memory_order_acquire) == FINISH_NONE) return false;
    request_slots_release(context->server->slots, c->slot_idx);
    c->slot_idx = -1;
    return true;
}
