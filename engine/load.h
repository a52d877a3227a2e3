/* load.h - from a model's path to an engine that can serve, and the memory plan in between.
 *
 * What the options leave open is decided here, once, printed as the memory plan, and written down as the
 * link's facts. Over a link that another engine had opened, the facts are taken as they are. Thread: the
 * engine's. */
#ifndef ENGINE_LOAD_H
#define ENGINE_LOAD_H

#include "config/config.h"
#include "engine/engine.h"

struct load {
    /* set by the caller */
    const struct config *config;
    struct link *link;
    bool leaves_requests; /* for engine_options */
    /* results; owned until load_release */
    struct model_files *files;
    struct device *device;
    struct model *model;
    struct engine *engine;
    struct energy_meter *energy_meter; /* NULL: none */
    struct link_facts facts;
    enum dtype kv_dtype;
    struct kv_layout kv_layout;
    struct kv_groups kv_groups;
    int32_t num_states, num_host_blocks;
    int32_t num_positions; /* that the model is made for: facts.max_model_len, or more where K/V hold fewer */
    uint64_t kv_block_bytes;
};

/* Opens the link last of all. */
int load_run(struct load *load, struct error *err) must_check;
void load_release(struct load *load); /* safe after a failed load_run */

/* What of free_now bytes a GPU's K/V pool may take, so that of the GPU's memory the share utilization is used in
 * all, by whomever. */
uint64_t load_kv_bytes_left(uint64_t gpu_bytes, uint64_t free_now, double utilization);
/* How many sequences may run, of most, so that their states, what drafts of each leave, and the kept states take no more than room;
 * at least one. num_steps: in flight, for each of which a sequence has two states and what drafts leave. */
int32_t load_num_seqs(uint64_t room, uint64_t bytes_of_a_state, uint64_t bytes_of_drafts, int32_t num_steps,
                      int32_t most);
/* Whether weights of so many bytes leave room for activations, and a K/V pool, of kv_bytes where those are told (else 0). */
bool load_has_room(uint64_t gpu_bytes, uint64_t free_now, double utilization, uint64_t kv_bytes,
                   uint64_t weight_bytes);
/* Whether weights of four bits, packed_bytes, are kept as bf16, too: copy_bytes, which are an eighth of that memory at most. */
bool load_has_room_for_copies(uint64_t gpu_bytes, uint64_t free_now, double utilization, uint64_t kv_bytes,
                              uint64_t packed_bytes, uint64_t copy_bytes);

#endif
