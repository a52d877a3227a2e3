/* model_text.h - what a model on disk says of text: its tokenizer and its chat template, from a GGUF file or
 * a Hugging Face directory. Nothing in a file is trusted. Thread: one opens; then read-only, any. */
#ifndef TEXT_MODEL_TEXT_H
#define TEXT_MODEL_TEXT_H

#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tools/tool_format.h"

struct gguf;

struct model_text {
    struct tokenizer *tokenizer;         /* NULL: a directory without one */
    struct chat_template *chat_template; /* NULL: none, or none that can be used */
    struct tool_format *tool_format;     /* its tool calls and reasoning; NULL without it or a tokenizer */
    struct gguf *gguf;                   /* the tokenizer's memory; NULL for a directory */
};

/* path: the model's. template_path: a file to use instead of the model's own template, or NULL; that one must
 * parse, while a model's own that does not is a warning, so that completions work. STATUS_NOT_FOUND: no
 * tokenizer; the template is there nevertheless. */
int model_text_open(const char *path, const char *template_path, struct model_text *out,
                    struct error *err) must_check;
/* Once a tokenizer stands in the place of one that was not found: tool_format, where there is a template. */
int model_text_derive_tools(struct model_text *t, struct error *err) must_check;
void model_text_close(struct model_text *t);

/* The model's own chat template (Jinja source, NUL-terminated; the caller frees), NULL when it has none. In a
 * directory chat_template.jinja wins over tokenizer_config.json, and that over chat_template.json, which older models with
 * images have beside their processor. */
int template_source_of_gguf(const struct gguf *gguf, const char *path, char **out,
                            struct error *err) must_check;
int template_source_of_directory(const char *path, char **out, struct error *err) must_check;

#endif
