/* family.h - what a model's name means: one row a family, for GGUF files and Hugging Face directories alike.
 *
 * A file tells one model's facts: sizes, theta, a window. What its class computes with them stands in none;
 * the readers (gguf_config.h, hf_config.h) take it from here. All families with a row are dense decoders:
 * RMSNorm before attention and before the MLP, grouped-query attention over rotated heads, a gated MLP. One
 * more is a row, and a table of weights if it names them in its own way. Read-only. Thread: any. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/device.h"
#include "model/weights.h"

/* Where a family is named. */
enum family_namespace {
    NAMES_GGUF,     /* general.architecture, which also begins the file's keys */
    NAMES_HF_CLASS, /* config.json: architectures */
    NAMES_HF_TYPE,  /* config.json: model_type */
    NAMESPACE_COUNT
};

/* When sliding_window of a config.json counts. */
enum window_rule {
    WINDOW_NEVER,
    WINDOW_IF_USED,      /* with use_sliding_window, from layer max_window_layers on */
    WINDOW_DEFAULT_4096, /* always; a missing one is 4096, null is none */
};

struct family {
    const char *names[NAMESPACE_COUNT]; /* NULL: it has none of its own there */
    const struct weight_line *weights;  /* [WEIGHT_ROLE_COUNT] */
    enum rope_style gguf_rope_style;    /* as GGUF's converter leaves the rows of Q and K; else ROPE_HALVES */
    bool qkv_bias, qk_norm;
    const char *hidden_act; /* of the MLP's gate */
    /* where a config.json is silent */
    bool kv_heads_may_be_missing; /* then as many as attention heads */
    int32_t max_position_embeddings;
    enum window_rule window;
};

/* STATUS_UNSUPPORTED for a name without a row; the sentence begins with path and says what that model would
 * need, where it is known. name need not end in NUL. */
int family_find(enum family_namespace where, const char *name, size_t num_bytes, const char *path,
                const struct family **out, struct error *err) must_check;

/* For people and logs. */
static inline const char *family_name(const struct family *f)
{
    return f->names[NAMES_HF_TYPE];
}

#endif
