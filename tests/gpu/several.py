#!/usr/bin/env python3
"""Several GPUs that compute as one, over random weights of a shape (tests/gpu/shapes): answers with one GPU alone, and with several alone and all at a
time, whose token ids and log probabilities have to be the same to the bit; then the engine is killed in the middle of them. With "speed": a load on
each (flashd bench serve). LAYERS: the first so many, or 0: all; options are the servers'. It needs nothing but Python.

    tests/gpu/several.py FLASHD SHAPE GPUS [speed | LAYERS [OPTION...]]
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

from servers import post, serving, url

PROMPTS = [[1000 + 7 * i * i % 20000 + n for i in range(n)] for n in (1, 17, 130, 411, 1500)]
JOBS = [(PROMPTS[i % 5], {"seed": i, "temperature": i % 3 / 2, "top_p": 1 - i % 2 / 10, "max_tokens": 20 + 3 * i}) for i in range(32)]


def answer(job):
    prompt, fields = job
    body = {"prompt": prompt, "ignore_eos": True, "logprobs": 1, "return_token_ids": True, **fields}
    choice = post("cuda", "/v1/completions", body)["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def all_at_a_time():
    with concurrent.futures.ThreadPoolExecutor(len(JOBS)) as pool:
        return list(pool.map(answer, JOBS))


def command(flashd, shape, num, options):
    return [flashd, "serve", shape, "--load-format", "dummy", "--tensor-parallel-size", str(num), *options]


def count(expected, answers, what):
    differ = sum(a != b for a, b in zip(expected, answers))
    print("%d answers %s: %d differ" % (len(answers), what, differ), flush=True)
    assert differ == 0 and len(expected) == len(answers)


def kill_engines():
    subprocess.run(["pkill", "-KILL", "-f", "^flashd-engine"], check=True)


def check(flashd, shape, gpus, options):
    with serving(command(flashd, shape, 1, options), ["cuda"]):
        expected = [answer(job) for job in JOBS]
    for num in [n for n in (2, 4, 8) if n <= gpus]:
        with serving(command(flashd, shape, num, options), ["cuda"]):
            count(expected, [answer(job) for job in JOBS], "of %d GPUs alone" % num)
            count(expected * 3, all_at_a_time() + all_at_a_time() + all_at_a_time(), "three times all at a time")
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = pool.submit(all_at_a_time)
                concurrent.futures.wait([running], timeout=0.3)
                kill_engines()
                count(expected, running.result(), "over the engine's death")


def measure(flashd, shape, gpus):
    for num in [n for n in (1, 2, 4, 8) if n <= gpus]:
        with serving(command(flashd, shape, num, []), ["cuda"]):
            for streams in (1, 64, 256):
                print("%d GPUs, %d streams" % (num, streams), flush=True)
                subprocess.run([flashd, "bench", "serve", url("cuda"), "--vocab", "40000", "--requests", str(max(streams, 4)), "--streams", str(streams),
                                "--input", "512", "--output", "128"], check=True)


def main(flashd, shape, gpus, what="0", *options):
    config = json.loads(pathlib.Path(shape, "config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        if what.isdigit() and int(what) > 0:
            config["num_hidden_layers"] = int(what)
            if "layer_types" in config:
                config["layer_types"] = config["layer_types"][: int(what)]
            shape = pathlib.Path(folder, "shape")
            shape.mkdir()
            (shape / "config.json").write_text(json.dumps(config))
        if what == "speed":
            measure(flashd, shape, int(gpus))
        else:
            check(flashd, shape, int(gpus), options)


main(*sys.argv[1:])
