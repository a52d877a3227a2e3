"""conversation.py PROGRAM MODEL [TURNS QUESTION ANSWER [OPTION...]]: a conversation with random weights, with --share-answers and without.

Prompts are token ids, so that an answer's tokens are those of the next turn's prompt; MODEL's config.json is given a tokenizer of bytes and two
control tokens. Each turn is told to an empty cache as well: the answers must be equal. Prints what was computed and when the first token came."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

START, END, PORT = 256, 257, 8478
HEADER = [START, *b"assistant\n"]
TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "smollm2.jinja")


def make_model(config, folder):
    shutil.copy(config, folder + "/config.json")
    names = [chr(b if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else 256 + (b if b <= 32 else b - 127 + 33 if b <= 160 else 67)) for b in range(256)]
    added = [
        {"content": c, "id": START + i, "special": True, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
        for i, c in enumerate(["<|im_start|>", "<|im_end|>"])
    ]
    tokenizer = {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": added,
        "model": {"type": "BPE", "vocab": {n: i for i, n in enumerate(names)}, "merges": []},
    }
    with open(folder + "/tokenizer.json", "w") as f:
        json.dump(tokenizer, f)
    with open(folder + "/tokenizer_config.json", "w") as f:
        json.dump({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}, f)


def ask(prompt, seed, salt, max_tokens):
    """The answer's ids, how many of the prompt's tokens were computed, milliseconds to the first token."""
    body = {"prompt": prompt, "max_tokens": max_tokens, "seed": seed, "cache_salt": salt, "ignore_eos": True, "stream": True}
    body |= {"logit_bias": {str(START): -100, str(END): -100}, "return_token_ids": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    begin, first, ids, usage = time.time(), None, [], None
    with urllib.request.urlopen(request, timeout=300) as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("choices"):
                ids += event["choices"][0].get("token_ids") or []
                first = first or time.time() - begin
            usage = event.get("usage") or usage
    return ids, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"], 1000 * first


def wait_until_ready(server):
    while server.poll() is None:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5)
        except OSError:
            time.sleep(0.1)
    sys.exit("the server has ended")


def converse(turns, question, answer):
    r, ids, known, total, equal = random.Random(7), [], 0, 0, True
    for n in (3, min(2000, turns * answer)):
        ask([r.randrange(256) for _ in range(n)], 0, "warm up", 4)
    for turn in range(turns):
        ids += [START, *b"user\n"] + [r.randrange(256) for _ in range(question)] + [END, 10] + HEADER
        new, computed, ms = ask(ids, turn, "told", answer)
        cold, all_computed, cold_ms = ask(ids, turn, f"cold {turn}", min(answer, 20))
        same = cold == new[: len(cold)] and len(new) == answer
        equal, total = equal and same, total + computed
        times = f"first token {ms:.1f} ms, cold {cold_ms:.1f} ms"
        print(f"turn {turn}: {len(ids)} tokens, {len(ids) - known} new, {computed} computed, cold {all_computed}; {times}{'' if same else '; DIFFERENT'}", flush=True)
        known = len(ids) + len(new) - 1
        ids += [*new, END, 10]
    print(f"{len(ids)} tokens, {total} of prompts computed, warm and cold {'equal' if equal else 'DIFFERENT'}", flush=True)
    return equal


def run(share, program, folder, sizes, options):
    print("answers shared:" if share else "prompts alone:", flush=True)
    command = [program, "serve", folder, "--load-format", "dummy", "--chat-template", TEMPLATE, "--port", str(PORT), f"--share-answers={str(share).lower()}", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_ready(server)
            return converse(*sizes)
        finally:
            server.send_signal(signal.SIGTERM)


def main():
    program, model, *rest = sys.argv[1:]
    sizes = [int(x) for x in rest[:3]] or [20, 12, 100]
    options = rest[3:] or ["--device", "cuda", "--max-model-len", "8192"]
    with tempfile.TemporaryDirectory() as folder:
        make_model(model + "/config.json", folder)
        equal = [run(share, program, folder, sizes, options) for share in (True, False)]
    sys.exit(not all(equal))


main()
