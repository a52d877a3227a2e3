#!/usr/bin/env python3
"""Real traffic against the real server: short prompts beside long ones, streams beside a long prompt, keys under a flood.

    tests/bench/traffic.py [--bin build/flashd] [--model GGUF] [--short 100] [--long 1800] [--flood 6000] [--seconds 40]

Prints a line a question. TTFT and gaps as a client on the same machine sees them; keys' shares are of prompt and generated
tokens of what was answered while both keys always had requests waiting.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--bin", default="build/flashd")
parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
parser.add_argument("--short", type=int, default=100)
parser.add_argument("--long", type=int, default=1800)
parser.add_argument("--flood", type=int, default=6000)
parser.add_argument("--seconds", type=float, default=40)
parser.add_argument("--only", default="alone,long,flood,gaps,bodies,keys")
args = parser.parse_args()
rng = random.Random(5)


class Server:
    def __init__(self, *options):
        command = [args.bin, "serve", args.model, "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            if found := re.search(r"listening on http://127.0.0.1:(\d+)", line):
                self.port = int(found.group(1))
            if "ready after" in line:
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def __enter__(self):
        self.stream(50, 4)
        return self

    def __exit__(self, *_):
        self.process.kill()

    def stream(self, num_prompt, num_answer, key=None, stop=None):
        """When each token came, in seconds after the request; None when stop ended it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        prompt = [rng.randrange(100, 40000) for _ in range(num_prompt)]
        body = {"prompt": prompt, "max_tokens": num_answer, "temperature": 0, "ignore_eos": True, "stream": True}
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response, times = connection.getresponse(), []
        assert response.status == 200, response.read()
        for line in response:
            if b'"choices":[{' in line:
                times.append(time.monotonic() - begin)
            if stop and stop.is_set():
                connection.close()
                return None
        return times


def percentile(values, share):
    return sorted(values)[round(share * (len(values) - 1))] * 1e3


def in_threads(count, work):
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads


def first_tokens(name, values):
    print(f"{name:44} {len(values):4} prompts, first token, ms: {percentile(values, 0.5):8.0f} median "
          f"{percentile(values, 0.99):8.0f} p99", flush=True)


def alone():
    with Server() as server:
        first_tokens(f"{args.short} tokens alone", [server.stream(args.short, 2)[0] for _ in range(20)])


def beside_long():
    times = []
    with Server() as server:
        for _ in range(8):
            thread = in_threads(1, lambda _: server.stream(args.long, 2))[0]
            time.sleep(0.2)
            times.append(server.stream(args.short, 2)[0])
            thread.join()
    first_tokens(f"{args.short} tokens behind {args.long}", times)


def beside_flood():
    times, stop = [], threading.Event()
    with Server() as server:

        def client(_):
            while not stop.is_set():
                server.stream(args.flood, 2, stop=stop)

        in_threads(3, client)
        time.sleep(3)
        begin = time.monotonic()
        while time.monotonic() < begin + args.seconds:
            times.append(server.stream(args.short, 2)[0])
            time.sleep(0.2)
        stop.set()
    first_tokens(f"{args.short} tokens beside 3 clients of {args.flood}", times)


def gaps():
    streams = []
    with Server() as server:
        threads = in_threads(4, lambda _: streams.append(server.stream(20, 150)))
        time.sleep(1)
        server.stream(3000, 2)
        for thread in threads:
            thread.join()
    print_gaps("4 streams beside a prompt of 3000", streams)


def print_gaps(name, streams):
    between = [b - a for times in streams for a, b in zip(times, times[1:])]
    print(f"{name:44} {len(between):4} gaps, ms: {percentile(between, 0.5):8.1f} median "
          f"{percentile(between, 0.99):8.1f} p99 {percentile(between, 1):8.1f} most", flush=True)


def bodies():
    """Four clients send prompts of 4 MB, which are too long for the model, as fast as they are refused."""
    streams, stop = [], threading.Event()
    text = "".join(f"word {i} of a body that is far too long, " for i in range(100000))[:4_000_000]
    body = json.dumps({"prompt": text, "max_tokens": 1})
    with Server() as server:

        def client(_):
            while not stop.is_set():
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                assert connection.getresponse().status == 400

        in_threads(4, client)
        time.sleep(0.5)
        for thread in in_threads(2, lambda _: streams.append(server.stream(20, 150))):
            thread.join()
        stop.set()
    print_gaps("2 streams beside 4 clients of 4 MB", streams)


def keys():
    weights, tokens, stop = {"a": 3, "b": 1}, {"a": 0, "b": 0}, threading.Event()
    options = [text for key, weight in weights.items() for text in ("--api-key", f"{key} weight={weight}")]
    server = Server("--max-num-seqs", "8", "--no-enable-prefix-caching", *options)

    def client(i):
        key, choice = "ab"[i % 2], random.Random(i)
        while not stop.is_set():
            num_prompt, num_answer = choice.randrange(50, 400), choice.randrange(4, 40)
            if server.stream(num_prompt, num_answer, key, stop):
                tokens[key] += num_prompt + num_answer

    in_threads(24, client)
    time.sleep(args.seconds / 2)
    before = dict(tokens)
    time.sleep(2 * args.seconds)
    received = {key: tokens[key] - before[key] for key in tokens}
    stop.set()
    server.process.kill()
    total = sum(received.values())
    shares = ", ".join(f"weight {weights[key]}: {100 * n / total:.1f} %" for key, n in received.items())
    print(f"{'two keys under a flood':44} {shares}", flush=True)


questions = {"alone": alone, "long": beside_long, "flood": beside_flood, "gaps": gaps, "bodies": bodies, "keys": keys}
for name in args.only.split(","):
    questions[name]()
