/* chat_template.h - renders messages into a prompt with the model's own Jinja template.
 *
 * The template is parsed once, at start; rendering is a pure function of it and of the JSON given, with
 * limits on steps, output bytes and depth, so that neither a template nor a request can run away. Equal byte
 * for byte to jinja2 as Hugging Face sets it up (trim_blocks, lstrip_blocks, loop controls).
 *
 * Every byte of the output knows whether it came from the template's text or from the request: the ranges
 * that came from the request are returned, so that the tokenizer never takes them for control tokens.
 * Thread: any, also at once on one template. */
#ifndef TEXT_CHAT_TEMPLATE_H
#define TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "text/tokenizer.h"

struct cJSON;
struct chat_template;

struct chat_template_limits {
    uint64_t num_steps; /* nodes evaluated */
    size_t output_bytes;
    int depth;           /* nesting of calls and expressions */
    size_t memory_bytes; /* of one rendering */
};
extern const struct chat_template_limits chat_template_limits_default;

/* A sentence with the line number when the source is not a template that flashd understands. */
int chat_template_parse(const char *source, struct chat_template **out, struct error *err) must_check;
void chat_template_free(struct chat_template *t);
/* What it was parsed from. */
const char *chat_template_source(const struct chat_template *t);

/* context: a JSON object, its members the template's variables (messages, tools, add_generation_prompt,
 * bos_token, ...). trusted: names of members whose strings count as the template's own (bos_token,
 * eos_token, ...), NULL-terminated. now_seconds: for strftime_now (wall clock, local time zone UTC).
 * On success appends the text to out, and sets *untrusted (malloc'd, caller frees) and *num_untrusted.
 * STATUS_TEMPLATE: the template raised an exception, with its message. STATUS_LIMIT: a limit. */
int chat_template_render(const struct chat_template *t, const struct cJSON *context,
                         const char *const *trusted, int64_t now_seconds,
                         const struct chat_template_limits *limits, struct buffer *out,
                         struct text_range **untrusted, int *num_untrusted, struct error *err) must_check;

/* Whether the template reads message content as a list of parts, and not (also) as a string. */
bool chat_template_wants_parts(const struct chat_template *t);

#endif
