#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "files/file_map.h"

#define TEXT_OF_ITS_OWN .is_in_text_config = true, .is_of_text_type = true
/* of text all three places are one, so that the rotation is the plain one */
#define QWEN_VL .is_in_text_config = true
#define QWEN_2 .qkv_bias = true, .max_position_embeddings = 32768, .window = WINDOW_IF_USED
#define QWEN_3 .qk_norm = true, .max_position_embeddings = 32768, .window = WINDOW_IF_USED
#define QWEN_3_MOE QWEN_3, .has_experts = true, .gguf_router_normalizes = true

/* as GGUF they are one */
#define LLAMA_BY_ANOTHER_NAME .kv_heads_may_be_missing = true, .max_position_embeddings = 2048

#define MISTRAL .max_position_embeddings = 131072, .window = WINDOW_DEFAULT_4096
#define GEMMA                                                                                                \
    .gate = GATE_GELU_TANH, .norms_add_one = true, .scaled_embeddings = true, .is_tied = true,               \
    .num_heads = 16, .num_kv_heads = 16, .head_dim = 256, .vocab_size = 256000,                              \
    .max_position_embeddings = 8192
#define GEMMA_2                                                                                              \
    .gate = GATE_GELU_TANH, .norms_add_one = true, .scaled_embeddings = true, .has_query_scalar = true,      \
    .has_softcaps = true, .full_layer_period = 2, .is_tied = true, .num_heads = 8, .num_kv_heads = 4,        \
    .head_dim = 256, .vocab_size = 256000, .max_position_embeddings = 8192, .query_scalar = 256,             \
    .window = WINDOW_DEFAULT_4096, .gguf_head_scalar_layers = 46

#define BERT(weights) BERT_LAYERS("encoder.layer", weights)
#define BERT_LAYERS(layers, weights)                                                                         \
    .is_encoder = true, .has_embedding_norm = true, .norms_sums = true, .hf_layers = (layers),               \
    .weight_changes = (weights), .gate = GATE_GELU, .unrotated_layer_period = 1,                             \
    .kv_heads_may_be_missing = true, .max_position_embeddings = 512, .norm_eps = 1e-12

#define FALCON                                                                                               \
    .names = {"falcon", "FalconForCausalLM", "falcon"}, .has_gpt2_keys = true, .hf_layers = "h",             \
    .hf_qkv_by_heads = true, .has_multi_query = true, .may_have_new_decoder = true, .may_have_alibi = true,  \
    .has_layer_norm = true, .gate = GATE_GELU, .kv_heads_may_be_missing = true, .is_tied = true,             \
    .max_position_embeddings = 2048, .norm_eps = 1e-5
/* 40B and 180B; of one norm 7B, and 11B of Falcon 2 */
static const struct family falcon_of_two_norms = {FALCON, .weight_changes = falcon_40b_weights,
                                                  .is_parallel = true};
/* Falcon RW, 1B and 7B */
static const struct family falcon_serial = {FALCON, .weight_changes = falcon_serial_weights,
                                            .attention_bias = true};

#define STABLELM                                                                                             \
    .names = {"stablelm", "StableLmForCausalLM", "stablelm"}, .has_layer_norm = true,                        \
    .qk_norm_may_be = true, .partial_rotary = true, .rotary_part = 0.25, .kv_heads_may_be_missing = true,    \
    .max_position_embeddings = 4096, .norm_eps = 1e-5
/* StableLM 2 12B */
static const struct family stablelm_side_by_side = {STABLELM, .weight_changes = stablelm_parallel_weights,
                                                    .is_parallel = true};

#define NOMIC                                                                                                \
    .is_encoder = true, .has_embedding_norm = true, .norms_sums = true, .has_gpt2_keys = true,               \
    .hf_layers = "encoder.layers", .kv_heads_may_be_missing = true, .max_position_embeddings = 2048,         \
    .theta = 1000, .norm_eps = 1e-12
#define NOMIC_MIXTURE                                                                                        \
    NOMIC, .weight_changes = nomic_moe_weights, .gate = GATE_GELU, .has_experts = true,                      \
           .hf_downs_transposed = true
static const struct family nomic_with_experts = {.names = {NULL, "NomicBertModel", "nomic_bert"},
                                                 NOMIC_MIXTURE};

#define JINA                                                                                                 \
    .is_encoder = true, .has_embedding_norm = true, .norms_sums = true, .has_alibi = true,                   \
    .hf_layers = "encoder.layer", .gguf_may_fuse_gate = true, .gate = GATE_GELU,                             \
    .kv_heads_may_be_missing = true, .max_position_embeddings = 8192, .norm_eps = 1e-12
/* jina-embeddings-v2-base-code */
static const struct family jina_with_norms = {.names = {"jina-bert-v2", "JinaBertModel", "bert"},
                                              JINA,
                                              .weight_changes = jina_normed_weights,
                                              .qk_norm = true,
                                              .qk_norm_all_heads = true,
                                              .up_leads = true};

/* Jina's own XLM-RoBERTa */
#define FLASH_ROBERTA(weights)                                                                               \
    .is_encoder = true, .has_embedding_norm = true, .norms_sums = true, .hf_layers = "encoder.layers",       \
    .weight_changes = (weights), .gate = GATE_GELU, .kv_heads_may_be_missing = true,                         \
    .max_position_embeddings = 8194, .theta = 20000, .norm_eps = 1e-5
static const struct family flash_roberta_with_tasks = {
    .names = {NULL, "XLMRobertaModel", "xlm-roberta"}, /* jina-embeddings-v3 */
    FLASH_ROBERTA(task_roberta_weights),
    .has_tasks = true};
static const struct family flash_roberta = {.names = {NULL, "XLMRobertaModel", "xlm-roberta"},
                                            FLASH_ROBERTA(flash_roberta_weights),
                                            .if_named = &flash_roberta_with_tasks};
static const struct family flash_roberta_scores = {
    .names = {NULL, "XLMRobertaForSequenceClassification", "xlm-roberta"}, /* jina-reranker-v2 */
    FLASH_ROBERTA(flash_roberta_score_weights),
    .unrotated_layer_period = 1,
    .positions_follow_padding = true,
    .scores_pairs = true};

static const struct family families[] = {
    {
        .names = {"llama", "LlamaForCausalLM", "llama"}, /* SmolLM2 too */
        .gguf_rope_style = ROPE_PAIRS,
        .gguf_may_have_experts = true, /* Mixtral */
        .gguf_router_normalizes = true,
        LLAMA_BY_ANOTHER_NAME,
    },
    {.names = {NULL, "MistralForCausalLM", "mistral"}, /* as GGUF it is a llama */
     MISTRAL},
    {.names = {"qwen2", "Qwen2ForCausalLM", "qwen2"}, QWEN_2}, /* Qwen2.5 too */
    {.names = {"qwen3", "Qwen3ForCausalLM", "qwen3"}, QWEN_3},
    {
        .names = {"mistral3", "Ministral3ForCausalLM", "ministral3"},
        .gguf_rope_style = ROPE_PAIRS,
        .gguf_yarn_keeps_lengths = true,
        .scales_queries = true,
        .head_dim = 128,
        .num_kv_heads = 8,
        .max_position_embeddings = 262144,
        .norm_eps = 1e-5,
        .theta = 1e6,
        .window = WINDOW_IF_GIVEN,
    },
    {.names = {"gemma", "GemmaForCausalLM", "gemma"}, GEMMA},
    {.names = {"gemma2", "Gemma2ForCausalLM", "gemma2"}, GEMMA_2, .weight_changes = gemma_weights},
    {
        .names = {NULL, "VaultGemmaForCausalLM", "vaultgemma"},
        .weight_changes = vaultgemma_weights,
        .gate = GATE_GELU_TANH,
        .norms_add_one = true,
        .scaled_embeddings = true,
        .has_query_scalar = true,
        .has_softcaps = true,
        .full_layer_period = 2,
        .is_tied = true,
        .num_heads = 8,
        .num_kv_heads = 4,
        .head_dim = 256,
        .vocab_size = 256000,
        .max_position_embeddings = 8192,
        .query_scalar = 256,
        .window = WINDOW_DEFAULT_4096,
    },
#define GEMMA_3                                                                                              \
    .weight_changes = gemma_weights, .qk_norm = true, .gate = GATE_GELU_TANH, .norms_add_one = true,         \
    .scaled_embeddings = true, .has_query_scalar = true, .full_layer_period = 6, .window_theta = 10000,      \
    .is_tied = true, .num_heads = 8, .num_kv_heads = 4, .head_dim = 256, .vocab_size = 262208,               \
    .max_position_embeddings = 131072, .query_scalar = 256, .theta = 1e6, .gguf_head_scalar_layers = 62
    {.names = {"gemma3", "Gemma3ForCausalLM", "gemma3_text"}, GEMMA_3, .window = WINDOW_DEFAULT_4096},
    {.names = {NULL, "Gemma3ForConditionalGeneration", "gemma3"},
     GEMMA_3,
     .is_in_text_config = true,
     .window = WINDOW_DEFAULT_4096},
    {.names = {"gemma-embedding", "Gemma3TextModel", "gemma3_text"}, /* EmbeddingGemma */
     GEMMA_3,
     .is_encoder = true,
     .says_sides = true,
     .window = WINDOW_HALF},
#define GPT_2                                                                                                \
    .weight_changes = gpt2_weights, .has_gpt2_keys = true, .hf_layers = "h", .unrotated_layer_period = 1,    \
    .has_layer_norm = true, .gate = GATE_GELU_TANH, .attention_bias = true, .kv_heads_may_be_missing = true, \
    .is_tied = true, .max_position_embeddings = 1024, .norm_eps = 1e-5
    {.names = {"gpt2", "GPT2LMHeadModel", "gpt2"}, GPT_2, .hf_layers_transposed = true},
    {.names = {"starcoder", "GPTBigCodeForCausalLM", "gpt_bigcode"},
     GPT_2,
     .hf_qkv_by_heads = true,
     .has_multi_query = true}, /* StarCoder 1, SantaCoder */
    {
        .names = {NULL, "GPTNeoForCausalLM", "gpt_neo"}, /* TinyStories */
        .weight_changes = gpt_neo_weights,
        .has_gpt2_keys = true,
        .hf_layers = "h",
        .unrotated_layer_period = 1,
        .has_layer_norm = true,
        .attention_scale = 1,
        .gate = GATE_GELU_TANH,
        .kv_heads_may_be_missing = true,
        .is_tied = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
        .window = WINDOW_IF_LOCAL,
    },
    {
        .names = {NULL, "OPTForCausalLM", "opt"},
        .weight_changes = opt_weights,
        .has_gpt2_keys = true,
        .unrotated_layer_period = 1,
        .first_position_row = 2,
        .has_layer_norm = true,
        .gate = GATE_RELU,
        .attention_bias = true,
        .kv_heads_may_be_missing = true,
        .is_tied = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
    {
        .names = {"gptneox", "GPTNeoXForCausalLM", "gpt_neox"}, /* Pythia, Dolly, RedPajama */
        .weight_changes = gptneox_weights,
        .hf_qkv_by_heads = true,
        .has_layer_norm = true,
        .is_parallel = true,
        .gate = GATE_GELU,
        .attention_bias = true,
        .partial_rotary = true,
        .rotary_part = 0.25,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
    {
        .names = {"exaone", "ExaoneForCausalLM", "exaone"}, /* EXAONE 3.0 and 3.5, EXAONE Deep */
        .weight_changes = exaone_weights,
        .hf_layers = "h",
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 4096,
        .theta = 500000,
        .norm_eps = 1e-5,
    },
    {
        .names = {"internlm2", "InternLM2ForCausalLM", "internlm2"}, /* InternLM 2 and 2.5 */
        .weight_changes = internlm2_weights,
        .hf_qkv_by_heads = true,
        .gguf_rope_style = ROPE_PAIRS,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-6,
    },
    {
        .names = {"olmo", "OlmoForCausalLM", "olmo"}, /* OLMo 1 */
        .may_clip_qkv = true,
        .weight_changes = weightless_norm_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .has_layer_norm = true,
        .norms_have_no_weight = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
    {
        .names = {NULL, "NanoChatForCausalLM", "nanochat"},
        .weight_changes = nanochat_weights,
        .norms_have_no_weight = true,
        .norms_embeddings = true,
        .qk_norm_of_ones = true,
        .rotates_back = true,
        .gate = GATE_RELU_SQUARED,
        .logit_softcap = 15,
        .kv_heads_may_be_missing = true,
        .vocab_size = 50304,
        .max_position_embeddings = 2048,
    },
#define GEMMA_3N                                                                                             \
    .weight_changes = gemma3n_weights, .qk_norm = true, .norms_v = true, .gate = GATE_GELU_TANH,             \
    .scaled_embeddings = true, .attention_scale = 1, .logit_softcap = 30, .has_altup = true,                 \
    .full_layer_period = 5, .window_theta = 10000, .is_tied = true, .num_heads = 8, .num_kv_heads = 2,       \
    .head_dim = 256, .vocab_size = 262400, .max_position_embeddings = 32768, .layer_embedding_dim = 256,     \
    .num_kv_sharing_layers = 15, .theta = 1e6, .window = WINDOW_IF_GIVEN
    {.names = {"gemma3n", "Gemma3nForCausalLM", "gemma3n_text"}, GEMMA_3N},
    {.names = {NULL, "Gemma3nForConditionalGeneration", "gemma3n"}, GEMMA_3N, .is_in_text_config = true},
#define GEMMA_4                                                                                              \
    .weight_changes = gemma4_weights, .qk_norm = true, .norms_v = true, .has_global_heads = true,            \
    .gate = GATE_GELU_TANH, .scaled_embeddings = true, .attention_scale = 1, .may_cap_logits = true,         \
    .has_experts = true, .mlp_beside_experts = true, .router_normalizes = true,                              \
    .gguf_router_normalizes = true, .full_layer_period = 6, .window_theta = 10000, .is_tied = true,          \
    .num_heads = 8, .num_kv_heads = 4, .head_dim = 256, .vocab_size = 262144,                                \
    .max_position_embeddings = 131072, .theta = 1e6, .window = WINDOW_IF_GIVEN
    {.names = {"gemma4", "Gemma4ForCausalLM", "gemma4_text"}, GEMMA_4, .layer_embedding_dim = 256},
    {.names = {NULL, "Gemma4ForConditionalGeneration", "gemma4"},
     GEMMA_4,
     .is_in_text_config = true,
     .layer_embedding_dim = 256},
    {.names = {NULL, "Gemma4UnifiedForCausalLM", "gemma4_unified_text"}, GEMMA_4}, /* 12B */
    {.names = {NULL, "Gemma4UnifiedForConditionalGeneration", "gemma4_unified"},
     GEMMA_4,
     .is_in_text_config = true},
    {
        .names = {"phi2", "PhiForCausalLM", "phi"}, /* Phi-1 and 1.5, too */
        .weight_changes = phi2_weights,
        .has_layer_norm = true,
        .is_parallel = true,
        .gate = GATE_GELU_TANH,
        .qkv_bias = true,
        .partial_rotary = true,
        .rotary_part = 0.5,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
#define PHI_3                                                                                                \
    .partial_rotary = true, .kv_heads_may_be_missing = true, .max_position_embeddings = 4096,                \
    .window = WINDOW_IF_GIVEN
    {.names = {"phi3", "Phi3ForCausalLM", "phi3"}, PHI_3, .weight_changes = phi_weights}, /* Phi-4 too */
    {.names = {NULL, "Phi4MMForCausalLM", "phi4mm"}, PHI_3, .weight_changes = phi4_mm_weights},
    {
        .names = {"granite", "GraniteForCausalLM", "granite"},
        .gguf_rope_style = ROPE_PAIRS,
        .has_multipliers = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {NULL, "GraniteSWAForCausalLM", "granite_swa"},
        .has_layer_thetas = true,
        .full_layer_period = 4,
        .full_layer_leads = true,
        .window = WINDOW_IF_GIVEN,
        .weight_changes = granite_swa_weights,
        .has_multipliers = true,
        .is_tied = true,
        .num_kv_heads = 4,
        .max_position_embeddings = 8192,
        .norm_eps = 1e-5,
    },
    {
        .names = {"deci", "DeciLMForCausalLM", "nemotron-nas"}, /* Nemotron Super 49B, Ultra 253B */
        .weight_changes = decilm_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .has_layer_shapes = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {"minicpm", "MiniCPMForCausalLM", "minicpm"}, /* 1, 2 and 4 */
        .gguf_rope_style = ROPE_PAIRS,
        .has_depth_scale = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {NULL, "HyperCLOVAXForCausalLM", "hyperclovax"},
        .weight_changes = hyperclovax_weights,
        .has_multipliers = true,
        .multiplies_logits = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {"olmo2", "Olmo2ForCausalLM", "olmo2"},
        .weight_changes = olmo_weights,
        .qk_norm = true,
        .qk_norm_all_heads = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {NULL, "Olmo3ForCausalLM", "olmo3"}, /* as GGUF it is an olmo2 */
        .weight_changes = olmo_weights,
        .qk_norm = true,
        .qk_norm_all_heads = true,
        .full_layer_period = 4,
        .window_theta = 500000,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .theta = 500000,
        .window = WINDOW_DEFAULT_4096,
    },
    {
        .names = {NULL, "OlmoHybridForCausalLM", "olmo_hybrid"},
        .weight_changes = olmo_hybrid_weights,
        .qk_norm = true,
        .qk_norm_all_heads = true,
        .full_attention_interval = 4,
        .delta_z_is_apart = true,
        .delta_norm_eps = 1e-5,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 65536,
    },
#define EXAONE_4                                                                                             \
    .weight_changes = exaone4_weights, .qk_norm = true, .full_layer_period = 4, .only_windows_rotate = true, \
    .kv_heads_may_be_missing = true, .max_position_embeddings = 2048, .norm_eps = 1e-5,                      \
    .window = WINDOW_DEFAULT_4096
    {.names = {"exaone4", "Exaone4ForCausalLM", "exaone4"}, EXAONE_4},
    {.names = {NULL, NULL, "exaone4_5_text"}, EXAONE_4}, /* of EXAONE 4.5 */
#define GLM_4                                                                                                \
    .weight_changes = glm4_weights, .hf_rope_style = ROPE_PAIRS, .gguf_rope_style = ROPE_PAIRS,              \
    .no_o_bias = true, .partial_rotary = true, .rotary_part = 0.5
    {
        .names = {"glm4", "Glm4ForCausalLM", "glm4"}, /* GLM-4-0414 */
        GLM_4,
        .max_position_embeddings = 131072,
        .norm_eps = 1.5625e-7,
    },
    {
        .names = {NULL, "Glm4vForConditionalGeneration", "glm4v"}, /* GLM-4.1V, GLM-4.6V-Flash */
        GLM_4,
        .is_in_text_config = true,
        .qkv_bias = true,
        .num_kv_heads = 2,
        .max_position_embeddings = 32768,
        .norm_eps = 1e-5,
    },
    {
        .names = {"chatglm", "GlmForCausalLM", "glm"}, /* GLM-4-9B, GLM-Edge */
        .weight_changes = gate_up_weights,
        .attention_bias = true,
        .hf_rope_style = ROPE_PAIRS,
        .gguf_rope_style = ROPE_PAIRS,
        .gguf_may_fuse_qkv = true,
        .no_o_bias = true,
        .partial_rotary = true,
        .rotary_part = 0.5,
        .num_kv_heads = 2,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .norm_eps = 1.5625e-7,
    },
    {
        .names = {NULL, "HeliumForCausalLM", "helium"},
        .hf_rope_style = ROPE_PAIRS,
        .no_o_bias = true,
        .num_kv_heads = 20,
        .head_dim = 128,
        .max_position_embeddings = 4096,
        .norm_eps = 1e-8,
        .theta = 100000,
    },
    {
        .names = {NULL, "InternLM3ForCausalLM", "internlm3"}, /* as GGUF it is a llama */
        .num_kv_heads = 2,
        .head_dim = 128,
        .max_position_embeddings = 32768,
        .norm_eps = 1e-5,
    },
    {
        .names = {"hunyuan-dense", "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense"},
        .weight_changes = hunyuan_weights,
        .qk_norm = true,
        .qk_norm_follows = true,
        .scales_theta = true, /* a GGUF file's theta is that already */
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
    {
        .names = {"seed_oss", "SeedOssForCausalLM", "seed_oss"},
        .weight_changes = seed_oss_weights,
        .no_o_bias = true,
        .num_kv_heads = 8,
        .head_dim = 128,
        .max_position_embeddings = 524288,
    },
    {
        .names = {"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5"},
        .hf_rope_style = ROPE_PAIRS,
        .gguf_rope_style = ROPE_PAIRS,
        .is_tied = true,
        .num_kv_heads = 2,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .norm_eps = 1e-5,
    },
    {
        .names = {"smollm3", "SmolLM3ForCausalLM", "smollm3"},
        .gguf_rope_style = ROPE_PAIRS,
        .unrotated_layer_period = 4,
        .is_tied = true,
        .num_kv_heads = 4,
        .max_position_embeddings = 32768,
        .theta = 2e6,
    },
    {
        .names = {"arcee", "ArceeForCausalLM", "arcee"},
        .weight_changes = arcee_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .gate = GATE_RELU_SQUARED,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 4096,
        .norm_eps = 1e-5,
    },
    {
        .names = {"apertus", "ApertusForCausalLM", "apertus"},
        .weight_changes = apertus_weights,
        .qk_norm = true,
        .gate = GATE_XIELU,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 65536,
        .norm_eps = 1e-5,
        .theta = 12e6,
    },
#define BITNET                                                                                               \
    .weight_changes = bitnet_weights, .gate = GATE_RELU_SQUARED, .gguf_may_scale = true,                     \
    .kv_heads_may_be_missing = true, .max_position_embeddings = 2048, .norm_eps = 1e-5, .theta = 500000
    {.names = {"bitnet", "BitNetForCausalLM", "bitnet"}, BITNET, .may_have_silu = true}, /* b1.58 2B-4T */
    {.names = {"bitnet-b1.58", NULL, NULL}, BITNET}, /* as its makers' program has it */
    {.names = {"bitnet-25", NULL, NULL}, BITNET},    /* as that once had it */
    {
        .names = {NULL, "BitnetForCausalLM",
                  "llama"}, /* 1bitLLM's reproductions; as GGUF they are a bitnet */
        .weight_changes = bitnet_early_weights,
        .is_ternary = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {"nemotron", "NemotronForCausalLM", "nemotron"}, /* Minitron */
        .weight_changes = nemotron_weights,
        .has_layer_norm = true,
        .norms_add_one = true,
        .gate = GATE_RELU_SQUARED,
        .partial_rotary = true,
        .rotary_part = 0.5,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 4096,
        .norm_eps = 1e-5,
    },
    {
        .names = {"jais2", "Jais2ForCausalLM", "jais2"},
        .weight_changes = jais2_weights,
        .has_layer_norm = true,
        .gate = GATE_RELU_SQUARED,
        .attention_bias = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 8192,
        .norm_eps = 1e-5,
    },
    {
        .names = {"starcoder2", "Starcoder2ForCausalLM", "starcoder2"},
        .weight_changes = starcoder2_weights,
        .has_layer_norm = true,
        .gate = GATE_GELU_TANH,
        .is_tied = true,
        .num_kv_heads = 2,
        .max_position_embeddings = 4096,
        .norm_eps = 1e-5,
        .window = WINDOW_IF_GIVEN,
    },
    {STABLELM, .weight_changes = stablelm_weights, .if_parallel = &stablelm_side_by_side},
    {
        .names = {"xverse", "XverseForCausalLM", "xverse"},
        .gguf_rope_style = ROPE_PAIRS,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {"pangu-embedded", NULL, NULL}, /* openPangu */
        .attention_bias = true,
    },
    {
        .names = {"maincoder", NULL, NULL},
        .gguf_rope_style = ROPE_PAIRS,
        .qk_norm = true,
        .qk_norm_follows = true,
    },
    {
        .names = {"codeshell", NULL, NULL},
        .weight_changes = starcoder2_weights,
        .has_layer_norm = true,
        .gate = GATE_GELU_TANH,
        .attention_bias = true,
        .gguf_may_fuse_qkv = true,
    },
    {
        .names = {"plamo", NULL, NULL},
        .weight_changes = cohere_weights,
        .is_parallel = true,
    },
    {.names = {NULL, "AquilaForCausalLM", "aquila"}, LLAMA_BY_ANOTHER_NAME}, /* Aquila 2, too */
    {.names = {NULL, "YiForCausalLM", "Yi"}, LLAMA_BY_ANOTHER_NAME},
    {
        .names = {"baichuan", "BaichuanForCausalLM", "baichuan"}, /* 7B */
        .weight_changes = baichuan_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 4096,
        .hidden_size_with_alibi = 5120,
        .vocab_size_with_unit_head = 125696,
    },
    {
        .names = {"qwen", "QWenLMHeadModel", "qwen"}, /* Qwen 1 */
        .weight_changes = qwen_weights,
        .hf_layers = "h",
        .qkv_bias = true,
        .intermediate_is_of_both = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 8192,
    },
    {
        .names = {"orion", "OrionForCausalLM", "orion"},
        .weight_changes = stablelm_weights,
        .has_layer_norm = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 4096,
        .norm_eps = 1e-5,
    },
    {
        .names = {NULL, "GPTJForCausalLM", "gptj"},
        .weight_changes = gptj_weights,
        .has_gpt2_keys = true,
        .hf_layers = "h",
        .hf_rope_style = ROPE_PAIRS,
        .has_layer_norm = true,
        .is_parallel = true,
        .gate = GATE_GELU_TANH,
        .partial_rotary = true,
        .rotary_part = 0.25,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
    {FALCON, .weight_changes = falcon_weights, .is_parallel = true, .with_two_norms = &falcon_of_two_norms,
     .if_serial = &falcon_serial},
    {
        .names = {"bloom", "BloomForCausalLM", "bloom"},
        .weight_changes = bloom_weights,
        .has_gpt2_keys = true,
        .hf_layers = "h",
        .hf_qkv_by_heads = true,
        .has_alibi = true,
        .has_layer_norm = true,
        .gate = GATE_GELU_TANH,
        .attention_bias = true,
        .kv_heads_may_be_missing = true,
        .is_tied = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
#define MPT                                                                                                  \
    .weight_changes = mpt_weights, .has_gpt2_keys = true, .has_mpt_keys = true, .hf_layers = "blocks",       \
    .has_alibi = true, .may_clip_qkv = true, .has_layer_norm = true, .gate = GATE_GELU,                      \
    .kv_heads_may_be_missing = true, .is_tied = true, .max_position_embeddings = 2048, .norm_eps = 1e-5
    {.names = {"mpt", "MPTForCausalLM", "mpt"}, MPT},
    {.names = {NULL, "MptForCausalLM", "mpt"}, MPT},
    {
        .names = {"refact", NULL, NULL}, /* Llama's, with one head of K and V */
        .has_alibi = true,
        .max_position_embeddings = 4096,
    },
    {
        .names = {NULL, "MinistralForCausalLM", "ministral"}, /* of 2024 */
        .max_position_embeddings = 131072,
        .window = WINDOW_IF_GIVEN,
    },
    {
        .names = {NULL, "CwmForCausalLM", "cwm"},
        .full_layer_period = 4,
        .full_layer_leads = true,
        .num_kv_heads = 8,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .theta = 1e6,
        .window = WINDOW_IF_GIVEN,
    },
    {
        .names = {NULL, "IQuestCoderForCausalLM", "iquestcoder"}, /* as GGUF it is a llama */
        .num_kv_heads = 8,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .norm_eps = 1e-5,
    },
#define COHERE                                                                                               \
    .weight_changes = cohere_weights, .hf_rope_style = ROPE_PAIRS, .gguf_rope_style = ROPE_PAIRS,            \
    .has_layer_norm = true, .is_parallel = true, .has_logit_scale = true, .is_tied = true,                   \
    .kv_heads_may_be_missing = true, .max_position_embeddings = 8192, .norm_eps = 1e-5
    {.names = {"command-r", "CohereForCausalLM", "cohere"}, COHERE, .qk_norm_may_be = true},
    {
        .names = {"cohere2", "Cohere2ForCausalLM", "cohere2"},
        COHERE,
        .full_layer_period = 4,
        .only_windows_rotate = true,
        .window = WINDOW_DEFAULT_4096,
    },
    {
        .names = {"cohere2moe", "Cohere2MoeForCausalLM", "cohere2_moe"}, /* North Mini Code */
        .weight_changes = cohere_moe_weights,
        .hf_rope_style = ROPE_PAIRS,
        .gguf_rope_style = ROPE_PAIRS,
        .is_parallel = true,
        .has_logit_scale = true,
        .only_windows_rotate = true,
        .has_experts = true,
        .has_prefix_size = true,
        .router_normalizes = true,
        .is_tied = true,
        .kv_heads_may_be_missing = true,
        .head_dim = 128,
        .max_position_embeddings = 8192,
        .window = WINDOW_DEFAULT_4096,
    },
    {
        .names = {NULL, "MixtralForCausalLM", "mixtral"}, /* as GGUF it is a llama */
        .weight_changes = mixtral_weights,
        .hf_numbered_experts = sparse_block_numbered_weights,
        .has_experts = true,
        .router_normalizes = true,
        .max_position_embeddings = 131072,
        .window = WINDOW_IF_GIVEN,
    },
#define PHI_MOE                                                                                              \
    .weight_changes = phimoe_weights, .hf_numbered_experts = sparse_block_numbered_weights,                  \
    .has_layer_norm = true, .has_experts = true, .router_scores = ROUTER_SPARSE, .num_kv_heads = 8,          \
    .max_position_embeddings = 131072, .norm_eps = 1e-5, .theta = 1e6, .window = WINDOW_IF_GIVEN
    {
        .names = {"dbrx", NULL, NULL},
        .weight_changes = dbrx_weights,
        .has_layer_norm = true,
        .may_clip_qkv = true,
        .has_experts = true,
        .gguf_router_normalizes = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {.names = {"phimoe", "PhimoeForCausalLM", "phimoe"}, PHI_MOE}, /* Phi-3.5-MoE */
    {.names = {NULL, "PhiMoEForCausalLM", "phimoe"}, PHI_MOE},     /* as its published config has it */
    {
        .names = {"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe"},
        .qkv_bias = true,
        .has_experts = true,
        .has_shared_weight = true,
        .max_position_embeddings = 32768,
        .window = WINDOW_IF_USED,
    },
    {.names = {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"}, QWEN_3_MOE},
    {
        .names = {NULL, "FlintForCausalLM", "flint"},
        .weight_changes = flint_weights,
        .qk_norm = true,
        .only_windows_rotate = true,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .num_dense_layers = 2,
        .num_kv_heads = 4,
        .head_dim = 128,
        .max_position_embeddings = 262144,
        .window = WINDOW_IF_LISTED,
    },
    {
        .names = {"mellum", "MellumForCausalLM", "mellum"}, /* Mellum 2 */
        .qk_norm = true,
        .full_layer_period = 4,
        .window_theta = 10000,
        .has_experts = true,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .num_kv_heads = 4,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .theta = 500000,
        .window = WINDOW_IF_GIVEN,
    },
#define EXAONE_MOE                                                                                           \
    .weight_changes = exaone_moe_weights, .qk_norm = true, .full_layer_period = 4,                           \
    .only_windows_rotate = true, .has_experts = true, .router_scores = ROUTER_SIGMOID,                       \
    .router_normalizes = true, .gguf_router_normalizes = true, .has_router_bias = true,                      \
    .num_dense_layers = 1, .kv_heads_may_be_missing = true, .max_position_embeddings = 2048,                 \
    .norm_eps = 1e-5, .window = WINDOW_DEFAULT_4096
    {.names = {"exaone-moe", "ExaoneMoeForCausalLM", "exaone_moe"}, EXAONE_MOE}, /* K-EXAONE */
    {.names = {NULL, "ExaoneMoEForCausalLM", "exaone_moe"}, EXAONE_MOE}, /* as it was published at first */
    {
        .names = {"afmoe", "AfmoeForCausalLM", "afmoe"}, /* Trinity */
        .weight_changes = afmoe_weights,
        .qk_norm = true,
        .scaled_embeddings = true,
        .scales_if_mup = true,
        .full_layer_period = 4,
        .only_windows_rotate = true,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
        .num_dense_layers = 1,
        .kv_heads_may_be_missing = true,
        .head_dim = 128,
        .max_position_embeddings = 16384,
        .norm_eps = 1e-5,
        .window = WINDOW_IF_GIVEN,
    },
    {
        .names = {"laguna", "LagunaForCausalLM", "laguna"},
        .weight_changes = laguna_weights,
        .qk_norm = true,
        .partial_rotary = true,
        .gates_are_softplus = true,
        .has_layer_heads = true,
        .full_layer_period = 4,
        .full_layer_leads = true,
        .window_theta = 10000,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
        .num_dense_layers = 1,
        .num_heads = 48,
        .num_kv_heads = 8,
        .head_dim = 128,
        .vocab_size = 100352,
        .max_position_embeddings = 131072,
        .theta = 500000,
        .window = WINDOW_IF_LISTED,
    },
    {
        .names = {"muse-glimmer", "MuseGlimmerForConditionalGeneration", "muse_glimmer"},
        .is_in_text_config = true,
        .weight_changes = muse_glimmer_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .qk_norm = true,
        .norms_add_one = true,
        .output_norm_is_whole = true,
        .post_norm_eps = 1e-8,
        .norms_embeddings = true,
        .logit_softcap = 20,
        .has_logit_scale = true,
        .scales_q = true,
        .full_layer_period = 4,
        .only_windows_rotate = true,
        .num_kv_heads = 2,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .norm_eps = 1e-5,
        .window = WINDOW_IF_GIVEN,
    },
    {
        .names = {"hunyuan-moe", "HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe"},
        .weight_changes = hunyuan_moe_weights,
        .qk_norm = true,
        .qk_norm_follows = true,
        .scales_theta = true, /* a GGUF file's theta is that already */
        .has_experts = true,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .num_shared_experts = 1,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
        .norm_eps = 1e-5,
    },
    {
        .names = {"hy_v3", "HYV3ForCausalLM", "hy_v3"}, /* Hy3 */
        .weight_changes = hy3_weights,
        .qk_norm = true,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
        .num_dense_layers = 1,
        .num_kv_heads = 8,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .theta = 11158840,
        .norm_eps = 1e-5,
    },
    {
        .names = {"olmoe", "OlmoeForCausalLM", "olmoe"},
        .weight_changes = olmoe_weights,
        .qk_norm = true,
        .qk_norm_all_heads = true,
        .has_experts = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 4096,
        .norm_eps = 1e-5,
    },
    {
        .names = {NULL, "FlexOlmoForCausalLM", "flex_olmo"},
        .weight_changes = olmo_weights,
        .qk_norm = true,
        .qk_norm_all_heads = true,
        .has_experts = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 4096,
        .theta = 500000,
    },
#define GRANITE_MOE                                                                                          \
    .has_multipliers = true, .has_experts = true, .router_normalizes = true,                                 \
    .kv_heads_may_be_missing = true, .max_position_embeddings = 2048
    {
        .names = {"granitehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid"}, /* Granite 4 */
        GRANITE_MOE,
        .gguf_rope_style = ROPE_PAIRS,
        .gguf_router_normalizes = true,
        .weight_changes = granite_hybrid_weights,
        .delta_kind = DELTA_STATE_SPACE,
        .experts_may_be_none = true,
    },
    {
        .names = {NULL, "GraniteMoeSWAForCausalLM", "granitemoe_swa"},
        GRANITE_MOE,
        .weight_changes = granite_moe_swa_weights,
        .has_layer_thetas = true,
        .full_layer_period = 4,
        .full_layer_leads = true,
        .window = WINDOW_IF_GIVEN,
    },
    {
        .names = {"falcon-h1", "FalconH1ForCausalLM", "falcon_h1"},
        .weight_changes = falcon_h1_weights,
        .delta_kind = DELTA_STATE_SPACE,
        .states_beside_attention = true,
        .has_branch_scales = true, /* of a GGUF file they are in its weights */
        .num_kv_heads = 8,
        .max_position_embeddings = 8192,
        .norm_eps = 1e-5,
    },
#define STATES_ALONE                                                                                         \
    .has_states_alone = true, .unrotated_layer_period = 1, .num_heads = 1, .num_kv_heads = 1,                \
    .head_dim = 16, .max_position_embeddings = 131072, .norm_eps = 1e-5
#define MAMBA_1 STATES_ALONE, .weight_changes = mamba_weights, .delta_kind = DELTA_SELECTIVE, .is_tied = true
    {.names = {"mamba", "MambaForCausalLM", "mamba"}, MAMBA_1}, /* as GGUF Falcon Mamba too */
    {.names = {NULL, "FalconMambaForCausalLM", "falcon_mamba"},
     MAMBA_1,
     .norms_selection = true,
     .delta_norm_eps = 1e-6},
    {.names = {"mamba2", "Mamba2ForCausalLM", "mamba2"}, /* Codestral Mamba */
     STATES_ALONE,
     .weight_changes = mamba2_weights,
     .delta_kind = DELTA_STATE_SPACE},
    {
        .names = {"jamba", "JambaForCausalLM", "jamba"},
        .weight_changes = jamba_weights,
        .delta_kind = DELTA_SELECTIVE,
        .has_layer_periods = true,
        .norms_selection = true,
        .unrotated_layer_period = 1,
        .has_experts = true,
        .num_kv_heads = 8,
        .max_position_embeddings = 262144,
    },
    {
        .names = {NULL, "BambaForCausalLM", "bamba"}, /* as GGUF it is a granitehybrid */
        .weight_changes = falcon_h1_weights,
        .delta_kind = DELTA_STATE_SPACE,
        .lists_attention_layers = true,
        .partial_rotary = true,
        .rotary_part = 0.5,
        .num_kv_heads = 8,
        .max_position_embeddings = 262144,
        .norm_eps = 1e-5,
    },
#define NEMOTRON_H                                                                                           \
    .weight_changes = nemotron_h_weights, .gate = GATE_RELU_SQUARED, .delta_kind = DELTA_STATE_SPACE,        \
    .mlps_are_layers = true, .has_experts = true, .router_scores = ROUTER_SIGMOID,                           \
    .router_normalizes = true, .has_router_bias = true, .num_kv_heads = 8, .head_dim = 128,                  \
    .max_position_embeddings = 4096, .norm_eps = 1e-5
    {.names = {"nemotron_h", "NemotronHForCausalLM", "nemotron_h"},
     NEMOTRON_H},                                                  /* Nemotron Nano 2 and 3 too */
    {.names = {"nemotron_h_moe", NULL, "nemotron_h"}, NEMOTRON_H}, /* as a directory it is that, too */
    {
        .names = {"granitemoe", "GraniteMoeForCausalLM", "granitemoe"},
        GRANITE_MOE,
        .weight_changes = granite_moe_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .gguf_router_normalizes = true,
    },
    {.names = {NULL, "GraniteMoeSharedForCausalLM", "granitemoeshared"},
     GRANITE_MOE,
     .weight_changes = granite_moe_weights},
    {
        .names = {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe"},
        .weight_changes = ernie_moe_weights,
        .hf_rope_style = ROPE_PAIRS,
        .gguf_rope_style = ROPE_PAIRS,
        .has_experts = true,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
        .is_tied = true,
        .num_kv_heads = 4,
        .max_position_embeddings = 131072,
        .norm_eps = 1e-5,
    },
    {
        .names = {"minimax-m2", "MiniMaxM2ForCausalLM", "minimax_m2"},
        .weight_changes = minimax_weights,
        .hf_numbered_experts = sparse_block_numbered_weights,
        .qk_norm = true,
        .qk_norm_all_heads = true,
        .partial_rotary = true,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
        .num_kv_heads = 8,
        .head_dim = 128,
        .max_position_embeddings = 196608,
    },
#define BAILING                                                                                              \
    .weight_changes = bailing_weights, .qk_norm = true, .qk_norm_may_be = true, .partial_rotary = true,      \
    .has_experts = true, .router_scores = ROUTER_SIGMOID, .router_normalizes = true,                         \
    .gguf_router_normalizes = true, .has_router_bias = true, .num_dense_layers = 1
    {
        .names = {"bailingmoe2", "BailingMoeV2ForCausalLM", "bailing_moe_v2"}, /* Ling 2.0, Ring */
        BAILING,
        .rotary_part = 0.5,
        .num_kv_heads = 4,
        .max_position_embeddings = 32768,
    },
    {
        .names = {NULL, "SarvamMoEForCausalLM", "sarvam_moe"}, /* as GGUF it is a bailingmoe2 */
        BAILING,
        .num_kv_heads = 4,
        .head_dim = 64,
        .max_position_embeddings = 131072,
        .theta = 8e6,
    },
    {
        .names = {"bailingmoe", "BailingMoeForCausalLM", "bailing_moe"}, /* Ling 1 */
        .weight_changes = bailing_1_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .has_experts = true,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 16384,
    },
    {
        .names = {"deepseek", "DeepseekForCausalLM", "deepseek"}, /* the first mixture, 16B */
        .weight_changes = dots_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .has_experts = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {"dots1", "Dots1ForCausalLM", "dots1"},
        .weight_changes = dots_weights,
        .qk_norm = true,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
#define GLM_4_MOE                                                                                            \
    .weight_changes = glm_weights, .no_o_bias = true, .qk_norm_may_be = true, .partial_rotary = true,        \
    .has_experts = true, .router_scores = ROUTER_SIGMOID, .router_normalizes = true,                         \
    .gguf_router_normalizes = true, .has_router_bias = true
    {
        .names = {"glm4moe", "Glm4MoeForCausalLM", "glm4_moe"}, /* GLM-4.5 and on */
        GLM_4_MOE,
        .max_position_embeddings = 131072,
    },
    {
        .names = {NULL, "Glm4vMoeForConditionalGeneration", "glm4v_moe"}, /* GLM-4.5V, GLM-4.6V */
        GLM_4_MOE,
        .is_in_text_config = true,
        .attention_bias = true,
        .num_dense_layers = 1,
        .rotary_part = 0.5,
        .num_kv_heads = 8,
        .max_position_embeddings = 65536,
        .norm_eps = 1e-5,
    },
    {
        .names = {NULL, "MiMoV2FlashForCausalLM", "mimo_v2_flash"},
        .weight_changes = mimo_weights,
        .has_window_heads = true,
        .partial_rotary = true,
        .rotary_part = 0.334,
        .full_layer_period = 6,
        .window_theta = 10000,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .has_router_bias = true,
        .num_dense_layers = 1,
        .num_kv_heads = 4,
        .head_dim = 192,
        .max_position_embeddings = 131072,
        .norm_eps = 1e-5,
        .theta = 5e6,
        .window = WINDOW_IF_GIVEN,
    },
    {
        .names = {NULL, "SolarOpenForCausalLM", "solar_open"}, /* as GGUF it is a glm4moe */
        .weight_changes = glm_weights,
        .no_o_bias = true,
        .partial_rotary = true,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .has_router_bias = true,
        .head_dim = 128,
        .max_position_embeddings = 131072,
        .theta = 1e6,
    },
#define LATENT_ATTENTION                                                                                     \
    .hf_rope_style = ROPE_PAIRS, .gguf_rope_style = ROPE_PAIRS, .latent_attention = true,                    \
    .scales_queries = true, .gguf_tells_scores = true, .kv_heads_may_be_missing = true
#define LATENT .weight_changes = latent_weights, LATENT_ATTENTION
#define LATENT_MOE LATENT, .has_experts = true, .experts_may_be_none = true
    {
        .names = {"deepseek2", "DeepseekV2ForCausalLM", "deepseek_v2"}, /* as GGUF all of them */
        LATENT_MOE,
        .max_position_embeddings = 2048,
    },
    {
        .names = {NULL, "DeepseekV3ForCausalLM", "deepseek_v3"}, /* R1, V3.1, Kimi K2 too */
        LATENT_MOE,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .has_router_bias = true,
        .max_position_embeddings = 4096,
    },
    {
        .names = {NULL, "AXK1ForCausalLM", "axk1"}, /* A.X K1 */
        LATENT_ATTENTION,
        .weight_changes = axk1_weights,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .num_dense_layers = 1,
        .num_shared_experts = 1,
        .max_position_embeddings = 32768,
    },
    {
        .names = {NULL, "YoutuForCausalLM", "youtu"},
        LATENT,
        .is_tied = true,
        .max_position_embeddings = 131072,
    },
    {
        .names = {"plm", NULL, NULL},
        .weight_changes = plm_weights,
        .gguf_rope_style = ROPE_PAIRS,
        .latent_attention = true,
        .gate = GATE_RELU_SQUARED,
        .kv_heads_may_be_missing = true,
        .is_tied = true,
        .max_position_embeddings = 2048,
    },
    {
        .names = {"minicpm3", "MiniCPM3ForCausalLM", "minicpm3"},
        .weight_changes = latent_weights,
        .latent_attention = true,
        .latent_norm_eps = 1e-6, /* in its own class, whatever the file says */
        .has_depth_scale = true,
        .kv_heads_may_be_missing = true,
        .is_tied = true,
        .max_position_embeddings = 32768,
        .norm_eps = 1e-5,
    },
    {
        .names = {NULL, "SarvamMLAForCausalLM", "sarvam_mla"},
        LATENT_MOE,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .has_router_bias = true,
        .num_dense_layers = 1,
        .max_position_embeddings = 4096,
    },
    {
        .names = {NULL, "Glm4MoeLiteForCausalLM", "glm4_moe_lite"}, /* GLM-4.7-Flash */
        LATENT_MOE,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .has_router_bias = true,
        .num_dense_layers = 1,
        .max_position_embeddings = 202752,
        .norm_eps = 1e-5,
    },
    {
        .names = {"kimi-linear", "KimiLinearForCausalLM", "kimi_linear"},
        LATENT_ATTENTION,
        .weight_changes = kimi_linear_weights,
        .has_experts = true,
        .delta_kind = DELTA_CHANNELS,
        .delta_z_is_apart = true,
        .delta_is_gated_by_sigmoid = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
        .num_dense_layers = 1,
        .max_position_embeddings = 1048576,
        .norm_eps = 1e-5,
    },
    {
        .names = {"mistral4", "Mistral4ForCausalLM", "mistral4"}, /* Mistral Small 4 */
        LATENT_MOE,
        .router_normalizes = true,
        .max_position_embeddings = 1048576,
    },
#define HYBRID                                                                                               \
    .qk_norm = true, .norms_add_one = true, .partial_rotary = true, .rotary_part = 0.25,                     \
    .gated_attention = true, .full_attention_interval = 4, .head_dim = 256, .max_position_embeddings = 32768
#define HYBRID_MOE                                                                                           \
    HYBRID, .has_experts = true, .router_normalizes = true, .gguf_router_normalizes = true,                  \
            .has_shared_weight = true
#define QWEN_3_5 HYBRID, .weight_changes = qwen3_5_weights
#define QWEN_3_5_MOE HYBRID_MOE, .weight_changes = qwen3_5_weights
    {
        .names = {NULL, "Qwen3NextForCausalLM", "qwen3_next"},
        HYBRID_MOE,
        .weight_changes = qwen3_next_weights,
        .delta_by_k_head = true,
        .delta_rates_by_k_head = true,
    },
    {
        .names = {"qwen3next", NULL, NULL},
        HYBRID_MOE,
        .weight_changes = qwen3_next_gguf_weights,
        .delta_rates_by_k_head = true,
    },
    {.names = {"qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text"}, QWEN_3_5},
    {.names = {NULL, "Qwen3_5ForConditionalGeneration", "qwen3_5"}, .is_in_text_config = true, QWEN_3_5},
    {.names = {"qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"}, QWEN_3_5_MOE},
    {.names = {NULL, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"},
     .is_in_text_config = true,
     QWEN_3_5_MOE},
#define LFM_2                                                                                                \
    .weight_changes = lfm2_weights, .qk_norm = true, .delta_kind = DELTA_CONVOLUTION, .is_tied = true,       \
    .num_kv_heads = 8, .max_position_embeddings = 128000, .norm_eps = 1e-5, .theta = 1e6
    {.names = {"lfm2", "Lfm2ForCausalLM", "lfm2"}, LFM_2},
    {
        .names = {"lfm2moe", "Lfm2MoeForCausalLM", "lfm2_moe"},
        LFM_2,
        .has_experts = true,
        .router_scores = ROUTER_SIGMOID,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .has_router_bias = true,
    },
    {
        .names = {NULL, "Lfm3ForCausalLM", "lfm3"},
        .weight_changes = lfm3_weights,
        .qk_norm = true,
        .delta_kind = DELTA_CONVOLUTION,
        .short_taps = 7,
        .window_theta = 10000,
        .is_tied = true,
        .num_heads = 16,
        .num_kv_heads = 4,
        .head_dim = 128,
        .max_position_embeddings = 128000,
        .norm_eps = 1e-5,
        .theta = 1e6,
        .window = WINDOW_IF_LISTED,
    },
    {
        .names = {"gpt-oss", "GptOssForCausalLM", "gpt_oss"},
        .weight_changes = gpt_oss_weights,
        .qkv_bias = true,
        .gate = GATE_CLAMPED_SWISH,
        .full_layer_period = 2,
        .has_experts = true,
        .router_normalizes = true,
        .gguf_router_normalizes = true,
        .gguf_yarn_keeps_fractions = true,
        .hf_experts_alternate = true,
        .hf_experts_transposed = true,
        .has_harmony_tokens = true,
        .head_dim = 64,
        .max_position_embeddings = 131072,
        .theta = 150000,
        .window = WINDOW_IF_GIVEN,
    },
#define LLAMA_4                                                                                              \
    .weight_changes = llama4_weights, .hf_numbered_experts = llama4_numbered_weights,                        \
    .hf_rope_style = ROPE_PAIRS, .gguf_rope_style = ROPE_PAIRS, .qk_norm_of_ones = true, .has_chunks = true, \
    .has_temperature = true, .unrotated_layer_period = 4, .has_experts = true,                               \
    .router_scores = ROUTER_SIGMOID, .hf_experts_transposed = true, .scales_expert_input = true,             \
    .has_dense_size = true, .num_heads = 40, .num_kv_heads = 8, .head_dim = 128, .vocab_size = 202048,       \
    .max_position_embeddings = 131072, .theta = 500000, .norm_eps = 1e-5
    {.names = {"llama4", "Llama4ForCausalLM", "llama4_text"}, LLAMA_4},
    {.names = {NULL, "Llama4ForConditionalGeneration", "llama4"}, .is_in_text_config = true, LLAMA_4},
    {.names = {"qwen2vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"}, QWEN_VL, QWEN_2},
    {.names = {NULL, "Qwen2VLForConditionalGeneration", "qwen2_vl"}, QWEN_VL, QWEN_2},
    /* with speech: what thinks */
    {.names = {NULL, "Qwen2_5OmniModel", "qwen2_5_omni"}, QWEN_VL, QWEN_2},
    {.names = {NULL, "Qwen2_5OmniForConditionalGeneration", "qwen2_5_omni"}, QWEN_VL, QWEN_2},
    {.names = {NULL, "Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe"},
     QWEN_VL,
     QWEN_3_MOE,
     .router_normalizes = true},
    {.names = {"qwen3vl", "Qwen3VLForConditionalGeneration", "qwen3_vl"}, QWEN_VL, QWEN_3},
    {
        .names = {"qwen3vlmoe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"},
        QWEN_VL,
        QWEN_3_MOE,
        .weight_changes = stacked_weights,
        .hf_numbered_experts = numbered_weights,
        .router_normalizes = true,
        .hf_experts_transposed = true,
    },
    /* with images, and a text model that is one of the others: Pixtral; Mistral Small 3.1 and on, Ministral */
    {.names = {NULL, "LlavaForConditionalGeneration", "llava"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "LlavaNextForConditionalGeneration", "llava_next"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Mistral3ForConditionalGeneration", "mistral3"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Idefics3ForConditionalGeneration", "idefics3"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "SmolVLMForConditionalGeneration", "smolvlm"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "InternVLForConditionalGeneration", "internvl"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "AyaVisionForConditionalGeneration", "aya_vision"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Cohere2VisionForConditionalGeneration", "cohere2_vision"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Lfm2VlForConditionalGeneration", "lfm2_vl"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Lfm3VlForConditionalGeneration", "lfm3_vl"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Exaone4_5_ForConditionalGeneration", "exaone4_5"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "LlavaOnevisionForConditionalGeneration", "llava_onevision"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "LightOnOcrForConditionalGeneration", "lighton_ocr"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "MiniCPMV4_6ForConditionalGeneration", "minicpmv4_6"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "MiniCPMV4_7ForConditionalGeneration", "minicpmv4_7"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax_vision_v2"},
     TEXT_OF_ITS_OWN},
    {.names = {NULL, "LlavaNextVideoForConditionalGeneration", "llava_next_video"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "VideoLlavaForConditionalGeneration", "video_llava"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "VipLlavaForConditionalGeneration", "vipllava"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Idefics2ForConditionalGeneration", "idefics2"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Ovis2ForConditionalGeneration", "ovis2"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "VideoLlama3ForConditionalGeneration", "video_llama_3"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "VoxtralForConditionalGeneration", "voxtral"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "Qwen2AudioForConditionalGeneration", "qwen2_audio"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "JanusForConditionalGeneration", "janus"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "DeepseekVLForConditionalGeneration", "deepseek_vl"}, TEXT_OF_ITS_OWN},
    {.names = {NULL, "GraniteSpeechForConditionalGeneration", "granite_speech"}, TEXT_OF_ITS_OWN},
#define ROBERTA(class, type)                                                                                 \
    {                                                                                                        \
        .names = {NULL, class, type}, BERT(bert_weights), .positions_follow_padding = true,                  \
        .if_rotary = &flash_roberta                                                                          \
    }
#define ROBERTA_SCORES(class, type)                                                                          \
    {                                                                                                        \
        .names = {NULL, class, type}, BERT(roberta_score_weights), .scores_pairs = true,                     \
        .positions_follow_padding = true, .gguf_may_fuse_qkv = true, .if_named = &flash_roberta_scores       \
    }
    {.names = {"bert", "BertModel", "bert"}, BERT(bert_weights)}, /* BGE, E5, GTE, MiniLM */
    /* heads that guess words are passed over */
    {.names = {NULL, "BertForMaskedLM", "bert"}, BERT(bert_weights)},
    {.names = {NULL, "BertForPreTraining", "bert"}, BERT(bert_weights)},
    ROBERTA("XLMRobertaModel", "xlm-roberta"), /* multilingual E5, BGE-M3 */
    ROBERTA("XLMRobertaForMaskedLM", "xlm-roberta"),
    ROBERTA("XLMRobertaLoRA", "xlm-roberta"), /* jina-embeddings-v3, with its own code's name */
    {.names = {"jina-bert-v3", "JinaEmbeddingsV3Model", "jina_embeddings_v3"},
     FLASH_ROBERTA(flash_roberta_weights),
     .if_named = &flash_roberta_with_tasks},
    {.names = {NULL, "JinaEmbeddingsV3ForMaskedLM", "jina_embeddings_v3"},
     FLASH_ROBERTA(flash_roberta_weights)},
    ROBERTA("RobertaModel", "roberta"),
    ROBERTA("RobertaForMaskedLM", "roberta"),
    ROBERTA("CamembertModel", "camembert"),
    ROBERTA("CamembertForMaskedLM", "camembert"),
    {.names = {NULL, "BertForSequenceClassification", "bert"},
     BERT(bert_score_weights),
     .scores_pairs = true},                                               /* cross encoders */
    ROBERTA_SCORES("XLMRobertaForSequenceClassification", "xlm-roberta"), /* BGE-reranker */
    ROBERTA_SCORES("RobertaForSequenceClassification", "roberta"),
    ROBERTA_SCORES("CamembertForSequenceClassification", "camembert"),
    {.names = {NULL, "ElectraModel", "electra"}, BERT(bert_weights)},
    {.names = {NULL, "ElectraForPreTraining", "electra"}, BERT(bert_weights)},
    {.names = {NULL, "ElectraForMaskedLM", "electra"}, BERT(bert_weights)},
    {.names = {NULL, "ElectraForSequenceClassification", "electra"},
     BERT(roberta_score_weights),
     .scores_pairs = true,
     .score_function = SCORE_GELU}, /* ms-marco-electra */
#define DISTILBERT(weights) BERT_LAYERS("transformer.layer", weights), .has_gpt2_keys = true
    {.names = {NULL, "DistilBertModel", "distilbert"},
     DISTILBERT(distilbert_weights)}, /* multi-qa-distilbert, msmarco-distilbert */
    {.names = {NULL, "DistilBertForMaskedLM", "distilbert"}, DISTILBERT(distilbert_weights)},
    {.names = {NULL, "DistilBertForSequenceClassification", "distilbert"},
     DISTILBERT(distilbert_score_weights),
     .scores_pairs = true,
     .score_function = SCORE_RELU},
    {.names = {NULL, "MPNetModel", "mpnet"}, /* all-mpnet-base, multi-qa-mpnet */
     BERT(mpnet_weights),
     .positions_follow_padding = true},
    {.names = {NULL, "MPNetForMaskedLM", "mpnet"}, BERT(mpnet_weights), .positions_follow_padding = true},
    {.names = {NULL, "MPNetForSequenceClassification", "mpnet"},
     BERT(mpnet_score_weights),
     .scores_pairs = true,
     .positions_follow_padding = true},
#define MODERNBERT                                                                                           \
    .is_encoder = true, .has_embedding_norm = true, .gate = GATE_GELU, .full_layer_period = 3,               \
    .full_layer_leads = true, .window = WINDOW_LOCAL, .window_theta = 10000, .theta = 160000,                \
    .kv_heads_may_be_missing = true, .max_position_embeddings = 8192, .norm_eps = 1e-5
/* Llama's, whose tokens see both sides */
#define EUROBERT                                                                                             \
    .is_encoder = true, .kv_heads_may_be_missing = true, .max_position_embeddings = 8192, .norm_eps = 1e-5
    {.names = {NULL, "EuroBertModel", "eurobert"}, EUROBERT},
    {.names = {NULL, "EuroBertForMaskedLM", "eurobert"}, EUROBERT}, /* as it is published */
    {
        .names = {"llama-embed", "LlamaBidirectionalModel", "llama_bidirec"}, /* NVIDIA's embedders */
        .gguf_rope_style = ROPE_PAIRS,
        .is_encoder = true,
        .kv_heads_may_be_missing = true,
        .max_position_embeddings = 2048,
    },
    {.names = {"modern-bert", "ModernBertModel", "modernbert"},
     .weight_changes = modernbert_weights,
     MODERNBERT},                                            /* GTE, Nomic's and others of its kind */
    {.names = {NULL, "ModernBertForMaskedLM", "modernbert"}, /* as it is published */
     .weight_changes = modernbert_weights,
     MODERNBERT},
    {.names = {NULL, "ModernBertForSequenceClassification", "modernbert"},
     .weight_changes = modernbert_score_weights,
     .scores_pairs = true,
     .score_function = SCORE_GELU,
     MODERNBERT}, /* GTE-reranker */
#define GTE                                                                                                  \
    .is_encoder = true, .has_embedding_norm = true, .norms_sums = true, .hf_layers = "encoder.layer",        \
    .up_leads = true, .gate = GATE_GELU, .has_ntk = true, .kv_heads_may_be_missing = true,                   \
    .max_position_embeddings = 8192, .norm_eps = 1e-12
    /* GTE multilingual and English v1.5, snowflake-arctic-embed v2's medium one */
    {.names = {NULL, "NewModel", "new"}, .weight_changes = gte_weights, GTE},
    {.names = {NULL, "NewForSequenceClassification", "new"},
     .weight_changes = gte_score_weights,
     .scores_pairs = true,
     GTE},
    {.names = {NULL, "GteModel", "gte"}, .weight_changes = gte_weights, .theta = 160000, GTE},
    {.names = {NULL, "GteForSequenceClassification", "gte"},
     .weight_changes = gte_score_weights,
     .scores_pairs = true,
     .theta = 160000,
     GTE},
/* decoders with a head for one label */
#define SCORES(weights) .weight_changes = (weights), .scores_pairs = true
    {.names = {NULL, "LlamaForSequenceClassification", "llama"},
     LLAMA_BY_ANOTHER_NAME,
     SCORES(decoder_score_weights)},
    {.names = {NULL, "MistralForSequenceClassification", "mistral"}, MISTRAL, SCORES(decoder_score_weights)},
    {.names = {NULL, "Qwen2ForSequenceClassification", "qwen2"}, QWEN_2, SCORES(decoder_score_weights)},
    /* Qwen3-Reranker, converted */
    {.names = {NULL, "Qwen3ForSequenceClassification", "qwen3"}, QWEN_3, SCORES(decoder_score_weights)},
    {.names = {NULL, "GemmaForSequenceClassification", "gemma"}, GEMMA, SCORES(decoder_score_weights)},
    {.names = {NULL, "Gemma2ForSequenceClassification", "gemma2"}, GEMMA_2, SCORES(gemma_score_weights)},
    {.names = {"nomic-bert", "NomicBertModel", "nomic_bert"}, /* nomic-embed-text v1, v1.5 */
     NOMIC,
     .weight_changes = nomic_weights,
     .with_experts = &nomic_with_experts},
    {.names = {"nomic-bert-moe", NULL, NULL}, NOMIC_MIXTURE}, /* v2 */
    {.names = {"jina-bert-v2", "JinaBertModel", "bert"},
     JINA,
     .weight_changes = jina_weights,
     .with_qk_norms = &jina_with_norms},
    {.names = {NULL, "JinaBertForMaskedLM", "bert"}, /* as jina-embeddings-v2 are published */
     JINA,
     .weight_changes = jina_weights,
     .with_qk_norms = &jina_with_norms},
};

/* Known by name, so that the sentence can say why not. */
static const struct other_family {
    const char *names[NAMESPACE_COUNT], *needs;
} others[] = {
    {{"jais", "JAISLMHeadModel", "jais"}, "ALiBi beside multipliers of its own"},
    {{NULL, "GPTRefactForCausalLM", "gpt_refact"}, "names of its own; as GGUF it is read"},
    {{NULL, "DbrxForCausalLM", "dbrx"}, "sizes and names of its own; as GGUF it is read"},
    {{"openelm", "OpenELMForCausalLM", "openelm"}, "layers that differ in their heads and widths"},
    {{"smallthinker", "SmallThinkerForCausalLM", "smallthinker"}, "experts that are chosen before attention"},
    {{"grovemoe", "GroveMoeForCausalLM", "grove_moe"}, "experts that groups of experts share"},
    {{"arctic", "ArcticForCausalLM", "arctic"}, "experts beside a whole MLP, of the layer's input"},
    {{"grok", "Grok1ForCausalLM", "grok-1"}, "experts beside an MLP, and scores that are capped"},
#define DIFFUSION "tokens that are not made one after another"
    {{"llada", "LLaDAModelLM", "llada"}, DIFFUSION},
    {{"llada-moe", "LLaDAMoEModelLM", "llada_moe"}, DIFFUSION},
    {{"dream", "DreamModel", "Dream"}, DIFFUSION},
    {{"t5", "T5ForConditionalGeneration", "t5"}, "an encoder beside the decoder"},
    {{"mimo2", NULL, NULL}, "what its GGUF files have; as a directory it is read"},
#define SPARSE "attention to tokens that are chosen by an indexer"
    {{"deepseek32", "DeepseekV32ForCausalLM", "deepseek_v32"}, SPARSE},
    {{"glm-dsa", "GlmMoeDsaForCausalLM", "glm_moe_dsa"}, SPARSE},
    {{NULL, "HYV4ForCausalLM", "hy_v4"}, SPARSE},
    {{NULL, "MistralLarge4ForConditionalGeneration", "mistral_large4"}, SPARSE},
    {{NULL, "Step3p7ForConditionalGeneration", "step3p7"},
     "limits of gate and up that differ from layer to layer"},
    {{NULL, "BailingHybridForCausalLM", "bailing_hybrid"},
     "latents beside states under its own names and rules"},
    {{NULL, "Kolibri1ForCausalLM", "kolibri1"}, "experts that are chosen by other scores than they have"},
#define RWKV "states of RWKV in the place of attention"
    {{"rwkv6", "Rwkv6ForCausalLM", "rwkv6"}, RWKV},
    {{"rwkv7", "RWKV7ForCausalLM", "rwkv7"}, RWKV},
    {{"rwkv6qwen2", NULL, NULL}, RWKV},
    {{"arwkv7", NULL, NULL}, RWKV},
    {{NULL, "RwkvForCausalLM", "rwkv"}, RWKV},
    {{"clip", NULL, NULL},
     "a text model beside it, in another file: this one reads images or sound (mmproj)"},
#define GUESSES "the model beside it whose tokens it guesses"
    {{"gemma4-assistant", NULL, NULL}, GUESSES},
    {{"eagle3", NULL, NULL}, GUESSES},
    {{"dflash", NULL, NULL}, GUESSES},
    {{"t5encoder", "T5EncoderModel", "t5"}, "scores that depend on the distance by a table"},
    {{NULL, "JinaBertForSequenceClassification", NULL}, "slopes of ALiBi of its own"},
    {{"chameleon", "ChameleonForConditionalGeneration", "chameleon"}, "LayerNorm of q and k"},
    {{"rnd1", NULL, NULL}, DIFFUSION},
    {{"step35", NULL, NULL}, "limits of gate and up that differ from layer to layer"},
    {{"deepseek4", "DeepseekV4ForCausalLM", "deepseek_v4"},
     "attention to tokens that are pressed together, and several residual streams"},
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
    char text[320];
};

/* "llama, qwen2 and qwen3", or "llama, qwen2 and 30 more"; of classes the shorter names of their types. */
static struct name_list supported_names(enum family_namespace where)
{
    enum { ROOM = 48 }; /* for a name and what comes behind it */
    if (where == NAMES_HF_CLASS) where = NAMES_HF_TYPE;
    struct name_list list = {""};
    const char *names[array_length(families)];
    size_t num = 0, at = 0, i = 0;
    for (size_t f = 0; f < array_length(families); f++)
        if (families[f].names[where]) names[num++] = families[f].names[where];
    for (; i < num && at + ROOM < sizeof list.text; i++)
        at += (size_t)snprintf(list.text + at, sizeof list.text - at, "%s%s",
                               i == 0        ? ""
                               : i + 1 < num ? ", "
                                             : " and ",
                               names[i]);
    assert_debug(at + ROOM / 2 < sizeof list.text);
    if (i < num) snprintf(list.text + at, sizeof list.text - at, " and %zu more", num - i);
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
