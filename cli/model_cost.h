/* model_cost.h - what a token costs in each operation of a model, and what a step of many tokens must compute and read at
 * least. Arithmetic alone. Thread: any. */
#ifndef CLI_MODEL_COST_H
#define CLI_MODEL_COST_H

#include "model/model_files.h"

enum model_operation {
    OPERATION_QKV,
    OPERATION_ATTENTION_OUTPUT,
    OPERATION_GATE_UP,
    OPERATION_DOWN,
    OPERATION_ROUTER,
    OPERATION_LM_HEAD,
    NUM_OPERATIONS
};
extern const char *const model_operation_names[NUM_OPERATIONS];

/* Of all layers. */
struct operation_cost {
    double parameters, bytes;               /* of what every token goes through, as stored */
    double expert_parameters, expert_bytes; /* of one expert in each layer that has some */
};

struct model_cost {
    const struct model_config *config; /* the files' */
    struct operation_cost operations[NUM_OPERATIONS];
    double bytes;                         /* of all weights */
    double parameters, active_parameters; /* of the model; those of one token */
};

/* is_dummy: layers that are made alike are looked at once, since weights are made when they are looked at. */
void model_cost_init(struct model_cost *m, const struct model_files *files, bool is_dummy);

/* Of one token: experts by those that it chooses. */
double operation_active_parameters(const struct model_cost *m, enum model_operation o);
double operation_active_bytes(const struct model_cost *m, enum model_operation o);
/* Of all experts. */
double operation_parameters(const struct model_cost *m, enum model_operation o);
double operation_bytes(const struct model_cost *m, enum model_operation o);

struct step_work {
    double flops, bytes;
};

/* num_seqs sequences, each with num_new tokens behind num_done that are in the K/V cache (bf16). Of a mixture the experts
 * that so many tokens choose if each chooses by chance. */
struct step_work model_cost_step(const struct model_cost *m, int32_t num_seqs, int32_t num_new,
                                 int32_t num_done);

#endif
