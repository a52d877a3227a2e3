#include "server/http_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "server/connection.h"
#include "server/response.h"
#include "server/server.h"
#include "server/target.h"

void http_request_make_id(uint64_t request_seed, uint64_t id, char text[64])
{
    struct rng_block block = rng_philox(request_seed, id, 0);
    snprintf(text, 64, "req-%08x%08x", block.word[0], block.word[1]);
}

static bool is_valid_id(const char *text)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strspn(text, allowed);
    return n > 0 && n <= 63 && !text[n];
}

static void lower(char *text)
{
    for (; *text; text++)
        if (*text >= 'A' && *text <= 'Z') *text = (char)(*text + ('a' - 'A'));
}

static int copy_headers(struct http_request *r, const struct gate_head *head)
{
    struct arena *arena = &r->x.arena;
    r->headers = arena_alloc_array(arena, (size_t)head->num_headers, sizeof *r->headers);
    if (!r->headers) return -1;
    for (int i = 0; i < head->num_headers; i++) {
        const struct gate_header *h = &head->headers[i];
        char *name = arena_copy(arena, h->name, h->name_bytes);
        r->headers[i].name = name;
        r->headers[i].value = arena_copy(arena, h->value, h->value_bytes);
        if (!name || !r->headers[i].value) return -1;
        lower(name);
    }
    r->num_headers = head->num_headers;
    return 0;
}

int http_request_create(const struct gate_head *head, struct server *server, struct connection *connection,
                        uint64_t id, uint64_t request_seed, size_t arena_bytes, struct http_request **out,
                        struct refusal *why)
{
    struct http_request *r = calloc(1, sizeof *r);
    if (!r) return refuse(why, 503, "no memory for the request");
    struct exchange *x = &r->x;
    x->server = server;
    x->connection = connection;
    x->id = id;
    x->method = head->method;
    x->path_rest = x->body = "";
    x->api_key_idx = -1;
    r->version_minor = head->version_minor;
    arena_init(&x->arena, arena_bytes);
    struct target target;
    int status = target_parse(head->target, head->target_bytes, head->method, &x->arena, &target, why);
    x->path = target.path;
    x->query = target.query;
    r->plain_path_bytes = target.plain_bytes;
    if (!status && target.authority) {
        r->authority = arena_copy(&x->arena, target.authority, target.authority_bytes);
        if (!r->authority) status = refuse(why, 503, "no memory for the request");
    }
    if (!status && copy_headers(r, head)) status = refuse(why, 503, "no memory for the request");
    if (status) {
        http_request_destroy(r);
        return -1;
    }
    const char *id_text = exchange_header(x, "x-request-id");
    if (id_text && is_valid_id(id_text))
        snprintf(x->request_id, sizeof x->request_id, "%s", id_text);
    else
        http_request_make_id(request_seed, id, x->request_id);
    *out = r;
    return 0;
}

struct http_request *http_request_restore(struct server *server, struct connection *connection, uint64_t id,
                                          const char *request_id, const struct route *route,
                                          int version_minor)
{
    enum { ARENA_BYTES = 64 * 1024 };
    struct http_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->x = (struct exchange){.server = server,
                             .connection = connection,
                             .id = id,
                             .method = HTTP_METHOD_POST,
                             .api_key_idx = -1,
                             .path = "",
                             .query = "",
                             .path_rest = "",
                             .body = ""};
    arena_init(&r->x.arena, ARENA_BYTES);
    snprintf(r->x.request_id, sizeof r->x.request_id, "%s", request_id);
    r->route = route;
    r->version_minor = version_minor;
    r->http_status = 200;
    r->handled = r->streaming = true;
    return r;
}

append_failure *http_request_error_shape(const struct http_request *r)
{
    append_failure *shape = r->route ? r->route->append_error : NULL;
    if (!r->route && r->x.path) shape = router_error_shape(r->x.connection->listener->routes, r->x.path);
    if (shape && shape != response_append_error) return shape;
    return exchange_header(&r->x, "anthropic-version") ? messages_append_error : response_append_error;
}

void http_request_destroy(struct http_request *r)
{
    arena_deinit(&r->x.arena);
    free(r);
}
