/* grammars.h - the grammars of the answers that must have a form: compiled once, shared by all requests that ask
 * for the same, kept for the next one.
 *
 * A constraint is a kind and a text, and its bytes are its identity. A grammar lives as long as somebody holds
 * it; what nobody holds stays as long as all grammars together, with the masks that are kept for them, fit
 * into a budget of bytes: the longest unused goes first. The vocabulary, on which masks are made, is built with
 * the first grammar: a server of which nobody asks for a form pays nothing.
 *
 * Thread: any, several at once; a mutex, never held while something is compiled. */
#ifndef SERVER_GRAMMARS_H
#define SERVER_GRAMMARS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "link/facts.h"

struct grammar;
struct mask_cache;
struct tokenizer;
struct vocabulary;

enum constraint_kind {
    CONSTRAINT_NONE,
    CONSTRAINT_JSON_OBJECT, /* no text */
    CONSTRAINT_JSON_SCHEMA, /* text: JSON without U+0000 */
    CONSTRAINT_REGEX,
    CONSTRAINT_CHOICE, /* text: a JSON array of strings without U+0000 */
    CONSTRAINT_EBNF,
    CONSTRAINT_STRUCTURAL_TAG, /* text: JSON without U+0000 */
    CONSTRAINT_CALLS,          /* text: a JSON object, "ebnf" and the "schemas" that it names */
    NUM_CONSTRAINT_KINDS
};
extern const char *const constraint_kind_names[NUM_CONSTRAINT_KINDS]; /* "json_object", ...; NULL for none */

struct constraint {
    enum constraint_kind kind;
    int max_spaces;                 /* of JSON: grammar_options */
    const char *whitespace_pattern; /* likewise */
    const char *text;
    size_t num_bytes;
};

/* Immutable but for the masks that are kept. */
struct shared_grammar {
    struct grammar *grammar;
    struct mask_cache *masks;
    const struct vocabulary *vocabulary;
};

struct grammars;

int grammars_create(const struct tokenizer *tokenizer, const struct link_facts *facts, struct grammars **out,
                    struct error *err) must_check;
/* Nobody holds a grammar any more. */
void grammars_destroy(struct grammars *g);

/* Compiles the constraint unless it is known; grammars_release is due. What can go wrong: grammar.h; STATUS_NO_SLOT
 * while the grammars that are held are too many. May take 50 ms: never on the loop. */
int grammars_get(struct grammars *g, const struct constraint *c, const struct shared_grammar **out,
                 struct error *err) must_check;
/* One more holder. */
const struct shared_grammar *grammars_hold(struct grammars *g, const struct shared_grammar *shared);
void grammars_release(struct grammars *g, const struct shared_grammar *shared); /* NULL: nothing */

/* What ends an answer, unless ignore_eos: how many ids. */
int32_t grammars_end_ids(const struct grammars *g, const int32_t **ids);
const struct tokenizer *grammars_tokenizer(const struct grammars *g);

/* Of all that somebody holds. Above GRAMMARS_HELD_BYTES_MAX only what is known already is to be had. */
enum { GRAMMARS_HELD_BYTES_MAX = 512 << 20 };
size_t grammars_held_bytes(struct grammars *g);
/* Of one that is held: each holder has its part. */
size_t grammars_part_bytes(struct grammars *g, const struct shared_grammar *shared);

struct grammars_stats {
    uint64_t num_compiled, num_refused, num_found;
    double compile_seconds;
    size_t num_bytes; /* grammars and masks */
};
void grammars_stats(struct grammars *g, struct grammars_stats *out);

#endif
