"""make_rope_goldens.py - writes rope_goldens.h: what transformers computes for config.json files of each rotation type.

Run by hand with transformers installed; the header is kept in the repository and says which version made it.
"""
import json
import re

import torch
import transformers
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

CASES = {
    "default": (64, 8192, {"rope_type": "default", "rope_theta": 100000.0}),
    "linear": (64, 4096, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "llama3": (
        128,
        131072,
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "yarn": (
        128,
        131072,
        {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    "yarn with everything": (
        64,
        65536,
        {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 24.0,
            "beta_slow": 2.0,
            "mscale": 0.8,
            "mscale_all_dim": 0.5,
            "truncate": False,
        },
    ),
    "yarn with attention_factor": (
        32,
        16384,
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 2.0,
            "original_max_position_embeddings": 8192,
            "attention_factor": 1.25,
        },
    ),
}
POSITIONS = [0, 1, 7, 100, 4095]


def config_text(head_dim, positions, rope):
    return json.dumps(
        {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": head_dim,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "vocab_size": 32,
            "max_position_embeddings": positions,
            "rope_parameters": rope,
        }
    )


def floats(values):
    return ", ".join(re.sub(r"\.?0+p", "p", float(v).hex()) + "f" for v in values)


def case(name, head_dim, positions, rope):
    config = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, max_position_embeddings=positions, rope_parameters=rope)
    embedding = LlamaRotaryEmbedding(config)
    cos, sin = embedding(torch.zeros(1, dtype=torch.float32), torch.tensor([POSITIONS]))
    half = head_dim // 2
    pairs = torch.stack([cos[0, :, :half], sin[0, :, :half]], dim=-1).flatten()
    text = config_text(head_dim, positions, rope).replace('"', '\\"')
    return (
        f'    {{.name = "{name}",\n     .config = "{text}",\n     .num_frequencies = {half},\n'
        f"     .frequencies = {{{floats(embedding.inv_freq)}}},\n     .cos_sin = {{{floats(pairs)}}}}},\n"
    )


with open(__file__.replace("make_rope_goldens.py", "rope_goldens.h"), "w") as out:
    out.write(f"/* rope_goldens.h - made by make_rope_goldens.py with transformers {transformers.__version__}, ")
    out.write(f"torch {torch.__version__}. */\n/* clang-format off */\n#ifndef TESTS_UNIT_MODEL_ROPE_GOLDENS_H\n")
    out.write("#define TESTS_UNIT_MODEL_ROPE_GOLDENS_H\n\nenum { GOLDEN_POSITIONS = %d };\n" % len(POSITIONS))
    out.write("static const int golden_positions[GOLDEN_POSITIONS] = {%s};\n\n" % ", ".join(map(str, POSITIONS)))
    out.write("static const struct rope_golden {\n    const char *name, *config;\n    int num_frequencies;\n")
    out.write("    float frequencies[64];\n    float cos_sin[GOLDEN_POSITIONS * 64 * 2];\n} rope_goldens[] = {\n")
    for name, arguments in CASES.items():
        out.write(case(name, *arguments))
    out.write("};\n\n#endif\n")
