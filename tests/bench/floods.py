#!/usr/bin/env python3
"""floods.py - what a quiet chat sees beside each kind of flood: first tokens and times between tokens, ms.

    floods.py URL [--seconds 5] [--only NAME]... [--vocab 40000] [--flood-from 127.0.0.2] [--form]

A chat of 60 words and 40 tokens follows the other, whose answers have a form with --form; the flood's clients, another process's threads, send one request after the other. A row a flood;
the first has none. Nothing is done with keys; --flood-from gives the flood an address of its own.
"""
import argparse
import http.client
import json
import multiprocessing
import random
import threading
import time
import urllib.parse

from quiet_chat import chat, percentile, quiet, text


def ids(rng, num):
    return [rng.randrange(1000, options.vocab) for _ in range(num)]


def scored(rng, num, **members):
    return "/v1/completions", {"prompt": ids(rng, num), "max_tokens": 1, **members}


def schema(rng):
    return {"type": "object", "additionalProperties": False, "required": ["n", "t"], "properties": {
        f"f{rng.randrange(10**9)}": {"type": "string", "pattern": "^[a-z]{%d,%d}[0-9]+(x|y)*$" % (rng.randrange(1, 9), rng.randrange(20, 200))},
        "n": {"type": "integer", "minimum": rng.randrange(1000), "maximum": 10**6},
        "t": {"type": "array", "items": {"enum": [f"e{rng.randrange(10**6)}" for _ in range(200)]}, "uniqueItems": True}}}


def tools(rng):
    return [{"type": "function", "function": {"name": f"f{rng.randrange(10**6)}_{i}", "parameters": {
        "type": "object", "properties": {f"p{j}": {"type": "string"} for j in range(8)}}}} for i in range(40)]


# name: clients, request; a client that hangs up does so behind the first line
FLOODS = {
    "none": (0, None),
    "short chats": (64, lambda r: chat(text(r, 50), 16, ignore_eos=True)),
    "long answers": (200, lambda r: chat(text(r, 100), 400, ignore_eos=True, temperature=1)),
    "prompts of 8,000": (6, lambda r: scored(r, 8000)),
    "prompts of 100,000": (2, lambda r: scored(r, 100000)),
    "n 16, 20 logprobs": (8, lambda r: chat(text(r, 20), 32, n=16, logprobs=True, top_logprobs=20, temperature=1)),
    "biases and stops": (16, lambda r: chat(text(r, 20), 64, logit_bias={str(r.randrange(options.vocab)): 1 for _ in range(1000)}, presence_penalty=1,
                                            stop=[f"zq{r.randrange(10**6)}" for _ in range(4)], repetition_penalty=1.1, top_p=0.9)),
    "schemas": (32, lambda r: chat("x", 48, structured_outputs={"json": schema(r)})),
    "regexes": (64, lambda r: chat("x", 64, temperature=1, structured_outputs={"regex": "(.|\\n){%d,%d}[a-z]" % (r.randrange(3), r.randrange(50, 400))})),
    "slow first masks": (64, lambda r: chat("x", 1, temperature=1, structured_outputs={
        "grammar": 'root ::= s\ns ::= [a-z ] | [a-z ] s | [a-z ] s s | "(" s "%d)"' % r.randrange(10**9)})),
    "lists of ids": (24, lambda r: chat("x", 1, allowed_token_ids=[r.randrange(options.vocab) for _ in range(1000)] * 900)),
    "chats of 60 KB": (400, lambda r: chat(text(r, 14000), 1)),
    "tools": (32, lambda r: chat("x", 48, tool_choice="required", tools=tools(r))),
    "prompt_logprobs": (8, lambda r: scored(r, 4000, prompt_logprobs=5)),
    "echo": (8, lambda r: scored(r, 3000, echo=True, logprobs=5)),
    "hang-ups": (32, lambda r: chat(text(r, 300), 2000, stream=True, ignore_eos=True)),
    "tokenize": (8, lambda r: ("/tokenize", {"prompt": text(r, 200000)})),
    "embeddings": (8, lambda r: ("/v1/embeddings", {"input": [text(r, 200) for _ in range(64)]})),
    "lists of prompts": (4, lambda r: ("/v1/completions", {"prompt": [text(r, 60) for _ in range(64)], "max_tokens": 1})),
    "best of 16": (4, lambda r: ("/v1/completions", {"prompt": text(r, 60), "max_tokens": 16, "best_of": 16, "temperature": 1})),
    "bodies of ids": (8, lambda r: ("/v1/completions", {"prompt": [7] * 900000, "max_tokens": 1})),
    "background": (16, lambda r: ("/v1/responses", {"input": text(r, 60), "background": True, "max_output_tokens": 16})),
}


def send(path, body, source=None):
    connection = http.client.HTTPConnection(options.url.hostname, options.url.port, timeout=120, source_address=source and (source, 0))
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection, connection.getresponse()


def flood(name, end, counts):
    num_clients, make = FLOODS[name]
    done, refused = [], []

    def client(number):
        rng = random.Random(f"{name} {number} {end}")
        while time.monotonic() < end:
            connection, response = send(*make(rng), options.flood_from)
            (done if response.status == 200 else refused).append(response.status)
            response.readline() if name == "hang-ups" else response.read()
            connection.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(num_clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    counts.put("%d done, %d refused" % (len(done), len(refused)))


def main():
    for name in options.only or FLOODS:
        counts, begin = multiprocessing.Queue(), time.monotonic() + 0.7
        others = multiprocessing.Process(target=flood, args=(name, begin + options.seconds, counts))
        others.start()
        time.sleep(0.7)
        first, gaps = quiet(send, begin + options.seconds, **({"structured_outputs": {"regex": "[a-z ]{400}"}} if options.form else {}))
        print("%-18s %4d chats: first token %.1f, p90 %.1f, most %.1f; between tokens %.2f, p99 %.2f, most %.1f; %s" % (
            name, len(first), percentile(first, 0.5), percentile(first, 0.9), percentile(first, 1), percentile(gaps, 0.5), percentile(gaps, 0.99),
            percentile(gaps, 1), counts.get()), flush=True)
        others.join()


parser = argparse.ArgumentParser()
parser.add_argument("url", type=urllib.parse.urlparse)
parser.add_argument("--seconds", type=float, default=5)
parser.add_argument("--only", action="append", choices=FLOODS)
parser.add_argument("--vocab", type=int, default=40000)
parser.add_argument("--flood-from")
parser.add_argument("--form", action="store_true")
options = parser.parse_args()
main()
