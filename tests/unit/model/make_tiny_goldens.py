"""make_tiny_goldens.py - writes tiny_goldens.h: logits of very small models of each family, by transformers in float32.

The weights are those of tiny_model.h (same generator, same order), so nothing but the logits is stored. Run by hand with
torch and transformers installed; the header says which versions made it.
"""
import json
import re

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, VOCAB = 64, 96, 2, 4, 2, 96
NUM_TOKENS = 80
POSITIONS = [0, 1, 17, 40, 79]
MASK = (1 << 64) - 1

BASE = {
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
CASES = {
    "llama, llama3 rotation, tied": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "llama, all biases of attention": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": True,
        "rope_theta": 500.0,
    },
    "mistral, sliding window, yarn rotation": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": 21,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 64,
        },
    },
    "qwen2, linear rotation": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
    },
    "qwen3, wide heads, tied": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
}


def values(count, seed, center, scale):
    state, out = (seed * 0x9E3779B97F4A7C15 + 1) & MASK, np.empty(count, np.float32)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        out[i] = np.float32(center) + np.float32((state >> 40) - (1 << 23)) * np.float32(2.0**-23) * np.float32(scale)
    return torch.from_numpy(out).to(torch.bfloat16).float()


def fill(model, config):
    """In the order of tiny_model.h."""
    state, seed = model.state_dict(), 0

    def put(name):
        nonlocal seed
        seed += 1
        shape = state[name].shape
        if len(shape) == 2:
            center, scale = 0, 2 / np.sqrt(float(shape[1]))
        else:
            center, scale = (0 if name.endswith("bias") else 1), 0.5
        state[name].copy_(values(state[name].numel(), seed, center, scale).reshape(shape))

    put("model.embed_tokens.weight")
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        names = ["input_layernorm.weight"] + [f"self_attn.{p}_proj.weight" for p in "qkvo"]
        names += [f"self_attn.{p}_proj.bias" for p in "qkvo"] + ["self_attn.q_norm.weight", "self_attn.k_norm.weight"]
        names += ["post_attention_layernorm.weight"] + [f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")]
        for name in names:
            if layer + name in state:
                put(layer + name)
    put("model.norm.weight")
    if not config.get("tie_word_embeddings", False):
        put("lm_head.weight")


def floats(array):
    return ", ".join(re.sub(r"\.?0+p", "p", float(v).hex()) + "f" for v in array)


def case(name, extra):
    config = {**BASE, **extra}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), attn_implementation="eager").float().eval()
    with torch.no_grad():
        fill(model, config)
        ids = torch.tensor([[(i * 37 + 11) % VOCAB for i in range(NUM_TOKENS)]])
        logits = model(ids).logits[0, POSITIONS].numpy()
    state = model.state_dict()
    flags = {
        "qkv_bias": "model.layers.0.self_attn.q_proj.bias" in state,
        "o_bias": "model.layers.0.self_attn.o_proj.bias" in state,
        "qk_norm": "model.layers.0.self_attn.q_norm.weight" in state,
        "tied": config.get("tie_word_embeddings", False),
    }
    text = json.dumps(config).replace('"', '\\"')
    flag_text = ", ".join(f".{flag} = {str(bool(value)).lower()}" for flag, value in flags.items())
    return (
        f'    {{.name = "{name}",\n     .model = {{.config = "{text}",\n'
        f'               .head_dim = {config.get("head_dim", HIDDEN // HEADS)}, {flag_text}, .prefix = "model."}},\n'
        f"     .logits = {{{floats(logits.flatten())}}}}},\n"
    )


with open(__file__.replace("make_tiny_goldens.py", "tiny_goldens.h"), "w") as out:
    out.write(f"/* tiny_goldens.h - made by make_tiny_goldens.py with transformers {transformers.__version__}, ")
    out.write(f"torch {torch.__version__}. */\n/* clang-format off */\n#ifndef TESTS_UNIT_MODEL_TINY_GOLDENS_H\n")
    out.write('#define TESTS_UNIT_MODEL_TINY_GOLDENS_H\n\n#include "tiny_model.h"\n\n')
    out.write("enum { TINY_TOKENS = %d, TINY_POSITIONS = %d };\n" % (NUM_TOKENS, len(POSITIONS)))
    out.write("static const int tiny_positions[TINY_POSITIONS] = {%s};\n\n" % ", ".join(map(str, POSITIONS)))
    out.write("static const struct tiny_golden {\n    const char *name;\n    struct tiny_model model;\n")
    out.write("    float logits[TINY_POSITIONS * TINY_VOCAB];\n} tiny_goldens[] = {\n")
    for case_name, case_config in CASES.items():
        out.write(case(case_name, case_config))
    out.write("};\n\n#endif\n")
