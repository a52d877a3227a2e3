#include "cli/load_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cjson/cJSON.h>
#include <llhttp.h>
#include <uv.h>

#include "base/clock.h"
#include "base/stream_socket.h"

enum { READ_BYTES = 64 << 10, REQUEST_BYTES_MAX = 64 << 20, LINE_BYTES_MAX = 16 << 20 };

struct load_stream {
    union stream_socket socket;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_write_t write;
    llhttp_t parser;
    char header[32], value[32]; /* as much of a header line as is looked at */
    struct buffer request;
    struct buffer rest; /* the line that is not complete; the whole of a refusal */
    struct load_result *result;
    load_on_end *on_end;
    void *context;
    int num_open_handles;
    bool finished,
        ended; /* finished: the stream says that it is complete; ended: it is closed, or is about to be */
};

/* ---- its end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct load_stream *s = handle->data;
    if (--s->num_open_handles > 0) return;
    load_on_end *on_end = s->on_end;
    void *context = s->context;
    buffer_deinit(&s->request);
    buffer_deinit(&s->rest);
    free(s);
    on_end(context);
}

static void end(struct load_stream *s, enum load_end how)
{
    if (s->ended) return;
    s->ended = true;
    s->result->end = how;
    s->result->end_ns = clock_monotonic_ns();
    uv_close(&s->socket.handle, on_closed);
    uv_close((uv_handle_t *)&s->timer, on_closed);
}

void load_stream_stop(struct load_stream *s)
{
    end(s, LOAD_PENDING);
}

static void on_timeout(uv_timer_t *timer)
{
    end(timer->data, LOAD_TIMED_OUT);
}

/* ---- events of the stream ---- */

static const char *text_in(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text && text[0] ? text : NULL;
}

/* Of completions, of chats, their reasoning and their calls. */
static bool brings_text(const cJSON *choice)
{
    const cJSON *delta = cJSON_GetObjectItemCaseSensitive(choice, "delta");
    return text_in(choice, "text") || text_in(delta, "content") || text_in(delta, "reasoning_content") ||
           text_in(delta, "reasoning") || cJSON_GetObjectItemCaseSensitive(delta, "tool_calls");
}

static void take_text(struct load_result *r)
{
    uint64_t now = clock_monotonic_ns();
    if (r->first_ns)
        samples_add(&r->gaps_ms, (double)(now - r->last_ns) / 1e6);
    else
        r->first_ns = now;
    r->last_ns = now;
}

static void take_count(const cJSON *usage, const char *name, int64_t *to)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(usage, name);
    if (cJSON_IsNumber(number)) *to = (int64_t)number->valuedouble;
}

/* {"error": {"message": ...}}, or the whole of what is not that. */
static bool take_problem(struct load_result *r, const cJSON *object, const char *otherwise)
{
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(object, "error");
    const char *message = text_in(error, "message");
    if (!message) message = text_in(object, "message");
    if (!message) message = otherwise;
    if (message) snprintf(r->problem, sizeof r->problem, "%s", message);
    return error && !cJSON_IsNull(error);
}

static void take_event(struct load_stream *s, const char *text)
{
    if (!strcmp(text, "[DONE]")) {
        s->finished = true;
        return;
    }
    cJSON *event = cJSON_Parse(text);
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(event, "choices"), 0);
    const cJSON *usage = cJSON_GetObjectItemCaseSensitive(event, "usage");
    if (brings_text(choice)) take_text(s->result);
    if (text_in(choice, "finish_reason")) s->finished = true;
    take_count(usage, "prompt_tokens", &s->result->num_prompt_tokens);
    take_count(usage, "completion_tokens", &s->result->num_tokens);
    if (take_problem(s->result, event, NULL)) end(s, LOAD_FAILED);
    cJSON_Delete(event);
}

static void take_line(struct load_stream *s, char *line, size_t n)
{
    static const char field[] = "data:";
    if (n > 0 && line[n - 1] == '\r') n--;
    line[n] = '\0';
    if (n < strlen(field) || memcmp(line, field, strlen(field)) != 0) return;
    line += strlen(field);
    take_event(s, line + (*line == ' '));
}

static int on_body(llhttp_t *parser, const char *bytes, size_t n)
{
    struct load_stream *s = parser->data;
    buffer_append(&s->rest, bytes, n);
    for (char *at; parser->status_code == 200 && s->rest.data && !s->ended &&
                   (at = memchr(s->rest.data, '\n', s->rest.num_bytes));) {
        size_t num_bytes = (size_t)(at - s->rest.data);
        take_line(s, s->rest.data, num_bytes);
        buffer_consume(&s->rest, num_bytes + 1);
    }
    if (buffer_failed(&s->rest)) end(s, LOAD_CUT_OFF);
    return HPE_OK;
}

/* ---- the head, and the end of the message ---- */

static void append_part(char *to, size_t capacity, const char *bytes, size_t n)
{
    size_t used = strlen(to), room = capacity - 1 - used;
    if (n > room) n = room;
    memcpy(to + used, bytes, n);
    to[used + n] = '\0';
}

static int on_header(llhttp_t *parser, const char *bytes, size_t n)
{
    struct load_stream *s = parser->data;
    append_part(s->header, sizeof s->header, bytes, n);
    return HPE_OK;
}

static int on_value(llhttp_t *parser, const char *bytes, size_t n)
{
    struct load_stream *s = parser->data;
    append_part(s->value, sizeof s->value, bytes, n);
    return HPE_OK;
}

/* A Retry-After that is a date is not read. */
static int on_value_complete(llhttp_t *parser)
{
    struct load_stream *s = parser->data;
    char *stop;
    long seconds = strtol(s->value, &stop, 10);
    if (!strcasecmp(s->header, "retry-after") && stop > s->value && !*stop && seconds >= 0)
        s->result->retry_after_s = seconds;
    s->header[0] = s->value[0] = '\0';
    return HPE_OK;
}

static int on_complete(llhttp_t *parser)
{
    struct load_stream *s = parser->data;
    s->result->http_status = parser->status_code;
    if (parser->status_code == 200) {
        end(s, s->finished ? LOAD_COMPLETE : LOAD_CUT_OFF);
        return HPE_PAUSED;
    }
    cJSON *answer = s->rest.data ? cJSON_Parse(s->rest.data) : NULL;
    take_problem(s->result, answer, s->rest.data);
    cJSON_Delete(answer);
    end(s, LOAD_REFUSED);
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {.on_header_field = on_header,
                                           .on_header_value = on_value,
                                           .on_header_value_complete = on_value_complete,
                                           .on_body = on_body,
                                           .on_message_complete = on_complete};

/* ---- the connection ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char bytes[READ_BYTES]; /* consumed before the next read */
    (void)handle, (void)suggested;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct load_stream *s = stream->data;
    if (n == 0 || s->ended) return;
    llhttp_errno_t problem =
        n > 0 ? llhttp_execute(&s->parser, buffer->base, (size_t)n) : llhttp_finish(&s->parser);
    if (n < 0 || problem != HPE_OK) end(s, LOAD_CUT_OFF); /* where on_complete has not ended it */
}

static void on_written(uv_write_t *write, int status)
{
    struct load_stream *s = write->data;
    if (status) end(s, LOAD_CUT_OFF);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct load_stream *s = connect->data;
    if (s->ended) return;
    if (status) {
        snprintf(s->result->problem, sizeof s->result->problem, "%s", uv_strerror(status));
        end(s, LOAD_UNREACHABLE);
        return;
    }
    uv_buf_t bytes = uv_buf_init(s->request.data, (unsigned)s->request.num_bytes);
    if (uv_read_start(&s->socket.stream, on_alloc, on_read) ||
        uv_write(&s->write, &s->socket.stream, &bytes, 1, on_written))
        end(s, LOAD_CUT_OFF);
}

static void connect_to(struct load_stream *s, const struct load_target *target)
{
    if (target->client->socket_path[0]) {
        uv_pipe_connect(&s->connect, &s->socket.pipe, target->client->socket_path, on_connected);
        return;
    }
    uv_tcp_nodelay(&s->socket.tcp, 1);
    int problem =
        uv_tcp_connect(&s->connect, &s->socket.tcp, (const struct sockaddr *)&target->address, on_connected);
    if (problem) on_connected(&s->connect, problem);
}

static void open_handles(struct load_stream *s, const struct load_target *target)
{
    uv_loop_t *loop = uv_default_loop();
    if (target->client->socket_path[0])
        uv_pipe_init(loop, &s->socket.pipe, 0);
    else
        uv_tcp_init(loop, &s->socket.tcp);
    uv_timer_init(loop, &s->timer);
    s->num_open_handles = 2;
    s->socket.handle.data = s->timer.data = s->connect.data = s->write.data = s->parser.data = s;
    uv_timer_start(&s->timer, on_timeout, target->timeout_ms, 0);
}

struct load_stream *load_stream_begin(const struct load_target *target, const char *path, const char *body,
                                      struct load_result *result, load_on_end *on_end, void *context)
{
    struct load_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    result->retry_after_s = result->num_prompt_tokens = result->num_tokens = -1;
    s->result = result;
    s->on_end = on_end;
    s->context = context;
    buffer_init(&s->request, REQUEST_BYTES_MAX);
    buffer_init(&s->rest, LINE_BYTES_MAX);
    http_client_compose(target->client, path, body, &s->request);
    if (buffer_failed(&s->request)) {
        buffer_deinit(&s->request);
        free(s);
        return NULL;
    }
    llhttp_init(&s->parser, HTTP_RESPONSE, &settings);
    open_handles(s, target);
    connect_to(s, target);
    return s;
}
