#!/usr/bin/env python3
"""kills.py - no client notices that the engine died.

    kills.py [--kills 1000] [--requests 256] [--threads 64] [--seed 0] [--program build/flashd] [--model MODEL]
             [-- options of flashd]

Mixed requests (mixture.py), a server whose engine is a thread answers them undisturbed. Then the same ones again and again to a server whose
engine process is killed at random moments, by SIGKILL and by SIGSEGV, in the middle of steps, between them, while it loads, until
--kills is reached. Every answer must equal the undisturbed one byte for byte, and no client may see an error. Without --model a small
model with random weights answers, so that many kills hit many streams. Exits with 1 when anything differs.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time

import oracle

SMALL_MODEL = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 49152, "max_position_embeddings": 2048, "tie_word_embeddings": True, "eos_token_id": 2,
    # Each engine must choose the same of the two, by the longest sequence that there may be.
    "original_max_position_embeddings": 1024,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": [1.0 + 2 * i for i in range(16)]},
}


class Killer(threading.Thread):
    """Ends the engine again and again, at random moments of its life."""

    def __init__(self, server, rng, pause_s):
        super().__init__(daemon=True)
        self.server, self.rng, self.pause_s = server, rng, pause_s
        self.counts, self.stopped = {signal.SIGKILL: 0, signal.SIGSEGV: 0}, False

    def engine_pid(self):
        pid = self.server.process.pid
        children = pathlib.Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()
        return int(children[0]) if children else None

    def run(self):
        while not self.stopped:
            # Mostly while it serves, sometimes before it is back.
            time.sleep(self.rng.random() * (self.pause_s if self.rng.random() < 0.9 else self.pause_s / 20))
            number = self.rng.choice(list(self.counts))
            with contextlib.suppress(ProcessLookupError, OSError):
                pid = self.engine_pid()
                if pid is None:
                    continue
                os.kill(pid, number)
                self.counts[number] += 1

    def num_kills(self):
        return sum(self.counts.values())


def small_model(folder):
    """A directory of random weights and the options that it needs."""
    pathlib.Path(folder, "config.json").write_text(json.dumps(SMALL_MODEL))
    template = pathlib.Path(__file__).resolve().parents[1] / "golden" / "smollm2.jinja"
    return folder, ["--load-format", "dummy", "--chat-template", str(template)]


def recovery_times(server):
    log = pathlib.Path(server.log.name).read_text()
    return [float(s) for s in re.findall(r"the engine is back after ([0-9.]+) s", log)]


def disturbed_rounds(o, options, known):
    """Rounds of all requests until there were enough kills; how many, and the kills."""
    server = oracle.Server(options, ["--max-engine-deaths", "0", "--max-num-seqs", "64"])
    killer = Killer(server, random.Random("kills %d" % options.seed), options.pause)
    killer.start()
    rng, num_rounds, num_compared = random.Random(options.seed), 0, 0
    while killer.num_kills() < options.kills and not o.problems:
        order = rng.sample(range(len(o.requests)), len(o.requests))
        results, _ = o.send_all(server, options.threads, order)
        num_compared += o.compare("round %d, %d kills" % (num_rounds, killer.num_kills()), known, results)
        num_rounds += 1
    killer.stopped = True
    killer.join()
    deadline = time.monotonic() + 30
    while not server.is_ready() and time.monotonic() < deadline:
        time.sleep(0.05)
    m = server.idle_metrics()
    if m["flashd_requests_admitted_total"] != m["flashd_requests_finished_total"]:
        o.problems.append("admitted %d, finished %d" % (m["flashd_requests_admitted_total"], m["flashd_requests_finished_total"]))
    times = recovery_times(server)
    server.stop()
    print("%d kills (%s) under %d streams, %d rounds, %d deaths counted; back after %.3f s (median), at most %.3f s" % (
        killer.num_kills(), ", ".join("%d %s" % (n, s.name) for s, n in killer.counts.items()), options.threads, num_rounds,
        m["flashd_engine_deaths_total"], statistics.median(times or [0]), max(times or [0])))
    return num_compared


def run(options):
    o = oracle.Oracle(options)
    undisturbed = oracle.Server(options, ["--engine", "thread"])
    known, _ = o.send_all(undisturbed, options.threads, range(len(o.requests)))
    undisturbed.stop()
    num_compared = disturbed_rounds(o, options, known)
    print("%d answers compared, %d problems" % (num_compared, len(o.problems)))
    for problem in o.problems[:10]:
        print(problem)
    return not o.problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.6, help="longest time between two kills, in seconds")
    parser.add_argument("--program", default=str(oracle.ROOT / "build/flashd"))
    parser.add_argument("--model")
    parser.add_argument("serve", nargs="*", help="options of flashd, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not options.model:
            options.model, extra = small_model(folder)
            options.serve = extra + options.serve
        sys.exit(0 if run(options) else 1)


if __name__ == "__main__":
    main()
