#include "server/work_queue.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/check.h"
#include "server/loop_watch.h"

enum { MANY_BYTES = 512 << 10, LARGE_BYTES = 64 << 10, TRIM_DELAY_MS = 1000 };

static void begin_waiting(struct work_queue *q);

/* ---- memory ---- */

static void on_trim(uv_work_t *uv)
{
    (void)uv;
    malloc_trim(0);
}

static void on_trimmed(uv_work_t *uv, int uv_status)
{
    struct work_queue *q = uv->data;
    (void)uv_status;
    q->trims = false;
}

static void on_trim_timer(uv_timer_t *timer)
{
    struct work_queue *q = timer->data;
    loop_watch_enter("memory that is given back");
    q->trim_waits = q->trims; /* for another time */
    if (q->trims)
        uv_timer_start(timer, on_trim_timer, TRIM_DELAY_MS, 0);
    else
        q->trims = uv_queue_work(q->loop, &q->trim, on_trim, on_trimmed) == 0;
}

static void trim_soon(struct work_queue *q)
{
    if (q->trim_waits) return;
    if (!q->has_trim_timer) {
        uv_timer_init(q->loop, &q->trim_timer);
        uv_unref((uv_handle_t *)&q->trim_timer);
        q->trim_timer.data = q->trim.data = q;
        q->has_trim_timer = true;
    }
    q->trim_waits = true;
    uv_timer_start(&q->trim_timer, on_trim_timer, TRIM_DELAY_MS, 0);
}

/* malloc puts pieces together when it is asked for a large one. */
static void put_pieces_together(void)
{
    void *volatile large = malloc(LARGE_BYTES);
    free(large);
}

void pool_work_note_bytes(struct pool_work *w, size_t num_bytes)
{
    w->was_large = num_bytes > MANY_BYTES;
    if (w->was_large) put_pieces_together();
}

void work_queue_close(struct work_queue *q)
{
    if (q->has_trim_timer) uv_close((uv_handle_t *)&q->trim_timer, NULL);
    q->has_trim_timer = false;
    q->trim_waits = true;
}

/* ---- work ---- */

static void end(struct pool_work *w, bool has_run)
{
    struct work_queue *q = w->queue;
    if (w->was_large) trim_soon(q);
    q->num_long -= w->is_long;
    q->num_all--;
    w->done(w, has_run); /* w may be gone */
    begin_waiting(q);
}

static void on_work(uv_work_t *uv)
{
    struct pool_work *w = uv->data;
    w->run(w);
}

static void on_work_done(uv_work_t *uv, int uv_status)
{
    loop_watch_enter("a worker's result");
    end(uv->data, uv_status == 0);
}

static bool has_room(const struct work_queue *q, const struct pool_work *w)
{
    return q->num_all < POOL_WORKS_MAX && (!w->is_long || q->num_long < LONG_WORKS_MAX);
}

static bool begin(struct work_queue *q, struct pool_work *w)
{
    w->uv.data = w;
    bool begun = (!w->begin || w->begin(w)) && uv_queue_work(q->loop, &w->uv, on_work, on_work_done) == 0;
    if (begun) q->num_long += w->is_long;
    q->num_all += begun;
    return begun;
}

/* ---- whose turn it is ---- */

static bool is_of_key(const struct pool_work *a, const struct pool_work *b)
{
    return a->api_key_idx == b->api_key_idx;
}

static bool is_of_tenant(const struct pool_work *a, const struct pool_work *b)
{
    return is_of_key(a, b) && a->tenant == b->tenant;
}

static bool comes_before(const struct pool_work *a, const struct pool_work *b)
{
    return a->key_turn != b->key_turn ? a->key_turn < b->key_turn : a->tenant_turn < b->tenant_turn;
}

/* NULL: none has room. */
static struct pool_work *next_waiting(const struct work_queue *q)
{
    struct pool_work *next = NULL;
    for (struct pool_work *w = q->first; w; w = w->next)
        if (has_room(q, w) && (!next || comes_before(w, next))) next = w;
    return next;
}

/* As the last one. Who has nothing waiting comes with the turn of who waits longest. */
static void join(struct work_queue *q, struct pool_work *w)
{
    const struct pool_work *of_key = NULL, *of_tenant = NULL;
    struct pool_work **at = &q->first;
    uint64_t key_turn = q->num_turns, tenant_turn = q->num_turns;
    for (; *at; at = &(*at)->next) {
        key_turn = min_of(key_turn, (*at)->key_turn);
        if (!is_of_key(*at, w)) continue;
        of_key = *at;
        tenant_turn = min_of(tenant_turn, (*at)->tenant_turn);
        if (is_of_tenant(*at, w)) of_tenant = *at;
    }
    w->key_turn = of_key ? of_key->key_turn : key_turn;
    w->tenant_turn = of_tenant ? of_tenant->tenant_turn : tenant_turn;
    *at = w;
}

/* The others of its key and tenant have had a turn. */
static void note_turn(struct work_queue *q, const struct pool_work *w)
{
    q->num_turns++;
    for (struct pool_work *other = q->first; other; other = other->next) {
        if (is_of_key(other, w)) other->key_turn = q->num_turns;
        if (is_of_tenant(other, w)) other->tenant_turn = q->num_turns;
    }
}

static void begin_waiting(struct work_queue *q)
{
    struct pool_work *w;
    while ((w = next_waiting(q))) {
        (void)work_queue_take_back(w);
        note_turn(q, w);
        if (!begin(q, w)) w->done(w, false);
    }
}

/* What is put while another one ends waits behind those that may begin then. */
bool work_queue_put(struct work_queue *q, uv_loop_t *loop, struct pool_work *w)
{
    q->loop = loop;
    w->queue = q;
    w->next = NULL;
    w->waits = !has_room(q, w) || next_waiting(q);
    if (!w->waits) return begin(q, w);
    join(q, w);
    return true;
}

bool work_queue_take_back(struct pool_work *w)
{
    if (!w->waits) return false;
    struct pool_work **at = &w->queue->first;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    w->waits = false;
    return true;
}
