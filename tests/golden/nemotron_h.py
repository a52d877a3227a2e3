"""nemotron_h.py - the tensors of Nemotron-H as GGUF files have them, and back to what transformers takes: for make_model.py.

As Granite 4's (granite_hybrid.py), but that each norm, state, attention and MLP is of a layer that has nothing else, and that experts have no gate.
"""
import re

import granite_hybrid

TOP = {"backbone.embeddings.weight": "token_embd.weight", "backbone.norm_f.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
NAMES = {
    **{n.replace("self_attn", "mixer").replace("mamba", "mixer"): g for n, g in granite_hybrid.NAMES.items() if n.startswith(("self_attn", "mamba"))},
    "norm": "attn_norm.weight",
    **{f"mixer.{p}_proj": f"ffn_{p}.weight" for p in ("up", "down")},
    **{f"mixer.experts.{p}_proj": f"ffn_{p}_exps.weight" for p in ("up", "down")},
    **{f"mixer.shared_experts.{p}_proj": f"ffn_{p}_shexp.weight" for p in ("up", "down")},
    "mixer.fc1_latent_proj": "ffn_latent_down.weight",
    "mixer.fc2_latent_proj": "ffn_latent_up.weight",
    "mixer.gate": "ffn_gate_inp.weight",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
}

range_of = granite_hybrid.range_of


def form(name, rows, cols, config):
    """As Granite's."""
    if name.endswith("mixer.norm.weight"):
        return config["n_groups"], cols // config["n_groups"], "F32"
    if name.endswith(("A_log", "mixer.D")):
        return cols, 1, "F32"
    return rows, cols, "F32" if name.endswith("conv1d.weight") else None


def entries(name, rows, config):
    """As Granite's."""
    if name in TOP:
        return [(TOP[name], rows)]
    layer, part = re.fullmatch(r"backbone\.layers\.(\d+)\.(.+?)(?:\.weight)?", name).groups()
    return [(f"blk.{layer}.{NAMES[re.sub(r'experts[.][0-9]+[.]', 'experts.', part)]}", rows)]


def join(name, parts, config):
    """As Granite's."""
    return granite_hybrid.join(name.replace("mixer.norm", "mamba.norm").replace("mixer.D", "mamba.D"), parts, config)
