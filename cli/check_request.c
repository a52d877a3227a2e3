#include "cli/check_request.h"

#include <stdio.h>
#include <string.h>

enum { BODY_BYTES_MAX = 1 << 20 };

void check_ask_members(const struct check *c, const char *path, const char *members, struct check_answer *a)
{
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    buffer_append_text(&body, "{\"model\":");
    buffer_append_json_text(&body, c->model);
    buffer_printf(&body, ",%s}", members);
    check_ask(c->client, path, body.data ? body.data : "", a);
    buffer_deinit(&body);
}

void check_ask_prompt(const struct check *c, const char *path, const char *prompt, const char *members,
                      struct check_answer *a)
{
    char all[1024];
    const char *format = !strcmp(path, CHAT) ? "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],%s"
                                             : "\"prompt\":\"%s\",%s";
    snprintf(all, sizeof all, format, prompt, members);
    check_ask_members(c, path, all, a);
}

int check_is_answer(const struct check_answer *a, struct error *why)
{
    if (a->http_status == 0) return error_set(why, STATUS_IO, "no answer: %s", a->problem);
    if (a->http_status != 200) return error_set(why, STATUS_IO, "status %d: %s", a->http_status, a->problem);
    if (a->num_choices == 0 || !a->choices[0].finish_reason[0])
        return error_set(why, STATUS_INVALID, "no choice that has a finish_reason");
    return STATUS_OK;
}

int check_is_offered(const struct check_answer *a, struct error *why)
{
    if ((a->http_status >= 400 && a->http_status < 500) || a->http_status == 501)
        return error_set(why, STATUS_UNSUPPORTED, "status %d: %s", a->http_status, a->problem);
    return check_is_answer(a, why);
}

int check_is_same(const struct check_answer *a, const struct check_answer *b, const char *what,
                  struct error *why)
{
    if (!strcmp(check_text(a, 0), check_text(b, 0)) &&
        !strcmp(a->choices[0].finish_reason, b->choices[0].finish_reason))
        return STATUS_OK;
    return error_set(why, STATUS_INVALID, "%s: \"%.80s\" (%s) and \"%.80s\" (%s)", what, check_text(a, 0),
                     a->choices[0].finish_reason, check_text(b, 0), b->choices[0].finish_reason);
}
