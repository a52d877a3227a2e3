/* routes.c - the server's routes: exactly these exist, and all but the ones marked ROUTE_OPEN need a key. */
#include "server/page/page.h"
#include "server/router.h"
#include "server/server.h"

const struct route server_routes[] = {
    {HTTP_METHOD_GET, "/", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_page},
    {HTTP_METHOD_GET, "/health", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_health},
    {HTTP_METHOD_GET, "/readyz", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_health},
    {HTTP_METHOD_GET, "/ping", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_health},
    {HTTP_METHOD_GET, "/livez", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_livez},
    {HTTP_METHOD_GET, "/version", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_version},
    {HTTP_METHOD_GET, "/metrics", ROUTE_OPEN | ROUTE_ALWAYS, .handler = endpoint_metrics},
    {HTTP_METHOD_GET, "/v1/models", 0, .handler = endpoint_models},
    {HTTP_METHOD_GET, "/v1/models/*", 0, .handler = endpoint_models},
    {HTTP_METHOD_POST, "/v1/completions", ROUTE_JSON, .handler = endpoint_completions},
    {HTTP_METHOD_POST, "/v1/chat/completions", ROUTE_JSON, .handler = endpoint_chat_completions},
    {HTTP_METHOD_POST, "/v1/responses", ROUTE_JSON, .handler = endpoint_responses},
    {HTTP_METHOD_GET, "/v1/responses/*", 0, .handler = endpoint_response},
    {HTTP_METHOD_DELETE, "/v1/responses/*", 0, .handler = endpoint_response_delete},
    {HTTP_METHOD_POST, "/v1/responses/*", 0, .handler = endpoint_response_cancel},
    {HTTP_METHOD_POST, "/v1/messages", ROUTE_JSON, endpoint_messages, messages_append_error},
    {HTTP_METHOD_POST, "/v1/messages/count_tokens", ROUTE_JSON, endpoint_count_tokens, messages_append_error},
    {HTTP_METHOD_POST, "/api/chat", ROUTE_JSON, endpoint_ollama_chat, ollama_append_error},
    {HTTP_METHOD_POST, "/api/generate", ROUTE_JSON, endpoint_ollama_generate, ollama_append_error},
    {HTTP_METHOD_POST, "/api/show", ROUTE_JSON, endpoint_ollama_show, ollama_append_error},
    {HTTP_METHOD_GET, "/api/tags", 0, endpoint_ollama_tags, ollama_append_error},
    {HTTP_METHOD_GET, "/api/ps", 0, endpoint_ollama_ps, ollama_append_error},
    {HTTP_METHOD_GET, "/api/version", 0, endpoint_ollama_version, ollama_append_error},
    {HTTP_METHOD_GET, "/debug/requests", ROUTE_ADMIN | ROUTE_ALWAYS, .handler = endpoint_debug_requests},
    {HTTP_METHOD_DELETE, "/debug/requests/*", ROUTE_ADMIN | ROUTE_ALWAYS, .handler = endpoint_debug_cancel},
    {HTTP_METHOD_GET, "/props", 0, .handler = endpoint_props},
    {HTTP_METHOD_GET, "/slots", 0, .handler = endpoint_slots},
    {HTTP_METHOD_POST, "/apply-template", ROUTE_JSON, .handler = endpoint_apply_template},
    {HTTP_METHOD_POST, "/tokenize", ROUTE_JSON, .handler = endpoint_tokenize},
    {HTTP_METHOD_GET, "/tokenizer_info", 0, .handler = endpoint_tokenizer_info},
    {HTTP_METHOD_POST, "/detokenize", ROUTE_JSON, .handler = endpoint_detokenize},
    {.pattern = NULL},
};
