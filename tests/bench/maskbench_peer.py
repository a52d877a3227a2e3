"""maskbench_peer.py ENGINE WORK TOKENIZER FIRST TIMEOUT - one peer over the schemas of WORK from number FIRST on.

A line of JSON for each schema, as bench_grammar prints. Run by maskbench.py; ends by SIGALRM when a schema takes more
than TIMEOUT seconds. xgrammar gets a process for each schema, with TIMEOUT seconds of processor time and MEMORY bytes: it
may take more of both than there is."""
import importlib
import json
import os
import resource
import signal
import sys
import time

import tokenizers

os.environ["RAYON_NUM_THREADS"] = "1"
ENGINE, WORK, TOKENIZER, FIRST, TIMEOUT = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
TOKENIZER_FILE = os.path.join(TOKENIZER, "tokenizer.json")
MEMORY = 6 << 30


def now():
    return time.thread_time_ns() / 1000


class Llguidance:
    def __init__(self):
        import llguidance
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        with open(TOKENIZER_FILE, encoding="utf-8") as f:
            self.tokenizer = llguidance.LLTokenizer(f.read())
        self.llguidance, self.fill = llguidance, fill_next_token_bitmask
        self.mask = allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        grammar = json.dumps({"grammars": [{"json_schema": schema}]})
        self.first = self.llguidance.LLMatcher(self.tokenizer, grammar)
        if self.first.is_error():
            raise ValueError(self.first.get_error())

    def reset(self):
        self.matcher = self.first.deep_copy()

    def step(self, token):
        self.fill(self.matcher, self.mask, 0)
        allowed = (int(self.mask[0, token // 32]) >> (token % 32)) & 1
        return bool(allowed and self.matcher.consume_token(token))

    def can_end(self):
        return self.matcher.is_accepting()


class Xgrammar:
    def __init__(self):
        from unittest import mock

        import numpy
        importlib.import_module("tvm_ffi")  # before there seems to be a torch

        for name in ("torch", "transformers", "triton"):  # it imports them, and needs none for numpy's masks
            sys.modules.setdefault(name, mock.MagicMock(Tensor=type("Tensor", (), {})))
        import xgrammar

        self.xgrammar = xgrammar
        vocabulary = tokenizers.Tokenizer.from_file(TOKENIZER_FILE).get_vocab(with_added_tokens=True)
        names = [""] * (max(vocabulary.values()) + 1)
        for name, token in vocabulary.items():
            names[token] = name
        self.end = vocabulary["<|end_of_text|>"]
        info = xgrammar.TokenizerInfo(names, xgrammar.VocabType.BYTE_LEVEL, stop_token_ids=[self.end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = numpy.zeros((1, (len(names) + 31) // 32), dtype=numpy.int32)

    def compile(self, schema):
        self.grammar = self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)

    def reset(self):
        self.matcher = self.xgrammar.GrammarMatcher(self.grammar)

    def fill(self):
        if not self.matcher.fill_next_token_bitmask(self.mask):
            self.mask[:] = -1

    def step(self, token):
        self.fill()
        allowed = (int(self.mask[0, token // 32]) >> (token % 32)) & 1
        return bool(allowed and self.matcher.accept_token(token))

    def can_end(self):
        self.fill()
        return bool((int(self.mask[0, self.end // 32]) >> (self.end % 32)) & 1)


def follow(engine, text, tokenizer):
    engine.reset()
    times, ok = [], True
    for token in tokenizer.encode(text, add_special_tokens=False).ids:
        begin = now()
        ok = engine.step(token)
        times.append(round(now() - begin, 2))
        if not ok:
            break
    return {"us": times, "accepted": bool(ok and engine.can_end())}


def measure(engine, item, tokenizer):
    schema = json.loads(item["schema"])
    begin = now()
    result = {"status": 0, "error": ""}
    try:
        engine.compile(schema)
        if ENGINE == "llguidance":  # it compiles lazily: the first mask belongs to it, as in MaskBench's figures
            engine.reset()
            engine.fill(engine.matcher, engine.mask, 0)
    except Exception as error:  # pylint: disable=broad-except
        result = {"status": -4, "error": str(error)[:200]}
    result["compile_us"] = now() - begin
    if not result["status"]:
        result["tests"] = [follow(engine, t["text"], tokenizer) for t in item["tests"]]
    return result


def measure_apart(engine, item, tokenizer):
    """In a process that is ended by its limits; it begins with a schema that nobody measures, to have its pages."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        engine.compile({"type": "object"})
        engine.reset()
        engine.fill()
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + TIMEOUT, used + TIMEOUT + 1))
        signal.alarm(10 * TIMEOUT)  # of the clock: for one that waits for ever
        print(json.dumps(measure(engine, item, tokenizer)), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(json.dumps({"status": -1, "error": "ended by signal %d" % os.WTERMSIG(status)}), flush=True)


def main():
    tokenizer = tokenizers.Tokenizer.from_file(TOKENIZER_FILE)
    engine = {"llguidance": Llguidance, "xgrammar": Xgrammar}[ENGINE]()
    with open(WORK, encoding="utf-8") as work:
        for number, line in enumerate(work):
            if number < FIRST:
                continue
            item = json.loads(line)
            if ENGINE == "xgrammar":
                measure_apart(engine, item, tokenizer)
                continue
            signal.alarm(TIMEOUT)
            print(json.dumps(measure(engine, item, tokenizer)), flush=True)
            signal.alarm(0)


if __name__ == "__main__":
    main()
