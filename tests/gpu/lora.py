#!/usr/bin/env python3
"""Adapters of low rank on a GPU, over random weights of a shape (tests/gpu/shapes), with random adapters of its own: the vectors of lists of ids beside those
of the CPU device, answers of the model and of each adapter alone and among others, and those of adapters that come while the server runs. With "speed": a load on the model alone, and one that
asks for an adapter in each request (flashd bench serve). Of a mixture attention's matrices alone have adapters. LAYERS: the first so many; options are the
servers'. It needs nothing but Python.

    tests/gpu/lora.py FLASHD SHAPE [speed | LAYERS [OPTION...]]
"""
import concurrent.futures
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error

from servers import post, serving, url, vectors

SIGNS = bytes(0x3C | (i & 0x80) for i in range(256))  # bf16 of 0.008 to 0.03, either sign
RANK = int(os.environ.get("RANK", "16"))  # 256: what is made of 8,192 rows has no room at once
LISTS = [[1000 + 7 * i * i % 20000 + n for i in range(n)] for n in (1, 17, 130, 411)]
LONG = [[1000 + 13 * i * i % 20000 for i in range(9000)]] if RANK > 64 else []
JOBS = [(LISTS[i % 4][: 3 + 29 * i], {"seed": i, "temperature": i % 3 / 2, "max_tokens": 20 + 3 * i}) for i in range(16)]


def random_bf16(count):
    values = bytearray(2 * count)
    values[0::2], values[1::2] = os.urandom(count), os.urandom(count).translate(SIGNS)
    return bytes(values)


def matrices(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    attention = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q)}
    mlp = {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    return attention if "num_experts" in config or "num_local_experts" in config else {**attention, **mlp}


def write_adapter(folder, config, rank, modules):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 20 * rank}))
    header, data, at = {}, [], 0
    for i in range(config["num_hidden_layers"]):
        for module, (rows, cols) in matrices(config).items():
            for half, shape in (("A", (rank, cols)), ("B", (rows, rank))) if module.split(".")[1] in modules else ():
                data.append(random_bf16(shape[0] * shape[1]))
                header["base_model.model.model.layers.%d.%s.lora_%s.weight" % (i, module, half)] = {
                    "dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data[-1])]}
                at += len(data[-1])
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    return folder


def answer(model, prompt, fields):
    body = {"model": model, "prompt": prompt, "ignore_eos": True, "logprobs": 1, "return_token_ids": True, **fields}
    choice = post("cuda", "/v1/completions", body)["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def command(flashd, shape, modules, options=()):
    named = [o for m in modules for o in ("--lora-modules", "%s=%s" % (m.name, m))]
    return [flashd, "serve", shape, "--load-format", "dummy", "--pooling", "mean", "--served-model-name", "base", *options, *named]


def check(flashd, shape, modules, options):
    names = ["base"] + [m.name for m in modules]
    with serving(command(flashd, shape, modules, options)):
        expected = {name: vectors("cpu", LISTS + LONG, model=name) for name in names}
        for name in names:
            cosines = [sum(a * b for a, b in zip(x, y)) for x, y in zip(expected[name], vectors("cuda", LISTS + LONG, model=name))]
            apart = [sum(a * b for a, b in zip(x, y)) for x, y in zip(expected[name], expected["base"])]
            print("%s: cosines to the CPU's vectors %.5f or more, to the model's %.3f at most" % (name, min(cosines), max(apart)))
            assert min(cosines) > 0.9 and (name == "base" or max(apart) < min(cosines))
        jobs = [(name, *job) for job in JOBS for name in names]
        alone = [answer(*job) for job in jobs]
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            differ = sum(a != b for _ in range(3) for a, b in zip(alone, pool.map(lambda job: answer(*job), jobs)))
        print("%d answers alone, and three times all at a time: %d differ" % (len(jobs), differ))
        assert differ == 0 and not math.isnan(sum(alone[0][1]))
    places = ("--lora-dir", str(modules[0].parent), "--max-loras", "2", "--max-lora-rank", str(RANK))
    check_later(command(flashd, shape, (), (*places, *options)), jobs, alone)


def exchange(what, name, path=""):
    """A place is free a little after its adapter has left."""
    for _ in range(100):
        try:
            return post("cuda", "/v1/%s_lora_adapter" % what, {"lora_name": name, "lora_path": path})
        except urllib.error.HTTPError as error:
            assert b"places" in error.read()
            time.sleep(0.1)
    raise AssertionError("no place")


def check_later(server, jobs, alone):
    """Beside answers of the model, first each in the place of the other."""
    with serving(server, ["cuda"]), concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        beside = [(i, pool.submit(answer, *job)) for i, job in enumerate(jobs) if job[0] == "base"]
        for name, path in (("all", "some"), ("some", "all")):
            exchange("load", name, path)
        assert any(answer(*job) != expected for job, expected in zip(jobs, alone) if job[0] != "base")
        for what in ("unload", "load"):
            for name in ("some", "all"):
                exchange(what, name, name)
        differ = sum(answer(*job) != expected for job, expected in zip(jobs, alone))
        differ += sum(made.result() != alone[i] for i, made in beside)
        print("%d answers of adapters that came later, and of the model beside them: %d differ" % (len(jobs), differ))
        assert differ == 0


def measure(flashd, shape, modules):
    with serving(command(flashd, shape, modules), ["cuda"]):
        for streams in (1, 64):
            for name in ("base", modules[0].name):
                subprocess.run([flashd, "bench", "serve", url("cuda"), "--model", name, "--vocab", "40000", "--requests", str(max(streams, 4)),
                                "--streams", str(streams), "--input", "512", "--output", "128"], check=True)


def main(flashd, shape, what="", *options):
    config = json.loads(pathlib.Path(shape, "config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        if what.isdigit():
            config["num_hidden_layers"] = int(what)
            shape = pathlib.Path(folder, "shape")
            shape.mkdir()
            (shape / "config.json").write_text(json.dumps(config))
        modules = [write_adapter(pathlib.Path(folder, name), config, rank, own) for name, rank, own in (
            ("all", RANK, [m.split(".")[1] for m in matrices(config)]), ("some", 8, ["q_proj", "v_proj"]))]
        if what == "speed":
            measure(flashd, shape, modules)
        else:
            check(flashd, shape, modules, options)


main(*sys.argv[1:])
