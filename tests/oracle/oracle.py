#!/usr/bin/env python3
"""oracle.py - the solo oracle: what a client gets does not depend on who else is there.

    oracle.py [--requests 2000] [--alone N] [--seed 0] [--longest 544] [--token-bytes 23040]
              [--threads 48] [--program build/flashd] [--model MODEL]
              [-- options of flashd]

Mixed requests (mixture.py) are sent one by one to one server, then shuffled and together to another whose K/V pool is so
small that it must preempt, then together once more while other clients come and go away in the middle. Every completed
answer must equal the one got alone byte for byte; usage must add up; no answer may hold another request's canary; the
metrics must equal what the client counted. With --alone only the first N are sent alone, and the others' answers together are
compared with each other. Exits with 1 when anything differs.
"""
import argparse
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import answers
import mixture

ROOT = pathlib.Path(__file__).resolve().parents[2]
CROWD = 24  # requests, sent before the others: each begins with 2 or 3 of the pool's 42 blocks and ends with 9 or 10


class Server:
    def __init__(self, options, extra):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = tempfile.NamedTemporaryFile(prefix="flashd-oracle-", suffix=".log")
        command = [options.program, "serve", options.model, "--port", str(self.port), "--no-log-requests"]
        self.process = subprocess.Popen(command + extra + options.serve, stderr=self.log, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not self.is_ready():
            assert self.process.poll() is None and time.monotonic() < deadline, pathlib.Path(self.log.name).read_text()
            time.sleep(0.05)

    def is_ready(self):
        try:
            return self.fetch("/health")[0] == 200
        except OSError:
            return False

    def fetch(self, path):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.port, path), timeout=60) as response:
            return response.status, response.read().decode()

    def metrics(self):
        """{name: sum over its labels}, and each labelled value under name{labels}."""
        sums = {}
        for line in self.fetch("/metrics")[1].splitlines():
            match = re.match(r'([\w:]+)(\{[^}]*\})? (\S+)$', line)
            if match and not line.startswith("#"):
                name, labels, value = match.groups()
                labels = re.sub(r'model_name="[^"]*",engine="0",?', "", labels or "").rstrip(",")
                for key in {name, name + labels}:
                    sums[key] = sums.get(key, 0) + float(value)
        return sums

    def idle_metrics(self):
        deadline = time.monotonic() + 60
        while (m := self.metrics())["flashd_requests_in_flight"] or m['flashd_kv_blocks{state="held"}']:
            assert time.monotonic() < deadline, "the server does not come to rest: %s" % m
            time.sleep(0.02)
        return m

    def stop(self):
        self.process.terminate()
        code = self.process.wait(90)
        assert code == 0, "exit code %d: %s" % (code, self.log_end())

    def log_end(self):
        return pathlib.Path(self.log.name).read_text()[-2000:]


class Oracle:
    def __init__(self, options):
        self.options = options
        kinds = [mixture.crowding if i < CROWD else mixture.request for i in range(options.requests)]
        self.requests = [kind(options.seed * 1_000_000 + i) for i, kind in enumerate(kinds)]
        self.canaries = {mixture.canary(options.seed * 1_000_000 + i): i for i in range(options.requests)}
        self.problems = []

    def report(self, number, text):
        self.problems.append("request %d: %s\n  %s" % (number, text, json.dumps(self.requests[number])[:600]))

    def shuffled(self, rng):
        """The order of a round: the crowd is taken first, from the end."""
        return sorted(rng.sample(range(len(self.requests)), len(self.requests)), key=lambda number: number < CROWD)

    def send_all(self, server, threads, order, disturb=None):
        """The answers, each at its request's place, and how often the server was full."""
        todo, results, refusals, lock = list(order), [None] * len(self.requests), [0], threading.Lock()

        def work():
            while True:
                with lock:
                    if not todo:
                        return
                    number = todo.pop()
                try:
                    results[number], refused = answers.send_patiently(server.port, *self.requests[number])
                    with lock:
                        refusals[0] += refused
                except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to this request
                    self.report(number, repr(error))
                if disturb:
                    disturb(server, number)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        return results, refusals[0]

    # ---- what must hold of every answer ----

    def check_usage(self, number, answer):
        body, usage = self.requests[number][1], answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        prompt = body.get("prompt", body.get("input", ""))
        num_prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
        num_choices = num_prompts * body.get("n", 1)
        if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"] or not 0 <= cached <= usage["prompt_tokens"]:
            self.report(number, "usage does not add up: %s" % usage)
        if len(answer["choices"]) != num_choices:
            self.report(number, "%d choices" % len(answer["choices"]))
        if isinstance(body.get("prompt"), list) and num_prompts == 1 and isinstance(body["prompt"][0], int) and usage["prompt_tokens"] != len(body["prompt"]):
            self.report(number, "prompt tokens: %s of %d" % (usage, len(body["prompt"])))
        if "input" in body:
            return
        full = sum(c["finish_reason"] == "length" for c in answer["choices"]) * body["max_tokens"]
        if not full <= usage["completion_tokens"] <= num_choices * body["max_tokens"]:
            self.report(number, "completion tokens: %s" % usage)
        may_end_early = body.get("stop") or mixture.has_form(body)
        least = 0 if may_end_early else body.get("min_tokens", 0) * num_choices
        if usage["completion_tokens"] < least:
            self.report(number, "fewer tokens than min_tokens: %s" % usage)

    def check_canaries(self, number, answer):
        for word in re.findall(r"k[0-9a-f]{8}", json.dumps(answer["choices"])):
            if self.canaries.get(word, number) != number:
                self.report(number, "holds the canary of request %d" % self.canaries[word])

    def compare(self, phase, alone, results):
        num_compared = 0
        for number, (one, other) in enumerate(zip(alone, results)):
            if one is None or other is None:
                continue  # reported already
            num_compared += 1
            self.check_usage(number, other)
            self.check_canaries(number, other)
            for answer in (one, other):
                answer["usage"].pop("prompt_tokens_details", None)
            if one != other:
                self.report(number, "%s differs:\n  alone    %s\n  together %s" % (phase, json.dumps(one)[:800], json.dumps(other)[:800]))
        return num_compared

    def check_ledger(self, server, results):
        """Without clients that go away, the metrics say exactly what the client saw."""
        m, done = server.idle_metrics(), [r for r in results if r]
        sequences = sum(len(r["choices"]) for r in done)
        expected = {
            "flashd_requests_admitted_total": len(done),
            "flashd_requests_finished_total": len(done),
            "vllm:request_success_total": sequences,
            'vllm:request_success_total{finished_reason="length"}': sum(c["finish_reason"] == "length" for r in done for c in r["choices"]),
            "vllm:generation_tokens_total": sum(r["usage"]["completion_tokens"] for r in done),
            "vllm:e2e_request_latency_seconds_count": sequences,
            'flashd_kv_blocks{state="held"}': 0,
        }
        for name, value in expected.items():
            if m.get(name) != value:
                self.problems.append("the metric %s is %s, the client counted %s" % (name, m.get(name), value))
        self.check_engine(server, m)
        return m

    def check_engine(self, server, metrics):
        """Clients see nothing of a death."""
        if metrics["flashd_engine_deaths_total"]:
            self.problems.append("the engine died: %s" % server.log_end())

    # ---- the three rounds ----

    def run(self):
        count = len(self.requests)
        begin = time.monotonic()
        server = Server(self.options, [])
        num_alone = min(self.options.alone or count, count)
        alone, _ = self.send_all(server, 1, reversed(range(num_alone)))
        for number, answer in enumerate(alone):
            if answer:
                self.check_usage(number, answer)
                self.check_canaries(number, answer)
        self.check_ledger(server, alone)
        server.stop()
        alone_s = time.monotonic() - begin

        rng = random.Random(self.options.seed)
        longest = self.options.longest
        pool_bytes = 5 * longest // 4 * self.options.token_bytes  # an eighth of it in the host: some that are preempted come back, others compute again
        server = Server(self.options, ["--max-model-len", str(longest), "--max-num-seqs", "64", "--kv-cache-memory-bytes", str(pool_bytes),
                                       "--kv-offload-bytes", str(pool_bytes // 8)])
        begin = time.monotonic()
        results, refusals = self.send_all(server, self.options.threads, self.shuffled(rng))
        together_s = time.monotonic() - begin
        metrics = self.check_ledger(server, results)
        num_compared = self.compare("together", alone, results)
        known = [one or other for one, other in zip(alone, results)]

        num_gone = [0]

        def disturb(server, number):
            rng = random.Random("gone %d" % number)
            if rng.random() < 0.4:
                answers.abandon(server.port, *mixture.request(10**9 + number), rng.random() * 0.2)
                num_gone[0] += 1

        results, more = self.send_all(server, self.options.threads, self.shuffled(rng), disturb)
        num_compared += self.compare("among clients that go away", known, results)
        last = server.idle_metrics()
        if last["flashd_requests_admitted_total"] != last["flashd_requests_finished_total"]:
            self.problems.append("admitted %d, finished %d" % (last["flashd_requests_admitted_total"], last["flashd_requests_finished_total"]))
        self.check_engine(server, last)
        server.stop()

        print("%d requests alone (%.0f s), then %d, %d at a time (%.0f s) and among %d that were abandoned; refused %d times, "
              "%d preemptions (%d saved), %d of %d prompt tokens from the prefix cache, %d of %d drafted tokens accepted" % (
                  num_alone, alone_s, count, self.options.threads, together_s, num_gone[0], refusals + more, last["vllm:num_preemptions_total"],
                  last["flashd_preemptions_saved_total"],
                  last["vllm:prompt_tokens_cached_total"], last["vllm:prompt_tokens_total"],
                  last['flashd_draft_tokens_total{result="accepted"}'], last["flashd_draft_tokens_total"]))
        if not metrics["vllm:num_preemptions_total"]:
            self.problems.append("nothing was preempted: the pool is too large for this test to mean anything")
        if not 0 < last["flashd_preemptions_saved_total"] < last["vllm:num_preemptions_total"]:
            self.problems.append("preempted sequences were all saved, or none was: half of this test means nothing")
        if last["flashd_kv_host_blocks"]:
            self.problems.append("blocks of host memory are left")
        print("%d answers compared, %d problems" % (num_compared, len(self.problems)))
        for problem in self.problems[:10]:
            print(problem)
        return not self.problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--alone", type=int, default=0, help="how many are sent alone (0: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=int, default=544, help="tokens of the longest request of the mixture, rounded up to blocks")
    parser.add_argument("--token-bytes", type=int, default=23040, help="of K and V of a token, SmolLM2's by default")
    parser.add_argument("--threads", type=int, default=48)
    parser.add_argument("--program", default=str(ROOT / "build/flashd"))
    parser.add_argument("--model", default=str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("serve", nargs="*", help="options of flashd, after --")
    sys.exit(0 if Oracle(parser.parse_args()).run() else 1)


if __name__ == "__main__":
    main()
