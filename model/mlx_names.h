/* mlx_names.h - what MLX's programs name otherwise than a family does: all of a layer's experts have one tensor a role, in a module of their own.
 * Thread: any. */
#ifndef MODEL_MLX_NAMES_H
#define MODEL_MLX_NAMES_H

#include "model/weights.h"

enum { MLX_NAME_BYTES = 64, MLX_EXPERT_ROLES = WEIGHT_ROLE_COUNT - WEIGHT_EXPERT_GATE, MLX_NUM_MODULES = 3 };

/* Lines of the roles of experts, as the family's but for their names. hf_name NULL: the family has none such. Names are its own. */
struct mlx_experts {
    bool is_there;
    struct weight_line lines[MLX_EXPERT_ROLES];
    char names[MLX_EXPERT_ROLES][MLX_NAME_BYTES];
};

/* The names under one of MLX_NUM_MODULES modules. */
void mlx_experts_name(struct mlx_experts *e, const struct weight_change *changes, int module);

/* What a weight beside such experts may be named instead; NULL: nothing else. */
const char *mlx_other_name(const char *name);

#endif
