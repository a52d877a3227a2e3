/* load.h - from a model's path to a running engine, and the memory plan in between.
 *
 * load_run is called on a thread of its own while the server already listens; it touches nothing but its
 * struct load and the log. Phases and their seconds are kept for the metrics page. */
#ifndef ENGINE_LOAD_H
#define ENGINE_LOAD_H

#include "config/config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "engine/engine.h"

enum load_phase { LOAD_FILES, LOAD_TOKENIZER, LOAD_DEVICE, LOAD_WEIGHTS, LOAD_ENGINE, LOAD_PHASES };
extern const char *const load_phase_names[LOAD_PHASES];

struct load {
    /* set by the caller */
    const struct config *config;
    void (*wake_loop)(void *context); /* for engine_options */
    void *wake_context;
    /* results; owned until load_release */
    struct model_files *files;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template; /* NULL: none */
    struct device *device;
    struct model *model;
    struct request_slots *slots;
    struct engine *engine; /* started */
    int32_t max_model_len, max_num_seqs, max_num_batched_tokens, num_blocks;
    uint64_t max_queued_tokens;
    const char *kv_dtype_text;
    double phase_seconds[LOAD_PHASES];
};

int load_run(struct load *load, struct error *err) must_check;
void load_release(struct load *load); /* stops the engine first; safe after a failed load_run */

#endif
