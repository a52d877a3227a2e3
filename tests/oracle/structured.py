#!/usr/bin/env python3
"""structured.py - many constrained answers of the real model: each that ends by itself parses and validates.

    structured.py [--requests 10000] [--schemas 500] [--seed 0] [--threads 32] [--maskbench DIRECTORY]
                  [--program build/flashd] [--model MODEL] [-- options of flashd]

The schemas are those of tests/golden/schemas.json and, where its folder or archive is given, MaskBench's; what the grammar
engine refuses is counted and left out. Temperatures go from 0 to 2, through response_format and structured_outputs, streamed and not. Exits
with 1 when an answer that ended by itself is not JSON or not valid (Python's jsonschema, formats not checked), or when a
request fails otherwise. An answer that was cut by its length must be a beginning: that is not checked here.
"""
import argparse
import collections
import decimal
import json
import pathlib
import random
import sys
import tarfile
import threading

import jsonschema

import answers
import oracle


TEMPERATURES = [0, 0.5, 1.0, 1.5, 2.0]
DIGITS_MAX = 1000
decimal.DefaultContext.prec = 2 * DIGITS_MAX  # of every thread


def exact_number(digits):
    try:
        value = decimal.Decimal(digits)
    except decimal.InvalidOperation:  # an exponent that is no number itself
        return float(digits)
    if value.adjusted() > DIGITS_MAX:
        return float(digits)
    return int(value) if value == value.to_integral_value() else value


def exact(text):
    """Numbers as they are written: in floats 17.17 is no multiple of 0.01."""
    return json.loads(text, parse_float=exact_number)


def golden_schemas():
    schemas = json.loads((oracle.ROOT / "tests/golden/schemas.json").read_text())
    return [{k: v for k, v in s.items() if k not in ("examples", "x-invalid")} if isinstance(s, dict) else s for s in schemas]


def maskbench_texts(path):
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield file.read_text()
        archives = sorted(path.glob("*.tar.xz"))
    else:
        archives = [path]
    for archive in archives:
        with tarfile.open(archive) as tar:
            for member in sorted((m for m in tar if m.name.endswith(".json")), key=lambda m: m.name):
                yield tar.extractfile(member).read().decode()


def is_usable(schema):
    """By the checker itself: it must be a schema, and need no other document."""
    try:
        cls = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        cls.check_schema(schema)
        list(cls(schema).iter_errors({}))
    except Exception:  # noqa: BLE001 - a schema that the checker cannot use proves nothing
        return False
    return True


def all_schemas(options):
    schemas = golden_schemas()
    for path in options.maskbench:
        for text in maskbench_texts(pathlib.Path(path)):
            case = json.loads(text)
            schemas.append(case.get("schema", case) if isinstance(case, dict) else case)
    rng = random.Random(options.seed)
    rng.shuffle(schemas)
    return [s for s in schemas if len(json.dumps(s)) < 50000 and is_usable(s)]


def request(number, schema, seed):
    rng = random.Random("structured %d %d" % (seed, number))
    body = {"messages": [{"role": "user", "content": rng.choice(["Give an example.", "Write JSON.", "Fill in the form."])}],
            "max_tokens": rng.choice([40, 120, 250]), "temperature": rng.choice(TEMPERATURES), "seed": rng.getrandbits(32)}
    if rng.random() < 0.5:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    else:
        body["structured_outputs"] = {"json": schema, "disable_any_whitespace": rng.random() < 0.7}
    if rng.random() < 0.3:
        body.update(stream=True, stream_options={"include_usage": True})
    return body


class Run:
    def __init__(self, options):
        self.options = options
        self.counts = collections.Counter()
        self.problems = []
        self.lock = threading.Lock()
        self.validators = {}

    def validate(self, number, index, schema, text):
        if index not in self.validators:
            cls = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
            self.validators[index] = cls(exact(json.dumps(schema)), format_checker=jsonschema.FormatChecker())
        try:
            value = exact(text)
        except ValueError as error:
            return self.report(number, schema, "not JSON (%s): %r" % (error, text))
        for error in self.validators[index].iter_errors(value):
            return self.report(number, schema, "not valid (%s): %r" % (error.message[:200], text))

    def report(self, number, schema, what):
        self.problems.append("request %d: %s\n  %s" % (number, what, json.dumps(schema)[:600]))

    def take(self, number, index, schema, answer):
        for choice in answer["choices"]:
            with self.lock:
                self.counts[choice["finish_reason"]] += 1
                if choice["finish_reason"] == "stop":
                    self.validate(number, index, schema, choice["text"])

    def send_all(self, server, schemas):
        todo = list(range(self.options.requests))

        def work():
            while True:
                with self.lock:
                    if not todo:
                        return
                    number = todo.pop()
                index = number % len(schemas)
                body = request(number, schemas[index], self.options.seed)
                try:
                    answer, _ = answers.send_patiently(server.port, "/v1/chat/completions", body)
                    self.take(number, index, schemas[index], answer)
                except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to this request
                    with self.lock:
                        self.report(number, schemas[index], repr(error))

        workers = [threading.Thread(target=work) for _ in range(self.options.threads)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()


def accepted(server, schemas, limit):
    """The first of them that the server takes, and how many it refused."""
    taken, refused = [], 0
    for schema in schemas:
        if len(taken) == limit:
            break
        try:
            answers.send(server.port, "/v1/completions", {"prompt": "x", "max_tokens": 1, "guided_json": schema})
            taken.append(schema)
        except AssertionError as error:
            assert str(error).startswith("400"), error
            refused += 1
    return taken, refused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--maskbench", action="append", default=[])
    parser.add_argument("--program", default=str(oracle.ROOT / "build/flashd"))
    parser.add_argument("--model", default=str(oracle.ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("serve", nargs="*")
    options = parser.parse_args()
    server = oracle.Server(options, ["--max-model-len", "1024"])
    run = Run(options)
    schemas, refused = accepted(server, all_schemas(options), options.schemas)
    run.send_all(server, schemas)
    metrics = server.idle_metrics()
    if metrics["flashd_engine_deaths_total"]:
        run.problems.append("the engine died: %s" % server.log_end())
    server.stop()
    for problem in run.problems[:20]:
        print(problem)
    print("%d answers over %d schemas (%d more refused): %d ended by themselves, %d of them wrong or failed; %d cut by their "
          "length; %d masks, %d rows withheld" % (options.requests, len(schemas), refused, run.counts["stop"],
                                                  len(run.problems), run.counts["length"], metrics["flashd_masks_total"],
                                                  metrics["flashd_rows_withheld_total"]))
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
