/* params.h - the one validator: what a client asked for, with every type and range checked.
 *
 * All codecs read their body through params_read, once it is canonical (codec.h), so that a limit holds on all of them.
 * Unknown fields are accepted, null equals absent, a known field of the wrong type or range is refused with
 * its dotted path in param, and a known field that would change the answer but is not there yet is refused
 * unless it holds its neutral value. What comes out needs no further check: every id is below the logits'
 * width, every number in the range that request_slots.h demands.
 *
 * Defaults: the request, then the model's generation_config.json or general.sampling (--generation-config auto), then OpenAI's.
 * The slot's part is large and its memory the caller's, because it is needed no longer than until the slots
 * are filled in. Thread: any; a pure function of the body and of the server's tables. Strings are copied into
 * the arena. */
#ifndef SERVER_API_PARAMS_H
#define SERVER_API_PARAMS_H

#include <cjson/cJSON.h>

#include "base/arena.h"
#include "base/digest.h"
#include "server/api/api_error.h"
#include "server/api/constraint.h"
#include "server/api/embedding.h"
#include "server/api/field_names.h"
#include "server/api/text_stream.h"
#include "server/server.h"
#include "server/token_limits.h"

/* The forms of a canonical body: a raw prompt, messages for the template; and of what is not continued, but becomes a row
 * of floats: raw prompts, pairs of texts. */
enum api_kind { API_COMPLETIONS, API_CHAT, API_POOLING, API_SCORING };

static inline bool api_kind_has_rows(enum api_kind kind)
{
    return kind >= API_POOLING;
}

/* What a client wants to see of the scores. */
struct scoring_form {
    int32_t top_n;
    int32_t max_tokens_per_query, max_tokens_per_doc; /* nothing is cut: more are refused; 0: any number */
    bool return_documents;
};

enum {
    MAX_TOKENS_DEFAULT = -1,
    COMPLETION_MAX_TOKENS = 16,
    CACHE_SALT_CHARS_MAX = 128,
    PRIORITY_MAX = 100,
    REQUEST_ID_MAX = 64
};

struct params {
    enum api_kind kind;
    /* sampling, min_tokens, ignore_eos, stop ids, biases and the number of logprobs; the fields of one
     * sequence (prompt length, max_tokens, seed, times) are filled in when a slot is */
    struct request_slot_input *input;
    struct request_payload *payload;
    int lora; /* the adapter's place, which whoever owns params lets go of (loras.h); 0: none */
    int32_t n,
        num_returned;   /* answers of each prompt that are made, and those of them that are the likeliest */
    int32_t max_tokens; /* MAX_TOKENS_DEFAULT: not given */
    int32_t priority;   /* the lower, the earlier */
    int32_t n_indent;   /* blanks that each line of the answer but the first begins with, or it ends there */
    bool has_seed;
    int64_t seed;
    bool has_nul; /* texts of the body have stand-ins: nul_text.h */
    bool stream, include_usage, continuous_usage;
    int32_t stream_interval;     /* a chunk has as many tokens, except the first and the last */
    bool logprobs;               /* in the answer, */
    int32_t num_top_logprobs;    /* with so many alternatives; */
    int32_t num_prompt_logprobs; /* prompt_logprobs: likewise, of the prompt; -1: none. input.sampling has the
                                    most of both */
    bool echo;                   /* the prompt's text, or a chat's last message, stands before the answer */
    bool return_tokens_as_token_ids, return_token_ids, return_prompt_text;
    bool predicts; /* usage says how much of a prediction came true */
    bool timings;  /* the last chunk of a choice, or the whole answer, says how long it took */
    bool skip_special_tokens, include_stop_str_in_output;
    bool
        spaces_between_special_tokens; /* none are written there whatever it says, as by these models' decoders */
    bool add_special_tokens, parse_special;
    bool add_generation_prompt, continue_final_message;
    bool uses_tools;          /* the body has some, and the model may call them */
    bool must_call;           /* tool_choice required, or a name */
    bool strict_calls;        /* some tool's arguments must fulfil its schema */
    const char *tool_name;    /* the one to call, in the arena; NULL: any */
    bool parallel_tool_calls; /* more than one at once */
    bool separate_reasoning, include_reasoning;
    cJSON *tools;                   /* of a prepared request that uses them; the owner of params frees it */
    int32_t truncate_prompt_tokens; /* the last so many of a prompt; -1: as fit; 0: it is not cut */
    bool truncates_right;           /* the first so many */
    bool drops_turns;               /* the oldest of a chat, where all have no room; the codec's */
    const char *request_id;         /* the answer's id, in the arena; NULL: one is made */
    struct stop_strings stop;
    struct embedding_form embedding;   /* of API_POOLING */
    struct scoring_form scoring;       /* of API_SCORING */
    struct answer_form form;           /* its grammar is compiled when all else is good, */
    const struct token_limits *limits; /* and these are read; NULL: none */
    char *cache_salt;                  /* NULL: none */
    size_t cache_salt_bytes;
    const struct ignored_fields *ignored;     /* NULL: none */
    const struct digest_text *request_digest; /* receipt.h; NULL: nobody wants one */
    const void *kept;                         /* the codec's, of the body: for its events */
    bool ends_with_context;          /* max_tokens beyond the context are no mistake: the answer ends there */
    bool fills_context;              /* without max_tokens a text completion has all the room there is, too */
    bool in_background;              /* its client does not wait for the answer, which its codec keeps */
    bool tells_prompt_last;          /* a stream's last event has the prompt's ids or text */
    const struct sampling *sampling; /* a copy of input's, where the answer tells it; else NULL */
    const char *warnings;            /* what the answer's head shall say; NULL: nothing */
};

/* out->input and out->payload are set by the caller. An adapter is taken even where it fails. */
int params_read(const struct server *server, enum api_kind kind, const cJSON *body, const char *text,
                size_t text_bytes, struct arena *arena, struct params *out, struct api_error *err) must_check;

/* 404 model_not_found, with the name that would do. */
int params_refuse_model(const struct server *server, const char *name, struct api_error *err);

/* The model field, where given, names a served model (404 model_not_found). */
int params_check_model(const struct server *server, const cJSON *body, struct api_error *err) must_check;

#endif
