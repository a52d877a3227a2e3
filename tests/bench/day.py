#!/usr/bin/env python3
"""day.py - a day of mixed traffic in small: does every request end up in the metrics and in the log, and does memory grow?

    day.py [--bin build/flashd] [--model GGUF] [--rounds 3] [--seconds 60] [--kill-every 0] [--idle 1000] [--option=...]...

Two keys, one of weight 3, whose clients chat, call tools, embed, rerank where the model can, tokenize, ask in the background, hang up, read slowly,
send too much, send in all the ways that HTTP has, scrape and probe, beside one quiet chat and idle connections; now and then the engine is killed. After each round, when nothing is in flight: what clients counted against what the
server did, its memory, and the quiet chat's times in ms. Ends with 1 where anything does not add up.
"""
import argparse
import collections
import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import quiet_chat
from quiet_chat import percentile, text

KEYS = {"big": "big weight=3 name=big", "small": "small name=small", "root": "root admin"}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
GONE = "gone"


def chat(rng, num_words, max_tokens, **members):
    return "POST", *quiet_chat.chat(text(rng, num_words), max_tokens, **members)


def background(rng):
    return "POST", "/v1/responses", {"input": text(rng, 20), "background": rng.random() < 0.5, "max_output_tokens": 12}


def bytes_by_byte(body):
    return b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"


# How a request is written: behind its first line and key, with its body.
WAYS = [lambda body: (b"1.0", b"Content-Length: %d\r\n\r\n" % len(body) + body),
        lambda body: (b"1.1", b"Transfer-Encoding: chunked\r\n\r\n" + bytes_by_byte(body)),
        lambda body: (b"1.1", b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body) + body)]


# name: clients, request, what becomes of the answer
KINDS = {
    "chats": (4, lambda r: chat(r, 60, 24, stream=r.random() < 0.5, temperature=1), "read"),
    "tools": (1, lambda r: chat(r, 20, 32, tools=[TOOL], tool_choice="required"), "read"),
    "many choices": (1, lambda r: chat(r, 10, 12, n=4, logprobs=True, top_logprobs=20, temperature=1), "read"),
    "huge prompts": (1, lambda r: ("POST", "/v1/completions", {"prompt": text(r, 3000), "max_tokens": 1}), "read"),
    "embeddings": (1, lambda r: ("POST", "/v1/embeddings", {"input": [text(r, 30) for _ in range(32)]}), "read"),
    "rerank": (1, lambda r: ("POST", "/v1/rerank", {"query": text(r, 5), "documents": [text(r, 20) for _ in range(8)]}), "read"),
    "tokenize": (1, lambda r: ("POST", "/tokenize", {"prompt": text(r, r.randrange(20000))}), "read"),
    "responses": (2, background, "read"),
    "too much": (1, lambda r: ("POST", "/v1/completions", {"prompt": [5] * 300000, "max_tokens": 1}), "read"),
    "mistakes": (1, lambda r: r.choice([("POST", "/v1/completions", {"prompt": 7}), ("GET", "/nowhere", None), ("POST", "/v1/chat/completions", {})]), "read"),
    "hang-ups": (3, lambda r: chat(r, 60, 500, stream=True, ignore_eos=True), "hang up"),
    "early hang-ups": (1, lambda r: chat(r, 400, 500), "leave"),
    "slow readers": (2, lambda r: chat(r, 20, 40, stream=True, ignore_eos=True), "drip"),
    "odd senders": (2, lambda r: chat(r, 20, 8), "odd"),
    "probes": (1, lambda r: ("GET", r.choice(["/health", "/livez", "/metrics", "/v1/models", "/version"]), None), "read"),
}


class Server:
    def __init__(self, options):
        self.log_path, keys = tempfile.mktemp(prefix="day-", suffix=".log"), [w for line in KEYS.values() for w in ("--api-key", line)]
        command = [options.bin, "serve", options.model, "--port", "0", "--log-format", "json", *keys, *options.option]
        if options.kill_every:
            command += ["--max-engine-deaths", "0"]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)
        while "ready after" not in self.log():
            assert self.process.poll() is None, self.log()
            time.sleep(0.05)
        self.port = int(re.search(r"http://127.0.0.1:(\d+)", self.log()).group(1))
        self.idle = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(options.idle)]

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def send(self, key, method, path, body=None):
        connection = self.connect()
        headers = {"Authorization": "Bearer " + key, **({"Content-Type": "application/json"} if body is not None else {})}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection

    def ask(self, path, body):
        connection = self.send("small", "POST", path, body)
        return connection, connection.getresponse()

    def send_oddly(self, key, rng, path, body):
        """Two of them at once on one connection, whose sending side ends behind them. How many were answered with 200."""
        version, rest = rng.choice(WAYS)(json.dumps(body).encode())
        request = b"POST %s HTTP/%s\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s" % (
            path.encode(), version, key.encode(), rest)
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as connection:
            connection.sendall(request * (2 if version == b"1.1" else 1))
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        return len(re.findall(rb"HTTP/1.[01] 200 ", answer)), 2 if version == b"1.1" else 1

    def kill_engine(self):
        for pid in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{pid}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == self.process.pid:
                        os.kill(int(pid), signal.SIGKILL)

    def get(self, path, key="root"):
        connection = self.send(key, "GET", path)
        answer = connection.getresponse().read().decode()
        connection.close()
        return answer

    def metrics(self):
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in self.get("/metrics").splitlines() if line and line[0] != "#")}

    def wait_idle(self):
        while (m := self.metrics())["flashd_requests_in_flight"] or m["flashd_request_slots_free"] < self.num_slots:
            time.sleep(0.1)
        return m


def use(server, kind, key, end, rng, counts):
    _, make, how = KINDS[kind]
    while time.monotonic() < end:
        method, path, body = make(rng)
        if how == "odd":
            done, asked = server.send_oddly(key, rng, path, body)
            counts[kind, "2xx"] += done
            counts[kind, "unanswered"] += asked - done
            continue
        connection = server.send(key, method, path, body)
        if how == "leave":
            time.sleep(rng.random() * 0.3)
            counts[kind, GONE] += 1
        else:
            response = connection.getresponse()
            while how == "drip" and response.read(200):
                time.sleep(0.02)
            response.readline() if how == "hang up" else response.read()
            counts[kind, GONE if how == "hang up" else f"{response.status // 100}xx"] += 1
        connection.close()
        if kind in ("probes", "mistakes", "rerank"):
            time.sleep(0.05)


def kill_now_and_then(server, end):
    while options.kill_every and time.monotonic() + options.kill_every < end:
        time.sleep(options.kill_every)
        server.kill_engine()


def engine_ms(before, after):
    """Of processor time for a token that was computed."""
    names = ("vllm:request_prefill_kv_computed_tokens_sum", "vllm:generation_tokens_total")
    num_tokens = sum(total(after, n) - total(before, n) for n in names)
    return 1e3 * (after["flashd_engine_cpu_seconds_total"] - before["flashd_engine_cpu_seconds_total"]) / max(num_tokens, 1)


def total(metrics, name, **labels):
    return sum(v for k, v in metrics.items() if k.partition("{")[0] == name and all(f'{a}="{b}"' in k for a, b in labels.items()))


def check(server, before, after, counts, num_quiet, num_gone):
    """What does not add up. Probes are counted by nobody: they have no line and are no clients' requests."""
    problems = []
    answered = collections.Counter()
    for (kind, status), n in counts.items():
        if status[1:] == "xx" and kind != "probes":
            answered[status] += n
    answered["2xx"] += num_quiet
    if counts["odd senders", "unanswered"]:
        problems.append(f"{counts['odd senders', 'unanswered']} requests that were sent oddly have no answer")
    for status in ("2xx", "4xx", "5xx"):
        told = total(after, "flashd_http_requests_total", status=status) - total(before, "flashd_http_requests_total", status=status)
        probes = counts["probes", status]
        most = answered[status] + probes + num_gone if status == "2xx" else answered[status]
        if not answered[status] <= told <= most + 30:
            problems.append(f"{status}: clients have {answered[status]}, the server {told}")
    admitted = after["flashd_requests_admitted_total"]
    finished = total(after, "flashd_requests_finished_total")
    if admitted != finished:
        problems.append(f"admitted {admitted}, finished {finished}")
    lines = [json.loads(line) for line in server.log().splitlines() if '"duration_ms"' in line]
    ended = sum("prompt_tokens" in line for line in lines)
    ids = collections.Counter(line["request_id"] for line in lines)
    if ended != finished or max(ids.values()) > 1:
        problems.append(f"{ended} lines of admitted requests, of {finished}; {max(ids.values())} of one")
    running = json.loads(server.get("/debug/requests"))
    if any(running.get(name) for name in running if isinstance(running[name], list)):
        problems.append(f"/debug/requests: {running}")
    died = "the engine died of signal 9"
    return problems + [line for line in server.log().splitlines() if ('"level":"error"' in line and died not in line) or "invariant" in line]


def main():
    server, fault = Server(options), False
    server.num_slots = server.metrics()["flashd_request_slots_free"]
    for number in range(options.rounds):
        before, counts = server.wait_idle(), collections.Counter()
        end, threads = time.monotonic() + options.seconds, []
        for kind, (num_clients, *_) in KINDS.items():
            for i in range(num_clients):
                key = "big" if (i + len(kind)) % 2 else "small"
                threads.append(threading.Thread(target=use, args=(server, kind, key, end, random.Random(f"{number} {kind} {i}"), counts)))
        threads.append(threading.Thread(target=kill_now_and_then, args=(server, end)))
        for t in threads:
            t.start()
        first, gaps = quiet_chat.quiet(server.ask, end, max_tokens=24, pause=0.1)
        for t in threads:
            t.join()
        after = server.wait_idle()
        num_gone = sum(n for (_, status), n in counts.items() if status == GONE)
        problems = check(server, before, after, counts, len(first), num_gone)
        fault |= bool(problems)
        print("round %d: %d requests, %d left; quiet chat: first token %.0f, p99 %.0f; between tokens %.1f, p99 %.1f" % (
            number + 1, sum(counts.values()), num_gone, percentile(first, 0.5), percentile(first, 0.99), percentile(gaps, 0.5), percentile(gaps, 0.99)))
        print("  engine %.2f ms a token, %.1f MiB; front %.1f MiB, %d descriptors; %d hold-ups" % (
            engine_ms(before, after), after["flashd_engine_resident_memory_bytes"] / 2**20, after["process_resident_memory_bytes"] / 2**20,
            after["process_open_fds"], server.log().count("held up")), flush=True)
        for problem in problems:
            print("  does not add up:", problem, flush=True)
        if options.verbose:
            print("  " + ", ".join(f"{kind} {status} {n}" for (kind, status), n in sorted(counts.items())))
    server.process.terminate()
    fault |= server.process.wait() != 0
    os.unlink(server.log_path)
    return 1 if fault else 0


parser = argparse.ArgumentParser()
parser.add_argument("--bin", default="build/flashd")
parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--kill-every", type=float, default=0, help="seconds between two deaths of the engine")
parser.add_argument("--idle", type=int, default=1000, help="connections that say nothing")
parser.add_argument("--option", action="append", default=[])
parser.add_argument("--verbose", action="store_true")
options = parser.parse_args()
raise SystemExit(main())
