#include "text/grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/matcher_state.h"

enum { COMPACT_FRAMES_MIN = 64 };

static bool reserve_threads(struct matcher *m, uint32_t n)
{
    if (m->num_threads + n <= m->capacity) return true;
    uint32_t capacity = max_of(m->num_threads + n, m->capacity * 2);
    struct thread *threads = realloc(m->threads, capacity * sizeof *threads);
    if (!threads) return false;
    m->threads = threads;
    m->capacity = capacity;
    return true;
}

int matcher_new(const struct grammar *g, struct matcher **out)
{
    struct matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m || !frames_init(&m->frames) || !reserve_threads(m, 8)) {
        matcher_free(m);
        return STATUS_NO_MEMORY;
    }
    m->grammar = g;
    buffer_init(&m->text, SIZE_MAX / 2);
    m->threads[0] = (struct thread){.state = g->start, .stack = STACK_BOTTOM};
    m->num_threads = 1;
    m->num_sets = 1;
    m->live_frames = 1;
    *out = m;
    return 0;
}

int matcher_copy(const struct matcher *m, struct matcher **out)
{
    struct matcher *copy = malloc(sizeof *copy);
    *out = NULL;
    if (!copy) return STATUS_NO_MEMORY;
    *copy = *m;
    buffer_init(&copy->text, SIZE_MAX / 2);
    buffer_append(&copy->text, m->text.data, m->text.num_bytes);
    copy->frames.items = malloc(m->frames.count * sizeof *copy->frames.items);
    copy->threads = malloc(max_of(m->num_threads, 8) * sizeof *copy->threads);
    copy->frames.capacity = m->frames.count;
    copy->capacity = max_of(m->num_threads, 8);
    if (!copy->frames.items || !copy->threads || buffer_failed(&copy->text)) {
        matcher_free(copy);
        return STATUS_NO_MEMORY;
    }
    memcpy(copy->frames.items, m->frames.items, m->frames.count * sizeof *copy->frames.items);
    memcpy(copy->threads, m->threads, m->num_threads * sizeof *copy->threads);
    *out = copy;
    return 0;
}

void matcher_free(struct matcher *m)
{
    if (!m) return;
    frames_deinit(&m->frames);
    free(m->threads);
    buffer_deinit(&m->text);
    free(m);
}

const struct grammar *matcher_grammar(const struct matcher *m)
{
    return m->grammar;
}

/* ---- housekeeping ---- */

static void drop_oldest_set(struct matcher *m)
{
    uint32_t n = m->begins[1];
    memmove(m->threads, m->threads + n, (m->num_threads - n) * sizeof *m->threads);
    m->num_threads -= n;
    m->num_sets--;
    for (int i = 0; i < m->num_sets; i++) {
        m->begins[i] = m->begins[i + 1] - n;
        m->text_ends[i] = m->text_ends[i + 1];
    }
}

/* Frames that no thread stands on go; the others keep their order, so parents still come first. */
static void compact_frames(struct matcher *m)
{
    struct frames *f = &m->frames;
    uint32_t *number = calloc(f->count, sizeof *number);
    if (!number) return; /* later, then */
    for (uint32_t i = 0; i < m->num_threads; i++) number[m->threads[i].stack] = 1;
    for (uint32_t i = f->count; i-- > 1;)
        if (number[i]) number[f->items[i].parent] = 1;
    uint32_t n = 1;
    number[0] = 0;
    for (uint32_t i = 1; i < f->count; i++) {
        if (!number[i]) continue;
        struct frame moved = f->items[i];
        moved.parent = number[moved.parent];
        number[i] = n;
        f->items[n++] = moved;
    }
    for (uint32_t i = 0; i < m->num_threads; i++) m->threads[i].stack = number[m->threads[i].stack];
    f->count = m->live_frames = n;
    free(number);
}

/* ---- tokens ---- */

/* Also of what is rejected: whoever accepts takes it back. */
static bool keep_text(struct matcher *m, const char *bytes, size_t num_bytes)
{
    if (!m->grammar->has_unique) return true;
    buffer_append(&m->text, bytes, num_bytes);
    m->frames.text = m->text.data;
    m->frames.text_bytes = m->text.num_bytes - num_bytes;
    return !buffer_failed(&m->text);
}

static void cut_text(struct matcher *m, size_t num_bytes)
{
    m->text.num_bytes = num_bytes;
    m->frames.text = NULL;
}

static int accept_bytes(struct matcher *m, const char *bytes, size_t num_bytes)
{
    struct thread sets[2][THREADS_MAX];
    int n;
    const struct thread *from = matcher_threads(m, &n);
    for (size_t i = 0; i < num_bytes; i++) {
        m->frames.text_bytes++;
        n = step_threads(m->grammar, &m->frames, from, n, (uint8_t)bytes[i], sets[i & 1]);
        if (n <= 0) return n == 0 ? STATUS_INVALID : m->frames.status ?: STATUS_LIMIT;
        from = sets[i & 1];
    }
    if (!reserve_threads(m, (uint32_t)n)) return STATUS_NO_MEMORY;
    if (num_bytes == 0) from = matcher_threads(m, &n);
    memcpy(m->threads + m->num_threads, from, (size_t)n * sizeof *from);
    m->num_threads += (uint32_t)n;
    return 0;
}

int matcher_accept(struct matcher *m, const char *bytes, size_t num_bytes)
{
    if (m->num_sets > MATCHER_ROLLBACK_MAX) drop_oldest_set(m);
    uint32_t num_frames = m->frames.count, num_threads = m->num_threads;
    size_t text_bytes = m->text.num_bytes;
    m->frames.status = 0;
    int status = keep_text(m, bytes, num_bytes) ? accept_bytes(m, bytes, num_bytes) : STATUS_NO_MEMORY;
    cut_text(m, status ? text_bytes : m->text.num_bytes);
    if (status) {
        m->text.failed = false;
        m->frames.count = num_frames;
        return status;
    }
    m->text_ends[m->num_sets] = m->text.num_bytes;
    m->begins[m->num_sets++] = num_threads;
    if (m->frames.count > COMPACT_FRAMES_MIN && m->frames.count > 2 * m->live_frames) compact_frames(m);
    return 0;
}

int matcher_rollback(struct matcher *m, int num_tokens)
{
    if (num_tokens < 0 || num_tokens >= m->num_sets) return STATUS_INVALID;
    if (num_tokens == 0) return 0;
    m->num_sets -= num_tokens;
    m->num_threads = m->begins[m->num_sets];
    m->text.num_bytes = m->text_ends[m->num_sets - 1];
    return 0;
}

/* ---- questions ---- */

bool matcher_can_end(const struct matcher *m)
{
    int n;
    const struct thread *threads = matcher_threads(m, &n);
    return step_can_end(m->grammar, &m->frames, threads, n);
}
