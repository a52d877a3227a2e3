/* codec.h - a protocol of generation: how its bodies become the one form of request that the core knows, and
 * how the core's events become its bytes.
 *
 *   body --translate--> canonical body --params, prompts--> a generation --events--> bytes
 *
 * The canonical body has the names of OpenAI's chat or text completions, with vLLM's further fields: one
 * validator (params.h) and one reader of prompts stand behind all codecs. Fields that a codec does not name
 * pass as they are, so that what params.c learns every protocol knows. Events are one table of functions,
 * each appending bytes that are complete in themselves; the transport knows none of them. Thread: translate
 * any (a pure function of the body), events the loop's, but for WHOLE. */
#ifndef SERVER_API_CODEC_H
#define SERVER_API_CODEC_H

#include "server/api/choice.h"
#include "server/response.h"

struct codec;

struct usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
    int64_t reasoning_tokens;                                       /* of completion_tokens */
    struct cache_miss cache_miss;                                   /* of the first prompt */
    uint64_t energy_uj;                                             /* of what has ended; 0: not told */
    int64_t accepted_prediction_tokens, rejected_prediction_tokens; /* as request_slots.h has them */
};

/* An answer as its codec sees it, the same at every event. */
enum { MADE_ID_CHARS = 40 };

struct answer {
    const struct codec *codec;
    const char *id;    /* the codec's prefix and 24 hexadecimal digits, or what request_id says */
    char *made_id;     /* [MADE_ID_CHARS], in the arena */
    int64_t created;   /* unix seconds */
    const char *model; /* the adapter's name, if it has one */
    const char *request_id;
    int api_key_idx, num_choices;
    uint64_t arrival_ns;
    uint64_t seed; /* of the first choice */
    const struct choice_context *context;
    const struct choice *choices;
    bool reports_cached_tokens; /* --report-cached-tokens */
    bool reports_prediction;    /* there was one */
    bool reports_energy;        /* --report-energy, and there is a meter */
    uint32_t tenant;            /* the lower half of its id (tenant.h) */
    const struct buffer
        *receipt; /* a JSON object, for the last event of a stream's text or the whole; NULL: none */
    void *state;  /* codec->state_bytes of the codec's own, zero at first; NULL: none */
};

enum event_kind {
    EVENT_STARTED, /* once, before a stream's first delta */
    EVENT_DELTA, /* more of one choice: a step's tokens, with or without text; its last one has the finish */
    EVENT_DONE,  /* every choice has ended: the last bytes of a stream */
    EVENT_ERROR, /* the last bytes of a stream that failed */
    EVENT_PING,  /* nothing came for a while */
    EVENT_WHOLE, /* no stream: the answer, complete */
    EVENT_UNFINISHED, /* an answer in the background as it stands; with an error: it has ended without one */
    NUM_EVENTS,
};

struct event {
    const struct usage *usage; /* DONE, WHOLE: of all choices; DELTA: of this one so far */
    /* DELTA */
    const struct choice *choice;
    const char *text; /* whole characters */
    size_t text_bytes;
    const struct logprobs_part *logprobs; /* NULL: none in this event */
    const char *finish_reason;            /* "stop", "length"; NULL: not the last of its choice */
    int32_t ids_begin, ids_end;           /* positions whose tokens are new since the choice's last event */
    enum piece_kind piece;                /* what text is more of; PIECE_CALL has none */
    const struct call *call;              /* CALL, ARGUMENTS */
    /* ERROR */
    const struct api_error *error;
};

/* Appends the event's bytes; none: this protocol does not tell of it. Of WHOLE, for which all choices are complete, any thread may be
 * the caller: it changes nothing but the answer's state. */
typedef void append_event(struct buffer *out, struct answer *a, const struct event *e);

struct translation;

struct codec {
    const char *path;                    /* in the log */
    const char *id_prefix;               /* of answers */
    const char *stream_type;             /* content type of its streams */
    enum api_kind kind;                  /* of canonical body */
    bool starts_at_once;                 /* STARTED comes with a stream's head, not with its first token */
    int (*begin)(struct translation *t); /* before the fields are taken; NULL: nothing */
    const struct codec_field *fields;    /* in; ends with a name of NULL. NULL: the body is canonical */
    const struct codec_name
        *names; /* of what lies within fields, for refusals; ends with a name of NULL. NULL: none */
    int (*translate)(struct translation *t); /* afterwards, what takes several fields; NULL: nothing */
    append_event *events[NUM_EVENTS];        /* NULL: not told */
    append_failure *append_error;            /* the body of an error; its routes name it, too */
    bool tells_ids;                          /* of tokens; and request_id is the answer's own */
    bool tells_pieces;                       /* reasoning and calls, each as what it is */
    bool tells_custom;                       /* calls of tools that take a text */
    const char *clock; /* stands before the time at which an event is written; NULL: none does */
    /* Keeps of a WHOLE that stands in out, and is about to be sent, what later requests may ask for; the loop's. NULL: nothing */
    void (*keep)(struct answer *a, const struct buffer *out);
    size_t state_bytes;
    void (*forget)(void *state); /* frees what state holds on the heap; NULL: nothing */
};

/* A member of a body that is not canonical. Members without a row pass as they are. */
struct codec_field {
    const char *name;
    const char *canonical; /* its name in the canonical body; NULL: read makes of it what it means */
    /* Takes what it needs out of value, which is not in the body any more; NULL: it is dropped. */
    int (*read)(struct translation *t, cJSON *value);
};

/* What a member of the canonical body is called here; what lies within another stands before it. "[]": any place in an array. */
struct codec_name {
    const char *name, *canonical;
    bool if_sent; /* one of several names: where the client's body has its outermost member */
};

/* Where in the client's body a tool of the canonical one comes from, which has neither namespaces nor what is skipped. */
struct tool_place {
    const char *path;
    int index; /* in the canonical body */
    const struct tool_place *next;
};

/* A body on its way to the canonical one. */
struct translation {
    const struct server *server;
    cJSON *body;         /* rewritten in place */
    cJSON *messages;     /* canonical ones that fields have made, which become the body's; NULL: none */
    enum api_kind kind;  /* the codec's; translate may change it */
    struct arena *arena; /* the request's */
    int api_key_idx;
    bool has_nul;                         /* params->has_nul */
    void *kept;                           /* params->kept */
    cJSON *custom_tools;                  /* names of tools that have become functions; NULL: none could */
    const struct tool_place *tool_places; /* the last one first; NULL: tools stand where they stood */
    const cJSON *last_tool;               /* of those that have a place */
    char warnings[256];                   /* params->warnings */
    uint32_t
        unused_names; /* bit i: codec->names[i] is not what the client's body had; the canonical member was there itself */
    bool ends_with_context; /* params->ends_with_context */
    bool fills_context;     /* params->fills_context */
    bool drops_turns;       /* params->drops_turns */
    bool tells_prompt_last; /* params->tells_prompt_last */
    bool tells_sampling;    /* params->sampling is wanted */
    bool in_background;     /* params->in_background */
    struct api_error *err;
};

#define EVENT_STREAM_TYPE "text/event-stream; charset=utf-8"

extern const struct codec codec_chat, codec_completions, codec_messages, codec_responses, codec_ollama_chat,
    codec_ollama_generate, codec_ollama_embed, codec_ollama_embeddings, codec_embeddings, codec_score,
    codec_rerank, codec_llama_completion, codec_llama_infill, codec_llama_embedding, codec_cohere_embed,
    codec_cohere_embed_v1, codec_embed_rows, codec_text_generation, codec_text_generation_stream,
    codec_text_generation_root;
enum { NUM_CODECS = 20 };
extern const struct codec *const all_codecs[NUM_CODECS];

/* Makes t->body canonical; t->custom_tools is the caller's. Refusals name the protocol's own fields. */
int codec_translate(const struct codec *codec, struct translation *t) must_check;
/* After a refusal of the body that t made canonical: t->err names the field as its protocol does, unless the client
 * had sent the canonical one. */
void codec_name_error(const struct codec *codec, const struct translation *t);

/* t->messages, made when there is none; NULL: out of memory. */
cJSON *translation_messages(struct translation *t);

/* One more thing that the answer's head shall say; what is too much is left out. */
void translation_warn(struct translation *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts item into object in place of what stands there, or frees it. A NULL item is memory that ran out, as is
 * every failure. */
int codec_put(struct translation *t, cJSON *object, const char *name, cJSON *item) must_check;

/* The beginning of an event whose name stands in its data, too; what follows are further members, "}" and an
 * empty line. */
void codec_begin_event(struct buffer *out, const char *name);
void codec_end_event(struct buffer *out);

/* The id of a call: the model's own, or one made of the answer's. */
void codec_append_call_id(struct buffer *out, const struct answer *a, const struct choice *c,
                          const struct call *call);

/* A call's arguments as an object. What was cut off, or is no JSON, is {"arguments": TEXT}, as the model is shown it in a later
 * turn: without arguments the call would be another one. */
void codec_append_arguments(struct buffer *out, const struct buffer *arguments);

/* EVENT_PING as a comment. */
void codec_append_ping(struct buffer *out, struct answer *a, const struct event *e);

/* As a further member, where there is one. */
void codec_append_receipt(struct buffer *out, const struct answer *a);
void codec_append_energy(struct buffer *out, const struct answer *a, const struct usage *u);

/* The ids of positions [begin, end) of a choice's sequence, and the text of its prompt, where params keep them. */
void codec_append_ids(struct buffer *out, const struct answer *a, const struct choice *c, int32_t begin,
                      int32_t end);
void codec_append_prompt(struct buffer *out, const struct answer *a, const struct choice *c);

/* "timings" as llama.cpp has it, of one choice, and what it waited before. */
void codec_append_timings(struct buffer *out, const struct answer *a, const struct choice *c);

/* The codec's bytes for an event. */
void codec_append(struct buffer *out, enum event_kind kind, struct answer *a, const struct event *e);

#endif
