"""make_model.py - small random models of every family, and what transformers computes with them in float32.

    make_model.py FAMILY FOLDER           writes the model as a Hugging Face directory, and its ids and logits (logits.npz); and as
                                          m.gguf where the family has a name there; --llama compares that in llama.cpp
    make_model.py FAMILY FOLDER FORMAT    the same with its matrices quantised (quantised.py); --compare: with what transformers and
                                          compressed-tensors unpack
    make_model.py --header                rewrites tests/unit/model/family_goldens.h and quantised_goldens.h

Weights are a function of a tensor's place in the model's list and nothing else, so that a C test can write the same files
(family_files.h): what the header keeps of each model is its config, that list, and logits: of every position one, of some all.
With torch and transformers, run by hand; the header says which versions made it.
"""
import argparse
import json
import pathlib
import re
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import chatglm
import dbrx
import decilm
import deepseek
import early
import falcon_h1
import gpt
import gpt_oss
import granite_hybrid
import internlm2
import jamba
import kimi_linear
import llama4
import mamba2
import nemotron_h
import qwen3_5
from quantised import FORMATS

QUANTISED_HEADER = pathlib.Path(__file__).resolve().parents[1] / "unit" / "model" / "quantised_goldens.h"
HEADER = pathlib.Path(__file__).resolve().parents[1] / "unit" / "model" / "family_goldens.h"
VOCAB, NUM_TOKENS, WHOLE_POSITIONS = 96, 208, [0, 63, 207]
HYBRIDS = (dbrx, qwen3_5, granite_hybrid, nemotron_h, falcon_h1, kimi_linear, gpt, jamba, mamba2)
MASK = (1 << 64) - 1
ABSENT = object()  # of what a config.json has by another name
BASE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "pad_token_id": 0,
}
LONG = [1.0 + 0.2 * i for i in range(24)]
SHORT = [1.0 + 0.02 * i for i in range(24)]

# name: config.json beside BASE, and for GGUF the keys that are the family's own
CASES = {
    "gemma3": (
        {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "num_hidden_layers": 7,
            "num_key_value_heads": 1,
            "num_attention_heads": 2,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 48,
            "sliding_window": 37,
            "sliding_window_pattern": 6,
            "rope_theta": 1e6,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        None,
    ),
    "gemma3, as GGUF files are": (
        {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "num_hidden_layers": 7,
            "num_key_value_heads": 1,
            "num_attention_heads": 2,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 64,
            "sliding_window": 37,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        ("gemma3", {"attention.sliding_window": 37, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0, "rope.freq_base": 1e6}),
    ),
    "gemma2": (
        {
            "architectures": ["Gemma2ForCausalLM"],
            "model_type": "gemma2",
            "num_hidden_layers": 4,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 64,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 4.0,
            "sliding_window": 37,
            "rope_theta": 10000.0,
        },
        ("gemma2", {"attention.sliding_window": 37, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}),
    ),
    "phi3, longrope, partial rotation": (
        {
            "architectures": ["Phi3ForCausalLM"],
            "model_type": "phi3",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "original_max_position_embeddings": 128,
            "partial_rotary_factor": 0.75,
            "sliding_window": 100,
            "rope_scaling": {"type": "longrope", "long_factor": LONG, "short_factor": SHORT},
        },
        None,
    ),
    "phi3": (
        {
            "architectures": ["Phi3ForCausalLM"],
            "model_type": "phi3",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "rope_theta": 20000.0,
            "tie_word_embeddings": True,
        },
        ("phi3", {"rope.freq_base": 20000.0, "rope.dimension_count": 64}),
    ),
    "granite": (
        {
            "architectures": ["GraniteForCausalLM"],
            "model_type": "granite",
            "tie_word_embeddings": True,
            "rope_theta": 10000.0,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
            "logits_scaling": 8.0,
        },
        (
            "granite",
            {"rope.freq_base": 10000.0, "embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.1, "logit_scale": 8.0},
        ),
    ),
    "olmo2": (
        {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 256, "num_hidden_layers": 2, "rope_theta": 500000.0},
        ("olmo2", {"rope.freq_base": 500000.0}),
    ),
    "olmo3": (
        {
            "architectures": ["Olmo3ForCausalLM"],
            "model_type": "olmo3",
            "num_hidden_layers": 4,
            "sliding_window": 50,
            "rope_theta": 500000.0,
            "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.2},
        },
        None,
    ),
    "smollm3": (
        {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "num_hidden_layers": 4, "rope_theta": 2e6},
        ("smollm3", {"rope.freq_base": 2e6}),
    ),
    "llama, dynamic rotation": (
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "num_hidden_layers": 2,
            "rope_theta": 10000.0,
            "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
        },
        None,
    ),
    "qwen3, a window from the second layer on": (
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "use_sliding_window": True,
            "sliding_window": 40,
            "max_window_layers": 1,
            "rope_theta": 1e6,
        },
        None,
    ),
}

EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "rope_theta": 1e6}
EXPERT_KEYS = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48, "rope.freq_base": 1e6}
CASES |= {
    "mixtral": (
        {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "rope_theta": 1e6,
        },
        ("llama", {"expert_count": 5, "expert_used_count": 2, "rope.freq_base": 1e6}),
    ),
    "qwen2-moe, a shared expert, one layer without": (
        {
            "architectures": ["Qwen2MoeForCausalLM"],
            "model_type": "qwen2_moe",
            "num_attention_heads": 2,
            "hidden_size": 128,
            "shared_expert_intermediate_size": 80,
            "mlp_only_layers": [1],
            **EXPERTS,
        },
        None,
    ),
    "qwen2-moe": (
        {
            "architectures": ["Qwen2MoeForCausalLM"],
            "model_type": "qwen2_moe",
            "num_attention_heads": 2,
            "hidden_size": 128,
            "shared_expert_intermediate_size": 96,
            **EXPERTS,
        },
        ("qwen2moe", EXPERT_KEYS | {"expert_shared_feed_forward_length": 96}),
    ),
    "qwen3-moe": (
        {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "norm_topk_prob": True,
            **EXPERTS,
        },
        ("qwen3moe", EXPERT_KEYS),
    ),
    "glm-4.5": (
        {
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "use_qk_norm": True,
            "attention_bias": True,
            "partial_rotary_factor": 0.5,
            "rope_theta": 1e6,
        },
        (
            "glm4moe",
            {
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_count": 1,
                "expert_weights_scale": 1.5,
                "expert_weights_norm": True,
                "expert_gating_func": 2,
                "leading_dense_block_count": 1,
                "rope.dimension_count": 32,
                "rope.freq_base": 1e6,
            },
        ),
    ),
}

CASES |= {
    "gpt-oss, as GGUF files are": (
        {
            "architectures": ["GptOssForCausalLM"],
            "model_type": "gpt_oss",
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "sliding_window": 37,
            "attention_bias": True,
            "rope_theta": 150000.0,
            "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
        },
        (
            "gpt-oss",
            {
                "expert_count": 6,
                "expert_used_count": 2,
                "expert_feed_forward_length": 96,
                "attention.sliding_window": 37,
                "rope.freq_base": 150000.0,
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 8.0,
                "rope.scaling.original_context_length": 64,
            },
        ),
    ),
}

HYBRID = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 48,
    "partial_rotary_factor": 0.5,
}
HYBRID_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 40,
    "mlp_only_layers": [],
}

CASES |= {
    "qwen3-next": ({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", **HYBRID, **HYBRID_EXPERTS, "norm_topk_prob": True}, None),
    "qwen3.5": ({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", **HYBRID}, None),
    "qwen3.5-moe, stacked experts": ({"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", **HYBRID, **HYBRID_EXPERTS}, None),
    "qwen3.5-moe": ({"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", **HYBRID, **HYBRID_EXPERTS}, None),
}

LLAMA4 = {
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    "num_hidden_layers": 5,
    "intermediate_size": 48,
    "intermediate_size_mlp": 96,
    "interleave_moe_layer_step": 2,
    "num_local_experts": 5,
    "num_experts_per_tok": 1,
    "use_qk_norm": True,
    "attn_temperature_tuning": True,
    "tie_word_embeddings": False,
}
CASES |= {
    "llama4": (
        {
            **LLAMA4,
            "attention_chunk_size": 37,
            "attn_scale": 0.4,
            "floor_scale": 50,
            "rope_theta": 500000.0,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
        },
        None,
    ),
    "llama4, as GGUF files are": (
        {**LLAMA4, "attention_chunk_size": 8192, "rope_theta": 500000.0},
        (
            "llama4",
            {
                "feed_forward_length": 96,
                "expert_count": 5,
                "expert_used_count": 1,
                "expert_feed_forward_length": 48,
                "interleave_moe_layer_step": 2,
                "rope.freq_base": 500000.0,
            },
        ),
    ),
}
HYBRID_GGUF = {**HYBRID, "layer_types": 3 * ["linear_attention"] + ["full_attention"], "linear_key_head_dim": 32, "linear_value_head_dim": 32}
HYBRID_KEYS = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 32,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 6,
    "ssm.inner_size": 192,
    "full_attention_interval": 4,
    "rope.dimension_count": BASE["head_dim"] // 2,
    "rope.dimension_sections": [6, 5, 5, 0],  # takes turns; what is beyond does not rotate in llama.cpp
}
CASES |= {
    "qwen3.5, as GGUF files are": ({**CASES["qwen3.5"][0], **HYBRID_GGUF}, ("qwen35", HYBRID_KEYS)),
    "qwen3.5-moe, as GGUF files are": (
        {**CASES["qwen3.5-moe"][0], **HYBRID_GGUF},
        ("qwen35moe", {**HYBRID_KEYS, "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 40}),
    ),
}
CASES |= {"qwen3-next, as GGUF files are": ({**CASES["qwen3-next"][0], **HYBRID_GGUF}, ("qwen3next", CASES["qwen3.5-moe, as GGUF files are"][1][1]))}
LATENT = {
    "head_dim": 16,  # of what is rotated, as published files have it
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,  # transformers' classes have it in some norms whatever the config says
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "rope_theta": 10000.0,
}
LATENT_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}
LATENT_KEYS = {
    "attention.key_length": 48,
    "attention.value_length": 24,
    "attention.kv_lora_rank": 40,
    "expert_feed_forward_length": 48,
    "expert_shared_count": 2,
    "leading_dense_block_count": 1,
    "rope.dimension_count": 16,
    "rope.freq_base": 10000.0,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 8.0,
    "rope.scaling.original_context_length": 64,
}
DEEPSEEK_V2 = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    **LATENT,
    "rope_scaling": {**LATENT_YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
    "norm_topk_prob": False,
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    **LATENT,
    "rope_scaling": {**LATENT_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    "q_lora_rank": 56,
    "n_routed_experts": 9,  # at most ten: files sort them by name
    "num_experts_per_tok": 4,
    "n_group": 3,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
}
DEEPSEEK_V3_KEYS = {
    **LATENT_KEYS,
    "attention.q_lora_rank": 56,
    "expert_count": 9,
    "expert_used_count": 4,
    "expert_group_count": 3,
    "expert_group_used_count": 2,
    "expert_weights_scale": 2.5,
    "expert_weights_norm": True,
    "expert_gating_func": 2,
    "rope.scaling.yarn_log_multiplier": 0.1,
}
CASES |= {
    "deepseek-v2": (
        {**DEEPSEEK_V2, "q_lora_rank": None, "n_routed_experts": 8, "num_experts_per_tok": 3, "topk_method": "greedy"},
        ("deepseek2", {**LATENT_KEYS, "expert_count": 8, "expert_used_count": 3, "rope.scaling.yarn_log_multiplier": 0.0707}),
    ),
    "deepseek-v2, groups of experts": (
        {
            **DEEPSEEK_V2,
            "q_lora_rank": 56,
            "n_routed_experts": 12,
            "num_experts_per_tok": 4,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 4.0,
        },
        None,
    ),
    "deepseek-v3": (DEEPSEEK_V3, ("deepseek2", DEEPSEEK_V3_KEYS)),
    "deepseek-v3, as newer GGUF files are": (
        DEEPSEEK_V3,
        (
            "deepseek2",
            {
                **DEEPSEEK_V3_KEYS,
                "attention.head_count_kv": 1,
                "attention.key_length": 56,
                "attention.value_length": 40,
                "attention.key_length_mla": 48,
                "attention.value_length_mla": 24,
            },
        ),
    ),
}
QWEN_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 64}
MROPE = {"mrope_section": [12, 10, 10], "rope_theta": 1e6}
CASES |= {
    "mistral3, its text": (
        {
            "architectures": ["Mistral3ForConditionalGeneration"],
            "model_type": "mistral3",
            "tie_word_embeddings": False,
            "vision_config": {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8},
            "text_config": {"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None, "rope_theta": 1e6},
        },
        None,
    ),
    "qwen2.5-vl, its text": (
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
            "tie_word_embeddings": False,
            "vision_config": {**QWEN_VISION, "fullatt_block_indexes": [0]},
            "text_config": {"model_type": "qwen2_5_vl_text", "hidden_size": 256, "num_hidden_layers": 2, "rope_parameters": {"rope_type": "default", **MROPE}},
        },
        ("qwen2vl", {"rope.freq_base": 1e6, "rope.dimension_sections": [12, 10, 10, 0]}),
    ),
    "qwen3-vl, its text": (
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            "tie_word_embeddings": True,
            "vision_config": {**QWEN_VISION, "deepstack_visual_indexes": [0]},
            "text_config": {"model_type": "qwen3_vl_text", "num_hidden_layers": 2, "rope_parameters": {"rope_type": "default", "mrope_interleaved": True, **MROPE}},
        },
        ("qwen3vl", {"rope.freq_base": 1e6, "rope.dimension_sections": [12, 10, 10, 0]}),
    ),
    "qwen3-vl-moe, its text": (
        {
            "architectures": ["Qwen3VLMoeForConditionalGeneration"],
            "model_type": "qwen3_vl_moe",
            "tie_word_embeddings": False,
            "vision_config": {**QWEN_VISION, "deepstack_visual_indexes": [0]},
            "text_config": {
                "model_type": "qwen3_vl_moe_text",
                "num_hidden_layers": 2,
                "num_experts": 6,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 48,
                "rope_parameters": {"rope_type": "default", "mrope_interleaved": True, **MROPE},
            },
        },
        None,
    ),
}
GRANITE_SCALES = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1, "logits_scaling": 8.0}
CASES |= {
    "gemma": ({"architectures": ["GemmaForCausalLM"], "model_type": "gemma", "num_hidden_layers": 2, "hidden_act": "gelu_pytorch_tanh"}, ("gemma", {})),
    "exaone 4": (
        {
            "architectures": ["Exaone4ForCausalLM"],
            "model_type": "exaone4",
            "num_hidden_layers": 4,
            "sliding_window": 37,
            "layer_types": 3 * ["sliding_attention"] + ["full_attention"],
            "rope_theta": 1e6,
        },
        ("exaone4", {"attention.sliding_window": 37, "rope.freq_base": 1e6}),
    ),
    "glm-4-0414": (
        {
            "architectures": ["Glm4ForCausalLM"],
            "model_type": "glm4",
            "num_hidden_layers": 2,
            "attention_bias": True,
            "partial_rotary_factor": 0.5,
            "rope_theta": 10000.0,
        },
        ("glm4", {"rope.dimension_count": 32}),
    ),
    "seed-oss": (
        {"architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "num_hidden_layers": 2, "attention_bias": True, "attention_out_bias": False, "rope_theta": 1e7},
        ("seed_oss", {"rope.freq_base": 1e7}),
    ),
    "ernie 4.5": (
        {"architectures": ["Ernie4_5ForCausalLM"], "model_type": "ernie4_5", "num_hidden_layers": 2, "use_bias": False, "rope_theta": 500000.0},
        ("ernie4_5", {"rope.freq_base": 500000.0}),
    ),
    "olmoe": (
        {
            "architectures": ["OlmoeForCausalLM"],
            "model_type": "olmoe",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "norm_topk_prob": False,
            "rope_theta": 10000.0,
        },
        ("olmoe", {"expert_count": 8, "expert_used_count": 3}),
    ),
    "granite-moe, shared experts": (
        {
            "architectures": ["GraniteMoeSharedForCausalLM"],
            "model_type": "granitemoeshared",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "shared_intermediate_size": 40,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "rope_theta": 10000.0,
            **GRANITE_SCALES,
        },
        None,
    ),
    "ernie 4.5 moe": (
        {
            "architectures": ["Ernie4_5_MoeForCausalLM"],
            "model_type": "ernie4_5_moe",
            "moe_num_experts": 8,
            "moe_k": 3,
            "moe_intermediate_size": 48,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": -1,
            "moe_layer_interval": 1,
            "use_bias": False,
            "tie_word_embeddings": True,
            "rope_theta": 500000.0,
        },
        (
            "ernie4_5-moe",
            {
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_count": 2,
                "expert_shared_feed_forward_length": 96,
                "interleave_moe_layer_step": 1,
                "leading_dense_block_count": 1,
                "rope.freq_base": 500000.0,
            },
        ),
    ),
    "minimax-m2": (
        {
            "architectures": ["MiniMaxM2ForCausalLM"],
            "model_type": "minimax_m2",
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "scoring_func": "sigmoid",
            "rotary_dim": 32,
            "rope_theta": 5e6,
        },
        (
            "minimax-m2",
            {
                "feed_forward_length": 48,
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_gating_func": 2,
                "rope.dimension_count": 32,
                "rope.freq_base": 5e6,
            },
        ),
    ),
    "dots1": (
        {
            "architectures": ["Dots1ForCausalLM"],
            "model_type": "dots1",
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "sliding_window": None,
            "rope_theta": 1e6,
        },
        (
            "dots1",
            {
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_count": 2,
                "expert_weights_scale": 2.5,
                "expert_weights_norm": True,
                "leading_dense_block_count": 1,
                "rope.freq_base": 1e6,
            },
        ),
    ),
}
LAYER_NORM_KEYS = {"attention.layer_norm_epsilon": 1e-5}
COHERE = {"num_hidden_layers": 3, "hidden_size": 256, "layer_norm_eps": 1e-5, "logit_scale": 0.25, "tie_word_embeddings": True, "rope_theta": 10000.0}
CASES |= {
    "ministral 3": (
        {
            "architectures": ["Ministral3ForCausalLM"],
            "model_type": "ministral3",
            "num_hidden_layers": 2,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 8.0,
                "original_max_position_embeddings": 40,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.4,
            },
        },
        (
            "mistral3",
            {
                "rope.freq_base": 1e6,
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 8.0,
                "rope.scaling.original_context_length": 40,
                "rope.scaling.yarn_log_multiplier": 1.0,
                "attention.temperature_scale": 0.4,
            },
        ),
    ),
    "arcee": ({"architectures": ["ArceeForCausalLM"], "model_type": "arcee", "num_hidden_layers": 2, "hidden_act": "relu2", "rope_theta": 10000.0}, ("arcee", {})),
    "nemotron": (
        {
            "architectures": ["NemotronForCausalLM"],
            "model_type": "nemotron",
            "num_hidden_layers": 2,
            "hidden_act": "relu2",
            "norm_eps": 1e-5,
            "partial_rotary_factor": 0.5,
            "rope_theta": 10000.0,
        },
        ("nemotron", {**LAYER_NORM_KEYS, "rope.dimension_count": 32}),
    ),
    "starcoder2": (
        {
            "architectures": ["Starcoder2ForCausalLM"],
            "model_type": "starcoder2",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "hidden_act": "gelu_pytorch_tanh",
            "norm_epsilon": 1e-5,
            "use_bias": True,
            "sliding_window": 100,
            "rope_theta": 100000.0,
        },
        ("starcoder2", {**LAYER_NORM_KEYS, "attention.sliding_window": 100, "rope.freq_base": 100000.0}),
    ),
    "stablelm": (
        {
            "architectures": ["StableLmForCausalLM"],
            "model_type": "stablelm",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "layer_norm_eps": 1e-5,
            "use_qkv_bias": True,
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000.0,
        },
        ("stablelm", {**LAYER_NORM_KEYS, "rope.dimension_count": 16, "use_parallel_residual": True}),  # said, but not so
    ),
    "cohere": ({"architectures": ["CohereForCausalLM"], "model_type": "cohere", **COHERE}, ("command-r", {**LAYER_NORM_KEYS, "logit_scale": 0.25})),
    "cohere 2": (
        {
            "architectures": ["Cohere2ForCausalLM"],
            "model_type": "cohere2",
            **COHERE,
            "sliding_window": 37,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
        ("cohere2", {**LAYER_NORM_KEYS, "logit_scale": 0.25, "attention.sliding_window": 37, "attention.sliding_window_pattern": 3}),
    ),
}
CASES |= {
    "glm-4": (
        {"architectures": ["GlmForCausalLM"], "model_type": "glm", "num_hidden_layers": 2, "attention_bias": True, "partial_rotary_factor": 0.5, "rope_theta": 10000.0},
        None,
    ),
    "helium": ({"architectures": ["HeliumForCausalLM"], "model_type": "helium", "hidden_size": 256, "num_hidden_layers": 2, "rope_theta": 100000.0}, None),
    "internlm3": (
        {
            "architectures": ["InternLM3ForCausalLM"],
            "model_type": "internlm3",
            "num_hidden_layers": 2,
            "qkv_bias": False,
            "bias": False,
            "rope_theta": 5e7,
            "rope_scaling": {"rope_type": "dynamic", "factor": 6.0},
        },
        None,
    ),
}
CASES |= {
    "granite 4, dense": (
        {
            "architectures": ["GraniteMoeHybridForCausalLM"],
            "model_type": "granitemoehybrid",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "intermediate_size": 80,
            "shared_intermediate_size": 96,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "layer_types": 2 * ["attention"],
            "position_embedding_type": "rope",
            "tie_word_embeddings": True,
            "rope_theta": 1e7,
            **GRANITE_SCALES,
        },
        None,
    ),
}
CASES |= {
    "jais 2": (
        {
            "architectures": ["Jais2ForCausalLM"],
            "model_type": "jais2",
            "num_hidden_layers": 2,
            "hidden_act": "relu2",
            "layer_norm_eps": 1e-5,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_theta": 500000.0,
        },
        ("jais2", {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 64, "rope.freq_base": 500000.0}),
    ),
}
CASES |= {
    "hunyuan, dense": (
        {
            "architectures": ["HunYuanDenseV1ForCausalLM"],
            "model_type": "hunyuan_v1_dense",
            "num_hidden_layers": 2,
            "use_qk_norm": True,
            "tie_word_embeddings": True,
            "rope_theta": 10000.0,
            "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
        },
        ("hunyuan-dense", {"rope.freq_base": 10000.0 * 1000.0 ** (64 / 62), "rope.scaling.type": "none", "rope.scaling.factor": 1.0}),
    ),
}
# what values() makes of these tensors, by layers
XIELU_KEYS = {
    "xielu.alpha_p": [0.5078125, 0.8671875],
    "xielu.alpha_n": [1.40625, 0.76953125],
    "xielu.beta": [0.5, 0.5],
    "xielu.eps": [-9.98377799987793e-07] * 2,
}
CASES |= {
    "apertus": (
        {
            "architectures": ["ApertusForCausalLM"],
            "model_type": "apertus",
            "num_hidden_layers": 2,
            "hidden_act": "xielu",
            "rope_theta": 12e6,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
        },
        None,
    ),
    "apertus, without scaling": (
        {"architectures": ["ApertusForCausalLM"], "model_type": "apertus", "num_hidden_layers": 2, "hidden_act": "xielu",
         "rope_parameters": {"rope_type": "default", "rope_theta": 12e6}},
        ("apertus", {"rope.freq_base": 12e6, **XIELU_KEYS}),
    ),
}
CASES |= {
    # its class takes the short factors for long texts, too: these are the same
    "phi-3.5-moe": (
        {
            "architectures": ["PhimoeForCausalLM"],
            "model_type": "phimoe",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "router_jitter_noise": 0.2,
            "attention_bias": True,
            "lm_head_bias": True,
            "sliding_window": 400,
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 128,
            "rope_scaling": {
                "rope_type": "longrope",
                "original_max_position_embeddings": 128,
                "long_factor": [1.0 + 0.1 * i for i in range(32)],
                "short_factor": [1.0 + 0.1 * i for i in range(32)],
                "long_mscale": 1.25,
                "short_mscale": 1.1,
            },
        },
        None,
    ),
}
CASES |= {
    "flex-olmo": (
        {
            "architectures": ["FlexOlmoForCausalLM"],
            "model_type": "flex_olmo",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "num_experts": 7,
            "num_experts_per_tok": 5,
            "norm_topk_prob": False,
            "rope_theta": 500000.0,
        },
        None,
    ),
}
CASES |= {
    "lfm2": (
        {
            "architectures": ["Lfm2ForCausalLM"],
            "model_type": "lfm2",
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "norm_eps": 1e-5,
            "block_multiple_of": 32,
            "layer_types": ["conv", "full_attention", "conv", "conv"],
            "conv_L_cache": 3,
            "tie_word_embeddings": True,
            "rope_theta": 1e6,
        },
        ("lfm2", {"attention.head_count_kv": [0, 2, 0, 0], "feed_forward_length": 64, "shortconv.l_cache": 3, "rope.freq_base": 1e6}),
    ),
}
CASES |= {
    "lfm2-moe": (
        {
            "architectures": ["Lfm2MoeForCausalLM"],
            "model_type": "lfm2_moe",
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "norm_eps": 1e-5,
            "layer_types": ["conv", "full_attention", "conv", "conv"],
            "conv_L_cache": 3,
            "num_dense_layers": 1,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "tie_word_embeddings": True,
            "rope_theta": 1e6,
        },
        (
            "lfm2moe",
            {
                "attention.head_count_kv": [0, 2, 0, 0],
                "shortconv.l_cache": 3,
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_gating_func": 2,
                "leading_dense_block_count": 1,
                "rope.freq_base": 1e6,
            },
        ),
    ),
}
GRANITE_HYBRID = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "model_type": "granitemoehybrid",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "intermediate_size": 48,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 24,
    "mamba_d_head": 64,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "position_embedding_type": "nope",
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    **GRANITE_SCALES,
}
CASES |= {
    "granite 4, hybrid": (
        {
            **GRANITE_HYBRID,
            "shared_intermediate_size": 96,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        },
        None,
    ),
    "granite 4, hybrid, as GGUF files are": (
        {
            **GRANITE_HYBRID,
            "shared_intermediate_size": 96,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        },
        (
            "granitehybrid",
            {
                "attention.head_count_kv": [0, 2, 0, 0],
                "feed_forward_length": 96,
                "expert_count": 0,
                "ssm.conv_kernel": 4,
                "ssm.state_size": 24,
                "ssm.group_count": 2,
                "ssm.inner_size": 512,
                "ssm.time_step_rank": 8,
                "rope.scaling.finetuned": False,
                "embedding_scale": 12.0,
                "residual_scale": 0.22,
                "attention.scale": 0.1,
                "logit_scale": 8.0,
            },
        ),
    ),
    "granite 4, hybrid, experts": (
        {
            **GRANITE_HYBRID,
            "shared_intermediate_size": 40,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        },
        None,
    ),
}
# Steps have no limit, as time_step_limit says; of several tokens transformers takes time_step_min for one, of one token it does not: next to 0 both agree.
NEMOTRON_H = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "hidden_size": 192,
    "mamba_num_heads": 8,
    "mamba_head_dim": 80,
    "n_groups": 4,
    "ssm_state_size": 24,
    "conv_kernel": 4,
    "chunk_size": 128,
    "layer_norm_epsilon": 1e-5,
    "mlp_hidden_act": "relu2",
    "time_step_min": 1e-30,
    "tie_word_embeddings": False,
}
NEMOTRON_H_KEYS = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 24,
    "ssm.group_count": 4,
    "ssm.inner_size": 640,
    "ssm.time_step_rank": 8,
    "rope.dimension_count": 64,
    "rope.scaling.finetuned": False,
    "attention.layer_norm_epsilon": 1e-5,
}
NEMOTRON_H_BLOCKS = {"num_hidden_layers": 9, "hybrid_override_pattern": "M-MM-*-M*"}
NEMOTRON_H_EXPERTS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "moe_intermediate_size": 48,
    "moe_shared_expert_intermediate_size": 80,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
}
CASES |= {
    "nemotron-h": ({**NEMOTRON_H, **NEMOTRON_H_BLOCKS}, None),
    "nemotron-h, as GGUF files are": (
        {**NEMOTRON_H, **NEMOTRON_H_BLOCKS},
        ("nemotron_h", {**NEMOTRON_H_KEYS, "feed_forward_length": [0, 96, 0, 0, 96, 0, 96, 0, 0], "attention.head_count_kv": [0, 0, 0, 0, 0, 2, 0, 0, 2]}),
    ),
    "nemotron 3": (
        {**NEMOTRON_H, **NEMOTRON_H_EXPERTS, "num_hidden_layers": 9, "hybrid_override_pattern": "MEM*EM-ME", "n_group": 4, "topk_group": 2},
        None,
    ),
    "nemotron 3, as GGUF files are": (
        {**NEMOTRON_H, **NEMOTRON_H_EXPERTS, "num_hidden_layers": 9, "hybrid_override_pattern": "MEM*EMEM*", "n_group": 1, "topk_group": 1},
        (
            "nemotron_h_moe",
            {
                **NEMOTRON_H_KEYS,
                "feed_forward_length": [0, 48, 0, 0, 48, 0, 48, 0, 0],
                "attention.head_count_kv": [0, 0, 0, 2, 0, 0, 0, 0, 2],
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_feed_forward_length": 80,
                "expert_shared_count": 1,
                "expert_group_count": 1,
                "expert_group_used_count": 1,
                "expert_weights_norm": True,
                "expert_weights_scale": 2.5,
            },
        ),
    ),
}
NEMOTRON_3_SUPER = {**NEMOTRON_H, **NEMOTRON_H_EXPERTS, "moe_latent_size": 40, "num_hidden_layers": 5, "n_group": 1, "topk_group": 1}
CASES |= {
    "nemotron 3, experts in a space of their own": ({**NEMOTRON_3_SUPER, "hybrid_override_pattern": "MEM*E"}, None),
    "nemotron 3, experts in a space of their own, as GGUF files are": (
        {**NEMOTRON_3_SUPER, "num_hidden_layers": 4, "hybrid_override_pattern": "ME*E"},
        (
            "nemotron_h_moe",
            {
                **CASES["nemotron 3, as GGUF files are"][1][1],
                "moe_latent_size": 40,
                "feed_forward_length": [0, 48, 0, 48],
                "attention.head_count_kv": [0, 0, 2, 0],
            },
        ),
    ),
}
FALCON_H1 = {
    "architectures": ["FalconH1ForCausalLM"],
    "model_type": "falcon_h1",
    "mamba_d_ssm": 96,
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 24,
    "mamba_chunk_size": 64,
    "mamba_norm_before_gate": False,
    "rope_theta": 1e11,
}
FALCON_H1_SCALES = {
    "embedding_multiplier": 5.656854249492381,
    "lm_head_multiplier": 0.3,
    "key_multiplier": 0.39,
    "attention_in_multiplier": 1.5,
    "attention_out_multiplier": 0.9375,
    "ssm_in_multiplier": 1.25,
    "ssm_out_multiplier": 0.2357,
    "mlp_multipliers": [0.8838834764831844, 0.5859375],
    "ssm_multipliers": [0.3535533905932738, 0.25, 0.7071067811865476, 0.5, 0.4],
}
FALCON_H1_KEYS = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 24,
    "ssm.group_count": 2,
    "ssm.inner_size": 96,
    "ssm.time_step_rank": 6,
    "rope.freq_base": 1e11,
}
CASES |= {
    "falcon-h1": ({**FALCON_H1, **FALCON_H1_SCALES}, None),
    "falcon-h1, states with a norm": ({**FALCON_H1, **FALCON_H1_SCALES, "mamba_rms_norm": True, "mamba_d_ssm": None, "mamba_n_heads": 8, "num_hidden_layers": 2}, None),
    "falcon-h1, as GGUF files are": (FALCON_H1, ("falcon-h1", FALCON_H1_KEYS)),
    "falcon-h1, states with a norm, as GGUF files are": ({**FALCON_H1, "mamba_rms_norm": True, "num_hidden_layers": 2}, ("falcon-h1", FALCON_H1_KEYS)),
}
OLMO_HYBRID = {
    "architectures": ["OlmoHybridForCausalLM"],
    "model_type": "olmo_hybrid",
    "hidden_size": 128,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-6,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
CASES |= {
    "olmo hybrid": ({**OLMO_HYBRID, "rope_parameters": {"rope_type": "default", "rope_theta": None}}, None),
    "olmo hybrid, rotated": (
        {
            **OLMO_HYBRID,
            "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 24,
            "linear_value_head_dim": 32,
            "linear_allow_neg_eigval": False,
        },
        None,
    ),
}
KIMI_LINEAR = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4},
    "model_max_length": 512,
    "num_key_value_heads": 4,
    "kv_lora_rank": 40,
    "q_lora_rank": None,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "mla_use_nope": True,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 48,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "num_experts": 8,
    "num_experts_per_token": 3,
    "num_shared_experts": 1,
    "num_expert_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.446,
}
CASES |= {
    "kimi linear": (KIMI_LINEAR, None),
    "kimi linear, as GGUF files are": (
        {**KIMI_LINEAR, "rms_norm_eps": 1e-6, "num_expert_group": 1, "topk_group": 1},
        (
            "kimi-linear",
            {
                "attention.head_count_kv": [0, 1, 0],
                "attention.key_length": 56,
                "attention.key_length_mla": 48,
                "attention.value_length_mla": 24,
                "attention.kv_lora_rank": 40,
                "rope.dimension_count": 16,
                "ssm.conv_kernel": 4,
                "kda.head_dim": 32,
                "leading_dense_block_count": 1,
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_shared_count": 1,
                "expert_feed_forward_length": 48,
                "expert_gating_func": 2,
                "expert_weights_scale": 2.446,
            },
        ),
    ),
}
BAILING = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_shared_experts": 1,
    "moe_intermediate_size": 48,
    "moe_shared_expert_intermediate_size": 48,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "score_function": "sigmoid",
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "rope_theta": 600000.0,
}
BAILING_KEYS = {
    "rope.freq_base": 600000.0,
    "leading_dense_block_count": 1,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 48,
    "expert_shared_feed_forward_length": 48,
    "expert_weights_scale": 2.5,
    "expert_weights_norm": True,
    "expert_gating_func": 2,
    "expert_group_count": 4,
    "expert_group_used_count": 2,
}
CASES |= {
    "sarvam": (
        {"architectures": ["SarvamMoEForCausalLM"], "model_type": "sarvam_moe", **BAILING},
        ("bailingmoe2", {**BAILING_KEYS, "rope.dimension_count": 64}),
    ),
    # of Ling 2.0 transformers has no class of its own
    "ling 2": (
        {"architectures": ["BailingMoeV2ForCausalLM"], "model_type": "sarvam_moe", **BAILING, "partial_rotary_factor": 0.5},
        ("bailingmoe2", {**BAILING_KEYS, "rope.dimension_count": 32}),
    ),
    "granite, windows": (
        {
            "architectures": ["GraniteSWAForCausalLM"],
            "model_type": "granite_swa",
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "tie_word_embeddings": True,
            "rope_theta": 10000.0,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
            "logits_scaling": 8.0,
            "sliding_window": 37,
            "layer_rope_theta": [0, 20000.0, 20000.0, 20000.0],
        },
        None,
    ),
}
MISTRAL_4_SCALING = {"llama_4_scaling_beta": 0.4, "original_max_position_embeddings": 40}
CASES |= {
    "glm-4.7-flash": (
        {
            "architectures": ["Glm4MoeLiteForCausalLM"],
            "model_type": "glm4_moe_lite",
            **LATENT,
            "num_hidden_layers": 2,
            "rope_theta": 1e6,
            "q_lora_rank": 56,
            "n_routed_experts": 9,
            "num_experts_per_tok": 4,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.8,
        },
        (
            "deepseek2",
            {
                **{k: v for k, v in LATENT_KEYS.items() if "scaling" not in k},
                "rope.freq_base": 1e6,
                "attention.q_lora_rank": 56,
                "expert_count": 9,
                "expert_used_count": 4,
                "expert_group_count": 1,
                "expert_group_used_count": 1,
                "expert_weights_scale": 1.8,
                "expert_weights_norm": True,
            },
        ),
    ),
    "mistral 4, stacked experts": (
        {
            "architectures": ["Mistral4ForCausalLM"],
            "model_type": "mistral4",
            **LATENT,
            "head_dim": 64,
            "qk_nope_head_dim": 48,
            "num_hidden_layers": 2,
            "first_k_dense_replace": 0,
            "q_lora_rank": 56,
            "n_routed_experts": 9,
            "num_experts_per_tok": 4,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "rope_parameters": {**LATENT_YARN, **MISTRAL_4_SCALING, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 10000.0},
        },
        (
            "mistral4",
            {
                **LATENT_KEYS,
                "attention.key_length": 64,
                "leading_dense_block_count": 0,
                "attention.q_lora_rank": 56,
                "expert_count": 9,
                "expert_used_count": 4,
                "expert_weights_norm": True,
                "rope.scaling.original_context_length": 40,
                "rope.scaling.yarn_log_multiplier": 0.1,
                "attention.temperature_scale": 0.4,
                "attention.temperature_length": 40,
            },
        ),
    ),
}
CASES |= {
    "youtu": (
        {
            "architectures": ["YoutuForCausalLM"],
            "model_type": "youtu",
            **LATENT,
            "num_hidden_layers": 2,
            "q_lora_rank": 56,
            "tie_word_embeddings": True,
            "pad_token_id": None,  # its class makes that token's row zeros
        },
        (
            "deepseek2",
            {
                **{k: v for k, v in LATENT_KEYS.items() if "scaling" not in k},
                "attention.q_lora_rank": 56,
                "expert_feed_forward_length": 96,
                "expert_shared_count": 0,
                "leading_dense_block_count": 2,
            },
        ),
    ),
    "ministral": (
        {
            "architectures": ["MinistralForCausalLM"],
            "model_type": "ministral",
            "num_hidden_layers": 2,
            "sliding_window": 37,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_theta": 1e8,
        },
        None,
    ),
    "cwm": (
        {
            "architectures": ["CwmForCausalLM"],
            "model_type": "cwm",
            "num_hidden_layers": 5,
            "sliding_window": 37,
            "rope_theta": 1e6,
            "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
        },
        None,
    ),
    "hyperclovax": (
        {
            "architectures": ["HyperCLOVAXForCausalLM"],
            "model_type": "hyperclovax",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "rope_theta": 1e7,
            **GRANITE_SCALES,
            "logits_scaling": 0.125,
            "attention_multiplier": None,
        },
        None,
    ),
    "solar open": (
        {
            "architectures": ["SolarOpenForCausalLM"],
            "model_type": "solar_open",
            "num_hidden_layers": 2,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "n_shared_experts": 1,
            "routed_scaling_factor": 1.5,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "rope_theta": 1e6,
        },
        (
            "glm4moe",
            {
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_count": 1,
                "expert_weights_scale": 1.5,
                "expert_weights_norm": True,
                "expert_gating_func": 2,
                "leading_dense_block_count": 0,
                "rope.dimension_count": 64,
                "rope.freq_base": 1e6,
            },
        ),
    ),
    "mellum 2": (
        {
            "architectures": ["MellumForCausalLM"],
            "model_type": "mellum",
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
            "sliding_window": 37,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 500000.0,
                    "factor": 8.0,
                    "original_max_position_embeddings": 64,
                    "beta_fast": 32.0,
                    "beta_slow": 1.0,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
            },
        },
        (
            "mellum",
            {
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "attention.sliding_window": 37,
                "attention.sliding_window_pattern": [1, 0, 1],
                "rope.freq_base": 500000.0,
                "rope.freq_base_swa": 20000.0,
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 8.0,
                "rope.scaling.original_context_length": 64,
            },
        ),
    ),
    "k-exaone": (
        {
            "architectures": ["ExaoneMoeForCausalLM"],
            "model_type": "exaone_moe",
            "num_hidden_layers": 4,
            "sliding_window": 37,
            "layer_types": 3 * ["sliding_attention"] + ["full_attention"],
            "mlp_layer_types": ["dense"] + 3 * ["sparse"],
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "num_shared_experts": 1,
            "moe_intermediate_size": 48,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "rope_theta": 1e6,
        },
        (
            "exaone-moe",
            {
                "attention.sliding_window": 37,
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_count": 1,
                "expert_shared_feed_forward_length": 48,
                "expert_gating_func": 2,
                "expert_weights_scale": 2.5,
                "expert_weights_norm": True,
                "leading_dense_block_count": 1,
                "rope.freq_base": 1e6,
            },
        ),
    ),
    "hunyuan, experts": (
        {
            "architectures": ["HunYuanMoEV1ForCausalLM"],
            "model_type": "hunyuan_v1_moe",
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "moe_intermediate_size": [48, 48],
            "num_experts": 8,
            "moe_topk": [3, 3],
            "num_shared_expert": [1, 1],
            "tie_word_embeddings": True,
            "rope_theta": 10000.0,
            "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
        },
        (
            "hunyuan-moe",
            {
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_count": 1,
                "expert_shared_feed_forward_length": 48,
                "rope.freq_base": 10000.0 * 1000.0 ** (64 / 62),
                "rope.scaling.type": "none",
                "rope.scaling.factor": 1.0,
            },
        ),
    ),
    "hy3": (
        {
            "architectures": ["HYV3ForCausalLM"],
            "model_type": "hy_v3",
            "num_hidden_layers": 2,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "num_shared_experts": 1,
            "moe_intermediate_size": 48,
            "router_scaling_factor": 2.8,
            "rope_theta": 11158840.0,
        },
        (
            "hy_v3",
            {
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_feed_forward_length": 48,
                "expert_gating_func": 2,
                "expert_weights_scale": 2.8,
                "expert_weights_norm": True,
                "rope.freq_base": 11158840.0,
            },
        ),
    ),
}
GLM_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 64}
CASES |= {
    "glm-4.1v, its text": (
        {
            "architectures": ["Glm4vForConditionalGeneration"],
            "model_type": "glm4v",
            "tie_word_embeddings": False,
            "vision_config": GLM_VISION,
            "text_config": {
                "model_type": "glm4v_text",
                "hidden_size": 256,
                "num_hidden_layers": 2,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [4, 6, 6]},
            },
        },
        None,
    ),
    "glm-4.5v, its text": (
        {
            "architectures": ["Glm4vMoeForConditionalGeneration"],
            "model_type": "glm4v_moe",
            "tie_word_embeddings": False,
            "vision_config": GLM_VISION,
            "text_config": {
                "model_type": "glm4v_moe_text",
                "num_hidden_layers": 2,
                "n_routed_experts": 8,
                "num_experts_per_tok": 3,
                "moe_intermediate_size": 48,
                "n_shared_experts": 1,
                "first_k_dense_replace": 1,
                "routed_scaling_factor": 1.5,
                "n_group": 1,
                "topk_group": 1,
                "norm_topk_prob": True,
                "attention_bias": True,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [4, 6, 6]},
            },
        },
        None,
    ),
}
CASES |= {
    "trinity": (
        {
            "architectures": ["AfmoeForCausalLM"],
            "model_type": "afmoe",
            "num_hidden_layers": 4,
            "num_dense_layers": 1,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "num_shared_experts": 1,
            "moe_intermediate_size": 48,
            "route_norm": True,
            "route_scale": 2.5,
            "mup_enabled": True,
            "sliding_window": 37,
            "layer_types": 3 * ["sliding_attention"] + ["full_attention"],
            "rope_theta": 10000.0,
        },
        (
            "afmoe",
            {
                "attention.sliding_window": 37,
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_shared_count": 1,
                "expert_weights_scale": 2.5,
                "expert_weights_norm": True,
                "leading_dense_block_count": 1,
            },
        ),
    ),
}
CASES |= {
    "muse glimmer, its text": (
        {
            "architectures": ["MuseGlimmerForConditionalGeneration"],
            "model_type": "muse_glimmer",
            "tie_word_embeddings": False,
            "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
            "text_config": {
                "model_type": "muse_glimmer_text",
                "num_hidden_layers": 4,
                "sliding_window": 37,
                "layer_types": 3 * ["sliding_attention"] + ["full_attention"],
                "layer_rope_theta": 3 * [20000.0] + [0],
                "rope_theta": 20000.0,
                "qk_scale_factor": 2.5,
                "output_multiplier": 0.5,
                "final_logit_softcapping": 4.0,
                "post_norm_eps": 1e-8,
            },
        },
        None,
    ),
}
GEMMA_4 = {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "num_hidden_layers": 7,
    "head_dim": 24,
    "global_head_dim": 64,
    "hidden_size_per_layer_input": 0,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 37,
    "layer_types": [*(2 * (2 * ["sliding_attention"] + ["full_attention"])), "full_attention"],
    "final_logit_softcapping": 4.0,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    },
}
GEMMA_4_KEYS = {
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.key_length_swa": 24,
    "attention.value_length_swa": 24,
    "attention.sliding_window": 37,
    "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in GEMMA_4["layer_types"]],
    "final_logit_softcapping": 4.0,
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 10000.0,
    "rope.dimension_count": 64,
    "rope.dimension_count_swa": 24,
}
CASES |= {
    "gemma 4": ({**GEMMA_4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}, None),
    "gemma 4, k and v of other layers": (
        {
            **GEMMA_4,
            "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCAB,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 1.0, "factor": 2.0, "rope_theta": 1000000.0},
            },
        },
        ("gemma4", {**GEMMA_4_KEYS, "feed_forward_length": 4 * [96] + 3 * [192], "attention.shared_kv_layers": 3, "embedding_length_per_layer_input": 16}),
    ),
    "gemma 4, stacked experts beside an mlp": (
        {
            **GEMMA_4,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 2,
            "moe_intermediate_size": 40,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 1.0, "factor": 2.0, "rope_theta": 1000000.0},
            },
        },
        (
            "gemma4",
            {
                **GEMMA_4_KEYS,
                "attention.head_count_kv": [1 + int(windowed) for windowed in GEMMA_4_KEYS["attention.sliding_window_pattern"]],
                "attention.shared_kv_layers": 0,
                "embedding_length_per_layer_input": 0,
                "expert_count": 6,
                "expert_used_count": 2,
                "expert_feed_forward_length": 40,
            },
        ),
    ),
    "gemma 4, 12b": (
        {
            **{k: v for k, v in GEMMA_4.items() if k not in ("global_head_dim", "hidden_size_per_layer_input")},
            "architectures": ["Gemma4UnifiedForCausalLM"],
            "model_type": "gemma4_unified_text",
            "attention_k_eq_v": True,
            "per_layer_config": {str(i): {"head_dim": 64, "num_key_value_heads": 1} for i in (2, 5, 6)},
        },
        None,
    ),
}
CASES |= {
    "mimo v2 flash": (
        {
            "architectures": ["MiMoV2FlashForCausalLM"],
            "model_type": "mimo_v2_flash",
            "num_hidden_layers": 7,
            "num_attention_heads": 8,
            "head_dim": 24,
            "v_head_dim": 16,
            "sliding_window_size": 36,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "routed_scaling_factor": None,
            "tie_word_embeddings": False,
        },
        None,
    ),
}
LAGUNA = {
    "architectures": ["LagunaForCausalLM"],
    "model_type": "laguna",
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_attention_heads_per_layer": [4, 6, 6, 6, 4],
    "layer_types": ["full_attention", *3 * ["sliding_attention"], "full_attention"],
    "mlp_layer_types": ["dense"] + 4 * ["sparse"],
    "sliding_window": 37,
    "gating": "per-head",
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 40,
    "moe_routed_scaling_factor": 2.5,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 64.0, "beta_slow": 1.0, "attention_factor": 1.2079441541679836, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    },
}
LAGUNA_KEYS = {
    "rope.freq_base": 500000.0,
    "rope.dimension_count": 32,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 8.0,
    "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_attn_factor": 1.2079441541679836,
    "rope.scaling.yarn_beta_fast": 64.0,
    "rope.scaling.yarn_beta_slow": 1.0,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 48,
    "expert_shared_feed_forward_length": 40,
    "expert_weights_scale": 2.5,
    "expert_weights_norm": True,
    "expert_gating_func": 2,
    "leading_dense_block_count": 1,
}
CASES |= {
    "laguna": (
        LAGUNA,
        ("laguna", {**LAGUNA_KEYS, "attention.head_count": LAGUNA["num_attention_heads_per_layer"], "attention.sliding_window": 37, "rope.freq_base_swa": 10000.0, "rope.dimension_count_swa": 64}),
    ),
    "laguna, a gate for each value": (
        {
            **{k: v for k, v in LAGUNA.items() if k not in ("num_attention_heads_per_layer", "layer_types", "sliding_window")},
            "num_hidden_layers": 2,
            "mlp_layer_types": ["dense", "sparse"],
            "gating": "per-element",
        },
        ("laguna", {**LAGUNA_KEYS, "attention.head_count": [4, 4]}),
    ),
}
COHERE_MOE = {
    "architectures": ["Cohere2MoeForCausalLM"],
    "model_type": "cohere2_moe",
    "num_hidden_layers": 3,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "sliding_window": 37,
    "intermediate_size": 48,
    "prefix_dense_intermediate_size": 96,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "logit_scale": 0.25,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
CASES |= {
    "cohere2 moe": (
        {**COHERE_MOE, "num_shared_experts": 0, "expert_selection_fn": "sigmoid", "norm_topk_prob": False},
        (
            "cohere2moe",
            {
                "feed_forward_length": 96,
                "attention.sliding_window": 37,
                "attention.sliding_window_pattern": [False, True, False],
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 48,
                "expert_gating_func": 2,
                "expert_weights_norm": False,
                "leading_dense_block_count": 1,
                "logit_scale": 0.25,
                "rope.dimension_count": 64,
                "rope.freq_base": 10000.0,
                "rope.scaling.type": "none",
            },
        ),
    ),
    "cohere2 moe, a shared expert": (
        {**COHERE_MOE, "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"], "mlp_layer_types": ["sparse", "sparse"],
         "num_shared_experts": 1, "shared_expert_combination_strategy": "sum", "expert_selection_fn": "softmax"},
        None,
    ),
}
CASES |= {
    "lfm3": (
        {
            "architectures": ["Lfm3ForCausalLM"],
            "model_type": "lfm3",
            "num_hidden_layers": 6,
            "norm_eps": 1e-5,
            "layer_types": ["conv", "conv", "full_attention", "conv", "sliding_attention", "conv"],
            "sliding_window": 37,
            "conv_L_cache": 7,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5},
            },
            "tie_word_embeddings": True,
        },
        None,
    ),
    "phi-2": (
        {
            "architectures": ["PhiForCausalLM"],
            "model_type": "phi",
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "hidden_size": 256,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-5,
            "partial_rotary_factor": 0.5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
        },
        ("phi2", {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 32}),
    ),
    "vaultgemma": (
        {
            "architectures": ["VaultGemmaForCausalLM"],
            "model_type": "vaultgemma",
            "num_hidden_layers": 3,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 64,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 4.0,
            "sliding_window": 37,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_theta": 10000.0,
        },
        None,
    ),
}
MINICPM_LONGROPE = {"rope_type": "longrope", "long_factor": [1.0 + 0.3 * i for i in range(16)], "short_factor": [1.0 + 0.02 * i for i in range(16)], "original_max_position_embeddings": 512}
CASES |= {
    "minicpm 3": (
        {
            "architectures": ["MiniCPM3ForCausalLM"],
            "model_type": "minicpm3",
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "q_lora_rank": 48,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 32,
            "v_head_dim": None,
            "scale_emb": 12,
            "scale_depth": 1.4,
            "dim_model_base": 16,
            "rope_scaling": MINICPM_LONGROPE,
            "tie_word_embeddings": False,
        },
        None,
    ),
    "minicpm 3, as GGUF files are": (
        {
            "architectures": ["MiniCPM3ForCausalLM"],
            "model_type": "minicpm3",
            "hidden_size": 512,
            "num_attention_heads": 8,
            "num_hidden_layers": 2,
            "num_key_value_heads": 8,
            "head_dim": 32,
            "q_lora_rank": 48,
            "kv_lora_rank": 64,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 32,
            "tie_word_embeddings": True,
        },
        ("minicpm3", {"attention.q_lora_rank": 48, "attention.kv_lora_rank": 64, "attention.key_length": 48, "attention.value_length": 64, "rope.dimension_count": 32}),
    ),
    "minicpm": (  # as Granite, which has its parts
        {
            "architectures": ["GraniteForCausalLM"],
            "model_type": "granite",
            "num_hidden_layers": 2,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.9,
            "logits_scaling": 8.0,
            "attention_multiplier": 0.125,
            "tie_word_embeddings": True,
        },
        ("minicpm", {"embedding_scale": 12.0, "residual_scale": 0.9, "logit_scale": 8.0, "rope.dimension_count": 64}),
    ),
    "sarvam mla": (
        {
            "architectures": ["SarvamMLAForCausalLM"],
            "model_type": "sarvam_mla",
            "rms_norm_eps": 1e-6,
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "kv_lora_rank": 32,
            "q_lora_rank": None,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 24,
            "head_dim": 48,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "num_shared_experts": 1,
            "moe_intermediate_size": 48,
            "first_k_dense_replace": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.5,
            "rope_scaling": {"type": "deepseek_yarn", "factor": 4.0, "original_max_position_embeddings": 128, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
            "tie_word_embeddings": False,
        },
        None,
    ),
}
CASES |= {"gpt-oss, stacked experts": ({**CASES["gpt-oss, as GGUF files are"][0], "num_hidden_layers": 2}, None)}
GEMMA_3N_SPARSE = [0.8, 0.8, 0.0, 0.8, 0.0, 0.8, 0.0]
CASES |= {
    "gemma 3n": (
        {
            "architectures": ["Gemma3nForCausalLM"],
            "model_type": "gemma3n_text",
            "num_hidden_layers": 7,
            "rms_norm_eps": 1e-6,
            "intermediate_size": 7 * [96],
            "hidden_activation": "gelu_pytorch_tanh",
            "head_dim": 32,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCAB - 6,  # the ids behind them have the first one's
            "laurel_rank": 32,
            "num_kv_shared_layers": 3,
            "activation_sparsity_pattern": GEMMA_3N_SPARSE,
            "sliding_window": 37,
            "layer_types": GEMMA_4["layer_types"],
            "final_logit_softcapping": 4.0,
        },
        (
            "gemma3n",
            {
                "feed_forward_length": 7 * [96],
                "attention.sliding_window": 37,
                "attention.sliding_window_pattern": GEMMA_4_KEYS["attention.sliding_window_pattern"],
                "attention.shared_kv_layers": 3,
                "final_logit_softcapping": 4.0,
                "rope.freq_base": 1e6,
                "altup.active_idx": 0,
                "altup.num_inputs": 4,
                "embedding_length_per_layer_input": 16,
                "activation_sparsity_scale": [torch.distributions.normal.Normal(0, 1).icdf(torch.tensor(part)).item() for part in GEMMA_3N_SPARSE],
            },
        ),
    ),
}
# What lies otherwise in a directory, so that a case is one or the other.
CASES |= {
    "olmo 1": ({"architectures": ["OlmoForCausalLM"], "model_type": "olmo", "head_dim": 16}, ("olmo", {"attention.layer_norm_epsilon": 1e-5})),
    "nanochat": (
        {
            "architectures": ["NanoChatForCausalLM"],
            "model_type": "nanochat",
            "final_logit_softcapping": 4.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        None,
    ),
    "bamba": (
        {
            "architectures": ["BambaForCausalLM"],
            "model_type": "bamba",
            "num_hidden_layers": 4,
            "head_dim": 16,
            "attn_layer_indices": [1, 3],
            "mamba_n_heads": 4,
            "mamba_d_head": 32,
            "mamba_n_groups": 1,
            "mamba_d_state": 32,
            "mamba_expand": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        None,
    ),
}
GPT_2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 3,
    "n_positions": 512,
    "n_inner": None,  # four times n_embd
    "intermediate_size": None,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "activation_function": "gelu_new",
    "tie_word_embeddings": True,
}
CASES |= {
    "gpt-2": (GPT_2, None),
    "gpt-2, as GGUF files are": (GPT_2, ("gpt2", {"feed_forward_length": 256, "attention.layer_norm_epsilon": 1e-5})),
}
NEOX = {
    "architectures": ["GPTNeoXForCausalLM"],
    "model_type": "gpt_neox",
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "hidden_size": 128,
    "head_dim": 32,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "rotary_pct": 0.25,
    "rotary_emb_base": 20000,
    "tie_word_embeddings": False,
}
NEOX_KEYS = {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 8, "rope.freq_base": 20000.0}
CASES |= {
    "gpt-neox": ({**NEOX, "hidden_act": "gelu_fast"}, None),
    "gpt-neox, serial": ({**NEOX, "use_parallel_residual": False}, None),
    "gpt-neox, as GGUF files are": (NEOX, ("gptneox", {**NEOX_KEYS, "use_parallel_residual": True})),
    "gpt-neox, serial, as GGUF files are": ({**NEOX, "use_parallel_residual": False}, ("gptneox", {**NEOX_KEYS, "use_parallel_residual": False})),
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e6}
EXAONE = {
    "architectures": ["ExaoneForCausalLM"],
    "model_type": "exaone",
    "num_hidden_layers": ABSENT,
    "num_layers": 2,
    "head_dim": 16,
    "rms_norm_eps": ABSENT,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "silu",
}
INTERNLM2 = {"num_hidden_layers": 2, "head_dim": 16, "rope_theta": 1e6}
CASES |= {
    "exaone 3": ({**EXAONE, "rope_scaling": LLAMA3, "rope_theta": 1e6}, None),
    "exaone 3, as GGUF files are": (
        {**EXAONE, "rope_theta": 1e6, "tie_word_embeddings": True},
        ("exaone", {"block_count": 2, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e6}),
    ),
    "internlm2": ({**INTERNLM2, "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False}, None),
    "internlm2, as GGUF files are": ({**INTERNLM2, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}, ("internlm2", {"rope.freq_base": 1e6, "rope.dimension_count": 16})),
}

GPT_NEO = {"architectures": ["GPTNeoForCausalLM"], "model_type": "gpt_neo", "num_hidden_layers": ABSENT, "num_attention_heads": ABSENT, "num_layers": 3, "num_heads": 4}
BIGCODE = {**GPT_2, "architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "activation_function": "gelu_pytorch_tanh"}
GLM = {"architectures": ["GlmForCausalLM"], "model_type": "glm", "num_hidden_layers": 2, "partial_rotary_factor": 0.5, "attention_bias": True, "tie_word_embeddings": False}
GLM_KEYS = {"rope.dimension_count": 32}
CASES |= {
    "gpt-bigcode": (BIGCODE, None),
    "gpt-bigcode, as many heads of k and v": ({**BIGCODE, "multi_query": False}, None),
    "gpt-bigcode, as GGUF files are": (BIGCODE, ("starcoder", {"feed_forward_length": 256, "attention.layer_norm_epsilon": 1e-5, "attention.head_count_kv": 1})),
    "gpt-neo": (
        {
            **GPT_NEO,
            "num_key_value_heads": 4,
            "head_dim": 16,
            "intermediate_size": None,
            "activation_function": "gelu_new",
            "attention_types": [[["global", "local"], 1], [["local"], 1]],
            "attention_layers": ["global", "local", "local"],
            "window_size": 37,
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": True,
        },
        None,
    ),
    "glm-4, as GGUF files are": (GLM, ("chatglm", GLM_KEYS)),
    "glm-4, as older GGUF files are": (GLM, ("chatglm", GLM_KEYS)),
}

DECILM = {
    "architectures": ["DeciLMForCausalLM"],
    "model_type": "nemotron-nas",
    "head_dim": 16,
    "intermediate_size": None,
    "num_key_value_heads": None,
    "rope_theta": 1e6,
}
CASES |= {
    "decilm": (
        {
            **DECILM,
            "num_hidden_layers": 7,
            "rope_scaling": LLAMA3,
            "block_configs": [
                decilm.block(None, 3.0),
                decilm.block(2, 6.5),
                decilm.block(4, None),
                decilm.block(None, None),
                decilm.block(None, 1.0, is_replaced=True),
                decilm.block(1, 3.0),
                decilm.block(None, 6.5),
            ],
        },
        None,
    ),
    "decilm, as GGUF files are": (
        {
            **DECILM,
            "num_hidden_layers": 5,
            "block_configs": [
                decilm.block(2, 3.0),
                decilm.block(None, 6.5),
                decilm.block(None, None),
                decilm.block(4, 3.0),
                decilm.block(None, 3.0, is_replaced=True),
            ],
        },
        (
            "deci",
            {
                "rope.freq_base": 1e6,
                "rope.dimension_count": 16,
                "attention.head_count": [4, 0, 0, 4, 4],
                "attention.head_count_kv": [2, 0, 0, 1, 0],
                "feed_forward_length": [256, 512, 0, 256, 256],
            },
        ),
    ),
}

MULTI_HEAD = {"num_key_value_heads": 4, "head_dim": 16, "num_hidden_layers": 2, "rope_theta": 10000.0}
LLAMA_7B = {**MULTI_HEAD, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
LLAMA_KEYS = {"rope.dimension_count": 16}
QWEN_1 = {
    **MULTI_HEAD,
    "architectures": ["QWenLMHeadModel"],
    "model_type": "qwen",
    "intermediate_size": 192,
    "rms_norm_eps": ABSENT,
    "layer_norm_epsilon": 1e-6,
    "seq_length": 256,
    "use_dynamic_ntk": True,
    "use_logn_attn": True,
    "tie_word_embeddings": False,
}
QWEN_1_KEYS = {"attention.layer_norm_rms_epsilon": 1e-6, **LLAMA_KEYS}
EARLY_EXPERTS = {**MULTI_HEAD, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
DEEPSEEK_1 = {
    **EARLY_EXPERTS,
    "architectures": ["DeepseekForCausalLM"],
    "model_type": "deepseek",
    "num_hidden_layers": 3,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "norm_topk_prob": False,
    "scoring_func": "softmax",
}
LING_1 = {
    **EARLY_EXPERTS,
    "architectures": ["BailingMoeForCausalLM"],
    "model_type": "bailing_moe",
    "num_key_value_heads": 2,
    "num_experts": 6,
    "num_shared_experts": 2,
    "first_k_dense_replace": 0,
    "norm_topk_prob": True,
    "norm_head": False,
    "use_bias": False,
}
EARLY_KEYS = {**LLAMA_KEYS, "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 40, "expert_shared_count": 2, "expert_weights_scale": 1.0}
FALCON = {
    "architectures": ["FalconForCausalLM"],
    "model_type": "falcon",
    "num_hidden_layers": 2,
    "num_key_value_heads": ABSENT,
    "head_dim": ABSENT,
    "intermediate_size": ABSENT,
    "rms_norm_eps": ABSENT,
    "layer_norm_epsilon": 1e-5,
    "alibi": False,
    "bias": False,
}
FALCON_KEYS = {"attention.head_count_kv": 1, "attention.key_length": 16, "attention.value_length": 16, "feed_forward_length": 256, "attention.layer_norm_epsilon": 1e-5}
FLINT = {
    "architectures": ["FlintForCausalLM"],
    "model_type": "flint",
    "num_hidden_layers": 4,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 48,
    "mlp_only_layers": [0, 1],
    "layer_types": ["full_attention", "full_attention", "sliding_attention", "sliding_attention"],
    "sliding_window": 37,
    "rope_theta": 10000.0,
}
CASES |= {
    "xverse, as GGUF files are": (LLAMA_7B, ("xverse", LLAMA_KEYS)),
    "baichuan, as GGUF files are": (LLAMA_7B, ("baichuan", LLAMA_KEYS)),
    "baichuan": ({**LLAMA_7B, "architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "model_max_length": 512, "max_position_embeddings": ABSENT}, None),
    "orion, as GGUF files are": (
        {**MULTI_HEAD, "architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "layer_norm_eps": 1e-5, "partial_rotary_factor": 1.0},
        ("orion", {**LAYER_NORM_KEYS, **LLAMA_KEYS}),
    ),
    "qwen 1": (QWEN_1, None),
    "qwen 1, as GGUF files are": (QWEN_1, ("qwen", QWEN_1_KEYS)),
    "deepseek 1": (DEEPSEEK_1, None),
    "deepseek 1, as GGUF files are": (DEEPSEEK_1, ("deepseek", {**EARLY_KEYS, "leading_dense_block_count": 1})),
    "ling 1": (LING_1, None),
    "ling 1, as GGUF files are": (LING_1, ("bailingmoe", {**EARLY_KEYS, "leading_dense_block_count": 0, "expert_weights_norm": True})),
    "pangu, as GGUF files are": (
        {"architectures": ["PanguEmbeddedForCausalLM"], "model_type": "PanguEmbedded", "num_hidden_layers": 2, "attention_bias": True, "rope_theta": 16e6},
        ("pangu-embedded", {"rope.freq_base": 16e6}),
    ),
    "maincoder, as GGUF files are": (
        {"architectures": ["MaincoderForCausalLM"], "model_type": "maincoder", "num_hidden_layers": 2, "use_qk_norm": True, "rope_theta": 1e6},
        ("maincoder", {"rope.dimension_count": 64, "rope.freq_base": 1e6}),
    ),
    "codeshell, as GGUF files are": (
        {
            "architectures": ["CodeShellForCausalLM"], "model_type": "codeshell", "num_hidden_layers": 2, "hidden_size": 256, "use_bias": True,
            "norm_epsilon": 1e-5, "sliding_window": None, "tie_word_embeddings": False, "rope_theta": 10000.0,
        },
        ("codeshell", {"attention.layer_norm_epsilon": 1e-5, "rope.freq_base": 10000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 1.0}),
    ),
    "plamo, as GGUF files are": (
        {
            "architectures": ["PlamoForCausalLM"], "model_type": "plamo", "num_hidden_layers": 2, "hidden_size": 256, "rope_theta": 10000.0,
            "layer_types": ["full_attention"] * 2, "mlp_layer_types": ["dense"] * 2, "prefix_dense_intermediate_size": 96, "logit_scale": 1.0,
            "num_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False,
        },
        ("plamo", {}),
    ),
    "falcon": (FALCON, ("falcon", FALCON_KEYS)),
    "falcon 2": ({**FALCON, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "num_kv_heads": 2, "ffn_hidden_size": 160, "tie_word_embeddings": False}, None),
    "gpt-j": ({**GPT_2, "architectures": ["GPTJForCausalLM"], "model_type": "gptj", "activation_function": "gelu_new", "rotary_dim": 8, "tie_word_embeddings": False}, None),
    "flint": (FLINT, None),
    "granite moe with windows": (
        {
            **CASES["granite, windows"][0],
            "architectures": ["GraniteMoeSWAForCausalLM"],
            "model_type": "granitemoe_swa",
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 48,
        },
        None,
    ),
    "a.x k1": (
        {
            "architectures": ["AXK1ForCausalLM"],
            "model_type": "axk1",
            **LATENT,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 3,
            "n_group": 4,
            "topk_group": 2,
            "q_lora_rank": 24,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "scoring_func": "sigmoid",
        },
        None,
    ),
    "phi-4-multimodal": ({**CASES["phi3, longrope, partial rotation"][0], "architectures": ["Phi4MMForCausalLM"], "model_type": "phi4mm", "tie_word_embeddings": True}, None),
}
FALCON_40B = {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "tie_word_embeddings": False}
CASES |= {
    "falcon 40b": (FALCON_40B, None),
    "falcon 40b, as GGUF files are": (FALCON_40B, ("falcon", {**FALCON_KEYS, "attention.head_count_kv": 2})),
}

# What lies otherwise than transformers has it, or whose class that has not: a directory, or a GGUF file.
# numbers of heads that are no power of 2
BLOOM = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "hidden_size": 96,
    "n_layer": 2,
    "num_hidden_layers": 2,
    "n_head": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": ABSENT,
    "intermediate_size": ABSENT,
    "rms_norm_eps": ABSENT,
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}
MPT = {
    "architectures": ["MPTForCausalLM"],
    "model_type": "mpt",
    "hidden_size": 96,
    "d_model": 96,
    "n_layers": 2,
    "num_hidden_layers": 2,
    "n_heads": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": ABSENT,
    "head_dim": ABSENT,
    "intermediate_size": ABSENT,
    "rms_norm_eps": ABSENT,
    "layer_norm_epsilon": 1e-5,
    "max_seq_len": 512,
    "expansion_ratio": 4,
    "no_bias": True,
    "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_type": "multihead_attention", "clip_qkv": 1.5, "softmax_scale": None, "qk_ln": False, "prefix_lm": False},
    "tie_word_embeddings": True,
}
ALIBI_KEYS = {"attention.layer_norm_epsilon": 1e-5}
CASES |= {
    "command r+": (
        {"architectures": ["CohereForCausalLM"], "model_type": "cohere", **COHERE, "num_hidden_layers": 2, "use_qk_norm": True},
        ("command-r", {**LAYER_NORM_KEYS, "logit_scale": 0.25}),
    ),
    "stablelm 2, 12b": (
        {
            "architectures": ["StableLmForCausalLM"],
            "model_type": "stablelm",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "layer_norm_eps": 1e-5,
            "qk_layernorm": True,
            "use_parallel_residual": True,
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000.0,
        },
        ("stablelm", {**LAYER_NORM_KEYS, "rope.dimension_count": 16, "use_parallel_residual": True}),
    ),
    "opt": (
        {
            "architectures": ["OPTForCausalLM"],
            "model_type": "opt",
            "head_dim": ABSENT,
            "num_key_value_heads": ABSENT,
            "intermediate_size": ABSENT,
            "num_hidden_layers": 2,
            "ffn_dim": 160,
            "activation_function": "relu",
            "do_layer_norm_before": True,
            "word_embed_proj_dim": 64,
            "pad_token_id": 1,
            "tie_word_embeddings": True,
        },
        None,
    ),
    "olmo 1, clipped": (
        {"architectures": ["OlmoForCausalLM"], "model_type": "olmo", "head_dim": 16, "clip_qkv": 0.75},
        ("olmo", {"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 0.75}),
    ),
    "decilm 7b": (
        {"architectures": ["DeciLMForCausalLM"], "model_type": "deci", "head_dim": 16, "num_key_value_heads": ABSENT, "intermediate_size": 256,
         "num_key_value_heads_per_layer": [4, 1, 2], "rope_theta": 10000.0},
        None,
    ),
    "bloom": (BLOOM, None),
    "bloom, as GGUF files are": (BLOOM, ("bloom", {**ALIBI_KEYS, "feed_forward_length": 384})),
    "mpt": (MPT, None),
    "mpt, as GGUF files are": (MPT, ("mpt", {**ALIBI_KEYS, "feed_forward_length": 384, "attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 1.5})),
    "falcon rw": ({**FALCON, "alibi": True, "bias": True, "parallel_attn": False, "multi_query": False, "num_attention_heads": 4}, None),
    "refact, as GGUF files are": (
        {**LLAMA_7B, "architectures": ["GPTRefactForCausalLM"], "model_type": "refact", "num_attention_heads": 6, "num_key_value_heads": 1, "hidden_size": 96},
        ("refact", {}),
    ),
    "baichuan 2": (
        {**LLAMA_7B, "architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "model_max_length": 512, "max_position_embeddings": ABSENT, "z_loss_weight": 0},
        None,
    ),
}

# heads of all values together are as wide as the hidden size, whose sub-norm it is
BITNET = {"architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "hidden_size": 256, "num_hidden_layers": 2, "rope_theta": 500000.0, "tie_word_embeddings": True}
CASES |= {
    "bitnet": ({**BITNET, "intermediate_size": 512, "hidden_act": "relu2"}, ("bitnet", {"rope.freq_base": 500000.0, "hidden_activation": "relu2"})),
    "bitnet, silu": ({**BITNET, "hidden_act": "silu"}, ("bitnet", {"rope.freq_base": 500000.0})),
}
CASES |= {
    "phi-3.5-moe, as GGUF files are": (
        {**CASES["phi-3.5-moe"][0], "router_jitter_noise": 0.01, "rope_scaling": None},
        ("phimoe", {"rope.freq_base": 10000.0, "rope.dimension_count": 64, "attention.sliding_window": 400, "expert_count": 8, "expert_used_count": 2}),
    ),
    "dbrx, as GGUF files are": (
        {
            "architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 48, "rms_norm_eps": ABSENT,
            "head_dim": ABSENT, "d_model": 256, "n_heads": 4, "n_layers": 2, "max_seq_len": 512, "attn_config": {"clip_qkv": 1.0, "kv_n_heads": 2, "rope_theta": 500000.0},
            "ffn_config": {"hidden_size": 256, "ffn_hidden_size": 48, "moe_num_experts": 6, "moe_top_k": 2}, "rope_theta": 500000.0, "tie_word_embeddings": False,
        },
        ("dbrx", {"rope.freq_base": 500000.0, "attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 1.0, "expert_count": 6, "expert_used_count": 2}),
    ),
    "plm, as GGUF files are": (
        {
            "architectures": ["PLMForCausalLM"], "model_type": "plm", **LATENT, "first_k_dense_replace": 3, "num_attention_heads": 4, "hidden_act": "relu", "q_lora_rank": None,
            "tie_word_embeddings": True,
        },
        ("plm", {"attention.key_length": 48, "attention.value_length": 24, "attention.kv_lora_rank": 40, "rope.dimension_count": 16, "rope.freq_base": 10000.0}),
    ),
    "bitnet of 1bitllm": (
        {**BITNET, "architectures": ["BitnetForCausalLM"], "model_type": "llama", "intermediate_size": 512, "hidden_act": "silu", "rope_theta": 10000.0, "weight_bits": 1,
         "input_bits": 8, "tie_word_embeddings": False},
        None,
    ),
}
JAMBA = {
    "architectures": ["JambaForCausalLM"],
    "model_type": "jamba",
    "num_hidden_layers": 5,
    "head_dim": 16,
    "attn_layer_period": 3,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "mamba_d_state": 8,
    "mamba_dt_rank": 12,
    "use_mamba_kernels": False,
}
CASES |= {
    "jamba": (JAMBA, None),
    "jamba, as GGUF files are": (
        JAMBA,
        (
            "jamba",
            {
                "attention.head_count_kv": [0, 2, 0, 0, 2],
                "ssm.conv_kernel": 4,
                "ssm.inner_size": 128,
                "ssm.state_size": 8,
                "ssm.time_step_rank": 12,
                "expert_count": 4,
                "expert_used_count": 2,
            },
        ),
    ),
    "jamba, without experts": ({**JAMBA, "num_experts": 1, "num_experts_per_tok": 1, "mamba_dt_rank": "auto", "mamba_d_state": 16}, None),
}
MAMBA = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "num_attention_heads": None,
    "num_key_value_heads": None,
    "head_dim": None,
    "rms_norm_eps": None,
    "max_position_embeddings": None,
    "intermediate_size": 128,
    "expand": 2,
    "state_size": 8,
    "time_step_rank": 5,
    "tie_word_embeddings": True,
}
FALCON_MAMBA = {**MAMBA, "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "state_size": 16, "time_step_rank": "auto", "tie_word_embeddings": False}
MAMBA_KEYS = {
    "attention.head_count": 0,
    "feed_forward_length": 0,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "context_length": 1048576,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 128,
    "ssm.state_size": 8,
    "ssm.time_step_rank": 5,
}
CASES |= {
    "mamba": (MAMBA, None),
    "mamba, as GGUF files are": (MAMBA, ("mamba", MAMBA_KEYS)),
    "falcon mamba": (FALCON_MAMBA, None),
}
MAMBA_2 = {
    **{key: value for key, value in MAMBA.items() if key not in ("time_step_rank", "intermediate_size")},
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "num_heads": 8,
    "head_dim": 16,
    "n_groups": 2,
    "state_size": 24,
    "tie_word_embeddings": False,
}
CASES |= {
    "mamba 2": (MAMBA_2, None),
    "mamba 2, as GGUF files are": (MAMBA_2, ("mamba2", {**MAMBA_KEYS, "ssm.state_size": 24, "ssm.time_step_rank": 8, "ssm.group_count": 2})),
}

RENAMED = {
    "pangu, as GGUF files are": early.PANGU,
    "maincoder, as GGUF files are": early.MAINCODER,
    "codeshell, as GGUF files are": early.CODESHELL,
    "plamo, as GGUF files are": early.PLAMO,
    "plm, as GGUF files are": early.PLM,
    "bitnet of 1bitllm": early.EarlyBitnet(),
    "internlm2": internlm2,
    "glm-4, as older GGUF files are": chatglm,
    "baichuan": early.BAICHUAN,
    "baichuan 2": early.BAICHUAN,
    "decilm 7b": decilm.KvHeadsByLayer(),
    "refact, as GGUF files are": early.REFACT_GGUF,
    "phi-4-multimodal": early.PHI_4_MM,
    "qwen 1": early.QWEN_1,
    "qwen 1, as GGUF files are": early.QWEN_1_GGUF,
    "deepseek 1": early.DEEPSEEK_1,
    "deepseek 1, as GGUF files are": early.MIXTURE_GGUF,
    "ling 1": early.LING_1,
    "ling 1, as GGUF files are": early.MIXTURE_GGUF,
}

GGUF_ONLY = {
    "falcon 40b, as GGUF files are": gpt,
    "gpt-bigcode, as GGUF files are": gpt,
    "gpt-neox, as GGUF files are": gpt,
    "gpt-neox, serial, as GGUF files are": gpt,
    "gpt-2, as GGUF files are": gpt,
    "bloom, as GGUF files are": gpt,
    "mpt, as GGUF files are": gpt,
    "dbrx, as GGUF files are": dbrx,
    "gpt-oss, as GGUF files are": gpt_oss,
    "llama4, as GGUF files are": llama4,
    "qwen3.5, as GGUF files are": qwen3_5,
    "qwen3.5-moe, as GGUF files are": qwen3_5,
    "qwen3-next, as GGUF files are": qwen3_5,
    "deepseek-v3, as newer GGUF files are": deepseek,
    "granite 4, hybrid, as GGUF files are": granite_hybrid,
    "nemotron-h, as GGUF files are": nemotron_h,
    "nemotron 3, as GGUF files are": nemotron_h,
    "nemotron 3, experts in a space of their own, as GGUF files are": nemotron_h,
    "kimi linear, as GGUF files are": kimi_linear,
    "jamba, as GGUF files are": jamba,
    "mamba, as GGUF files are": jamba,
    "mamba 2, as GGUF files are": mamba2,
    "falcon-h1, as GGUF files are": falcon_h1,
    "falcon-h1, states with a norm, as GGUF files are": falcon_h1,
}

GGUF_NAMES = {
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "attention.query_layernorm": "attn_q_norm",
    "attention.key_layernorm": "attn_k_norm",
    "mlp.gate.expert": "exp_probs_b",
    "feed_forward.router": "ffn_gate_inp",
    **{f"feed_forward.{p}_proj": f"ffn_{p}" for p in ("gate", "up", "down")},
    **{f"feed_forward.shared_expert.{p}_proj": f"ffn_{p}_shexp" for p in ("gate", "up", "down")},
    "mlp.router": "ffn_gate_inp",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction": "exp_probs_b",
    "mlp.e_score_correction": "exp_probs_b",
    "mlp.gate.wg": "ffn_gate_inp",
    "mlp.router.gate": "ffn_gate_inp",
    "mlp.expert": "exp_probs_b",
    "pre_mlp_layernorm": "ffn_norm",
    "self_attn.gate_proj": "attn_gate",
    "self_attn.g_proj": "attn_gate",
    "self_attn.dense": "attn_output",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.experts.e_score_correction": "exp_probs_b",
    **{f"mlp.shared_mlp.{p}_proj": f"ffn_{p}_shexp" for p in ("gate", "up", "down")},
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{f"mlp.shared_expert{s}.{p}_proj": f"ffn_{p}_shexp" for s in ("", "s") for p in ("gate", "up", "down")},
    **{f"mlp.experts.{p}_proj": f"ffn_{p}_exps" for p in ("gate", "up", "down", "gate_up")},
    **{f"block_sparse_moe.experts.{w}": f"ffn_{p}_exps" for w, p in (("w1", "gate"), ("w3", "up"), ("w2", "down"))},
    **{f"self_attn.{p}_proj": f"attn_{p}" for p in ("q_a", "q_b", "kv_b")},
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.linear_attn": "attn_output",
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.moe_statics.e_score_correction": "exp_probs_b",
    "block_sparse_moe.e_score_correction": "exp_probs_b",
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    **{f"feed_forward.{w}": f"ffn_{p}" for w, p in (("w1", "gate"), ("w3", "up"), ("w2", "down"))},
    **{f"feed_forward.experts.{w}": f"ffn_{p}_exps" for w, p in (("w1", "gate"), ("w3", "up"), ("w2", "down"))},
    "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.expert": "exp_probs_b",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "attention_layernorm": "attn_norm",
    "feedforward_layernorm": "ffn_norm",
    "layer_scalar": "layer_output_scale",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.correct_output_scale": "altup_correct_scale",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "router.proj": "ffn_gate_inp",
    "experts.gate_up_proj": "ffn_gate_up_exps",
    "experts.down_proj": "ffn_down_exps",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    **{f"post_feedforward_layernorm_{i}": f"post_ffw_norm_{i}" for i in (1, 2)},
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
}


def gguf_name(name, has_post_norms):
    """As llama.cpp's converter has it."""
    if ".act_fn." in name:  # among the keys
        return None
    if name.startswith("transformer."):
        return gpt.entries(name, 0, {})[0][0]
    name = name.replace("language_model.", "")
    name += ".weight" if name.endswith(("layer_scalar", "correct_output_scale")) else ""
    streams = re.fullmatch(r"model\.altup_(unembed_)?projections\.\d\.weight", name)
    if streams:  # all of them in one tensor
        return "altup_unembd_proj.weight" if streams[1] else "altup_proj.weight"
    if name.endswith((".router.scale", ".router.per_expert_scale")):
        return f"blk.{name.split('.')[2]}.{'ffn_down_exps' if 'expert' in name else 'ffn_gate_inp'}.scale"
    known = {"model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight", "model.per_layer_model_projection.weight": "per_layer_model_proj.weight", "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight", "model.embed_tokens.weight": "token_embd.weight", "model.word_embeddings.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "model.norm.bias": "output_norm.bias", "model.embedding_norm.weight": "token_embd_norm.weight", "lm_head.weight": "output.weight", "lm_head.bias": "output.bias", **{f"model.final_layernorm.{k}": f"output_norm.{k}" for k in ("weight", "bias")}}
    if name in known:
        return known[name]
    if name.endswith(".mlp.expert_bias") and not has_post_norms:  # Hy3's
        return f"blk.{name.split('.')[2]}.exp_probs_b"
    if name.endswith(".self_attn.sinks"):
        return f"blk.{name.split('.')[2]}.attn_sinks.weight"
    name += ".weight" if name.endswith(STACKED) else ""
    layer, part, kind = re.fullmatch(r"model\.layers\.(\d+)\.(.+)[._](weight|bias)", name).groups()
    part = re.sub(r"experts\.\d+\.", "experts.", part)  # all of them in one tensor
    part = re.sub(r"layernorm\.norms\.\d+", "layernorm", part)  # and so are those of heads
    post = {"post_attention_layernorm": "post_attention_norm" if has_post_norms else "ffn_norm"}
    return f"blk.{layer}.{(GGUF_NAMES | post)[part]}.{kind}"


def wide(name):
    """Sides that blocks of 128 do not divide."""
    return {**CASES[name][0], "hidden_size": 192, "intermediate_size": 320, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1}


# family and form
LLAMA = "llama, dynamic rotation"
QUANTISED = [(LLAMA, f) for f in FORMATS if "groups of 128" not in f and "experts" not in f and not f.startswith(("bitnet", "mlx", "metal", "torchao's", "hqq", "int4, m"))] + [
    ("phi3", "fp8, blocks"),
    ("phi3", "packed, groups of 128, zeros"),
    ("phi3", "awq"),
    ("qwen3-moe", "fp8, rows"),
    ("qwen3-moe", "bitsandbytes, nf4, quantised scales"),
    ("mixtral", "gptq"),
    ("mixtral", "gptq, experts by their roles"),
    ("gpt-oss, as GGUF files are", "mxfp4, blocks of experts"),
    ("deepseek-v3", "fp8, blocks"),
    ("llama4", "fp8, rows"),
    ("qwen3-next", "fp8, blocks"),
    ("qwen3.5-moe", "fp8, blocks"),
    ("qwen3-vl-moe, its text", "fp8, blocks, stacks of experts"),
    ("qwen3.5-moe, stacked experts", "fp8, blocks, stacks of experts"),
    ("mistral 4, stacked experts", "fp8, one scale each, stacks of experts"),
    ("mistral 4, stacked experts", "fp8, halves, stacks of experts"),
    ("llama4", "fp8, rows, stacks of experts"),
    ("llama4", "fp8, modelopt, stacks of experts"),
    ("llama4", "nvfp4, modelopt, stacks of experts"),
    ("bitnet", "bitnet, autobitlinear"),
    (LLAMA, "bitnet, bitlinear"),
    ("bitnet", "bitnet, online"),
] + [(LLAMA, f) for f in FORMATS if f.startswith("mlx") and "experts" not in f] + [
    ("qwen3.5-moe, stacked experts", "mlx, experts and whole norms"),
    ("mistral 4, stacked experts", "mlx, experts"),
    ("gpt-oss, as GGUF files are", "mlx, mxfp4, experts"),
] + [(LLAMA, f) for f in FORMATS if f.startswith(("torchao's", "metal", "hqq", "int4, m"))]
# of text models: sides that blocks of 128 do not divide, so that the rows of up begin within a block
WIDE_EXPERTS = {"hidden_size": 192, "moe_intermediate_size": 160, "num_hidden_layers": 2}


def values(count, seed, center, scale):
    state, out = (seed * 0x9E3779B97F4A7C15 + 1) & MASK, np.empty(count, np.float32)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        out[i] = np.float32(center) + np.float32((state >> 40) - (1 << 23)) * np.float32(2.0**-23) * np.float32(scale)
    return torch.from_numpy(out).to(torch.bfloat16)


def text_of(config):
    """The text model's own, of one with images."""
    return config.get("text_config", config)


def class_of(config):
    is_among_images = "vision_config" in config or config["model_type"] == "mistral4"
    return AutoModelForImageTextToText if is_among_images else AutoModelForCausalLM


def config_of(name, form=None):
    if not form:
        own = CASES[name][0]
        return {**own, "text_config": {**BASE, **own["text_config"]}} if "text_config" in own else {k: v for k, v in {**BASE, **own}.items() if v is not ABSENT}
    own = {**BASE, **wide(name)} if name == LLAMA else config_of(name)
    if form.startswith("fp8, blocks, stacks"):
        text_of(own).update({**WIDE_EXPERTS, **({"layer_types": text_of(own)["layer_types"][:2]} if "layer_types" in text_of(own) else {})})
    return {**own, "quantization_config": FORMATS[form].config}


def num_experts(config):
    return config.get("num_experts", config.get("n_routed_experts", config.get("num_local_experts")))


STACKED = ("experts.gate_up_proj", "experts.down_proj")
SCALARS = ("act_fn.beta", "act_fn.eps")


def as_published(state, config):
    """Of OLMo Hybrid: save_pretrained cuts convolutions into equal parts, and names a norm as if each layer had a state; of Kimi Linear:
    it names an MLP as if it were of experts."""
    out = {}
    for name, value in state.items():
        if "_conv1d" in name:
            value = value.new_empty(state[name.replace("conv1d", "proj")].shape[0], 1, value.shape[-1])
        layer = re.search("layers.([0-9]+)", name)
        if layer and config.get("layer_types", {int(layer[1]): ""})[int(layer[1])] == "full_attention":
            name = name.replace("feedforward_layer_norm", "post_attention_layernorm")
        name = re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", name)
        out[name] = value
    return out


def tensors_of(model, config, stacked=False):
    """(name, rows, cols, center, scale) in the order of their seeds, which count from 1; rows 0: a vector."""
    own = text_of(config)["model_type"]
    counts_from_one = own.startswith(("gemma", "qwen3_next", "qwen3_5", "muse_glimmer", "nemotron")) and not own.startswith(("gemma4", "gemma3n", "nemotron_h"))
    out = []
    with tempfile.TemporaryDirectory() as folder:  # under the names that published files have
        model.save_pretrained(folder)
        state = model.state_dict() if stacked else load_file(pathlib.Path(folder) / "model.safetensors")
    if own in ("olmo_hybrid", "kimi_linear"):
        state = as_published(state, config)
    for name, value in sorted(state.items()):
        if re.search("visual|vision|projector", name) or (name == "lm_head.weight" and model.config.tie_word_embeddings):
            continue
        value = value.flatten(0, 1) if stacked and name.endswith(STACKED) else value
        value = value.squeeze(1) if name.endswith(("conv1d.weight", "conv.conv.weight")) else value
        value = value.flatten() if name.endswith("A_log") and value.ndim != 2 else value
        fan_in = value.shape[1] if value.ndim > 1 else 0
        if value.ndim == 0:
            out.append((name, 0, 1, float(value), 0.0))
            continue
        value = value.reshape(-1, value.shape[2]) if llama4.is_expert(name) else gpt_oss.as_rows(value)
        if value.ndim == 2 and name.endswith(("q_norm.weight", "k_norm.weight")):  # each head's own
            out.append((name, *value.shape, 1.0, 0.5))
        elif value.ndim == 2:
            # a router's input is divided by fan_in; streams that grow from layer to layer round more
            reach = fan_in if "modality_router" in name else 0.25 if "altup" in name and "coefs" in name else 1.0
            out.append((name, *value.shape, 0.0, float(np.float32(2 * float(reach) / np.sqrt(float(fan_in))))))
        else:
            spread = 0.5
            is_whole = "linear_attn" in name or name.endswith("language_model.norm.weight")  # Muse Glimmer's last one
            center = 0.0 if name.endswith(("bias", "sinks")) or (counts_from_one and not is_whole) else 1.0
            center = -2.0 if name.endswith("A_log") else center
            if own.startswith(("gemma4", "gemma3n")) and name.endswith(("q_norm.weight", "k_norm.weight")):  # scores are not divided
                center, spread = 0.375, 0.25
            out.append((name, 0, value.shape[0], center, spread))
    return out


def write(name, folder):
    """The directory; returns the tensors' list."""
    config = config_of(name)
    (folder / "config.json").write_text(json.dumps(config))
    loaded = transformers.AutoConfig.from_pretrained(folder)
    tensors = tensors_of(class_of(config).from_config(loaded), config, "stacked" in name)
    state = {n: values(max(r, 1) * c, i + 1, m, s).reshape(llama4.shape(n, r, c, text_of(config))) for i, (n, r, c, m, s) in enumerate(tensors)}
    thin = {n: v.unsqueeze(1) for n, v in state.items() if n.endswith(("conv1d.weight", "conv.conv.weight"))}
    thin |= {n: v.reshape(()) for n, v in state.items() if n.endswith(SCALARS)}
    thin |= {n: v.reshape(1, 1, -1, 1) for n, v in state.items() if n.endswith("A_log") and config["model_type"] == "kimi_linear"}
    thin |= {n: v.unflatten(0, (num_experts(config), -1)) for n, v in state.items() if "stacked" in name and n.endswith(STACKED)}
    save_file(state | thin, folder / "model.safetensors", {"format": "pt"})
    return tensors


def random_bytes(count, seed, low, num):
    state, out = (seed * 0x9E3779B97F4A7C15 + 1) & MASK, np.empty(count, np.uint8 if num <= 256 else np.uint32)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        out[i] = low + (state >> 40) % num
    return out


BYTES = {"F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "I32": 4, "U32": 4, "TEXT": 1}
TORCH = {"F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "I8": torch.int8, "U8": torch.uint8, "I32": torch.int32, "U32": torch.uint32, "F32": torch.float32, "F16": torch.float16,
         "BF16": torch.bfloat16}


def quantised_values(t, seed):
    """As the file has them: bytes, or floats (of bfloat16's precision)."""
    count = max(t["rows"], 1) * t["cols"]
    if t["dtype"] == "TEXT":
        return torch.tensor(list(t["shape"].encode()), dtype=torch.uint8)
    if t["dtype"] not in BYTES:
        return values(count, seed, t["center"], t["scale"]).to(TORCH[t["dtype"]])
    if t["low"] < 0:
        return torch.tensor([t["count"]], dtype=torch.int32)
    if t["count"] <= 0:
        k = np.arange(count) * (7 if t["count"] == 0 else 1) % count
        return torch.from_numpy((k // t["low"]).astype(np.int32))
    data = random_bytes(count * BYTES[t["dtype"]], seed, t["low"], t["count"])
    if t["dtype"] == "F8_E4M3":
        data[data & 127 == 127] ^= 1  # no NaN
    return torch.from_numpy(data).view(TORCH[t["dtype"]])


HEAD_TOO = ", and the head"


def published(config, form):
    """What is quantised is no copy of the embedding, whatever its config.json says."""
    return config | ({"tie_word_embeddings": True} if form.endswith(HEAD_TOO) else {})


def is_quantised(name, rows, cols, form):
    if form == "mxfp4, blocks of experts":
        return gpt_oss.is_expert(name) and not name.endswith("bias")
    if hasattr(FORMATS[form], "is_everywhere"):
        is_product = "_proj" in name or name.endswith(("embed_tokens.weight", "lm_head.weight", "gate.weight", "router.weight"))
        return rows and cols % FORMATS[form].group == 0 and name.endswith(".weight") and is_product
    if name == "lm_head.weight":
        return form.endswith(HEAD_TOO)
    if "in_proj_ba" in name or "in_proj_a." in name or "in_proj_b." in name:
        return False  # as Qwen publishes them
    return rows and ("_proj" in name or ".w1." in name or ".w2." in name or ".w3." in name)


def write_quantised(name, form, folder):
    """The directory; returns the tensors' list, and the state that they stand for."""
    config, scheme = config_of(name, form), FORMATS[form]
    plain = {k: v for k, v in config.items() if k != "quantization_config"}
    (folder / "config.json").write_text(json.dumps(plain))
    matrices = tensors_of(class_of(plain).from_config(transformers.AutoConfig.from_pretrained(folder)), config, "stacked" in name)
    (folder / "config.json").write_text(json.dumps(published(config, form)))
    tensors, files, state = [], {}, {}
    has_stacks, num = hasattr(scheme, "stack_tensors"), num_experts(text_of(config))
    stacked = {n: llama4.numbered_entries(n, r, c, config) for n, r, c, *_ in matrices if llama4.is_expert(n) and not has_stacks}
    apart = [m for n, r, c, center, scale in matrices for m in ([(*e, center, scale) for e in stacked[n]] if n in stacked else [(n, r, c, center, scale)])]
    for n, r, c, center, scale in apart:
        is_stack, is_own = has_stacks and n.endswith(STACKED), hasattr(scheme, "plain_tensors")
        parts = scheme.stack_tensors(n, num, r // num, c) if is_stack else scheme.tensors(r, c) if is_quantised(n, r, c, form) else scheme.plain_tensors(
            n, r, c, center, scale, config) if is_own else [{"suffix": "", "dtype": "BF16", "rows": r, "cols": c, "low": 0, "count": 0, "center": center, "scale": scale, **({"shape": [r, 1, c]} if n.endswith("conv1d.weight") else {})}]
        data = {}
        for part in parts:
            own = n.removesuffix("weight") + part["suffix"] if part["suffix"] else n
            for old, new in getattr(scheme, "renames", {}).items():
                own = own.replace(old, new)
            tensors.append({**part, "name": own})
            value = quantised_values(part, len(tensors))
            files[own] = value if part["dtype"] == "TEXT" else value.reshape(part["shape"] if "shape" in part else (part["rows"], part["cols"]) if part["rows"] else (part["cols"],))
            data[part["suffix"]] = value.float().numpy() if part["dtype"] not in BYTES else value.view(torch.uint8).numpy()
        weights = scheme.stack_weights(n, num, r // num, c, data) if is_stack else scheme.weights(r, c, data) if is_quantised(n, r, c, form) else scheme.plain_weights(
            n, r, c, center, data, config) if is_own else None
        state[n] = files[n].float() if weights is None else torch.from_numpy(np.ascontiguousarray(weights, np.float32))
    save_file(files, folder / "model.safetensors", {"format": "pt"})
    for n, entries in stacked.items():
        state[n] = llama4.join_numbered([state.pop(e[0]) for e in entries], config)
    return tensors, state


def quantised_logits(name, form, state):
    """Of the unpacked weights in float32."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = {k: v for k, v in config_of(name, form).items() if k != "quantization_config"}
        (folder / "config.json").write_text(json.dumps(config))
        save_file({n: gpt_oss.in_memory(n, v, config).contiguous() for n, v in state.items()}, folder / "model.safetensors", {"format": "pt"})
        return logits_of(folder)


def unpacked_by_bitsandbytes(files, name):
    import bitsandbytes

    if files[name].dtype == torch.int8:
        return bitsandbytes.functional.int8_vectorwise_dequant(files[name], files[name.removesuffix("weight") + "SCB"])
    own = {n.removeprefix(name + "."): v for n, v in files.items() if n.startswith(name + ".")}
    return bitsandbytes.functional.dequantize_4bit(files[name], bitsandbytes.functional.QuantState.from_dict(own, torch.device("cpu")))


def compare_with_bitsandbytes(folder, form, state):
    """It has what codes of four bits stand for in its code, so the files' tables become those."""
    from bitsandbytes.functional import get_4bit_type

    files = load_file(folder / "model.safetensors")
    names = [n for n in state if n in files and files[n].dtype in (torch.uint8, torch.int8)]
    for n in (n for n in names if files[n].dtype == torch.uint8):
        files[f"{n}.quant_map"] = get_4bit_type(FORMATS[form].kind, device="cpu")
        data = {k.removeprefix(n.removesuffix("weight")): v.numpy() for k, v in files.items() if k.startswith(n)}
        state[n] = torch.from_numpy(FORMATS[form].weights(*state[n].shape, data))
    differences = [(unpacked_by_bitsandbytes(files, n).float() - state[n]).abs().max().item() / state[n].abs().max().item() for n in names]
    print(f"{len(names)} of {len(state)} tensors, unpacked by bitsandbytes: differ by {max(differences):.2g} of the largest weight")


def compare_with_bitnet(folder):
    """Its own classes compute with the packed weights, with activations of 8 bits and without."""
    from transformers.integrations import bitnet

    stored = np.load(folder / "logits.npz")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    torch.nn.Module.float(model)  # it has kept scales and norms in BF16
    for module in model.modules():
        if isinstance(module, bitnet.BitLinear):
            module.dtype = torch.float32
    for kind in ("quantised activations", "plain ones"):
        with torch.no_grad():
            off = np.abs(model(torch.tensor([stored["ids"].tolist()])).logits[0].numpy() - stored["logits"])
        print(f"transformers' own products, {kind}: differ by up to {off.max():.2g}, in the middle of all positions by {np.median(off.max(1)):.2g}")
        bitnet.ActQuant.forward = staticmethod(lambda _, x: x)
        bitnet.BitLinear.activation_quant = lambda _, x: (x, torch.ones(1))


def compare_with_mlx(folder, form, state):
    """Its values are of the scales' type, and each step to them is rounded to that."""
    import mlx.core as mx

    files, own = mx.load(str(folder / "model.safetensors")), FORMATS[form].config
    differences = []
    for n in (n for n in state if n.removesuffix("weight") + "scales" in files):
        base = n.removesuffix("weight")
        theirs = mx.dequantize(files[n], files[base + "scales"], files.get(base + "biases"), own["group_size"], own["bits"], own["mode"],
                               files.get(base + "global_scale"))
        differences.append(np.abs(np.array(theirs.astype(mx.float32)) - state[n].numpy()).max() / state[n].abs().max().item())
    print(f"{len(differences)} of {len(state)} tensors, unpacked by mlx: differ by {max(differences):.2g} of the largest weight")


def compare_unpacked(folder, form, state):
    """What the packages make of the quantised directory."""
    if form.startswith("mlx"):
        return compare_with_mlx(folder, form, state)
    if form.startswith("bitnet"):
        return compare_with_bitnet(folder)
    if json.loads((folder / "config.json").read_text())["quantization_config"]["quant_method"] == "bitsandbytes":
        return compare_with_bitsandbytes(folder, form, state)
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    own = transformers.CompressedTensorsConfig(run_compressed=False) if config["quant_method"] == "compressed-tensors" else transformers.FineGrainedFP8Config(
        dequantize=True)
    files = load_file(folder / "model.safetensors")
    shapes = {n.replace("packed", "shape"): torch.tensor(state[n.replace("weight_packed", "weight")].shape) for n in files if "weight_packed" in n}
    save_file(files | shapes, folder / "model.safetensors", {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=own)
    theirs = model.state_dict()
    differences = [(theirs[n].float() - v).abs().max().item() / v.abs().max().item() for n, v in state.items() if n in theirs]
    print(f"{len(differences)} of {len(state)} tensors, unpacked by transformers: differ by {max(differences):.2g} of the largest weight")


def logits_of(folder):
    """Loaded as float32: a model that is converted when it is in memory has rounded frequencies of rotation."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    own = class_of(config)
    adds_twice = config["model_type"] == "falcon" and config["alibi"]  # what scores lose, if eager
    model = own.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa" if adds_twice else "eager").eval()
    ids = [(i * 37 + 11) % VOCAB for i in range(NUM_TOKENS)]
    with torch.no_grad():
        own = early.alibi_inputs(config, NUM_TOKENS) if config["model_type"] == "llama" and config.get("alibi") else {}
        return ids, model(torch.tensor([ids]), **own).logits[0].numpy()


def floats(array):
    return ", ".join(re.sub(r"\.?0+p", "p", float(v).hex()) + "f" for v in array)


def c_text(text):
    return '"' + text.replace('"', '\\"') + '"'


def key_values(config, own):
    config = text_of(config)
    known = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config.get("intermediate_size"),
        "block_count": config.get("num_hidden_layers"),
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config.get("num_key_value_heads"),
        "attention.key_length": config.get("head_dim"),
        "attention.value_length": config.get("head_dim"),
        "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps"),
    }
    return {**{k: v for k, v in known.items() if v is not None}, **own}


def full_key(architecture, key):
    return key if key.startswith("xielu.") else f"{architecture}.{key}"


def gguf_keys(name, config):
    architecture, own = CASES[name][1]
    keys = key_values(config, own)
    entries = [f'{{"general.architecture", .text = "{architecture}"}}']
    for key, value in keys.items():
        if isinstance(value, list) and not isinstance(value[0], int) and not key.endswith("sparsity_scale") and "xielu" not in key:
            continue
        field = f'.list = "{" ".join(str(v if isinstance(v, float) else int(v)) for v in value)}"' if isinstance(value, list) else ".text = " + c_text(value) if isinstance(value, str) else ".boolean = true" if value is True else ".is_false = true" if value is False else f".real = {value!r}" if isinstance(value, float) else f".integer = {value}"
        entries.append(f'{{"{full_key(architecture, key)}", {field}}}')
    return entries


def heads_to_permute(name, config, architecture):
    """The converter reorders rows of Q and K of the architectures that are rotated in pairs."""
    if architecture not in ("llama", "olmo", "granite", "smollm3", "mistral3", "arcee", "minicpm", "internlm2", "deci", "xverse", "baichuan"):
        return 0
    config = text_of(config)
    if architecture == "deci" and ".k_proj" in name:
        return decilm.kv_heads(config, int(name.split(".")[2]))
    return config["num_attention_heads"] if ".q_proj" in name else config["num_key_value_heads"] if ".k_proj" in name else 0


def thin(name, rows, cols, config):
    """Type, range and shape of one that has a dimension more."""
    if name.endswith(STACKED):
        num = num_experts(config)
        return f'"BF16", 0, 0, "{num}, {rows // num}, {cols}"'
    if name.endswith(SCALARS):
        return '"BF16", 0, 0, ""'
    if name.endswith("A_log") and config["model_type"] == "kimi_linear":
        return f'"BF16", 0, 0, "1, 1, {cols}, 1"'
    return f'"BF16", 0, 0, "{rows}, 1, {cols}"' if name.endswith(("conv1d.weight", "conv.conv.weight")) else "NULL, 0, 0, NULL"


def case(index, name):
    config = config_of(name)
    with tempfile.TemporaryDirectory() as folder:
        tensors = write(name, pathlib.Path(folder))
        _, logits = logits_of(folder)
    architecture = CASES[name][1][0] if CASES[name][1] else None
    post = architecture in ("glm4moe", "seed_oss") or any(re.search("post_feedforward|pre_mlp", t[0]) for t in tensors)
    out = [f"static const struct family_tensor family_tensors_{index}[] = {{\n"]
    for n, r, c, center, scale in tensors:
        g = c_text(gguf_name(n, post)) if architecture and gguf_name(n, post) else "NULL"
        permuted = heads_to_permute(n, config, architecture)
        form = f'"BF16", 0, 0, "{", ".join(map(str, llama4.shape(n, r, c, text_of(config))))}"' if llama4.is_expert(n) else thin(n, r, c, config)
        out.append(f"    {{{c_text(n)}, {g}, {r}, {c}, {float(center).hex()}f, {float(scale).hex()}f, {permuted}, {form}}},\n")
    if architecture == "gemma4":  # divisors of the rotation of layers without a window
        rope = config["rope_parameters"]["full_attention"]
        out.append(f'    {{NULL, "rope_freqs.weight", 0, {config["global_head_dim"] // 2}, {float(rope["factor"]).hex()}f, 0x0.0p+0f, 0, NULL, 0, 0, NULL}},\n')
    out.append("};\n")
    if architecture:
        out.append(f"static const struct family_key family_keys_{index}[] = {{\n    " + ",\n    ".join(gguf_keys(name, config)) + ",\n};\n")
    keys = f".keys = family_keys_{index}, .num_keys = array_length(family_keys_{index}), " if architecture else ""
    row = golden_row(name, config, f"family_tensors_{index}", keys, logits)
    print(f"{name}: logits up to {np.abs(logits).max():.2f}")
    return "".join(out), row


def write_renamed(name, folder):
    """A directory with the tensors, and in known/ that of a class that transformers has; returns the tensors' list."""
    config, own = config_of(name), RENAMED[name]
    inner = folder / "known"
    inner.mkdir()
    (inner / "config.json").write_text(json.dumps(own.known(config)))
    (folder / "config.json").write_text(json.dumps(config))
    published = tensors_of(AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(inner)), own.known(config))
    tensors, files, state = [], {}, {}
    for n, r, c, center, scale in published:
        entry = own.entry(n, r, c, config)
        if not entry:
            continue
        own_name, rows, cols = entry
        tensors.append((*entry, center, scale))
        value = values(max(rows, 1) * cols, len(tensors), center, scale).reshape((rows, cols) if rows else (cols,))
        files[own_name] = value
        state |= own.split(n, value, config)
    save_file(files, folder / "model.safetensors", {"format": "pt"})
    save_file(state, inner / "model.safetensors", {"format": "pt"})
    return tensors


def renamed_case(index, name):
    with tempfile.TemporaryDirectory() as folder:
        tensors = write_renamed(name, pathlib.Path(folder))
        _, logits = logits_of(pathlib.Path(folder) / "known")
    places = (lambda n: f"NULL, {n}") if CASES[name][1] else (lambda n: f"{n}, NULL")
    rows = "".join(f"    {{{places(c_text(n))}, {r}, {c}, {float(center).hex()}f, {float(scale).hex()}f, 0, NULL, 0, 0, NULL}},\n" for n, r, c, center, scale in tensors)
    print(f"{name}: logits up to {np.abs(logits).max():.2f}")
    out, keys = f"static const struct family_tensor family_tensors_{index}[] = {{\n{rows}}};\n", ""
    if CASES[name][1]:
        out += f"static const struct family_key family_keys_{index}[] = {{\n    " + ",\n    ".join(gguf_keys(name, config_of(name))) + ",\n};\n"
        keys = f".keys = family_keys_{index}, .num_keys = array_length(family_keys_{index}), "
    return out, golden_row(name, config_of(name), f"family_tensors_{index}", keys, logits)


def hybrid_tensors(own, config):
    """As gguf_tensors."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        published = tensors_of(AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder)), config)
    tensors, data, state = [], [], {}
    for n, rows, c, center, scale in published:
        center, scale = own.range_of(n, center, scale)
        parts = []
        for gguf, r in own.entries(n, rows, config):
            r, cols, kind = own.form(n, r, c, config)
            data.append(values(max(r, 1) * cols, len(tensors) + 1, center, scale))
            tensors.append((gguf or gguf_name(n, False), r, cols, center, scale, kind, 0, 0))
            parts.append(data[-1].float().reshape((r, cols) if r else (cols,)))
        state[n] = own.join(n, parts, config)
    return tensors, data, state


def latent_tensors(published, config):
    """As gguf_tensors."""
    tensors, data, state = [], [], {}
    for n, r, c, center, scale in published:
        parts = []
        for own, rows, cols in deepseek.gguf_entries(n, r, c, config, gguf_name(n, False)):
            data.append(values(max(rows, 1) * cols, len(tensors) + 1, center, scale))
            tensors.append((own, rows, cols, center, scale, None, 0, 0))
            parts.append(data[-1].float().reshape((rows, cols) if rows else (cols,)))
        state[n] = deepseek.join(parts, config)
    return tensors, data, state


def gguf_tensors(name):
    """(name or None, GGUF's name, rows, cols, center, scale, type, low, count), what they hold, and what transformers makes of that."""
    config, own = config_of(name), GGUF_ONLY[name]
    if own in HYBRIDS:
        return hybrid_tensors(own, config)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        published = tensors_of(AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder)), config)
    if own is deepseek:
        return latent_tensors(published, config)
    tensors, data, state = [], [], {}
    for n, r, c, center, scale in published:
        entries = own.gguf_entries(n, r, c, config) if own.is_expert(n) else [(gguf_name(n, own is gpt_oss), r, c, None)]
        parts = []
        for gguf, rows, cols, kind in entries:
            seed, (low, count) = len(tensors) + 1, gpt_oss.scale_range(cols) if kind == "MXFP4" else (0, 0)
            tensors.append((gguf, rows, cols, center, scale, kind, low, count))
            data.append(mxfp4_bytes(rows * cols // 32, seed, low, count) if kind == "MXFP4" else values(max(rows, 1) * cols, seed, center, scale))
            parts.append(gpt_oss.unpack_gguf(data[-1], rows, cols) if kind == "MXFP4" else data[-1].float().reshape((rows, cols) if rows else (cols,)))
        state[n] = llama4.join(parts, config) if llama4.is_expert(n) else gpt_oss.join(parts, n.endswith("_bias"))
    return tensors, data, state


def mxfp4_bytes(num_blocks, seed, low, num):
    data = random_bytes(num_blocks * gpt_oss.BLOCK_BYTES, seed, 0, 1 << 24).reshape(num_blocks, -1)
    out = data.astype(np.uint8)
    out[:, 0] = low + data[:, 0] % num
    return out.reshape(-1)


def gguf_case(index, name):
    """A GGUF file alone: what a checkpoint has is among the quantised ones."""
    tensors, _, state = gguf_tensors(name)
    _, logits = quantised_logits(name, None, state)
    out = [f"static const struct family_tensor family_tensors_{index}[] = {{\n"]
    for gguf, rows, cols, center, scale, kind, low, count in tensors:
        own = c_text(kind) if kind else "NULL"
        out.append(f"    {{NULL, {c_text(gguf)}, {rows}, {cols}, {float(center).hex()}f, {float(scale).hex()}f, 0, {own}, {low}, {count}, NULL}},\n")
    config = config_of(name)
    out.append(f"}};\nstatic const struct family_key family_keys_{index}[] = {{\n    " + ",\n    ".join(gguf_keys(name, config)) + ",\n};\n")
    keys = f".keys = family_keys_{index}, .num_keys = array_length(family_keys_{index}), "
    print(f"{name}: logits up to {np.abs(logits).max():.2f}")
    return "".join(out), golden_row(name, config, f"family_tensors_{index}", keys, logits)


def quantised_case(index, name, form):
    with tempfile.TemporaryDirectory() as folder:
        tensors, state = write_quantised(name, form, pathlib.Path(folder))
    _, logits = quantised_logits(name, form, state)
    out = [f"static const struct family_tensor quantised_tensors_{index}[] = {{\n"]
    for t in tensors:
        out.append(f"    {{{c_text(t['name'])}, NULL, {t['rows']}, {t['cols']}, {t['center'].hex()}f, {t['scale'].hex()}f, 0, "
                   f"{c_text(t['dtype'])}, {t['low']}, {t['count']}, {c_text(t['shape'] if t['dtype'] == 'TEXT' else ', '.join(map(str, t['shape']))) if 'shape' in t else 'NULL'}}},\n")
    title = f"{name.split(',')[0]}: {form}"
    print(f"{title}: logits up to {np.abs(logits).max():.2f}")
    return "".join(out) + "};\n", golden_row(title, published(config_of(name, form), form), f"quantised_tensors_{index}", "", logits)


def golden_row(name, config, tensors, keys, logits):
    picked = [logits[p, p * 29 % VOCAB] for p in range(NUM_TOKENS)]
    return (
        f"    {{.name = {c_text(name)},\n     .config = {c_text(json.dumps(config))},\n"
        f"     .tensors = {tensors}, .num_tensors = array_length({tensors}), {keys}\n"
        f"     .norm_offset = {int(text_of(config)['model_type'].startswith(('gemma', 'nemotron')) and not text_of(config)['model_type'].startswith(('gemma4', 'gemma3n', 'nemotron_h', 'nemotron-nas')))},\n"
        f"     .picked = {{{floats(picked)}}},\n     .whole = {{{floats(logits[WHOLE_POSITIONS].flatten())}}}}},\n"
    )


def write_quantised_header():
    parts, rows = zip(*(quantised_case(i, *case) for i, case in enumerate(QUANTISED)))
    with open(QUANTISED_HEADER, "w", encoding="utf-8") as out:
        out.write(f"/* quantised_goldens.h - made by make_model.py with transformers {transformers.__version__}, torch {torch.__version__}. */\n")
        out.write("/* clang-format off */\n#ifndef TESTS_UNIT_MODEL_QUANTISED_GOLDENS_H\n#define TESTS_UNIT_MODEL_QUANTISED_GOLDENS_H\n\n")
        out.write('#include "family_files.h"\n\n' + "".join(parts))
        out.write("\nstatic const struct family_golden quantised_goldens[] = {\n" + "".join(rows) + "};\n\n#endif\n")


def maker_of(name):
    return gguf_case if name in GGUF_ONLY else renamed_case if name in RENAMED else case


def write_header():
    parts, rows = zip(*(maker_of(name)(i, name) for i, name in enumerate(CASES)))
    with open(HEADER, "w", encoding="utf-8") as out:
        out.write(f"/* family_goldens.h - made by make_model.py with transformers {transformers.__version__}, torch {torch.__version__}. */\n")
        out.write("/* clang-format off */\n#ifndef TESTS_UNIT_MODEL_FAMILY_GOLDENS_H\n#define TESTS_UNIT_MODEL_FAMILY_GOLDENS_H\n\n")
        out.write('#include "family_files.h"\n\n')
        out.write("static const int family_positions[FAMILY_WHOLE] = {%s};\n\n" % ", ".join(map(str, WHOLE_POSITIONS)))
        out.write("".join(parts))
        out.write("\nstatic const struct family_golden family_goldens[] = {\n" + "".join(rows) + "};\n\n#endif\n")


def gguf_values(name, config, architecture, value):
    heads = heads_to_permute(name, config, architecture)
    value = value.float()
    if name.endswith("conv.conv.weight"):
        return value.squeeze(1).numpy()
    if value.ndim == 1:
        return (value + int(architecture.startswith(("gemma", "nemotron")) and architecture not in ("gemma4", "gemma3n") and not name.endswith("bias"))).numpy()
    if heads:
        value = value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
    return value.numpy()


def add_tensors(writer, name, folder, config):
    architecture, state = CASES[name][1][0], load_file(folder / "model.safetensors")
    post = architecture in ("glm4moe", "seed_oss") or any(re.search("post_feedforward|pre_mlp", n) for n in state)
    tensors = {}
    for n, v in sorted(state.items()):
        if gguf_name(n, post):
            tensors.setdefault(gguf_name(n, post), []).append(gguf_values(n, config, architecture, v))
    if architecture == "gemma4":
        half, rope = config["global_head_dim"] // 2, config["rope_parameters"]["full_attention"]
        turning = int(half * rope["partial_rotary_factor"])
        writer.add_tensor("rope_freqs.weight", np.array([rope.get("factor", 1.0)] * turning + [1e30] * (half - turning), np.float32))
    for n, values in tensors.items():
        writer.add_tensor(n, np.stack(values) if len(values) > 1 else values[0])


def add_stacked(writer, tensors, data, own_shapes=()):
    """Those of one name as one."""
    stacks = {}
    for (own, rows, cols, *_), value in zip(tensors, data):
        is_matrix = rows > 0 and not own.endswith("ffn_gate_inp_shexp.weight")
        stacks.setdefault(own, []).append(value.float().numpy().reshape((rows, cols) if is_matrix else (cols,)))
    for own, stack in stacks.items():
        writer.add_tensor(own, own_shapes[own] if own in own_shapes else np.stack(stack) if "_exps" in own else stack[0])


def add_gguf_tensors(writer, name, config):
    import gguf

    tensors, data, _ = gguf_tensors(name)
    if GGUF_ONLY[name] is deepseek:
        heads = config["num_attention_heads"]
        split = [v.float().reshape(heads, -1, t[2]) if t[0].endswith(("k_b.weight", "v_b.weight")) else v for t, v in zip(tensors, data)]
        return add_stacked(writer, tensors, data, {t[0]: v.numpy() for t, v in zip(tensors, split) if v.ndim == 3})
    if GGUF_ONLY[name] in HYBRIDS:
        shapes = {t[0]: GGUF_ONLY[name].shape(*t[:3], config) for t in tensors} if GGUF_ONLY[name] is kimi_linear else {}
        return add_stacked(writer, tensors, data, {t[0]: v.float().numpy().reshape(shapes[t[0]]) for t, v in zip(tensors, data) if shapes.get(t[0])})
    num = config["num_local_experts"]
    for (own, rows, cols, _, _, kind, _, _), value in zip(tensors, data):
        if kind == "MXFP4":
            shape = (num, rows // num, cols // gpt_oss.BLOCK * gpt_oss.BLOCK_BYTES)
            writer.add_tensor(own, value.reshape(shape), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        else:
            shape = (num, rows // num, cols) if "_exps.weight" in own else (rows, cols) if rows else (cols,)
            writer.add_tensor(own, value.float().numpy().reshape(shape))


def write_gguf(name, folder):
    """As F32, with a vocabulary of made-up pieces, so that llama.cpp takes it."""
    import gguf

    config, (architecture, own) = config_of(name), CASES[name][1]
    writer = gguf.GGUFWriter(folder / "m.gguf", architecture)
    for key, value in key_values(config, own).items():
        add = {str: writer.add_string, bool: writer.add_bool, float: writer.add_float32, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(full_key(architecture, key), value)
    writer.add_uint32(f"{architecture}.vocab_size", VOCAB)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([1] * VOCAB)
    if name in GGUF_ONLY:
        add_gguf_tensors(writer, name, config)
    elif name in RENAMED:  # by names of their own already
        for n, v in load_file(folder / "model.safetensors").items():
            writer.add_tensor(n, v.float().numpy())
    else:
        add_tensors(writer, name, folder, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare_with_llama(folder):
    from llama_cpp import Llama

    model = Llama(str(folder / "m.gguf"), n_ctx=512, n_batch=512, n_ubatch=512, logits_all=True, type_k=0, type_v=0, flash_attn=False, verbose=False)
    stored = np.load(folder / "logits.npz")
    model.eval(stored["ids"].tolist())
    print(f"llama.cpp differs by {np.abs(model.scores[:NUM_TOKENS, :VOCAB] - stored['logits']).max():.2g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("family", nargs="?", choices=list(CASES))
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("format", nargs="?", choices=list(FORMATS))
    parser.add_argument("--header", action="store_true")
    parser.add_argument("--quantised-header", action="store_true", help="quantised_goldens.h alone")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--llama", action="store_true")
    o = parser.parse_args()
    if o.header or o.quantised_header:
        write_quantised_header()
        return write_header() if o.header else None
    if not o.folder:
        parser.error("a family and a folder are expected, or --header")
    o.folder.mkdir(parents=True, exist_ok=True)
    if o.format:
        _, state = write_quantised(o.family, o.format, o.folder)
        ids, logits = quantised_logits(o.family, o.format, state)
        np.savez_compressed(o.folder / "logits.npz", ids=np.array(ids, np.int32), logits=logits)
        return compare_unpacked(o.folder, o.format, state) if o.compare else None
    if o.family in GGUF_ONLY:
        ids, logits = quantised_logits(o.family, None, gguf_tensors(o.family)[2])
    elif o.family in RENAMED:
        write_renamed(o.family, o.folder)
        ids, logits = logits_of(o.folder / "known")
    else:
        write(o.family, o.folder)
        ids, logits = logits_of(o.folder)
    np.savez_compressed(o.folder / "logits.npz", ids=np.array(ids, np.int32), logits=logits)
    if CASES[o.family][1]:
        write_gguf(o.family, o.folder)
    if o.llama:
        compare_with_llama(o.folder)


if __name__ == "__main__":
    main()
