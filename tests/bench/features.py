#!/usr/bin/env python3
"""features.py - what each thing that a request may ask for costs all streams: the same chats without it and with it.

    features.py [--streams 32] [--output 64] [--only NAME]... [--program build/flashd] [--model MODEL] [-- options of flashd]

A row a feature, of its second round: generated tokens a second, first token and time between chunks (median, p99). Prompts are those of the
row before, so most of them are cached, as in a conversation. Exits with 1 if the engine died, which no client notices.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/oracle"))
import oracle  # noqa: E402 - the server and its metrics

DRAWN = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}


def drawn(**members):
    return DRAWN | members


def held(**members):
    return DRAWN | {"structured_outputs": members}


def tools(num):
    return [{"type": "function", "function": {"name": f"f{i}", "description": "does a thing", "parameters": {
        "type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "integer"}}, "required": ["x"]}}} for i in range(num)]


def an_object(**properties):
    return held(json={"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False})


FEATURES = {
    "greedy": {"temperature": 0},
    "top_k, top_p": DRAWN,
    "flat": {"temperature": 1},
    "min_p": {"temperature": 1, "min_p": 0.05},
    "presence": drawn(presence_penalty=1.5),
    "repetition": drawn(repetition_penalty=1.05),
    "bias of 300": drawn(logit_bias={str(i * 7): -1 if i % 2 else 0.5 for i in range(300)}),
    "bad words": drawn(bad_words=["foo", "bar baz"]),
    "stop strings": drawn(stop=["foo bar", "zzzz", "\n\n\n\n", "</end>"]),
    "ids": drawn(return_token_ids=True),
    "5 logprobs": {"temperature": 0, "logprobs": True, "top_logprobs": 5},
    "20 logprobs": drawn(logprobs=True, top_logprobs=20),
    "n 4": drawn(n=4),
    "any JSON": held(json={}),
    "strings": an_object(a={"type": "string", "maxLength": 200}, b={"type": "string", "minLength": 5, "maxLength": 60}),
    "patterns": an_object(a={"type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+){1,30}$"}, b={"type": "string", "pattern": "^(\\w+ ?){3,60}$"}),
    "formats": an_object(a={"type": "string", "format": "email"}, b={"type": "string", "format": "uri"}, c={"type": "string", "format": "date-time"}),
    "schemas": an_object(**{"k{request}": {"type": "string", "maxLength": 100}, "t": {
        "type": "array", "items": {"enum": ["a{request}", "b", "c"]}, "minItems": 20}}),
    "regex": held(regex="[a-z ]{20,4000}"),
    "regex, any": held(regex=".{20,4000}"),
    "regex, lines": held(regex="(- [A-Z][a-z ]{1,80}\\n){3,40}"),
    "grammar": held(grammar='root ::= line+\nline ::= [a-z]{1,40} ": " [^\\n]{1,200} "\\n"'),
    "choices": held(choice=[f"alpha {i}" for i in range(500)]),
    "tools": drawn(tools=tools(8)),
    "tools, required": drawn(tools=tools(8), tool_choice="required"),
    "greedy again": {"temperature": 0},
}


def load(options, server, members):
    command = [options.program, "bench", "serve", "http://127.0.0.1:%d" % server.port, "--json", "--extra-body", json.dumps(members),
               "--requests=%d" % options.streams, "--streams=%d" % options.streams, "--input=64", "--output=%d" % options.output]
    done = subprocess.run(command, capture_output=True, text=True)  # answers with a form may end early, which is an exit status of 1
    return json.loads(done.stdout) if done.stdout else None


def row(told):
    times = ["%s %s, %s" % (name, *(told[key][share] and round(told[key][share], 1) for share in ("p50", "p99")))
             for name, key in (("first token", "ttft_ms"), ("between chunks", "itl_ms"))]
    return "%8.0f tokens/s; ms: %s" % (told["completion_tokens_per_second"], "; ".join(times))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--only", action="append", choices=FEATURES)
    parser.add_argument("--program", default=str(ROOT / "build/flashd"))
    parser.add_argument("--model", default=str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("serve", nargs="*")
    options = parser.parse_args()
    server = oracle.Server(options, [])
    load(options, server, FEATURES["greedy"])
    for name in options.only or FEATURES:
        told = [load(options, server, FEATURES[name]) for _ in range(2)][1]
        print("%-16s %s" % (name, row(told) if told and told["complete"] else "no answers"), flush=True)
    deaths = server.metrics()["flashd_engine_deaths_total"]
    if deaths:
        print("the engine died %d times:\n%s" % (deaths, server.log_end()))
    server.stop()
    sys.exit(1 if deaths else 0)


if __name__ == "__main__":
    main()
