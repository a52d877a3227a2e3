#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "files/file_map.h"

static const struct family families[] = {
    {
        .names = {"llama", "LlamaForCausalLM", "llama"}, /* SmolLM2 too */
        .weights = llama_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .hidden_act = "silu",
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .window = WINDOW_NEVER,
    },
    {
        .names = {NULL, "MistralForCausalLM", "mistral"}, /* as GGUF it is a llama */
        .weights = llama_weights,
        .hidden_act = "silu",
        .max_position_embeddings = 131072,
        .window = WINDOW_DEFAULT_4096,
    },
    {
        .names = {"qwen2", "Qwen2ForCausalLM", "qwen2"}, /* Qwen2.5 too */
        .weights = llama_weights,
        .gguf_rope_style = ROPE_HALVES,
        .qkv_bias = true,
        .hidden_act = "silu",
        .max_position_embeddings = 32768,
        .window = WINDOW_IF_USED,
    },
    {
        .names = {"qwen3", "Qwen3ForCausalLM", "qwen3"},
        .weights = llama_weights,
        .gguf_rope_style = ROPE_HALVES,
        .qk_norm = true,
        .hidden_act = "silu",
        .max_position_embeddings = 32768,
        .window = WINDOW_IF_USED,
    },
};

/* Known by name, so that the sentence can say why not. */
static const struct other_family {
    const char *names[NAMESPACE_COUNT], *needs;
} others[] = {
    {{"gemma", "GemmaForCausalLM", "gemma"}, "scaled embeddings and a GELU gate"},
    {{"gemma2", "Gemma2ForCausalLM", "gemma2"}, "soft-capped scores and norms behind attention and MLP"},
    {{"gemma3", "Gemma3ForCausalLM", "gemma3_text"},
     "layers of two kinds and norms behind attention and MLP"},
    {{"gemma3", "Gemma3ForConditionalGeneration", "gemma3"}, "images and layers of two kinds"},
    {{"phi3", "Phi3ForCausalLM", "phi3"}, "fused q, k, v and gate, up weights"},
    {{"smollm3", "SmolLM3ForCausalLM", "smollm3"}, "layers without rotation"},
    {{"granite", "GraniteForCausalLM", "granite"}, "multipliers of embeddings, residuals and logits"},
    {{"olmo2", "Olmo2ForCausalLM", "olmo2"}, "norms behind attention and MLP"},
    {{"command-r", "CohereForCausalLM", "cohere"}, "attention and MLP side by side"},
    {{"gpt2", "GPT2LMHeadModel", "gpt2"}, "learned positions and LayerNorm"},
    {{"gpt-oss", "GptOssForCausalLM", "gpt_oss"}, "a mixture of experts and attention sinks"},
    {{NULL, "MixtralForCausalLM", "mixtral"}, "a mixture of experts"},
    {{"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe"}, "a mixture of experts"},
    {{"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"}, "a mixture of experts"},
    {{"deepseek2", "DeepseekV2ForCausalLM", "deepseek_v2"}, "latent attention and a mixture of experts"},
    {{"deepseek2", "DeepseekV3ForCausalLM", "deepseek_v3"}, "latent attention and a mixture of experts"},
    {{"llama4", "Llama4ForConditionalGeneration", "llama4"}, "images and a mixture of experts"},
};

static bool is_name(const char *own, const char *name, size_t num_bytes)
{
    return own && strlen(own) == num_bytes && !memcmp(own, name, num_bytes);
}

static const char *needs_of(enum family_namespace where, const char *name, size_t num_bytes)
{
    for (size_t i = 0; i < array_length(others); i++)
        if (is_name(others[i].names[where], name, num_bytes)) return others[i].needs;
    return NULL;
}

struct name_list {
    char text[128];
};

/* "llama, qwen2 and qwen3" */
static struct name_list supported_names(enum family_namespace where)
{
    struct name_list list = {""};
    const char *names[array_length(families)];
    size_t num = 0, at = 0;
    for (size_t i = 0; i < array_length(families); i++)
        if (families[i].names[where]) names[num++] = families[i].names[where];
    for (size_t i = 0; i < num && at < sizeof list.text; i++)
        at += (size_t)snprintf(list.text + at, sizeof list.text - at, "%s%s",
                               i == 0        ? ""
                               : i + 1 < num ? ", "
                                             : " and ",
                               names[i]);
    assert_debug(at < sizeof list.text);
    return list;
}

int family_find(enum family_namespace where, const char *name, size_t num_bytes, const char *path,
                const struct family **out, struct error *err)
{
    for (size_t i = 0; i < array_length(families); i++) {
        if (!is_name(families[i].names[where], name, num_bytes)) continue;
        *out = &families[i];
        return STATUS_OK;
    }
    const char *needs = needs_of(where, name, num_bytes);
    return error_set(err, STATUS_UNSUPPORTED, "%s: the architecture \"%s\" is not supported%s%s; %s are",
                     path, printable_from(name, num_bytes).text, needs ? ": it needs " : "",
                     needs ? needs : "", supported_names(where).text);
}
