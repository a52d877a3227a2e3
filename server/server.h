/* server.h - what the endpoints share: the model's texts, the link to the engine, and the server's life.
 * Thread: the loop's, except where said. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <uv.h>

#include "config/config.h"
#include "link/link.h"
#include "server/engine_host.h"
#include "server/exchange.h"
#include "server/response.h"
#include "server/work_queue.h"
#include "text/chat_template.h"
#include "text/model_identity.h"
#include "text/tokenizer.h"
#include "text/tools/tool_format.h"

struct fim_tokens;
struct grammars;
struct inherited;
struct journal;
struct loras;
struct rerank_template;
struct span_export;
struct masks;

enum server_state {
    SERVER_LOADING, /* listening; /health is 503, API calls get 503 with Retry-After */
    SERVER_READY,
    SERVER_LAME_DUCK, /* SIGTERM seen: /health is 503, everything else as if nothing had been */
    SERVER_DRAINING,  /* /health is 503, no new requests, streams finish */
    SERVER_FAILED,    /* the device failed */
};

struct server {
    uv_loop_t *loop;
    const struct config *config;
    const struct inherited *inherited; /* the socket that the process was started with; NULL: none */
    enum server_state state;
    uint64_t start_ns; /* monotonic, process start */
    int64_t created;   /* unix seconds: models' "created" */
    /* set when loading is done, read-only afterwards */
    const struct link_facts *facts;
    const struct tokenizer *tokenizer;
    const struct chat_template *chat_template; /* NULL: the model has none */
    const struct tool_format *tool_format;     /* NULL: likewise */
    const struct fim_tokens *fim;              /* how it fills in the middle of a text; NULL: not at all */
    struct rerank_template *reranker;          /* NULL: the model is none */
    struct model_identity identity;            /* where answers have receipts */
    struct digest_text files_digest; /* of which files the model is, by their names, sizes and times, */
    int64_t files_bytes;             /* and how large they are */
    bool makes_receipts;             /* --receipts, --journal */
    struct journal *journal;         /* NULL: nobody wants one */
    struct link *link;
    struct request_slots *slots; /* the link's */
    struct grammars *grammars;   /* of answers that must have a form, */
    struct masks *masks;         /* and what follows them */
    bool is_replaced;            /* another process loads, or has loaded, to take this one's place */
    bool
        has_predecessor; /* the process whose place this one took is there, and tells of responses that end in it */
    bool engine_is_down;      /* it loads, for the first time or again; what is submitted waits */
    uint64_t engine_start_ns; /* monotonic: when it was started, or the one before it died */
    uint64_t engine_ready_ns; /* monotonic: since when the engine serves */
    uint64_t engine_seen_ns,
        engine_excused_ns; /* engine_watch.c's: when it looked last, and what was before does not count */
    double engine_load_seconds;     /* from a start until it served, the longest so far; 0: not known */
    const char *const *model_names; /* the first is echoed in responses; num_model_names >= 1 */
    int num_model_names;
    struct loras *loras;       /* adapters, which have names of their own (api/loras.h) */
    struct span_export *spans; /* NULL: nobody wants any */
    struct api *api;           /* server/api's own: from api_init to api_deinit */
    struct work_queue works;   /* on the worker pool, and for it */
};

/* ---- server.c: life ---- */

/* Listens and serves until a signal ends it. Engine and texts are loaded beside it meanwhile. Returns the
 * process's exit code: 0, 1 (could not start), 70 (device failed, or the engine died too often). engine: what
 * an engine thread runs; unused where the engine is a process. SIGHUP reads the sources of config again. */
int server_run(struct config *config, engine_main *engine);

/* ---- completion_stream.c and friends: called by server.c on the loop thread ---- */

/* Once, before listening: registers metrics, prepares queues. */
int api_init(struct server *server, struct error *err) must_check;
/* Once, when the fields above are set and before the state becomes READY: registers what needs the model
 * (histogram bounds, labels, start-up phases). */
void api_on_loaded(struct server *server, const char *const *phase_names, const double *phase_seconds,
                   int num_phases);
/* The engine published something (uv_async): move tokens from slots to clients. */
void api_on_engine_wake(struct server *server);
/* The engine is gone, and no other is there yet. */
void api_on_engine_death(struct server *server);
/* Number of API requests not finished yet: draining is done at 0. */
int api_num_in_flight(const struct server *server);
/* When the oldest request that the engine has not finished was handed to it; 0: it owes none. Monotonic. */
uint64_t api_engine_owes_since_ns(const struct server *server);
/* Draining timed out or the device failed: end every request with this error (an SSE error event for
 * streams). */
void api_abort_all(struct server *server, int http_status, const char *type, const char *message);
/* There may be more API keys now. */
int api_on_new_keys(struct server *server, struct error *err) must_check;
/* What is in flight, to the log; the newest of many. */
void api_dump(const struct server *server);
void api_deinit(struct server *server);

/* ---- endpoints (router.c names them); each may only be called with a checked request ---- */
void endpoint_models(struct exchange *x);           /* GET /v1/models, /v1/models/<id> (path_rest) */
void endpoint_completions(struct exchange *x);      /* POST /v1/completions */
void endpoint_chat_completions(struct exchange *x); /* POST /v1/chat/completions */
void endpoint_embeddings(struct exchange *x);       /* POST /v1/embeddings */
void endpoint_cohere_embed(struct exchange *x);     /* POST /v2/embed */
void endpoint_cohere_embed_v1(struct exchange *x);  /* POST /v1/embed */
void endpoint_embed(struct exchange *x);            /* POST /embed */
void endpoint_generate(struct exchange *x);         /* POST /generate */
void endpoint_generate_stream(struct exchange *x);  /* POST /generate_stream */
void endpoint_root(struct exchange *x);             /* POST / */
void endpoint_score(struct exchange *x);            /* POST /v1/score */
void endpoint_rerank(struct exchange *x);           /* POST /v1/rerank */
void endpoint_messages(struct exchange *x);         /* POST /v1/messages */
void endpoint_count_tokens(struct exchange *x);     /* POST /v1/messages/count_tokens */
void endpoint_responses(struct exchange *x);        /* POST /v1/responses */
void endpoint_input_tokens(struct exchange *x);     /* POST /v1/responses/input_tokens */
void endpoint_response(struct exchange *x);         /* GET /v1/responses/<id>, .../input_items */
void endpoint_response_delete(struct exchange *x);  /* DELETE /v1/responses/<id> */
void endpoint_response_cancel(struct exchange *x);  /* POST /v1/responses/<id>/cancel */
void endpoint_apply_template(struct exchange *x);   /* POST /apply-template */
void endpoint_llama_completion(struct exchange *x); /* POST /completion, /completions */
void endpoint_llama_infill(struct exchange *x);     /* POST /infill */
void endpoint_llama_embedding(struct exchange *x);  /* POST /embedding, /embeddings */
void endpoint_slot_action(struct exchange *x);      /* POST /slots/<id>?action= */
void endpoint_lora_adapters(struct exchange *x);    /* GET /lora-adapters */
void endpoint_load_lora(struct exchange *x);        /* POST /v1/load_lora_adapter */
void endpoint_unload_lora(struct exchange *x);      /* POST /v1/unload_lora_adapter */
void endpoint_props(struct exchange *x);            /* GET /props */
void endpoint_slots(struct exchange *x);            /* GET /slots */
void endpoint_ollama_chat(struct exchange *x);      /* POST /api/chat */
void endpoint_ollama_generate(struct exchange *x);  /* POST /api/generate */
void endpoint_ollama_embed(struct exchange *x);     /* POST /api/embed */
void endpoint_ollama_embedding(struct exchange *x); /* POST /api/embeddings */
void endpoint_ollama_show(struct exchange *x);      /* POST /api/show */
void endpoint_ollama_pull(struct exchange *x);      /* POST /api/pull: of what is there */
void endpoint_ollama_tags(struct exchange *x);      /* GET /api/tags */
void endpoint_ollama_ps(struct exchange *x);        /* GET /api/ps */
void endpoint_ollama_version(struct exchange *x);   /* GET /api/version */
void endpoint_tokenize(struct exchange *x);         /* POST /tokenize */
void endpoint_tokenizer_info(struct exchange *x);   /* GET /tokenizer_info */
void endpoint_detokenize(struct exchange *x);       /* POST /detokenize */
void endpoint_health(struct exchange *x);           /* GET /health: 200 ready, 503 else */
void endpoint_livez(struct exchange *x);            /* GET /livez: loop and engine alive */
void endpoint_version(struct exchange *x);          /* GET /version */
void endpoint_metrics(struct exchange *x);          /* GET /metrics */
void endpoint_debug_requests(struct exchange *x);   /* GET /debug/requests */
void endpoint_debug_cancel(struct exchange *x);     /* DELETE /debug/requests/<id> */

/* ---- errors as protocols tell them, where not as OpenAI ---- */
append_failure messages_append_error, ollama_append_error, text_generation_append_error;

#endif
