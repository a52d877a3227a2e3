#include "cli/conversation.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "cli/remote.h"
#include "config/closest.h"

enum { ANSWER_BYTES_MAX = 16 << 20 };

struct conversation {
    const struct http_client *client;
    char *model;
    cJSON *messages; /* the system's first, if there is one */
    bool at_terminal;
};

/* One answer on its way. */
struct reply {
    struct buffer rest;                                   /* the line that is not complete yet */
    struct buffer text;                                   /* all of the answer */
    char problem[512];                                    /* the server's sentence; "": none */
    int num_tokens, num_prompt_tokens, num_cached_tokens; /* the server's count; -1: it does not say */
    uint64_t first_ns, last_ns;                           /* when text came; 0: none has */
};

static volatile sig_atomic_t interrupted, ended;

static void on_signal(int number)
{
    interrupted = 1;
    if (number == SIGINT) return;
    ended = 1;
    close(STDIN_FILENO); /* a read that is about to begin would not be interrupted */
}

/* ---- the answer ---- */

/* What a model writes must not steer the terminal: of control characters, C1's too, only line ends and tabs. */
static void print_text(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        bool is_c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        if (is_c1)
            at++;
        else if ((*at >= ' ' && *at != 0x7f) || *at == '\n' || *at == '\t')
            putchar(*at);
    }
    fflush(stdout);
}

static void take_text(struct reply *r, const char *text)
{
    if (!text || !text[0]) return;
    r->last_ns = clock_monotonic_ns();
    if (!r->first_ns) r->first_ns = r->last_ns;
    buffer_append_text(&r->text, text);
    print_text(text);
}

static int number_in(const cJSON *object, const char *name)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(number) ? number->valueint : -1;
}

static void take_usage(struct reply *r, const cJSON *usage)
{
    if (!cJSON_IsObject(usage)) return;
    r->num_tokens = number_in(usage, "completion_tokens");
    r->num_prompt_tokens = number_in(usage, "prompt_tokens");
    r->num_cached_tokens =
        number_in(cJSON_GetObjectItemCaseSensitive(usage, "prompt_tokens_details"), "cached_tokens");
}

static void take_problem(struct reply *r, const cJSON *object)
{
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(object, "error");
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));
    if (message) snprintf(r->problem, sizeof r->problem, "%s", message);
}

static void take_event(struct reply *r, const char *text)
{
    cJSON *event = cJSON_Parse(text);
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(event, "choices"), 0);
    const cJSON *delta = cJSON_GetObjectItemCaseSensitive(choice, "delta");
    take_text(r, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(delta, "content")));
    take_usage(r, cJSON_GetObjectItemCaseSensitive(event, "usage"));
    take_problem(r, event);
    cJSON_Delete(event);
}

static bool on_bytes(void *context, const char *bytes, size_t n)
{
    static const char field[] = "data: ";
    struct reply *r = context;
    buffer_append(&r->rest, bytes, n);
    for (char *end; r->rest.data && (end = memchr(r->rest.data, '\n', r->rest.num_bytes));) {
        *end = '\0';
        if (!strncmp(r->rest.data, field, strlen(field))) take_event(r, r->rest.data + strlen(field));
        buffer_consume(&r->rest, (size_t)(end + 1 - r->rest.data));
    }
    return !interrupted;
}

static void tell_figures(const struct reply *r)
{
    double seconds = (double)(r->last_ns - r->first_ns) / 1e9;
    if (r->num_tokens < 0) return;
    fprintf(stderr, "[%d tokens", r->num_tokens);
    if (r->num_tokens > 1 && seconds > 0) fprintf(stderr, ", %.1f tokens/s", (r->num_tokens - 1) / seconds);
    if (r->num_cached_tokens >= 0)
        fprintf(stderr, ", %d of %d prompt tokens cached", r->num_cached_tokens, r->num_prompt_tokens);
    fprintf(stderr, "]\n");
}

/* ---- the question ---- */

static int add_message(struct conversation *c, const char *role, const char *text)
{
    cJSON *message = cJSON_CreateObject();
    bool added = cJSON_AddStringToObject(message, "role", role) &&
                 cJSON_AddStringToObject(message, "content", text) &&
                 cJSON_AddItemToArray(c->messages, message);
    if (!added) cJSON_Delete(message);
    return added ? STATUS_OK : STATUS_NO_MEMORY;
}

static void drop_last_message(struct conversation *c)
{
    cJSON_DeleteItemFromArray(c->messages, cJSON_GetArraySize(c->messages) - 1);
}

/* The caller frees it; NULL: no memory. */
static char *request_body(const struct conversation *c)
{
    cJSON *body = cJSON_CreateObject();
    cJSON_AddStringToObject(body, "model", c->model);
    cJSON_AddItemReferenceToObject(body, "messages", c->messages);
    cJSON_AddBoolToObject(body, "stream", true);
    cJSON_AddBoolToObject(cJSON_AddObjectToObject(body, "stream_options"), "include_usage", true);
    char *text = cJSON_PrintUnformatted(body);
    cJSON_Delete(body);
    return text;
}

/* An answer that was stopped counts as far as it came; a question that got none is forgotten. */
static void settle(struct conversation *c, struct reply *r, int http_status, const char *problem)
{
    if (http_status != 200 && r->rest.data) {
        cJSON *answer = cJSON_Parse(r->rest.data);
        take_problem(r, answer);
        cJSON_Delete(answer);
    }
    bool failed = http_status != 200 && !r->problem[0] && !interrupted;
    if (failed && problem[0])
        snprintf(r->problem, sizeof r->problem, "%s", problem);
    else if (failed)
        snprintf(r->problem, sizeof r->problem, "the server answers with status %d", http_status);
    if (r->first_ns) putchar('\n');
    fflush(stdout);
    if (r->problem[0]) fprintf(stderr, "flashd: %s\n", r->problem);
    if (interrupted) fprintf(stderr, "[stopped]\n");
    if (c->at_terminal) tell_figures(r);
    if (!r->text.num_bytes || buffer_failed(&r->text) || add_message(c, "assistant", r->text.data))
        drop_last_message(c);
}

static void ask(struct conversation *c, const char *question)
{
    struct reply r = {.num_tokens = -1, .num_cached_tokens = -1};
    struct error err = {0};
    int http_status = 0;
    if (add_message(c, "user", question)) return;
    buffer_init(&r.rest, ANSWER_BYTES_MAX);
    buffer_init(&r.text, ANSWER_BYTES_MAX);
    char *body = request_body(c);
    interrupted = 0;
    int status =
        body ? http_client_ask(c->client, "/v1/chat/completions", body, on_bytes, &r, &http_status, &err)
             : error_set(&err, STATUS_NO_MEMORY, "out of memory");
    settle(c, &r, status ? 0 : http_status, err.text);
    free(body);
    buffer_deinit(&r.rest);
    buffer_deinit(&r.text);
}

/* ---- commands ---- */

static const char *const commands[] = {"/help", "/clear", "/system", "/quit"};

static void clear(struct conversation *c)
{
    while (cJSON_GetArraySize(c->messages) > 0) drop_last_message(c);
}

/* Begins anew: what was said before belongs to other instructions. */
static void set_system(struct conversation *c, const char *text)
{
    clear(c);
    if (text[0] && add_message(c, "system", text)) fprintf(stderr, "flashd: out of memory\n");
}

static void fail_unknown(const char *line)
{
    const char *meant = closest_word(line, strcspn(line, " "), commands, array_length(commands));
    fprintf(stderr, "there is no command %s; %s%s\n", line, meant ? "did you mean " : "/help lists them",
            meant ? meant : "");
}

static bool is_command(const char *line, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(line, name, n) && (!line[n] || line[n] == ' ');
}

/* False: it is over. */
static bool run_command(struct conversation *c, const char *line)
{
    if (is_command(line, "/quit")) return false;
    if (is_command(line, "/clear"))
        clear(c);
    else if (is_command(line, "/system"))
        set_system(c, line + strlen("/system") + (line[strlen("/system")] == ' '));
    else if (is_command(line, "/help"))
        fprintf(stderr, "/clear         forget what was said\n"
                        "/system TEXT   begin anew with these instructions; without TEXT, with none\n"
                        "/quit          end; so does Ctrl-D\n"
                        "Ctrl-C         stop the answer\n");
    else
        fail_unknown(line);
    return true;
}

/* ---- turns ---- */

/* NULL: the input has ended. */
static char *read_line(const struct conversation *c, char **line, size_t *capacity)
{
    if (c->at_terminal) fprintf(stderr, "> ");
    ssize_t n = getline(line, capacity, stdin);
    if (n < 0) {
        if (c->at_terminal) fputc('\n', stderr);
        return NULL;
    }
    (*line)[strcspn(*line, "\r\n")] = '\0';
    return *line;
}

static void take_turns(struct conversation *c)
{
    char *line = NULL;
    size_t capacity = 0;
    while (!ended && read_line(c, &line, &capacity)) {
        if (line[0] == '/' && !run_command(c, line)) break;
        if (line[0] && line[0] != '/') ask(c, line);
    }
    free(line);
}

int conversation_run(const struct http_client *client, const char *model, struct error *err)
{
    struct conversation c = {.client = client,
                             .messages = cJSON_CreateArray(),
                             .at_terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO)};
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction stop = {.sa_handler = on_signal}; /* without SA_RESTART */
    for (size_t i = 0; i < array_length(signals); i++) sigaction(signals[i], &stop, NULL);
    if (model) c.model = strdup(model);
    int status = c.model ? STATUS_OK : remote_find_model(client, &c.model, err);
    if (!status && c.at_terminal) fprintf(stderr, "%s: /help lists the commands\n", c.model);
    if (!status) take_turns(&c);
    cJSON_Delete(c.messages);
    free(c.model);
    return status;
}
