/* render_main.c - renders chat templates for the comparison with Python's jinja2 (compare_templates.py).
 *
 * Each line of standard input is a JSON object {"template": source, "context": object, "trusted": [names],
 * "now": seconds}, without template for the one of the line before; each line of output is {"text",
 * "untrusted": [[begin, end], ...], "wants_parts"} or
 * {"status", "error"}. With --time N, each is rendered N times and "microseconds" is the mean of one. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "text/chat_template.h"
#include "text/json_numbers.h"

enum { TRUSTED_MAX = 16, OUTPUT_BYTES_MAX = 64 << 20 };

struct answer {
    struct buffer text;
    struct text_range *untrusted;
    int num_untrusted, status;
    bool wants_parts;
    double microseconds;
    struct error err;
};

static void render_many(const struct chat_template *t, const cJSON *job, int times, struct answer *a)
{
    const char *trusted[TRUSTED_MAX + 1] = {NULL};
    int num = 0;
    const cJSON *name;
    cJSON_ArrayForEach(name, cJSON_GetObjectItemCaseSensitive(job, "trusted"))
    {
        if (num < TRUSTED_MAX) trusted[num++] = name->valuestring;
    }
    const cJSON *now = cJSON_GetObjectItemCaseSensitive(job, "now");
    uint64_t begin_ns = clock_monotonic_ns();
    for (int i = 0; i < times; i++) {
        free(a->untrusted);
        buffer_clear(&a->text);
        a->status = chat_template_render(t, cJSON_GetObjectItemCaseSensitive(job, "context"), trusted,
                                         now ? (int64_t)now->valuedouble : 0, &chat_template_limits_default,
                                         &a->text, &a->untrusted, &a->num_untrusted, &a->err);
    }
    a->microseconds = (double)(clock_monotonic_ns() - begin_ns) / 1e3 / times;
}

/* The template of the lines so far: NULL when it could not be parsed, and then why. */
struct current {
    struct chat_template *template;
    int status;
    struct error err;
};

static void answer_job(struct current *current, const char *line, size_t n, int times, struct answer *a)
{
    cJSON *job = cJSON_ParseWithLength(line, n);
    if (!job || json_keep_numbers(job, line, n) != 0) {
        a->status = error_set(&a->err, STATUS_INVALID, "the line is not JSON");
        cJSON_Delete(job);
        return;
    }
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(job, "template");
    if (cJSON_IsString(source)) {
        chat_template_free(current->template);
        current->template = NULL;
        current->status = chat_template_parse(source->valuestring, &current->template, &current->err);
    }
    a->status = current->status;
    a->err = current->err;
    if (current->template) {
        a->wants_parts = chat_template_wants_parts(current->template);
        render_many(current->template, job, times, a);
    }
    cJSON_Delete(job);
}

static void print_answer(const struct answer *a, bool timed)
{
    struct buffer out;
    buffer_init(&out, 2 * (size_t)OUTPUT_BYTES_MAX);
    buffer_append_text(&out, a->status == 0 ? "{\"text\":" : "{\"error\":");
    if (a->status == 0) {
        buffer_append_json(&out, a->text.data, a->text.num_bytes);
        buffer_append_text(&out, ",\"untrusted\":[");
        for (int i = 0; i < a->num_untrusted; i++) {
            buffer_printf(&out, "%s[%zu,%zu]", i > 0 ? "," : "", a->untrusted[i].begin, a->untrusted[i].end);
        }
        buffer_printf(&out, "],\"wants_parts\":%s", a->wants_parts ? "true" : "false");
    } else {
        buffer_append_json_text(&out, a->err.text);
        buffer_printf(&out, ",\"status\":\"%s\"", status_text(a->status));
    }
    if (timed) buffer_printf(&out, ",\"microseconds\":%.2f", a->microseconds);
    buffer_append_text(&out, "}\n");
    fwrite(out.data, 1, out.num_bytes, stdout);
    buffer_deinit(&out);
}

int main(int argc, char **argv)
{
    bool timed = argc == 3 && strcmp(argv[1], "--time") == 0;
    int times = timed ? atoi(argv[2]) : 1;
    struct current current = {.template = NULL};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        struct answer a = {.num_untrusted = 0};
        buffer_init(&a.text, OUTPUT_BYTES_MAX);
        answer_job(&current, line, (size_t)n, times, &a);
        print_answer(&a, timed);
        free(a.untrusted);
        buffer_deinit(&a.text);
    }
    chat_template_free(current.template);
    free(line);
    return 0;
}
