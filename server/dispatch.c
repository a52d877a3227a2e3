#include "server/dispatch.h"

#include <string.h>
#include <strings.h>

#include "server/api/json_gate.h"
#include "server/server.h"

static const char invalid_request[] = "invalid_request_error";

/* A list of header names as a browser sends it: tokens, commas, spaces. */
static bool is_header_list(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (!gate_is_token_char((unsigned char)text[i]) && text[i] != ',' && text[i] != ' ') return false;
    return n > 0 && n <= 1024;
}

static bool is_preflight(const struct exchange *x)
{
    return exchange_header(x, "origin") && exchange_header(x, "access-control-request-method");
}

/* Answers are the same for every origin and never carry credentials of the browser's, so any page may ask. */
static void answer_options(struct listener *l, struct http_request *r)
{
    struct exchange *x = &r->x;
    const char *rest;
    bool path_exists;
    router_find(l->routes, x->method, x->path, r->plain_path_bytes, &rest, &path_exists);
    if (!path_exists && strcmp(x->path, "*") != 0 && !is_preflight(x)) {
        exchange_error(x, 404, invalid_request, "unknown_url", NULL, 0, "there is no such URL");
        return;
    }
    char methods[64];
    router_list_methods(l->routes, path_exists ? x->path : "*", methods);
    exchange_add_header(x, "Allow", methods);
    if (is_preflight(x)) {
        const char *headers = exchange_header(x, "access-control-request-headers");
        exchange_add_header(x, "Access-Control-Allow-Methods", methods);
        if (headers && is_header_list(headers))
            exchange_add_header(x, "Access-Control-Allow-Headers", headers);
        exchange_add_header(x, "Access-Control-Max-Age", "600");
        exchange_add_header(x, "Vary", "Access-Control-Request-Headers");
    }
    exchange_reply(x, 204, NULL, "", 0);
}

static bool has_key(const struct auth *auth, struct exchange *x)
{
    if (auth->num_keys == 0) return true;
    x->api_key_idx =
        auth_find_key(auth, exchange_header(x, "authorization"), exchange_header(x, "x-api-key"));
    return x->api_key_idx >= 0;
}

static bool find_route(struct listener *l, struct http_request *r)
{
    struct exchange *x = &r->x;
    bool path_exists;
    r->route = router_find(l->routes, x->method, x->path, r->plain_path_bytes, &x->path_rest, &path_exists);
    if ((!r->route || !(r->route->flags & ROUTE_OPEN)) && !has_key(&l->auth, x)) {
        exchange_error(x, 401, invalid_request, "invalid_api_key", NULL, 0,
                       "an API key of this server is needed: Authorization: Bearer KEY");
    } else if (!r->route && path_exists) {
        char methods[64];
        router_list_methods(l->routes, x->path, methods);
        exchange_add_header(x, "Allow", methods);
        exchange_error(x, 405, invalid_request, NULL, NULL, 0, "this URL is served for %s", methods);
    } else if (!r->route) {
        exchange_error(x, 404, invalid_request, "unknown_url", NULL, 0, "there is no such URL");
    } else {
        return true;
    }
    return false;
}

static bool is_served_now(const struct http_request *r, struct exchange *x)
{
    static const char *const reasons[] = {
        [SERVER_LOADING] = "the model is still loading",
        [SERVER_READY] = "",
        [SERVER_DRAINING] = "the server is shutting down",
        [SERVER_FAILED] = "the device failed and the server is about to be restarted",
    };
    enum server_state state = x->server->state;
    if (state == SERVER_READY || (r->route->flags & ROUTE_ALWAYS)) return true;
    int retry_after_seconds = state == SERVER_LOADING ? 1 : 5;
    exchange_error(x, 503, "service_unavailable_error", NULL, NULL, retry_after_seconds, "%s",
                   reasons[state]);
    return false;
}

/* "application/json", perhaps with parameters, of which charset may only be utf-8. */
static bool is_json_type(const char *type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    if (!type || strncasecmp(type, json, n) != 0) return false;
    type += n;
    type += strspn(type, " \t");
    if (!*type) return true;
    if (*type++ != ';') return false;
    const char *charset = strcasestr(type, "charset=");
    if (!charset) return true;
    charset += strlen("charset=");
    if (*charset == '"') charset++;
    return !strncasecmp(charset, "utf-8", 5) && !gate_is_token_char((unsigned char)charset[5]);
}

static bool is_readable(const struct http_request *r, struct exchange *x)
{
    if (!(r->route->flags & ROUTE_JSON)) return true;
    const char *encoding = exchange_header(x, "content-encoding");
    if (encoding && strcasecmp(encoding, "identity") != 0)
        exchange_error(x, 415, invalid_request, NULL, NULL, 0,
                       "bodies with a Content-Encoding are not accepted");
    else if (!is_json_type(exchange_header(x, "content-type")))
        exchange_error(x, 415, invalid_request, NULL, NULL, 0,
                       "Content-Type must be application/json, in UTF-8");
    else
        return true;
    return false;
}

bool dispatch_head(struct listener *l, struct http_request *r)
{
    struct exchange *x = &r->x;
    if (x->method == HTTP_METHOD_OPTIONS) {
        answer_options(l, r);
        return false;
    }
    return find_route(l, r) && is_served_now(r, x) && is_readable(r, x);
}

int dispatch_check_body(const struct listener *l, const struct http_request *r, struct refusal *why)
{
    if (!(r->route->flags & ROUTE_JSON)) return 0;
    const struct json_gate_limits limits = {
        .max_depth = (int)l->config->max_json_depth,
        .max_nodes = (int)l->config->max_json_nodes,
        .max_keys = (int)l->config->max_json_keys,
    };
    struct error err = {0};
    int status = json_gate_check(r->x.body, r->x.body_bytes, &limits, &err);
    if (!status) return 0;
    return refuse(why, status == STATUS_NO_MEMORY ? 503 : 400, "%s", err.text);
}

void dispatch_run(struct http_request *r)
{
    r->handled = true;
    r->route->handler(&r->x);
}
