/* client.c - the clients: each one connection with one to three requests, and a way to behave. */
#include "sim/client.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/api.h"
#include "server/api/generation.h"

enum { REQUESTS_MAX = 3 };
enum client_state { CLIENT_WAITS, CLIENT_CONNECTED, CLIENT_DONE };

static const uint64_t MS = 1000000;

struct client {
    int idx;
    enum client_state state;
    struct rng rng;
    uint64_t next_ns, begin_ns;
    struct socket *socket;
    struct request requests[REQUESTS_MAX];
    struct response responses[REQUESTS_MAX];
    int num_requests, num_sent, num_answered;
    struct bytes outgoing, incoming;
    /* behaviour */
    bool pipelines, half_closes, leaves_by_reset;
    size_t drip_bytes; /* 0: sends all at once */
    bool was_slow;
    size_t read_bytes; /* at a time; 0: all there is */
    uint64_t read_interval_ns;
    uint64_t stall_ns;  /* stops reading for so long, once, */
    size_t stall_after; /* after so many bytes */
    uint64_t leave_ns;  /* after its beginning; 0: stays */
    size_t num_received;
    bool stalled, patient_again;
};

static struct client *clients[CLIENTS_MAX];
static uint64_t next_ns;

/* ---- by chance ---- */

static void make_behaviour(struct client *c)
{
    struct rng *rng = &c->rng;
    c->pipelines = has(FEATURE_pipelining) && rng_chance(rng, 40);
    if (has(FEATURE_drips) && rng_chance(rng, 20)) c->drip_bytes = 1 + (size_t)rng_skewed(rng, 2000);
    if (has(FEATURE_slow_readers) && rng_chance(rng, 30)) {
        c->was_slow = true;
        c->read_bytes = 1 + (size_t)rng_skewed(rng, 2000);
        c->read_interval_ns = 1 + rng_skewed(rng, 300 * MS);
    }
    if (has(FEATURE_stalled_readers) && rng_chance(rng, 25)) {
        c->stall_ns = 100 * MS + rng_skewed(rng, 20000 * MS);
        c->stall_after = 1 + (size_t)rng_skewed(rng, 3000);
    }
    if (has(FEATURE_disconnects) && rng_chance(rng, 25)) {
        c->leave_ns = 1 + rng_skewed(rng, 400 * MS);
        c->leaves_by_reset = rng_chance(rng, 50);
    }
    c->half_closes = has(FEATURE_half_closes) && rng_chance(rng, 15);
}

static struct client *make_client(int idx, uint64_t begin)
{
    struct client *c = keep_alloc(sizeof *c);
    c->idx = idx;
    c->rng = rng_of("client", (uint64_t)idx);
    c->begin_ns = c->next_ns = begin;
    c->num_requests = rng_chance(&c->rng, 60) ? 1 : 1 + rng_below(&c->rng, REQUESTS_MAX);
    make_behaviour(c);
    for (int i = 0; i < c->num_requests; i++) {
        request_make(&c->requests[i], &c->rng, idx, i);
        if (!c->requests[i].close_after) continue;
        c->num_requests = i + 1;
    }
    return c;
}

/* Bursts and pauses. */
void clients_init(void)
{
    struct rng rng = rng_of("arrivals", 0);
    uint64_t at = now_ns() + 60 * MS, gap = 1 + rng_skewed(&rng, 60 * MS);
    for (int i = 0; i < world.num_clients; i++) {
        at += rng_chance(&rng, 3) ? 20 * gap : rng_skewed(&rng, gap);
        uint64_t begin = rng_chance(&rng, 2) ? rng_skewed(&rng, 60 * MS) : at;
        if (!world.script.left_out[i]) clients[i] = make_client(i, begin);
    }
}

struct request *request_find(const char *id)
{
    int client_idx, idx;
    expect(sscanf(id, "c%dr%d", &client_idx, &idx) == 2 && client_idx >= 0 && client_idx < CLIENTS_MAX &&
               clients[client_idx] && idx >= 0 && idx < clients[client_idx]->num_requests,
           "the server names a request that nobody sent: %s", id);
    return &clients[client_idx]->requests[idx];
}

bool client_is_slow(int client_idx)
{
    const struct client *c = clients[client_idx];
    return c->was_slow || c->stall_ns > 0 || c->leave_ns > 0;
}

bool client_drips(int client_idx)
{
    return clients[client_idx]->drip_bytes > 0;
}

void client_on_readable(int client_idx)
{
    struct client *c = clients[client_idx];
    if (c->state != CLIENT_CONNECTED || c->read_bytes > 0 || (c->stalled && !c->patient_again)) return;
    c->next_ns = min_of(c->next_ns, now_ns() + 100000);
    next_ns = min_of(next_ns, c->next_ns);
}

/* ---- the answer's bytes ---- */

static const char *find_line(const char *head, const char *end, const char *name)
{
    const char *at = memmem(head, (size_t)(end - head), name, strlen(name));
    return at ? at + strlen(name) : NULL;
}

/* False: more is needed. */
static bool parse_head(struct client *c, struct response *r)
{
    const char *data = c->incoming.data;
    const char *end = c->incoming.num > 0 ? memmem(data, c->incoming.num, "\r\n\r\n", 4) : NULL;
    if (!end) return false;
    end += 2;
    /* What came is not a string: sscanf would look for its end. */
    static const char version[] = "HTTP/1.1 ";
    bool is_response = (size_t)(end - data) > strlen(version) && !memcmp(data, version, strlen(version));
    expect(is_response, "not a response: %.*s", (int)(end - data), data);
    r->http_status = (int)strtol(data + strlen(version), NULL, 10);
    if (r->http_status != 100) {
        const char *length = find_line(data, end, "\r\nContent-Length: ");
        r->chunked = find_line(data, end, "\r\nTransfer-Encoding: chunked\r\n") != NULL;
        r->closes = find_line(data, end, "\r\nConnection: close\r\n") != NULL;
        r->has_retry_after = find_line(data, end, "\r\nRetry-After: ") != NULL;
        expect(r->chunked == !length, "a response without a length, or with two");
        r->content_bytes = length ? strtoul(length, NULL, 10) : 0;
        r->state = RESPONSE_BODY;
        const char *id = find_line(data, end, "\r\nx-request-id: ");
        size_t n = strlen(c->requests[c->num_answered].id);
        /* A request that there was no memory or no place for gets an id of the server's, as one whose head did not come. */
        bool starved = heap_num_failed() > c->requests[c->num_answered].failed_allocations_before;
        bool unread = (r->http_status == 429 && has(FEATURE_few_places)) ||
                      (r->http_status == 503 && has(FEATURE_small_buffers)) ||
                      (r->http_status == 408 && client_drips(c->idx));
        expect(id &&
                   ((!memcmp(id, c->requests[c->num_answered].id, n) && id[n] == '\r') || starved || unread),
               "an answer to somebody else: %.*s", (int)(end - data), data);
    }
    bytes_consume(&c->incoming, (size_t)(end + 2 - data));
    return true;
}

static bool parse_chunk(struct client *c, struct response *r)
{
    const char *data = c->incoming.data;
    const char *line = c->incoming.num > 0 ? memmem(data, c->incoming.num, "\r\n", 2) : NULL;
    if (!line) return false;
    size_t n = strtoul(data, NULL, 16), begin = (size_t)(line + 2 - data);
    if (c->incoming.num < begin + n + 2) return false;
    expect(!memcmp(data + begin + n, "\r\n", 2), "a chunk of the wrong size");
    bytes_append(&r->body, data + begin, n);
    bytes_consume(&c->incoming, begin + n + 2);
    if (n == 0) r->state = RESPONSE_COMPLETE;
    return true;
}

static bool parse_body(struct client *c, struct response *r)
{
    if (r->chunked) return parse_chunk(c, r);
    if (c->incoming.num < r->content_bytes) return false;
    bytes_append(&r->body, c->incoming.data, r->content_bytes);
    bytes_consume(&c->incoming, r->content_bytes);
    r->state = RESPONSE_COMPLETE;
    return true;
}

/* ---- its life ---- */

static void send_request(struct client *c)
{
    struct request *r = &c->requests[c->num_sent++];
    r->sent = true;
    r->sent_ns = now_ns();
    r->failed_allocations_before = heap_num_failed();
    report->num_requests++;
    request_append_http(r, &c->outgoing);
    say("client %d sends %s: %d prompts, %d choices, %d + %d tokens", c->idx, r->id, r->num_prompts, r->n,
        r->num_prompt[0], r->max_tokens);
}

static void end_client(struct client *c)
{
    if (c->socket) net_close(c->socket);
    c->socket = NULL;
    c->state = CLIENT_DONE;
    c->next_ns = UINT64_MAX;
}

static void connect_client(struct client *c)
{
    struct rng *rng = &c->rng;
    size_t window = rng_chance(rng, 50) ? 65536 : 256 + (size_t)rng_skewed(rng, 8192);
    c->socket = net_connect(c->idx, window);
    say("client %d connects%s", c->idx, c->socket ? "" : ": nobody listens");
    if (!c->socket) {
        expect(world.drain_sent || world.exit_code || world.ending || !world.server, "nobody listens");
        end_client(c);
        return;
    }
    c->state = CLIENT_CONNECTED;
    do send_request(c);
    while (c->pipelines && c->num_sent < c->num_requests);
    if (c->num_sent > 1) mark(MARK_pipelined);
}

static void mark_leaving(const struct client *c)
{
    const struct server *server = world.server;
    for (const struct generation *g = server ? server->api->generations : NULL; g; g = g->next) {
        if (!g->x || strcmp(g->request_id, c->requests[c->num_answered].id) != 0) continue;
        bool runs = g->num_choices > 0 && g->choices[0].slot_idx >= 0 &&
                    request_slots_get(server->slots, g->choices[0].slot_idx)->scheduled_ns > 0;
        mark(g->preparing ? MARK_left_while_preparing
             : runs       ? MARK_left_while_running
                          : MARK_left_while_waiting);
    }
}

static void leave(struct client *c)
{
    say("client %d leaves by %s", c->idx, c->leaves_by_reset ? "reset" : "close");
    if (c->num_answered < c->num_sent) {
        mark_leaving(c);
        answer_check(&c->requests[c->num_answered], &c->responses[c->num_answered]);
    }
    if (c->leaves_by_reset) net_reset(c->socket);
    end_client(c);
}

/* The server has ended the connection in the middle of things. */
static void on_cut(struct client *c)
{
    const struct request *r = &c->requests[c->num_answered];
    say("client %d is cut off at %s", c->idx, r->id);
    bool oom = heap_num_failed() > r->failed_allocations_before;
    bool last = c->num_answered > 0 && c->responses[c->num_answered - 1].closes;
    bool displaced = report->markers[MARK_displaced] > 0;
    bool untouched = c->responses[c->num_answered].state == RESPONSE_HEAD && world.drain_sent;
    expect(client_is_slow(c->idx) || oom || last || untouched || displaced || world.ending ||
               world.exit_code || world.aborted,
           "%s: the connection ended without an answer", r->id);
    answer_check(r, &c->responses[c->num_answered]);
    end_client(c);
}

static void on_answer(struct client *c)
{
    struct response *response = &c->responses[c->num_answered];
    struct request *r = &c->requests[c->num_answered];
    say("client %d has its answer to %s: %d", c->idx, r->id, response->http_status);
    answer_check(r, response);
    if (c->num_answered > 0) mark(MARK_kept_alive);
    if (c->half_closes && response->http_status == 200) mark(MARK_half_closed_and_answered);
    c->num_answered++;
    if (c->num_answered == c->num_requests || response->closes || c->half_closes) {
        expect(c->num_answered < c->num_sent || c->incoming.num == 0, "bytes after the last answer");
        end_client(c);
        return;
    }
    if (c->num_answered == c->num_sent) send_request(c);
}

static void parse(struct client *c)
{
    while (c->state == CLIENT_CONNECTED && c->num_answered < c->num_sent) {
        struct response *r = &c->responses[c->num_answered];
        if (!(r->state == RESPONSE_HEAD ? parse_head(c, r) : parse_body(c, r))) return;
        if (r->state == RESPONSE_COMPLETE) on_answer(c);
    }
}

static void receive(struct client *c)
{
    char data[4096];
    bool ended = false, reset = false;
    size_t left = c->read_bytes ? c->read_bytes : SIZE_MAX, n;
    while (left > 0 && (n = net_receive(c->socket, data, min_of(left, sizeof data), &ended, &reset)) > 0) {
        left -= n;
        c->num_received += n;
        bytes_append(&c->incoming, data, n);
        for (size_t i = 0; i < n; i += 16) trace((uint64_t)(unsigned char)data[i] << 32 ^ i);
        trace(n);
    }
    parse(c);
    if (c->state == CLIENT_CONNECTED && (ended || reset)) on_cut(c);
}

static void send_some(struct client *c)
{
    if (c->outgoing.num == 0) return;
    size_t n = c->drip_bytes ? min_of(c->drip_bytes, c->outgoing.num) : c->outgoing.num;
    net_send(c->socket, c->outgoing.data, n);
    bytes_consume(&c->outgoing, n);
    if (c->outgoing.num == 0 && c->half_closes) {
        c->num_requests = c->num_sent;
        net_end(c->socket);
    }
}

static bool is_stalled(struct client *c)
{
    if (c->stall_ns == 0 || c->num_received < c->stall_after || c->patient_again) return false;
    if (!c->stalled) {
        say("client %d stops reading", c->idx);
        c->stalled = true;
        c->next_ns = now_ns() + c->stall_ns;
        return true;
    }
    if (now_ns() < c->next_ns) return true;
    c->patient_again = true;
    return false;
}

static void act(struct client *c)
{
    uint64_t due = c->next_ns;
    if (c->state == CLIENT_WAITS) connect_client(c);
    if (c->state != CLIENT_CONNECTED) return;
    if (c->leave_ns > 0 && now_ns() >= c->begin_ns + c->leave_ns) {
        leave(c);
        return;
    }
    c->next_ns = c->leave_ns > 0 ? c->begin_ns + c->leave_ns : UINT64_MAX;
    send_some(c);
    if (c->stalled && !c->patient_again) c->next_ns = due; /* is_stalled looks at it */
    if (is_stalled(c)) return;
    if (c->stalled) c->next_ns = UINT64_MAX;
    receive(c);
    if (c->state != CLIENT_CONNECTED) return;
    if (c->outgoing.num > 0) c->next_ns = min_of(c->next_ns, now_ns() + MS);
    if (c->read_bytes > 0 && now_ns() > c->begin_ns + 20000 * MS) {
        c->read_bytes = 0; /* enough of that */
        c->next_ns = now_ns() + MS;
    }
    if (c->read_bytes > 0) c->next_ns = min_of(c->next_ns, now_ns() + c->read_interval_ns);
    if (c->leave_ns > 0) c->next_ns = min_of(c->next_ns, c->begin_ns + c->leave_ns);
}

void clients_act(void)
{
    if (next_ns > now_ns()) return;
    next_ns = UINT64_MAX;
    for (int i = 0; i < world.num_clients; i++) {
        struct client *c = clients[i];
        if (!c || c->state == CLIENT_DONE) continue;
        if (c->next_ns <= now_ns()) act(c);
        next_ns = min_of(next_ns, c->next_ns);
    }
}

uint64_t clients_next_ns(void)
{
    return next_ns;
}

bool clients_are_done(void)
{
    for (int i = 0; i < world.num_clients; i++)
        if (clients[i] && clients[i]->state != CLIENT_DONE) return false;
    return true;
}

static void check_records(const struct request *r, const struct response *response)
{
    bool answered = response->state == RESPONSE_COMPLETE && response->http_status == 200;
    expect(r->num_records <= 1, "%s has %d log lines", r->id, r->num_records);
    expect(!r->num_records || r->was_submitted, "%s: a log line without a submission", r->id);
    if (!world.all_recorded) return;
    expect(r->was_submitted == (r->num_records == 1), "%s was %ssubmitted and has %d log lines", r->id,
           r->was_submitted ? "" : "not ", r->num_records);
    expect(!answered || r->num_records == 1, "%s was answered and has no log line", r->id);
}

int clients_num_admitted(void)
{
    int count = 0;
    for (int i = 0; i < world.num_clients; i++)
        for (int k = 0; clients[i] && k < clients[i]->num_sent; k++)
            count += clients[i]->requests[k].was_submitted;
    return count;
}

void clients_end(void)
{
    for (int i = 0; i < world.num_clients; i++) {
        struct client *c = clients[i];
        if (!c) continue;
        if (c->state == CLIENT_CONNECTED && c->num_answered < c->num_sent) {
            receive(c);
            if (c->state == CLIENT_CONNECTED)
                answer_check(&c->requests[c->num_answered], &c->responses[c->num_answered]);
        }
        for (int k = 0; k < c->num_sent; k++) check_records(&c->requests[k], &c->responses[k]);
    }
}
