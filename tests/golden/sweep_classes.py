"""sweep_classes.py - every class of transformers that makes text, as a small random model: does it load here, and are its logits the same?

    sweep_classes.py [TYPE ...] [--fields]

Prints a line for each model_type of transformers' own list: "agrees" and the largest difference of a logit by the largest logit, "DIFFERS",
"refused" and the sentence, or "none" and what keeps transformers from making a small one. --fields: of those that agree the rotation and each
truth, number and absent value of the configuration are changed by themselves, too, and a line is printed where that is refused or differs. What a
class ignores has to be ignored here. With torch and transformers, and build/tests/golden/logits; run by hand.

Known to differ: rms_norm_eps of DeepSeek's kind, whose classes have 1e-6 in the norms of latents whatever it says (vLLM and llama.cpp have it
there, too); time_step_min of Nemotron-H, which its class takes for a bound of steps (vLLM and its makers' class do not); one choice in a hundred
between two experts that are almost equal.
"""
import argparse
import pathlib
import re
import subprocess
import tempfile
import warnings

import numpy as np
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build/tests/golden/logits"
VOCAB, NUM_TOKENS, SAME, SMALL_PARAMETERS = 96, 100, 1e-3, 5_000_000
# What makes a model small, under each name that a class has for it.
SMALL = {
    64: "hidden_size d_model n_embd dim n_embed embedding_size",
    96: "intermediate_size n_inner ffn_dim moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size ffn_hidden_size "
        "shared_intermediate_size moe_shared_expert_intermediate_size prefix_dense_intermediate_size dense_intermediate_size vocab_size",
    4: "num_hidden_layers n_layer n_layers num_layers num_attention_heads n_head n_heads num_decoder_layers decoder_layers decoder_attention_heads",
    2: "num_key_value_heads num_kv_heads num_experts_per_tok moe_k moe_topk top_k_experts num_experts_per_token linear_num_key_heads mamba_n_groups n_groups",
    6: "num_experts num_local_experts n_routed_experts moe_num_experts",
    512: "max_position_embeddings n_positions max_seq_len n_ctx",
    16: "head_dim kv_channels qk_rope_head_dim v_head_dim linear_key_head_dim linear_value_head_dim mamba_d_state state_size ssm_state_size",
    24: "kv_lora_rank q_lora_rank qk_nope_head_dim",
    40: "sliding_window sliding_window_size attention_chunk_size window_size",
    1: "first_k_dense_replace n_group topk_group n_shared_experts moe_layer_start_index",
}
SIZES = {name: value for value, names in SMALL.items() for name in names.split()}
LATENTS = ("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "longcat_flash", "minicpm3", "sarvam_mla")
OWN = {
    **{t: {"num_key_value_heads": 4} for t in LATENTS},
    "youtu": {"num_key_value_heads": 4, "pad_token_id": None},  # whose row transformers clears when it loads
    **{t: {"head_dim": 16} for t in ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral")},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 16},
    "codegen": {"rotary_dim": 8},
    "deepseek_v2": {"num_key_value_heads": 4, "num_experts_per_tok": 2},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 6, "num_experts_per_tok": 2},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128},
    "gemma3n_text": {"num_kv_shared_layers": 1, "vocab_size_per_layer_input": 96},
    "gemma4_text": {"vocab_size_per_layer_input": 96, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "kimi_linear": {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "num_key_value_heads": 4, "linear_attn_config": {"head_dim": 16, "num_heads": 4, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 3], "full_attn_layers": [4]}},
    "llama4_text": {"intermediate_size_mlp": 96, "num_experts_per_tok": 1},
    "longcat_flash": {"num_layers": 2, "num_key_value_heads": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "mimo_v2_flash": {"head_dim": 32, "swa_head_dim": 32, "v_head_dim": 16, "swa_v_head_dim": 16},
    "minimax_m2": {"rotary_dim": 8},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 16},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 16, "time_step_min": 1e-9, "layers_block_type": ["mamba", "moe", "attention", "mlp"]},
}


def small_config(model_type, changes):
    default = transformers.AutoConfig.for_model(model_type)
    fields = default.to_dict()
    own = {k: v for k, v in SIZES.items() if fields.get(k, fields.get(default.attribute_map.get(k))) is not None}
    lists = {k: v[:4] for k, v in fields.items() if isinstance(v, list) and len(v) == fields.get("num_hidden_layers")}
    tokens = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
    return transformers.AutoConfig.for_model(model_type, **{**own, **lists, **tokens, **OWN.get(model_type, {}), **changes})


def randomise(model):
    """So that every weight is seen in the logits, those that begin as zeros or ones, too."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(1.5 * noise / p.shape[-1] ** 0.5 if p.ndim >= 2 else p + 0.2 * noise)


def reference(config, folder):
    with torch.device("meta"):
        if sum(p.numel() for p in transformers.AutoModelForCausalLM.from_config(config).parameters()) > SMALL_PARAMETERS:
            raise ValueError("not small")
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    randomise(model)
    model.save_pretrained(folder)
    model = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = [(i * 37 + 11) % VOCAB for i in range(NUM_TOKENS)]
    with torch.no_grad():
        return ids, model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def try_one(model_type, changes):
    """(word, what there is to say)"""
    with tempfile.TemporaryDirectory() as folder:
        try:
            ids, expected = reference(small_config(model_type, changes), folder)
        except Exception as e:  # of any class, whatever it does not like
            return "none", f"{type(e).__name__}: {e}".split("\n")[0][:150]
        if not np.isfinite(expected).all():
            return "none", "no numbers"
        out = subprocess.run([PROGRAM, folder, "--kv", "f32", "--threads", "1"], input=" ".join(map(str, ids)).encode(), capture_output=True, timeout=120)
    if out.returncode:
        return "refused", out.stderr.decode(errors="replace").replace(folder, "").strip().split("\n")[-1][:300]
    logits = np.frombuffer(out.stdout, np.float32).reshape(NUM_TOKENS, -1)
    if logits.shape != expected.shape:
        return "DIFFERS", f"{logits.shape} where {expected.shape} is expected"
    difference = np.abs(logits - expected).max() / np.abs(expected).max()
    return "agrees" if difference < SAME else "DIFFERS", f"{difference:.2g}"


SILENT = re.compile(r"token|dropout|drop$|initializ|vocab|use_cache|^_|hidden_size$|return_|output_|loss|aux|jitter|layer_types|architectures|model_type|chunk_size_feed|"
                    r"is_encoder|cross_attention|pretraining|problem_type|task|name_or|dtype|version|id2label|label2id|num_hidden_layers|pdrop")


ROTATIONS = (
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7, "mscale_all_dim": 0.5, "truncate": False},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
)


def changes_of(config):
    rotation = getattr(config, "rope_parameters", None)
    if rotation and "rope_theta" in rotation:
        yield from ({"rope_parameters": {**rotation, **own}} for own in ROTATIONS)
    for key, value in config.to_dict().items():
        if SILENT.search(key):
            continue
        if isinstance(value, bool):
            yield {key: not value}
        elif value is None:
            yield from ({key: v} for v in (True, 0.5, 2))
        elif isinstance(value, float):
            yield {key: value * 0.7 + 1e-3}
        elif isinstance(value, int) and 0 < value:
            yield {key: value // 2 if value % 2 == 0 else value + 1}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="*")
    parser.add_argument("--fields", action="store_true")
    o = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for model_type in o.types or CLASSES:
        word, text = try_one(model_type, {})
        print(f"{model_type}: {word}: {text}", flush=True)
        if word == "agrees" and o.fields:
            for change in changes_of(small_config(model_type, {})):
                word, text = try_one(model_type, change)
                if word in ("refused", "DIFFERS"):
                    print(f"    {model_type} {change}: {word}: {text}", flush=True)


if __name__ == "__main__":
    main()
