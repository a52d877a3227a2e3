/* pieces.h - an answer of a chat taken apart: text, reasoning and calls, in the order in which they came.
 *
 * Bytes go in as they are decoded; pieces come out as soon as they are certain, adjacent ones of a kind
 * joined. A stream writes and forgets them, a whole answer collects them. Only a chat with tools, or whose
 * model reasons, has any. Owner: a choice. Thread: the loop's. */
#ifndef SERVER_API_PIECES_H
#define SERVER_API_PIECES_H

#include <cjson/cJSON.h>

#include "server/api/custom_input.h"
#include "text/tools/tool_parser.h"

enum piece_kind {
    PIECE_TEXT,
    PIECE_REASONING,
    PIECE_CALL,      /* a call begins; no bytes */
    PIECE_ARGUMENTS, /* more of its arguments */
};

struct call {
    int index; /* in the answer */
    char name[TOOL_NAME_MAX + 1];
    char id[TOOL_ID_MAX + 1]; /* the model's own; "" when it gave none */
    bool is_custom;           /* its arguments are a text (custom_tools.h) */
    bool breaks_off;          /* it has ended without all of its arguments */
    struct custom_input input;
};

struct piece {
    enum piece_kind kind;
    int call_idx; /* CALL, ARGUMENTS */
    size_t begin, end;
};

struct pieces {
    struct tool_parser *parser;
    const struct tool_format *format;
    const cJSON *tools;
    struct buffer bytes;
    struct piece *items;
    int count, capacity;
    struct call *calls;
    int num_calls;
    bool is_parallel, finished, failed;
    bool hides_reasoning; /* it is read and not told */
    bool skips;           /* a call that is not told */
};

/* tools: the request's, NULL for none; they must live as long. is_parallel: more calls than one are told.
 * NULL: no memory. */
struct pieces *pieces_create(const struct tool_format *f, const cJSON *tools, enum tool_reasoning reasoning,
                             bool is_parallel);
void pieces_free(struct pieces *p);

/* Takes all of text; is_last: nothing will follow, once; is_cut: since it was cut off. */
void pieces_take(struct pieces *p, struct buffer *text, bool is_last, bool is_cut);
/* Forgets the first n bytes of the first piece, and the piece with its last one. */
void pieces_consume(struct pieces *p, size_t n);
/* What is one item of an answer, from *at on, which is 0 at first: a text, reasoning, or a CALL; bytes: its text or all its
 * arguments, p's own. False: there are no more. */
bool pieces_next_item(const struct pieces *p, int *at, struct piece *out, struct buffer *bytes);
bool pieces_have(const struct pieces *p, enum piece_kind kind);
/* Appends the bytes of every piece of a kind; those of calls: of this call. */
void pieces_collect(const struct pieces *p, enum piece_kind kind, int call_idx, struct buffer *out);

/* Whether the last call that was told is there to be made: it has all of its arguments. */
bool pieces_call(const struct pieces *p);

/* Whether a control token of this text is part of the notation and must reach the parser. */
bool pieces_want(const struct pieces *p, const char *text, size_t num_bytes);

#endif
