#!/usr/bin/env python3
"""masks.py - what a form costs: the same streams with and without one, by turns, on one server.

    masks.py [--streams 32] [--output 64] [--input 64] [--rounds 5] [--temperature 1] [--different]
             [--program build/flashd] [--model MODEL] [-- options of flashd]

The form is an array of objects that does not end within the output, with --different one of its own for each stream; a round is one `flashd bench serve` with it and one without. Prints for
both the tokens a second (median of the rounds) and the processor time of front and engine for a thousand tokens, which other
programs on the machine hardly change, and the ratios.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/oracle"))
import oracle  # noqa: E402 - the server and its metrics

SCHEMA = {"type": "array", "minItems": 1000, "items": {
    "type": "object", "required": ["name", "size", "kind"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 30}, "size": {"type": "integer"},
                   "kind": {"enum": ["plant", "animal", "stone"]}}}}
DIFFERENT = {"type": "array", "minItems": 1000, "items": {
    "type": "object", "required": ["name{request}", "size", "kind{request}"], "additionalProperties": False,
    "properties": {"name{request}": {"type": "string", "maxLength": 30, "pattern": "^[a-z{request} ]+$"}, "size": {"type": "integer"},
                   "kind{request}": {"enum": ["plant{request}", "animal", "{request}stone"]}}}}


def processor_seconds(pid):
    """Of the process and those that it has started."""
    total = 0
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if entry.name == str(pid) or fields[1] == str(pid):
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def run(options, server, members, seed):
    """(tokens a second, processor seconds for a thousand tokens)"""
    before = processor_seconds(server.process.pid)
    sizes = {"requests": options.streams, "streams": options.streams, "input": options.input, "output": options.output}
    told = json.loads(subprocess.run(
        [options.program, "bench", "serve", "http://127.0.0.1:%d" % server.port, "--vocab=40000", "--seed=%d" % seed, "--json",
         "--extra-body", json.dumps(members), *("--%s=%d" % size for size in sizes.items())],
        check=True, capture_output=True, text=True).stdout)
    seconds = processor_seconds(server.process.pid) - before
    return told["completion_tokens_per_second"], seconds / (options.streams * options.output) * 1000


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("streams", 32), ("output", 64), ("input", 64), ("rounds", 5)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--temperature", type=float, default=1)
    parser.add_argument("--program", default=str(ROOT / "build/flashd"))
    parser.add_argument("--model", default=str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--different", action="store_true")
    parser.add_argument("serve", nargs="*")
    options = parser.parse_args()
    plain = {"temperature": options.temperature}
    kinds = {"plain": plain, "with a form": {**plain, "structured_outputs": {"json": DIFFERENT if options.different else SCHEMA}}}
    server = oracle.Server(options, [])
    results = {kind: [] for kind in kinds}
    for number in range(options.rounds + 1):
        for i, (kind, members) in enumerate(kinds.items()):
            result = run(options, server, members, 2 * number + i)  # prompts of its own: none is cached
            if number > 0:  # the first warms up
                results[kind].append(result)
    metrics = server.idle_metrics()
    server.stop()
    rates = {kind: statistics.median(r for r, _ in results[kind]) for kind in kinds}
    costs = {kind: statistics.median(c for _, c in results[kind]) for kind in kinds}
    for kind in kinds:
        print("%-12s %8.1f tokens/s, %.3f processor seconds for 1,000 tokens" % (kind, rates[kind], costs[kind]))
    print("ratio        %8.3f           %.3f; %d masks, %d rows withheld" % (
        rates["with a form"] / rates["plain"], costs["with a form"] / costs["plain"],
        metrics["flashd_masks_total"], metrics["flashd_rows_withheld_total"]))


if __name__ == "__main__":
    main()
