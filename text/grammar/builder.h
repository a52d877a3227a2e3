/* builder.h - puts a program together, state by state.
 *
 * Failures are sticky: every function may be called after one and does nothing harmful; builder_finish tells.
 * Owner: the compiler that uses it; builder_deinit frees what builder_finish has not handed over. */
#ifndef TEXT_GRAMMAR_BUILDER_H
#define TEXT_GRAMMAR_BUILDER_H

#include "text/grammar/dfa.h"
#include "text/grammar/pool.h"
#include "text/grammar/program.h"

/* The state that only returns; the rule that matches nothing, and the one that matches the empty text: a call
 * of it goes on in another state at once. */
enum { BUILDER_FINAL = 1, RULE_NEVER = 0, RULE_EMPTY = 1 };

enum { BUILDER_REGEX_WORK_MAX = 1 << 25 };  /* threads through all patterns of a program: a second */
enum { BUILDER_SCHEMA_WORK_MAX = 1 << 20 }; /* atoms of all its schemas (schema.h): a second */

struct builder {
    struct pool states, edges, calls, loops, classes, entries, objects, keys, rules, spaces;
    bool is_recursive;   /* some rule may reach itself */
    bool closes_objects; /* grammar_options */
    uint32_t regex_work; /* what is left for patterns (subsets.h), of however many schemas and tools */
    int schema_work;     /* the same for schemas */
};

void builder_init(struct builder *b, uint32_t max_spaces);
/* As the options say; builder_deinit is due whatever it returns. */
int builder_init_for(struct builder *b, const struct grammar_options *options, struct error *err) must_check;
void builder_deinit(struct builder *b);
int builder_status(const struct builder *b);

uint32_t builder_state(struct builder *b, unsigned flags);
/* Valid until the next state is made; never NULL. */
struct state *builder_at(struct builder *b, uint32_t state);
/* Each at most once for a state. Edges ascend and do not overlap. */
void builder_set_edges(struct builder *b, uint32_t state, const struct byte_edge *edges, uint32_t n);
void builder_set_calls(struct builder *b, uint32_t state, const struct rule_call *calls, uint32_t n);
void builder_set_edge(struct builder *b, uint32_t state, uint8_t byte, uint32_t target);
void builder_set_call(struct builder *b, uint32_t state, uint32_t rule, uint32_t back);
void builder_set_loop(struct builder *b, uint32_t state, struct char_loop loop);
void builder_set_entry(struct builder *b, uint32_t state, struct entry entry);
/* A final state with a condition on its way in. */
uint32_t builder_final_if(struct builder *b, struct entry entry);

uint32_t builder_rule(struct builder *b); /* its start is set later */
void builder_set_start(struct builder *b, uint32_t rule, uint32_t start);

/* States that take a text and go on in next. */
uint32_t builder_text(struct builder *b, const char *text, size_t n, uint32_t next);

/* What follows the states of an automaton that accept: by label, 0 for nothing. closing: the byte in between
 * (an accepting state must not take it itself); -1: the state itself is final. Returns the state that start
 * is. */
uint32_t builder_dfa(struct builder *b, const struct dfa *d, int closing, const uint32_t *by_label,
                     uint32_t num_labels);

/* Computes what the matcher needs and hands the program over; start_rule is where a text begins. */
int builder_finish(struct builder *b, uint32_t start_rule, bool prunes, struct grammar **out,
                   struct error *err) must_check;

#endif
