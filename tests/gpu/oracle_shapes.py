#!/usr/bin/env python3
"""oracle_shapes.py PROGRAM SHAPES [NAME...] - the solo oracle (tests/oracle/oracle.py) for each kind of model that a GPU serves.

Of each shape in the folder SHAPES the first few layers with random weights, in bf16, FP8, integers of eight bits, four bits, mixtures, with states; K and V in bf16 and in
e4m3: every answer among others, over a pool that preempts, must equal the one alone byte for byte. Bytes are the tokens of prompts. REQUESTS (240) of each. One row a shape, and
what differs. Exits with 1 when anything does.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FP8 = ["--kv-cache-dtype", "fp8"]
# name: shape, layers, bytes of K and V of a token, options
RUNS = {
    "8b": ("llama-3.1-8b", 8, 32768, []),
    "8b, fp8 K/V": ("llama-3.1-8b", 8, 16896, FP8),
    "0.6b, fp8 K/V": ("qwen3-0.6b", 28, 59136, FP8),
    "8b fp8": ("llama-3.1-8b-fp8", 8, 32768, []),
    "8b fp8, fp8 K/V": ("llama-3.1-8b-fp8", 8, 16896, FP8),
    "8b int8": ("llama-3.1-8b-int8", 8, 32768, []),
    "8b awq": ("llama-3.1-8b-awq", 8, 32768, []),
    "qwen3-30b-a3b": ("qwen3-30b-a3b", 6, 12288, []),
    "qwen3-30b-a3b fp8": ("qwen3-30b-a3b-fp8", 6, 12288, []),
    "gpt-oss-20b": ("gpt-oss-20b", 6, 12288, []),
    "qwen3-next": ("qwen3-next-12-layers", 12, 6144, []),
    "nemotron-nano-9b-v2": ("nemotron-nano-9b-v2", 20, 4096, []),
    "granite-4.0-h-tiny": ("granite-4.0-h-tiny", 12, 2048, []),
    "glm-4.7-flash": ("glm-4.7-flash", 6, 6912, []),
}
OF_LAYERS = ("layer_types", "layers_block_type", "hybrid_override_pattern")


def make_model(shape, num_layers, folder):
    """The shape's configuration with so many layers."""
    config = json.loads((shape / "config.json").read_text())
    config["num_hidden_layers"] = num_layers
    for name in OF_LAYERS:
        if name in config:
            config[name] = config[name][:num_layers]
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))


def run(program, shapes, name):
    shape, num_layers, token_bytes, options = RUNS[name]
    with tempfile.TemporaryDirectory() as folder:
        make_model(pathlib.Path(shapes, shape), num_layers, folder)
        command = [sys.executable, str(ROOT / "tests/oracle/oracle.py"), "--requests", os.environ.get("REQUESTS", "240"), "--threads", "40",
                   "--longest", "2048", "--token-bytes", str(token_bytes), "--program", program, "--model", folder, "--", "--device", os.environ.get("DEVICE", "cuda"),
                   "--load-format", "dummy", "--chat-template", str(ROOT / "tests/golden/smollm2.jinja")]
        done = subprocess.run(command + options, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    print("%-20s %s" % (name, " ".join(line for line in lines if "compared" in line or "preemptions" in line) or "\n".join(lines[-5:])))
    if done.returncode:
        print("\n".join(line[:400] for line in lines if "compared" not in line))
    sys.stdout.flush()
    return done.returncode == 0


def main():
    program, shapes, names = sys.argv[1], sys.argv[2], sys.argv[3:] or list(RUNS)
    sys.exit(0 if all([run(program, shapes, name) for name in names]) else 1)


main()
