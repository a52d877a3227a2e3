#!/usr/bin/env python3
"""Adapters of low rank on a GPU: the vectors of texts beside those of the CPU device, and answers alone and among others, of the model and of each
adapter. It needs nothing but Python.

    tests/gpu/lora.py FLASHD MODEL NAME=FOLDER...
"""
import concurrent.futures
import json
import math
import subprocess
import sys
import time
import urllib.request

PORTS = {"cpu": 8971, "cuda": 8972}
TEXTS = ["The sky is blue.", "one two three four " * 40, "a", "Why did the fox come to the farm? " * 12]
PROMPTS = [(TEXTS[i % len(TEXTS)][: 20 + 37 * i], {"seed": i, "temperature": i % 3 / 2, "max_tokens": 20 + 3 * i}) for i in range(16)]


def post(device, path, body):
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (PORTS[device], path), json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def vectors(device, model):
    return [item["embedding"] for item in post(device, "/v1/embeddings", {"model": model, "input": TEXTS})["data"]]


def answer(model, prompt, fields):
    body = {"model": model, "prompt": prompt, "ignore_eos": True, "logprobs": 1, **fields}
    choice = post("cuda", "/v1/completions", body)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def wait_ready(device, process):
    for _ in range(600):
        assert process.poll() is None
        try:
            urllib.request.urlopen("http://127.0.0.1:%d/health" % PORTS[device], timeout=5)
            return
        except OSError:
            time.sleep(0.1)


def main(flashd, model, *modules):
    names = ["base"] + [m.split("=")[0] for m in modules]
    options = [o for m in modules for o in ("--lora-modules", m)] + ["--served-model-name", "base", "--no-log-requests"]
    servers = {d: subprocess.Popen([flashd, "serve", model, "--device", d, "--port", str(port), *options]) for d, port in PORTS.items()}
    try:
        for device, process in servers.items():
            wait_ready(device, process)
        expected = {name: vectors("cpu", name) for name in names}
        for name in names:
            cosines = [sum(a * b for a, b in zip(x, y)) for x, y in zip(expected[name], vectors("cuda", name))]
            apart = [sum(a * b for a, b in zip(x, y)) for x, y in zip(expected[name], expected["base"])]
            print("%s: cosines to the CPU's vectors %.6f or more, to the model's %.3f at most" % (name, min(cosines), max(apart)))
            assert min(cosines) > 0.999 and (name == "base" or min(apart) < min(cosines))
        jobs = [(name, *p) for p in PROMPTS for name in names]
        alone = [answer(*job) for job in jobs]
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            differ = sum(a != b for _ in range(3) for a, b in zip(alone, pool.map(lambda job: answer(*job), jobs)))
        print("%d answers alone and three times %d at a time: %d differ" % (len(jobs), len(jobs), differ))
        assert differ == 0 and not math.isnan(sum(alone[0][1]))
    finally:
        for process in servers.values():
            process.kill()


main(*sys.argv[1:])
