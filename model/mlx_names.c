#include "model/mlx_names.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const char *const own_names[] = {"gate_proj.weight", "up_proj.weight", "down_proj.weight",
                                        "gate_proj.bias",   "up_proj.bias",   "down_proj.bias"},
                         *const ungated_names[] = {NULL, "fc1.weight", "fc2.weight", NULL, NULL, NULL};

_Static_assert(array_length(own_names) == MLX_EXPERT_ROLES, "each role has a name");

void mlx_experts_name(struct mlx_experts *e, const struct weight_change *changes, int module)
{
    static const char *const modules[] = {"switch_mlp.", "experts.", "switch_glu."};
    _Static_assert(array_length(modules) == MLX_NUM_MODULES, "each has a name");
    const bool is_gated = weight_line(changes, WEIGHT_EXPERT_GATE)->hf_name;
    for (int i = 0; i < MLX_EXPERT_ROLES; i++) {
        const struct weight_line *line = weight_line(changes, (enum weight_role)(WEIGHT_EXPERT_GATE + i));
        const char *own = is_gated ? own_names[i] : ungated_names[i];
        e->lines[i] = *line;
        if (!line->hf_name || !own) continue;
        const int outside = (int)strcspn(line->hf_name, ".") + 1; /* that of the MLP, whatever is inside */
        snprintf(e->names[i], sizeof e->names[i], "%.*s%s%s", outside, line->hf_name, modules[module], own);
        e->lines[i].hf_name = e->names[i];
    }
}

/* LFM2's dense layers, and Laguna's routers. */
const char *mlx_other_name(const char *name)
{
    static const char *const names[][2] = {
        {"feed_forward.w1.weight", "feed_forward.gate_proj.weight"},
        {"feed_forward.w2.weight", "feed_forward.down_proj.weight"},
        {"feed_forward.w3.weight", "feed_forward.up_proj.weight"},
        {"mlp.gate.weight", "mlp.gate.proj.weight"},
        {"mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}};
    for (size_t i = 0; i < array_length(names); i++)
        if (!strcmp(names[i][0], name)) return names[i][1];
    return NULL;
}
