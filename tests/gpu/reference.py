"""Logits of random models of given shapes against transformers: bf16 and float32, on the same GPU.

    reference.py LOGITS_PROGRAM SHAPE... [--layers 4] [--device cuda]

A SHAPE is a folder with a config.json. Its model, with fewer layers, is written as safetensors and read by both. The error of the
last token's logits against float32 may be at most twice that of transformers in bf16.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

PROMPT_TOKENS = 300


def make_model(shape, layers, device, folder):
    config = json.loads((pathlib.Path(shape) / "config.json").read_text())
    config["num_hidden_layers"] = layers
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(layers)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    for name, p in model.named_parameters():  # norms that are all ones would hide a mistake
        if name.endswith("norm.weight"):
            p.data.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    return model.eval()


def last_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids], device=model.device)).logits[0, -1].float().cpu().numpy()


def check(program, shape, layers, device):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = make_model(shape, layers, device, folder)
        vocab = model.config.vocab_size
        ids = np.random.default_rng(layers).integers(0, vocab, PROMPT_TOKENS).tolist()
        bf16 = last_logits(model, ids)
        f32 = last_logits(model.float(), ids)
        del model
        torch.cuda.empty_cache()
        out = subprocess.run([program, folder, "--device", device], input=(" ".join(map(str, ids)) + "\n").encode(),
                             stdout=subprocess.PIPE, check=True).stdout
    ours = np.frombuffer(out, np.float32).reshape(PROMPT_TOKENS, vocab)[-1]
    ours_error, bf16_error = (np.abs(x - f32).max() for x in (ours, bf16))
    right = bool(ours_error <= 2 * bf16_error) and f32.std() > 0
    print(f"{pathlib.Path(shape).name}, {layers} layers: logits of deviation {f32.std():.3f}, largest error {ours_error:.4f}, of "
          f"transformers in bf16 {bf16_error:.4f}: {'right' if right else 'WRONG'}", flush=True)
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    o = parser.parse_args()
    return not all([check(o.program, s, o.layers, o.device) for s in o.shapes])


if __name__ == "__main__":
    sys.exit(main())
