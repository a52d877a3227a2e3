"""How long a server takes from its start to ready with a real file of weights in the page cache.

    loading.py PROGRAM SHAPE [--device cuda] [--port 8971] [--runs 3]

SHAPE is a folder with a config.json of a Llama: in BF16, FP8 with a scale a row, or AWQ. Its model is written as safetensors with random
values and a tokenizer of 256 bytes, and the server answers one request each time.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import torch
from safetensors.torch import save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import byte_tokenizer  # noqa: E402


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # that makes up the values


def linear(name, rows, cols, quantisation):
    """The tensors of one matrix, as a checkpoint of that quantisation has them."""
    method = quantisation.get("quant_method")
    if method == "awq":
        groups = cols // quantisation["group_size"]
        return {f"{name}.qweight": torch.randint(-(2**31), 2**31 - 1, (cols, rows // 8), dtype=torch.int32, device=DEVICE).cpu(),
                f"{name}.qzeros": torch.randint(-(2**31), 2**31 - 1, (groups, rows // 8), dtype=torch.int32, device=DEVICE).cpu(),
                f"{name}.scales": (torch.rand(groups, rows) * 1e-2).half()}
    weight = torch.empty(rows, cols, dtype=torch.bfloat16, device=DEVICE).normal_(0, 0.02)
    if method == "compressed-tensors":
        return {f"{name}.weight": (weight * 1000).to(torch.float8_e4m3fn).cpu(), f"{name}.weight_scale": torch.full((rows, 1), 1e-3, dtype=torch.bfloat16)}
    return {f"{name}.weight": weight.cpu()}


def write_model(shape, folder):
    c = json.loads((pathlib.Path(shape) / "config.json").read_text())
    hidden, inner, quantisation = c["hidden_size"], c["intermediate_size"], c.get("quantization_config", {})
    head = c.get("head_dim", hidden // c["num_attention_heads"])
    q, kv = head * c["num_attention_heads"], head * c["num_key_value_heads"]
    matrices = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
                "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    norm = torch.ones(hidden, dtype=torch.bfloat16)
    tensors = {"model.norm.weight": norm, **linear("lm_head", c["vocab_size"], hidden, {}), **linear("model.embed_tokens", c["vocab_size"], hidden, {})}
    for i in range(c["num_hidden_layers"]):
        for part, (rows, cols) in matrices.items():
            tensors |= linear(f"model.layers.{i}.{part}", rows, cols, quantisation)
        tensors |= {f"model.layers.{i}.{part}.weight": norm.clone() for part in ("input_layernorm", "post_attention_layernorm")}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(c))


def wait_until_ready(log, server, patience=120):
    """Seconds, as the server says itself; None if it ends before or loses our patience."""
    end = time.monotonic() + patience
    while server.poll() is None and time.monotonic() < end:
        ready = re.search(r"ready after ([0-9.]+)", log.read_text())
        if ready:
            return float(ready[1])
        time.sleep(0.05)
    return None


def start_and_ask(program, folder, device, port):
    """Seconds until ready; None if it does not come up."""
    log = folder / "log"
    with log.open("w") as out:
        server = subprocess.Popen([program, "serve", folder, "--device", device, "--port", str(port)], stderr=out)
    try:
        ready = wait_until_ready(log, server)
        if ready is None:
            print(log.read_text())
            return None
        body = json.dumps({"prompt": "a", "max_tokens": 4, "ignore_eos": True}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        assert answer["usage"]["completion_tokens"] == 4, answer
        return ready
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("shape")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--port", type=int, default=8971)
    parser.add_argument("--runs", type=int, default=3)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_model(o.shape, folder)
        byte_tokenizer.write(folder)
        size = sum(f.stat().st_size for f in folder.glob("*.safetensors")) / 1e9
        for _ in range(o.runs):
            ready = start_and_ask(o.program, folder, o.device, o.port)
            if ready is None:
                return 1
            print(f"{size:.1f} GB of safetensors: ready after {ready:.2f} s, {size / ready:.1f} GB/s all in all", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
