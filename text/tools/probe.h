/* probe.h - conversations of marked words, rendered. */
#ifndef TEXT_TOOLS_PROBE_H
#define TEXT_TOOLS_PROBE_H

#include "base/buffer.h"
#include "text/chat_template.h"

struct cJSON;

#define PROBE_USER "Qu3stion"
#define PROBE_CONTENT "Answ3r"
#define PROBE_REASONING "R3ason"
#define PROBE_NAME_1 "fn_alpha"
#define PROBE_NAME_2 "fn_beta"
#define PROBE_RESULT "Resu1t"
#define PROBE_SYSTEM_1 "F1rst"
#define PROBE_SYSTEM_2 "S3cond"
#define PROBE_KEY_1 "key_one"
#define PROBE_KEY_2 "key_two"
#define PROBE_ID_1 "idAAAAAA1"
#define PROBE_ID_2 "idBBBBBB2"

struct probe {
    const struct chat_template *template;
    const struct cJSON *variables;
    struct cJSON *tools;
    bool arguments_are_text;
    bool hides_tools; /* the template cannot take them */
    bool thinks;      /* asks for reasoning, in the words of several families */
};

/* One answer. Texts NULL: not there (content: null). */
struct probe_answer {
    const char *content, *reasoning;
    const char *arguments[3]; /* of each call, JSON text; NULL: no more calls */
};

/* STATUS_NO_MEMORY. */
int probe_init(struct probe *p, const struct chat_template *t, const struct cJSON *variables) must_check;
void probe_deinit(struct probe *p);

/* What is rendered behind the question: false when the template refuses or leaves the question out. answer
 * NULL: the prompt for one. Clears out first. */
bool probe_render(const struct probe *p, const struct probe_answer *answer, struct buffer *out);
/* Whether the template shows the tools. */
bool probe_shows_tools(const struct probe *p);
/* Whether it shows the question, and not what a tool gave behind an answer without calls. */
bool probe_loses_results(const struct probe *p);
/* Whether it shows a conversation, and not both of two system messages in it. */
bool probe_loses_system(const struct probe *p);
/* The calls of an answer as a message's tool_calls; NULL: no memory. */
struct cJSON *probe_calls(const struct probe *p, const struct probe_answer *answer);

#endif
