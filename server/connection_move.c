#include "server/connection_move.h"

#include <string.h>
#include <unistd.h>

#include "server/connection.h"

/* ---- where it was ---- */

bool exchange_freeze(struct exchange *x)
{
    struct connection *c = x->connection;
    bool waits = output_unsent_bytes(&c->output) > 0 || c->output.writing || c->turn_pending || c->consuming;
    if (c->state != CONNECTION_RESPONDING || !http_request_of(x)->streaming || waits) return false;
    if (!c->half_closed && !c->reading_stopped) uv_read_stop(&c->socket.stream);
    connection_stop_hangup(c);
    return true;
}

void exchange_thaw(struct exchange *x)
{
    struct connection *c = x->connection;
    if (c->state == CONNECTION_CLOSED) return;
    if (c->half_closed || c->reading_stopped)
        connection_watch_hangup(c);
    else
        connection_start_reading(c);
}

void exchange_let_go(struct exchange *x)
{
    struct http_request *r = http_request_of(x);
    r->handled = false; /* no client went away, */
    r->http_status = 0; /* and no answer came to its end here */
    connection_close(x->connection);
}

int connection_move_out(const struct exchange *x, struct moved_connection *out, const char **input,
                        size_t *input_bytes)
{
    const struct connection *c = x->connection;
    uv_os_fd_t fd;
    if (uv_fileno(&c->socket.handle, &fd)) return -1;
    *out = (struct moved_connection){.arrival_ns = x->arrival_ns,
                                     .num_requests = c->num_requests,
                                     .version_minor = c->request->version_minor,
                                     .closes = c->closes,
                                     .half_closed = c->half_closed};
    memcpy(out->request_id, x->request_id, sizeof out->request_id);
    *input = c->input.data;
    *input_bytes = c->input.num_bytes;
    return fd;
}

/* ---- where it goes ---- */

static const struct route *route_of(const struct listener *l, const char *path)
{
    const char *rest;
    bool path_exists;
    return router_find(l->routes, HTTP_METHOD_POST, path, strlen(path), &rest, &path_exists);
}

struct exchange *connection_adopt(struct listener *l, int fd, const struct moved_connection *in,
                                  const char *input, size_t input_bytes, const char *path, int api_key_idx)
{
    const struct route *route = route_of(l, path);
    struct connection *c = route && l->num_open < l->max_connections ? connection_create_over(l, fd) : NULL;
    if (!c) {
        close(fd);
        return NULL;
    }
    c->request =
        http_request_restore(l->server, c, ++l->num_requests, in->request_id, route, in->version_minor);
    if (!c->request) {
        connection_close(c);
        return NULL;
    }
    c->request->x.arrival_ns = in->arrival_ns;
    c->request->x.api_key_idx = api_key_idx;
    connection_note_key(c);
    c->num_requests = in->num_requests;
    c->closes = in->closes;
    c->half_closed = in->half_closed;
    if (input_bytes > 0) buffer_append(&c->input, input, input_bytes);
    c->reading_stopped = c->input.num_bytes >= CONNECTION_WAITING_BYTES;
    connection_note_buffers(c);
    connection_set_state(c, CONNECTION_RESPONDING);
    if (!buffer_failed(&c->input)) return &c->request->x;
    exchange_let_go(&c->request->x);
    return NULL;
}
