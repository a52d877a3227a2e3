#include "server/api/moving.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "config/api_keys.h"
#include "server/api/generation_output.h"
#include "server/api/loras.h"
#include "server/api/moved_stream.h"
#include "server/api/request_span.h"

enum { STATE_BYTES_MAX = 256 << 20 };

/* ---- out ---- */

/* Whoever has ended has given its tokens back. */
static bool is_running(const struct generation *g, const struct choice *c)
{
    if (c->slot_idx < 0 || c->finish_reason || c->failed || c->unread) return false;
    const struct request_slot *slot = request_slots_get(g->api->server->slots, c->slot_idx);
    return atomic_load_explicit(&slot->finish_reason, memory_order_acquire) == FINISH_NONE;
}

/* Another process would find no adapter by that name, or another one. */
static bool has_left_lora(const struct generation *g)
{
    return g->params.lora && !loras_is_there(g->api->server->loras, g->params.lora);
}

/* All that was there to tell is told, and more is to come, of every choice. */
static bool can_move(const struct generation *g)
{
    if (!g->x || !g->admitted || !g->streaming || !g->record || g->stays || g->blocked || g->broken)
        return false;
    if (has_left_lora(g)) return false;
    for (int i = 0; i < g->num_choices; i++)
        if (!is_running(g, &g->choices[i])) return false;
    return true;
}

static void describe_choice(const struct generation *g, const struct choice *c, struct moved_choice *out)
{
    const struct request_slot *slot = request_slots_get(g->api->server->slots, c->slot_idx);
    bool has_logprobs = slot->input.sampling.num_logprobs >= 0 || slot->input.prompt_logprobs;
    out->input = slot->input;
    out->num_pulled = c->num_pulled;
    out->last_write_ns = c->last_write_ns;
    out->last_pulled_ns = c->last_token_ns;
    out->num_published = atomic_load_explicit(&slot->num_published, memory_order_acquire);
    out->num_prompt_published = atomic_load_explicit(&slot->num_prompt_published, memory_order_acquire);
    out->num_tokens = slot->input.num_prompt_tokens + out->num_published;
    out->num_logprobs = has_logprobs ? out->num_tokens : 0;
    out->energy_uj = atomic_load_explicit(&slot->energy_uj, memory_order_relaxed);
    out->num_predicted_accepted = atomic_load_explicit(&slot->num_predicted_accepted, memory_order_relaxed);
    out->num_predicted_rejected = atomic_load_explicit(&slot->num_predicted_rejected, memory_order_relaxed);
    if (out->num_published == 0) return; /* the rest is known with the first token */
    out->num_cached_tokens = slot->num_cached_tokens;
    out->cache_miss = slot->cache_miss;
    out->scheduled_ns = slot->scheduled_ns;
    out->first_token_ns = slot->first_token_ns;
    out->last_token_ns = atomic_load_explicit(&slot->last_token_ns, memory_order_relaxed);
}

static void describe_stream(const struct generation *g, const struct auth *auth, struct moved_head *head)
{
    snprintf(head->path, sizeof head->path, "%s", g->answer.codec->path);
    memcpy(head->answer_id, g->answer.made_id, MADE_ID_CHARS);
    head->has_key = g->api_key_idx >= 0;
    if (head->has_key) memcpy(head->key_digest, auth->digests[g->api_key_idx], AUTH_DIGEST_BYTES);
    head->created = g->answer.created;
    head->deadline_ns = g->deadline_ns;
    head->client = g->client;
    head->tenant = g->tenant;
    head->seed = g->answer.seed;
    head->has_trace = g->trace != NULL;
    if (g->trace) head->trace = g->trace->context;
    head->digest = g->record->digest;
    head->last_write_ns = g->last_write_ns;
    head->num_choices = g->num_choices;
    head->steps_bytes = g->record->steps ? g->record->steps->num_bytes : 0;
    head->body_bytes = g->record->body_bytes;
}

/* Adds n bytes, so that what follows them is aligned. */
static bool put(int fd, off_t *at, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t written = pwrite(fd, (const char *)bytes + done, n - done, *at + (off_t)done);
        if (written <= 0) return false;
        done += (size_t)written;
    }
    *at += (off_t)align_up(n, sizeof(uint64_t));
    return ftruncate(fd, *at) == 0;
}

static bool put_steps(int fd, off_t *at, const struct stream_record *r)
{
    return !r->steps || put(fd, at, r->steps->data, r->steps->num_bytes);
}

static bool put_choice(int fd, off_t *at, const struct generation *g, const struct choice *c)
{
    struct request_slots *slots = g->api->server->slots;
    struct moved_choice head = {0};
    describe_choice(g, c, &head);
    return put(fd, at, &head, sizeof head) &&
           put(fd, at, request_slots_tokens(slots, c->slot_idx), (size_t)head.num_tokens * sizeof(int32_t)) &&
           put(fd, at, request_slots_logprobs(slots, c->slot_idx),
               (size_t)head.num_logprobs * sizeof(struct token_logprobs));
}

static bool put_choices(int fd, off_t *at, const struct generation *g)
{
    bool done = true;
    for (int i = 0; i < g->num_choices && done; i++) done = put_choice(fd, at, g, &g->choices[i]);
    return done;
}

/* In memory, never on a disk. -1: there is none. */
static int write_state(const struct generation *g, const struct moved_head *head, const char *input)
{
    int fd = memfd_create("flashd stream", MFD_CLOEXEC);
    off_t at = 0;
    if (fd < 0) return -1;
    if (put(fd, &at, head, sizeof *head) && put_steps(fd, &at, g->record) &&
        put(fd, &at, g->record->body, head->body_bytes + 1) && put(fd, &at, input, head->input_bytes) &&
        put_choices(fd, &at, g))
        return fd;
    close(fd);
    return -1;
}

static bool offer(struct generation *g, const struct auth *auth, struct moving_offer *out)
{
    struct moved_head head = {0};
    const char *input;
    if (!exchange_freeze(g->x)) return false;
    out->state_fd = -1;
    out->connection_fd = connection_move_out(g->x, &head.connection, &input, &head.input_bytes);
    if (out->connection_fd >= 0) {
        describe_stream(g, auth, &head);
        out->state_fd = write_state(g, &head, input);
    }
    if (out->state_fd < 0) exchange_thaw(g->x);
    return out->state_fd >= 0;
}

bool moving_offer(struct server *server, const struct auth *auth, struct moving_offer *out)
{
    struct api *api = server->api;
    struct generation *g = api->generations;
    assert_always(!api->offered);
    while (g && g->next) g = g->next;
    for (; g; g = g->previous)
        if (can_move(g) && offer(g, auth, out)) break;
    api->offered = g;
    return g != NULL;
}

int moving_num_staying(const struct server *server)
{
    int count = 0;
    for (const struct generation *g = server->api->generations; g; g = g->next) count += g->x != NULL;
    return count;
}

bool moving_is_offered(const struct server *server)
{
    return server->api->offered != NULL;
}

void moving_commit(struct server *server)
{
    struct generation *g = server->api->offered;
    server->api->offered = NULL;
    generation_leave(g);
}

void moving_take_back(struct server *server, bool refused)
{
    struct generation *g = server->api->offered;
    if (!g) return;
    server->api->offered = NULL;
    g->stays = refused;
    exchange_thaw(g->x);
    generation_pump(g);
}

/* ---- in ---- */

static const void *take(const char *bytes, size_t *at, size_t n)
{
    const void *part = bytes + *at;
    *at += align_up(n, sizeof(uint64_t));
    return part;
}

/* Of one choice, in m->bytes. */
struct choice_parts {
    const struct moved_choice *head;
    const int32_t *tokens;
    const struct token_logprobs *logprobs;
};

static struct choice_parts take_choice(const struct moved_stream *m, size_t *at)
{
    struct choice_parts c = {.head = take(m->bytes, at, sizeof *c.head)};
    c.tokens = take(m->bytes, at, (size_t)c.head->num_tokens * sizeof *c.tokens);
    c.logprobs = take(m->bytes, at, (size_t)c.head->num_logprobs * sizeof *c.logprobs);
    return c;
}

static bool is_whole(const struct moved_choice *c)
{
    return c->num_tokens >= 1 && c->num_published >= 0 &&
           (int64_t)c->input.num_prompt_tokens + c->num_published == c->num_tokens &&
           (c->num_logprobs == 0 || c->num_logprobs == c->num_tokens);
}

static bool find_choices(const struct moved_stream *m, size_t at, size_t num_bytes)
{
    for (int32_t i = 0; i < m->head.num_choices; i++) {
        if (num_bytes < sizeof(struct moved_choice) || at > num_bytes - sizeof(struct moved_choice) ||
            !is_whole((const struct moved_choice *)(m->bytes + at)))
            return false;
        take_choice(m, &at);
    }
    return at == num_bytes;
}

/* The sender's program is this one: what does not fit together is a file that was cut off. */
static bool find_parts(struct moved_stream *m, size_t num_bytes)
{
    const struct moved_head *h = &m->head;
    size_t at = 0;
    uint64_t most = STATE_BYTES_MAX;
    if (h->steps_bytes > most || h->body_bytes > most || h->input_bytes > most) return false;
    take(m->bytes, &at, sizeof m->head);
    m->steps = take(m->bytes, &at, h->steps_bytes);
    m->body = take(m->bytes, &at, h->body_bytes + 1);
    m->input = take(m->bytes, &at, h->input_bytes);
    m->choices_at = at;
    return find_choices(m, at, num_bytes) && m->body[h->body_bytes] == '\0';
}

static bool read_all(int fd, char *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, bytes + done, n - done, (off_t)done);
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static struct moved_stream *read_state(int fd)
{
    struct stat st;
    if (fstat(fd, &st) || st.st_size < (off_t)sizeof(struct moved_head) || st.st_size > STATE_BYTES_MAX)
        return NULL;
    size_t n = (size_t)st.st_size;
    struct moved_stream *m = malloc(sizeof *m + n);
    if (!m) return NULL;
    *m = (struct moved_stream){0};
    if (read_all(fd, m->bytes, n)) {
        memcpy(&m->head, m->bytes, sizeof m->head);
        if (find_parts(m, n)) return m;
    }
    free(m);
    return NULL;
}

static const struct codec *codec_of(const char *path)
{
    for (size_t i = 0; i < array_length(all_codecs); i++)
        if (all_codecs[i]->stream_type && !strcmp(all_codecs[i]->path, path)) return all_codecs[i];
    return NULL;
}

bool moving_find_key(const struct listener *l, bool has_key, const uint8_t digest[AUTH_DIGEST_BYTES],
                     int *idx)
{
    *idx = -1;
    if (!has_key) return l->auth.num_keys == 0;
    for (int i = 0; i < l->auth.num_keys; i++)
        if (!memcmp(l->auth.digests[i], digest, AUTH_DIGEST_BYTES)) *idx = i;
    return *idx >= 0 && !api_keys_terms(l->config, *idx).revoked;
}

static bool draws_the_same(const struct sampling *a, const struct sampling *b)
{
    return a->temperature == b->temperature && a->top_p == b->top_p && a->min_p == b->min_p &&
           a->top_k == b->top_k && a->presence_penalty == b->presence_penalty &&
           a->frequency_penalty == b->frequency_penalty && a->repetition_penalty == b->repetition_penalty &&
           a->num_logprobs == b->num_logprobs && a->seed == b->seed;
}

/* What it draws and where it ends, as this process reads the request. */
static bool asks_the_same(const struct request_slot_input *a, const struct request_slot_input *b)
{
    return a->num_prompt_tokens == b->num_prompt_tokens && a->max_tokens == b->max_tokens &&
           a->min_tokens == b->min_tokens && a->ignore_eos == b->ignore_eos &&
           a->constrained == b->constrained && a->prompt_logprobs == b->prompt_logprobs &&
           a->pooling == b->pooling && a->num_logit_bias == b->num_logit_bias &&
           a->num_stop_token_ids == b->num_stop_token_ids &&
           !memcmp(a->stop_token_ids, b->stop_token_ids, (size_t)a->num_stop_token_ids * sizeof(int32_t)) &&
           draws_the_same(&a->sampling, &b->sampling);
}

/* As an engine that died would have left it. */
static bool restore_slot(struct request_slots *slots, int32_t slot_idx, const struct choice_parts *from)
{
    const struct moved_choice *h = from->head;
    struct request_slot *slot = request_slots_get(slots, slot_idx);
    int32_t *tokens = request_slots_tokens(slots, slot_idx);
    size_t num_prompt = (size_t)h->input.num_prompt_tokens, num_answer = (size_t)h->num_published;
    if (!asks_the_same(&slot->input, &h->input) || h->num_published > h->input.max_tokens ||
        memcmp(tokens, from->tokens, num_prompt * sizeof *tokens) != 0)
        return false;
    memcpy(tokens + num_prompt, from->tokens + num_prompt, num_answer * sizeof *tokens);
    memcpy(request_slots_logprobs(slots, slot_idx), from->logprobs,
           (size_t)h->num_logprobs * sizeof *from->logprobs);
    slot->num_cached_tokens = h->num_cached_tokens;
    atomic_store(&slot->energy_uj, h->energy_uj);
    atomic_store(&slot->num_predicted_accepted, h->num_predicted_accepted);
    atomic_store(&slot->num_predicted_rejected, h->num_predicted_rejected);
    slot->cache_miss = h->cache_miss;
    slot->scheduled_ns = h->scheduled_ns;
    slot->first_token_ns = h->first_token_ns;
    atomic_store(&slot->last_token_ns, h->last_token_ns);
    atomic_store(&slot->num_prompt_published, h->num_prompt_published);
    atomic_store(&slot->num_published, h->num_published);
    return true;
}

static bool restore_slots(const struct generation *g)
{
    bool done = true;
    size_t at = g->moved->choices_at;
    for (int i = 0; i < g->num_choices && done; i++) {
        const struct choice_parts parts = take_choice(g->moved, &at);
        done = restore_slot(g->api->server->slots, g->choices[i].slot_idx, &parts);
    }
    return done;
}

static bool go_on_from(struct choice *c, const struct moved_choice *from)
{
    if (c->num_pulled != from->num_pulled || c->finish_reason || c->failed) return false;
    c->prompt_counted = c->num_pulled > 0;
    c->last_write_ns = from->last_write_ns;
    c->last_token_ns = from->last_pulled_ns;
    return true;
}

/* What the client has must be what this process would have sent it. */
static bool replay(struct generation *g)
{
    const struct moved_stream *m = g->moved;
    size_t at = m->choices_at;
    generation_replay(g, m->steps, m->head.steps_bytes);
    bool same = g->record && g->record->digest == m->head.digest && !g->broken;
    for (int i = 0; i < g->num_choices && same; i++)
        same = go_on_from(&g->choices[i], take_choice(m, &at).head);
    g->last_write_ns = m->head.last_write_ns;
    return same;
}

static void answer(struct api *api, bool is_ready)
{
    moving_on_prepared *on_prepared = api->on_prepared;
    if (!is_ready) api->readmitted = NULL;
    on_prepared(api->prepared_context, is_ready);
}

static void on_prepared(struct generation *g, bool is_ready)
{
    is_ready = is_ready && restore_slots(g) && replay(g);
    if (!is_ready) generation_drop(g);
    answer(g->api, is_ready);
}

static struct generation *readmit(struct listener *l, struct moved_stream *m, int connection_fd)
{
    const struct codec *codec = codec_of(m->head.path);
    int key_idx;
    if (!codec || !moving_find_key(l, m->head.has_key, m->head.key_digest, &key_idx)) {
        close(connection_fd);
        return NULL;
    }
    struct exchange *x = connection_adopt(l, connection_fd, &m->head.connection, m->input,
                                          m->head.input_bytes, m->head.path, key_idx);
    if (!x) return NULL;
    m->on_prepared = on_prepared;
    struct generation *g = generation_readmit(x, codec, m);
    if (!g) {
        exchange_let_go(x);
        return NULL;
    }
    g->client = m->head.client;
    g->tenant = m->head.tenant;
    return g;
}

void moving_prepare(struct listener *listener, const struct moving_offer *offer, moving_on_prepared *on_done,
                    void *context)
{
    struct api *api = listener->server->api;
    struct moved_stream *m = read_state(offer->state_fd);
    assert_always(!api->readmitted);
    close(offer->state_fd);
    api->on_prepared = on_done;
    api->prepared_context = context;
    if (m)
        api->readmitted = readmit(listener, m, offer->connection_fd);
    else
        close(offer->connection_fd);
    if (api->readmitted) return;
    free(m);
    answer(api, false);
}

bool moving_finish(struct server *server)
{
    struct generation *g = server->api->readmitted;
    server->api->readmitted = NULL;
    if (!g || !g->x) return false;
    generation_go_on(g);
    exchange_thaw(g->x);
    generation_pump(g);
    return true;
}

void moving_drop(struct server *server)
{
    struct generation *g = server->api->readmitted;
    server->api->readmitted = NULL;
    if (!g) return;
    generation_drop(g);
    if (!g->preparing) generation_pump(g);
}
