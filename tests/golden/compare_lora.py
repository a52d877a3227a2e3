#!/usr/bin/env python3
"""compare_lora.py - small models of several families with adapters that PEFT has made and saved, their numbers beside PEFT's own in float32, by hand:
the largest difference of a log probability for each. What PEFT writes is what api/test_lora.py's own files stand for.

    pip install torch transformers==5.* peft && tests/golden/compare_lora.py
"""
import json
import pathlib
import sys
import tempfile

import peft
import torch
import transformers

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "api")]
import conftest  # noqa: E402
import encoder  # noqa: E402

LISTS = [ids for ids in encoder.LISTS if len(ids) < 200]
SIZE = {"vocab_size": len(encoder.WORDS), "hidden_size": 72, "intermediate_size": 200, "num_hidden_layers": 3, "num_attention_heads": 6,
        "max_position_embeddings": 300, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "initializer_range": 0.15}
GROUPED = {**SIZE, "num_key_value_heads": 2}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name: class, configuration, modules that have adapters
MODELS = {
    "llama": ("Llama", GROUPED, "all-linear"),
    "llama, some": ("Llama", GROUPED, ["q_proj", "v_proj", "down_proj"]),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 12}, "all-linear"),
    "phi3": ("Phi3", {**GROUPED, "original_max_position_embeddings": 300}, "all-linear"),
    "gemma2": ("Gemma2", {**GROUPED, "head_dim": 12, "query_pre_attn_scalar": 12, "sliding_window": 64}, "all-linear"),
    "granite": ("Granite", {**GROUPED, "embedding_multiplier": 3.0, "residual_multiplier": 0.7, "attention_multiplier": 0.2, "logits_scaling": 2.0}, "all-linear"),
    "cohere": ("Cohere", GROUPED, "all-linear"),
    "gpt_neox": ("GPTNeoX", {**SIZE, "rotary_pct": 0.5}, "all-linear"),
    "falcon": ("Falcon", {**{k: SIZE[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "bos_token_id", "eos_token_id")},
                          "multi_query": True, "parallel_attn": True, "bias": False, "alibi": False}, "all-linear"),
    "falcon_h1": ("FalconH1", {**GROUPED, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "mamba_d_ssm": 64, "mamba_n_heads": 4,
                               "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16, "key_multiplier": 0.6,
                               "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.8, "mlp_multipliers": [0.7, 1.4]}, PROJECTIONS),
}


def make(folder, kind, config, targets, use_rslora):
    """Returns PEFT's model; folder has model and adapter."""
    model = getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**config))
    model.float().eval().save_pretrained(folder / "model")
    (folder / "model" / "tokenizer.json").write_text(json.dumps(encoder.tokenizer()))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=6, lora_alpha=24, target_modules=targets, task_type="CAUSAL_LM", use_rslora=use_rslora)).eval()
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "lora_" in name:
                values.copy_(torch.randn_like(values) * 0.2)
    adapted.save_pretrained(folder / "adapter")
    return adapted


def difference(server, adapted):
    worst = 0
    for ids in LISTS:
        with torch.no_grad():
            expected = adapted(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        answer = server.post("/v1/completions", {"model": "a", "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 20, "return_tokens_as_token_ids": True})
        for name, value in answer.json()["choices"][0]["logprobs"]["top_logprobs"][0].items():
            worst = max(worst, abs(value - expected[int(name.split(":")[1])].item()))
    return worst


def main():
    torch.manual_seed(0)
    for name, (kind, config, targets) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            adapted = make(folder, kind, config, targets, name == "llama, some")
            options = "--kv-cache-dtype", "f32", "--cpu-isa", "portable", "--lora-modules", "a=%s" % (folder / "adapter")
            with conftest.running(*options, model=folder / "model") as server:
                print("%-12s %.1e" % (name, difference(server, adapted)), flush=True)


main()
