/* text_stream.h - tokens in, text out, with stop strings looked for on the way.
 *
 * Bytes are matched against all stop strings at once, each by its own Knuth-Morris-Pratt state, so the answer
 * does not depend on how tokens cut the text. Text that may be the beginning of a stop string is held back,
 * and no more than that: the longest suffix that is a prefix of some stop string. The first byte at which any
 * stop string is complete ends the text; of several complete there the longest counts. Held text is always
 * whole characters, because stop strings begin with whole ones.
 *
 * Thread: its owner's. */
#ifndef SERVER_API_TEXT_STREAM_H
#define SERVER_API_TEXT_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "text/tokenizer.h"

struct stop_string {
    const char *text;
    int num_bytes;
    const int *fallback; /* [num_bytes]: length of the longest border of text[0..i] */
};

/* Shared by the choices of a request; constant once made. */
struct stop_strings {
    struct stop_string *items;
    int count;
};

struct text {
    const char *bytes;
    size_t num_bytes;
};

/* Prepares texts (valid UTF-8, not empty, copied). False when the arena is full. */
bool stop_strings_init(struct stop_strings *s, struct arena *arena, const struct text *texts, int count);

struct text_stream {
    struct detokenizer detokenizer;
    const struct stop_strings *stop;
    bool include_stop;  /* the stop string stays in the text */
    int *matched;       /* per stop string: bytes of it that the text's end matches */
    struct buffer held; /* decoded, not released */
    int min_indent;     /* blanks that each line but the first begins with; set behind init, 0: any number */
    int num_blanks;     /* that the line has begun with so far; -1: it has begun, or is the first */
    bool is_outdented;  /* a line with fewer ended the text, in front of what stands behind them */
    int stop_idx;       /* which stop string ended the text; -1: none yet */
};

/* False when the arena is full. The text continues a prompt: a tokenizer that strips a leading space does
 * not. */
bool text_stream_init(struct text_stream *t, const struct tokenizer *tokenizer, bool skip_special,
                      const struct stop_strings *stop, bool include_stop, size_t max_held_bytes,
                      struct arena *arena);
void text_stream_deinit(struct text_stream *t);

/* Decodes one token and appends what can be released to out. look_for_stop is false for tokens before
 * min_tokens: their text neither ends the stream nor begins a match. True when a stop string was completed, or
 * a line begins too far to the left: the stream is over, nothing may be pushed. */
bool text_stream_push(struct text_stream *t, int32_t token_id, bool look_for_stop, struct buffer *out);

/* The end without a stop string: releases what was held. A last unfinished character may complete a
 * stop string, then true. */
bool text_stream_finish(struct text_stream *t, struct buffer *out);

#endif
