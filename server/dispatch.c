#include "server/dispatch.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/api_keys.h"
#include "server/absent.h"
#include "server/api/json_gate.h"
#include "server/connection.h"
#include "server/http_metrics.h"
#include "server/server.h"
#include "server/target.h"

static const char invalid_request[] = "invalid_request_error";
#define wrong_type "a JSON object in UTF-8 is expected, with the header Content-Type: application/json"

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

static void refuse_unknown_url(struct listener *l, struct exchange *x)
{
    char path[TARGET_SHORT_BYTES], routes[512], meant[128] = "";
    target_shorten(x->path, path);
    const char *reason = absent_reason(x->path);
    if (reason) {
        exchange_error(x, 404, invalid_request, "unknown_url", NULL, 0, "there is no %s here; %s", path,
                       reason);
        return;
    }
    bool all = router_list(l->routes, routes, sizeof routes);
    const char *suggestion = router_suggest(l->routes, x->path);
    if (suggestion) snprintf(meant, sizeof meant, "; did you mean %s?", suggestion);
    exchange_error(x, 404, invalid_request, "unknown_url", NULL, 0,
                   "there is no %s here%s What there is: %s%s", path, suggestion ? meant : ".", routes,
                   all ? "" : ", and what GET /openapi.json says");
}

static void answer_options(struct listener *l, struct http_request *r)
{
    struct exchange *x = &r->x;
    const char *rest;
    bool path_exists;
    router_find(l->routes, x->method, x->path, r->plain_path_bytes, &rest, &path_exists);
    if (!path_exists && strcmp(x->path, "*") != 0 && !is_preflight(x)) {
        refuse_unknown_url(l, x);
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

/* An absolute target's authority stands in for the Host header (RFC 9112, 3.2.2). */
static bool comes_from_allowed_page(struct listener *l, struct http_request *r)
{
    struct exchange *x = &r->x;
    const char *host = r->authority;
    if (!host) host = exchange_header(x, "host");
    size_t n = host ? strlen(host) : 0;
    if (!browser_gate_takes_host(&l->browsers, host, n))
        exchange_error(x, 421, invalid_request, "unknown_host", NULL, 0,
                       "this server does not go by the name in the Host header (--allowed-host adds one)");
    else if (!browser_gate_takes_origin(&l->browsers, exchange_header(x, "origin"), host, n,
                                        &r->allow_origin))
        exchange_error(x, 403, invalid_request, "origin_not_allowed", NULL, 0,
                       "pages of this Origin may not ask here (--allowed-origin adds one)");
    else
        return true;
    return false;
}

static bool has_key(const struct listener *l, struct exchange *x)
{
    if (l->auth.num_keys == 0) return true;
    x->api_key_idx =
        auth_find_key(&l->auth, exchange_header(x, "authorization"), exchange_header(x, "x-api-key"));
    return x->api_key_idx >= 0 && !api_keys_terms(l->config, x->api_key_idx).revoked;
}

static bool may_administer(const struct listener *l, const struct exchange *x)
{
    if (l->auth.num_keys == 0) return l->browsers.shows_page;
    return api_keys_terms(l->config, x->api_key_idx).admin;
}

static bool find_route(struct listener *l, struct http_request *r)
{
    struct exchange *x = &r->x;
    bool path_exists;
    r->route = router_find(l->routes, x->method, x->path, r->plain_path_bytes, &x->path_rest, &path_exists);
    if (http_request_error_shape(r) == messages_append_error)
        exchange_add_header(x, "request-id", x->request_id); /* its name there */
    if ((!r->route || !(r->route->flags & ROUTE_OPEN)) && !has_key(l, x)) {
        exchange_error(x, 401, invalid_request, "invalid_api_key", NULL, 0,
                       "an API key of this server is needed: Authorization: Bearer KEY");
    } else if (!r->route && path_exists) {
        char methods[64];
        router_list_methods(l->routes, x->path, methods);
        exchange_add_header(x, "Allow", methods);
        exchange_error(x, 405, invalid_request, NULL, NULL, 0, "this URL is served for %s", methods);
    } else if (!r->route) {
        refuse_unknown_url(l, x);
    } else if (r->route->flags & ROUTE_ADMIN && !may_administer(l, x)) {
        exchange_error(
            x, 403, invalid_request, "admin_only", NULL, 0,
            "this is for a key with the word admin behind it in --api-key-file or, where there are no "
            "keys, for a server on a loopback address");
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
        [SERVER_LAME_DUCK] = "",
        [SERVER_DRAINING] = "the server is shutting down",
        [SERVER_FAILED] = "the device failed and the server is about to be restarted",
    };
    enum server_state state = x->server->state;
    if (r->route->flags & ROUTE_ALWAYS) return true;
    if (connection_is_in_reserve(x->connection)) {
        http_metrics_count_overflow();
        exchange_error(x, 503, "service_unavailable_error", NULL, NULL, 1,
                       "all %d connections are in use (--max-connections)",
                       x->connection->listener->max_connections);
        return false;
    }
    if (state == SERVER_READY || state == SERVER_LAME_DUCK) return true;
    if (state == SERVER_DRAINING && r->route->flags & ROUTE_STORED) return true;
    int retry_after_seconds = state == SERVER_LOADING ? 1 : 5;
    exchange_error(x, 503, "service_unavailable_error", NULL, NULL, retry_after_seconds, "%s",
                   reasons[state]);
    return false;
}

/* The media type's parameters, or NULL when type is another one. */
static const char *parameters_of(const char *type, const char *media_type)
{
    size_t n = strlen(media_type);
    if (strncasecmp(type, media_type, n) != 0) return NULL;
    type += n;
    type += strspn(type, " \t");
    return !*type || *type == ';' ? type : NULL;
}

static bool is_utf8(const char *parameters)
{
    const char *charset = strcasestr(parameters, "charset=");
    if (!charset) return true;
    charset += strlen("charset=");
    if (*charset == '"') charset++;
    return !strncasecmp(charset, "utf-8", 5) && !gate_is_token_char((unsigned char)charset[5]);
}

static bool is_json_type(const char *type)
{
    return type && parameters_of(type, "application/json");
}

static bool begins_with_brace(const char *body)
{
    return body[strspn(body, " \t\r\n")] == '{';
}

/* No type, and that of forms, are what curl and others send with a JSON body unless told otherwise: the body
 * is looked at. Pages can send these, too, but not without an Origin. */
static bool may_be_json(const char *type)
{
    if (!type) return true;
    const char *parameters = parameters_of(type, "application/json");
    if (!parameters) parameters = parameters_of(type, "application/x-www-form-urlencoded");
    return parameters && is_utf8(parameters);
}

static bool is_readable(const struct http_request *r, struct exchange *x)
{
    if (!(r->route->flags & ROUTE_JSON)) return true;
    const char *encoding = exchange_header(x, "content-encoding");
    if (encoding && strcasecmp(encoding, "identity") != 0)
        exchange_error(x, 415, invalid_request, NULL, NULL, 0,
                       "bodies with a Content-Encoding are not accepted");
    else if (!may_be_json(exchange_header(x, "content-type")))
        exchange_error(x, 415, invalid_request, NULL, NULL, 0, wrong_type);
    else
        return true;
    return false;
}

/* RFC 9110, 13.1.1: nothing here has an entity tag, so that only "whatever there is" matches. */
static bool meets_condition(struct exchange *x)
{
    const char *tags = exchange_header(x, "if-match");
    if (!tags || !strcmp(tags, "*")) return true;
    exchange_error(x, 412, invalid_request, "precondition_failed", NULL, 0,
                   "nothing here has an entity tag that If-Match could name");
    return false;
}

bool dispatch_head(struct listener *l, struct http_request *r)
{
    struct exchange *x = &r->x;
    if (!comes_from_allowed_page(l, r)) return false;
    if (x->method == HTTP_METHOD_OPTIONS) {
        answer_options(l, r);
        return false;
    }
    return find_route(l, r) && is_served_now(r, x) && is_readable(r, x) && meets_condition(x);
}

int dispatch_check_body(const struct listener *l, const struct http_request *r, struct buffer *body,
                        struct refusal *why)
{
    if (!(r->route->flags & ROUTE_JSON)) return 0;
    const struct json_gate_limits limits = {
        .max_depth = (int)l->config->max_json_depth,
        .max_nodes = (int)l->config->max_json_nodes,
        .max_keys = (int)l->config->max_json_keys,
    };
    struct error err = {0};
    if (body->num_bytes > 0) json_gate_mend(body->data, body->num_bytes);
    int status = json_gate_check(r->x.body, r->x.body_bytes, &limits, &err);
    if (!status) return 0;
    if (!is_json_type(exchange_header(&r->x, "content-type")) && !begins_with_brace(r->x.body))
        return refuse(why, 415, wrong_type);
    return refuse(why, status == STATUS_NO_MEMORY ? 503 : 400, "%s", err.text);
}

void dispatch_run(struct http_request *r)
{
    r->handled = true;
    r->route->handler(&r->x);
}
