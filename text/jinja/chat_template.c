/* chat_template.c - the public face: parse once, render many times. */
#include "text/chat_template.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#include "text/jinja/run.h"
#include "text/tokenizer/unicode.h"

enum { SOURCE_BYTES_MAX = 4 << 20, PARSED_BYTES_MAX = 256 << 20 };

const struct chat_template_limits chat_template_limits_default = {
    .num_steps = 20 * 1000 * 1000,
    .output_bytes = 16 << 20,
    .depth = 600,
    .memory_bytes = 256 << 20,
};

struct chat_template {
    struct template parsed;
    const char *source; /* in the heap of parsed */
    bool wants_parts;
};

int chat_template_parse(const char *source, struct chat_template **out, struct error *err)
{
    size_t n = strlen(source);
    if (n > SOURCE_BYTES_MAX) {
        return error_set(err, STATUS_LIMIT, "the chat template has %zu bytes, at most %d are read", n,
                         SOURCE_BYTES_MAX);
    }
    if (!utf8_is_valid((const unsigned char *)source, n))
        return error_set(err, STATUS_INVALID, "the chat template is not UTF-8");
    struct chat_template *t = calloc(1, sizeof *t);
    if (!t) return error_set(err, STATUS_NO_MEMORY, "no memory for the chat template");
    heap_init(&t->parsed.heap, PARSED_BYTES_MAX, SOURCE_BYTES_MAX, UINT64_MAX);
    int status = template_parse(&t->parsed, source, n, err);
    if (status != 0) {
        chat_template_free(t);
        return status;
    }
    t->source = arena_copy(&t->parsed.heap.arena, source, n);
    if (!t->source) {
        chat_template_free(t);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the chat template");
    }
    bool shows_strings = false;
    t->wants_parts = template_loops_over_content(&t->parsed);
    if (t->wants_parts && template_shows_strings(t, &shows_strings) < 0) {
        chat_template_free(t);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the chat template");
    }
    t->wants_parts = t->wants_parts && !shows_strings;
    *out = t;
    return 0;
}

void chat_template_free(struct chat_template *t)
{
    if (!t) return;
    heap_deinit(&t->parsed.heap);
    free(t);
}

const char *chat_template_source(const struct chat_template *t)
{
    return t->source;
}

bool chat_template_wants_parts(const struct chat_template *t)
{
    return t->wants_parts;
}

/* Appends what was rendered to out, and copies its ranges, moved behind what out held before. */
static int hand_over(struct run *r, const struct text *t, struct buffer *out, struct text_range **untrusted,
                     int *num_untrusted)
{
    size_t before = out->num_bytes;
    struct text_range *ranges = malloc(((size_t)t->num_untrusted + 1) * sizeof *ranges);
    if (!ranges) return error_set(r->err, STATUS_NO_MEMORY, "no memory for the prompt");
    for (int i = 0; i < t->num_untrusted; i++) {
        struct text_range range = text_range_of(t, i);
        ranges[i] = (struct text_range){before + range.begin, before + range.end};
    }
    buffer_append(out, t->bytes, t->num_bytes);
    if (buffer_failed(out)) {
        free(ranges);
        if (t->num_bytes <= out->max_bytes - before)
            return error_set(r->err, STATUS_NO_MEMORY, "no memory for the prompt");
        return error_set(r->err, STATUS_LIMIT, "the prompt does not fit in %zu bytes", out->max_bytes);
    }
    *untrusted = ranges;
    *num_untrusted = t->num_untrusted;
    return 0;
}

static int render(struct run *r, struct buffer *out, struct text_range **untrusted, int *num_untrusted)
{
    struct text_builder rendered;
    text_builder_init(&rendered, &r->heap);
    r->out = &rendered;
    r->globals = heap_alloc_array(&r->heap, (size_t)r->template->num_names + 1, sizeof *r->globals);
    r->scope = scope_create(r, NULL);
    if (r->globals && r->scope) exec_body(r, r->template->body);
    const struct text *t = text_builder_take(&rendered);
    run_charge(r, 0);
    return r->status != 0 ? r->status : hand_over(r, t, out, untrusted, num_untrusted);
}

int chat_template_render(const struct chat_template *t, const struct cJSON *context,
                         const char *const *trusted, int64_t now_seconds,
                         const struct chat_template_limits *limits, struct buffer *out,
                         struct text_range **untrusted, int *num_untrusted, struct error *err)
{
    *untrusted = NULL;
    *num_untrusted = 0;
    struct run r = {
        .template = &t->parsed,
        .context = context,
        .trusted = trusted,
        .now_seconds = now_seconds,
        .depth_left = limits->depth,
        .err = err,
    };
    uint64_t work;
    if (!checked_mul(limits->num_steps, WORK_OF_NODE, &work)) work = UINT64_MAX;
    heap_init(&r.heap, limits->memory_bytes, limits->output_bytes, work);
    int status = render(&r, out, untrusted, num_untrusted);
    heap_deinit(&r.heap);
    return status;
}
