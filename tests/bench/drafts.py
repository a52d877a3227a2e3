#!/usr/bin/env python3
"""drafts.py - what drafts bring (--num-speculative-tokens), and that they change no answer.

    drafts.py [--case NAME ...] [--tokens 7] [--streams 1] [--requests 12] [--rounds 2]
              [--program build/flashd] [--model models/SmolLM2-135M-Instruct.Q4_1.gguf]

For each case the same requests go to a server without drafts and to one with them, in turns. One line for each turn: tokens, steps,
tokens/s, processor time a token of front and engine, and what became of drafted tokens. Exits with 1 when answers differ.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

STORY = (
    "The lighthouse keeper walked down the stone stairs every morning at six. He carried a small brass lamp, a loaf of bread, and a "
    "notebook with a blue cover. At the bottom of the stairs he stopped to look at the sea, wrote down the colour of the water, and then "
    "walked back up to the kitchen to make tea. On Sundays he did not write anything, but he still looked at the sea for a long time "
    "before he went back up.")


def chat(text, number, **fields):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 160, "seed": number, "temperature": (0, 0.6)[number % 2],
            "logprobs": number % 3 == 0, **fields}


def penalties(number):
    """An answer that quotes its prompt, with Qwen2.5's penalty."""
    return chat("Repeat this text word for word:\n\n%d. %s" % (number, STORY), number, repetition_penalty=1.05)


def limits(number):
    """The same, without a word of it."""
    return chat("Repeat this text word for word:\n\n%d. %s" % (number, STORY), number, bad_words=["brass", "blue cover"])


# Opens a block of reasoning.
THINKS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")


def reasoning(number):
    """The form begins where the reasoning ends; what is quoted is in the reasoning."""
    return chat("Repeat this text word for word:\n\n%d. %s" % (number, STORY), number, response_format={"type": "json_object"})


def edit(number):
    """The text once more, with another word in it."""
    return chat("Repeat this text, but write \"seven\" instead of \"six\":\n\n%d. %s" % (number, STORY), number)


def prediction(number):
    """The same, and the client says so."""
    return {**edit(number), "prediction": {"type": "content", "content": "%d. %s" % (number, STORY)}}


CASES = {case.__name__: case for case in (penalties, limits, reasoning, edit, prediction)}


class Server:
    def __init__(self, options, num_drafted, template):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.url = "http://127.0.0.1:%d" % s.getsockname()[1]
        self.log = tempfile.NamedTemporaryFile(prefix="flashd-drafts-", suffix=".log")
        self.template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        self.template.write(template)
        self.template.flush()
        command = [options.program, "serve", options.model, "--port", self.url.rsplit(":", 1)[1], "--num-speculative-tokens", str(num_drafted)]
        if template:
            command += ["--chat-template", self.template.name]
        self.process = subprocess.Popen(command, stderr=self.log, stdout=subprocess.DEVNULL)
        while not self.is_ready():
            assert self.process.poll() is None, pathlib.Path(self.log.name).read_text()
            time.sleep(0.05)

    def is_ready(self):
        try:
            return urllib.request.urlopen(self.url + "/health").status == 200
        except OSError:
            return False

    def ask(self, body):
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def counters(self):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        steps = re.search(r"^flashd_engine_steps_total\S* (\S+)", text, re.M)
        drafts = dict(re.findall(r'^flashd_draft_tokens_total\{.*result="(\w+)"\} (\S+)', text, re.M))
        return int(float(steps[1])), int(float(drafts["accepted"])), int(float(drafts["rejected"])), self.processor_s()

    def processor_s(self):
        pids = [self.process.pid, *pathlib.Path("/proc/%d/task/%d/children" % (2 * (self.process.pid,))).read_text().split()]
        stats = [pathlib.Path("/proc/%s/stat" % pid).read_text().rsplit(")", 1)[1].split() for pid in pids]
        return sum(int(s[11]) + int(s[12]) for s in stats) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def without_names(choice):
    for call in choice["message"].get("tool_calls") or []:
        del call["id"]
    return choice


def turn(options, case, num_drafted):
    """Returns the answers, and prints what they took."""
    server = Server(options, num_drafted, THINKS if case is reasoning else "")
    server.ask(chat("Hello", 0))
    before, begin = server.counters(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.streams) as pool:
        answers = list(pool.map(server.ask, map(case, range(options.requests))))
    seconds, after = time.monotonic() - begin, server.counters()
    server.stop()
    num_tokens = sum(a["usage"]["completion_tokens"] for a in answers)
    steps, accepted, rejected, processor_s = (b - a for a, b in zip(before, after))
    details = [a["usage"]["completion_tokens_details"] for a in answers]
    predicted = tuple(sum(d.get(name + "_prediction_tokens", 0) for d in details) for name in ("accepted", "rejected"))
    print("%-12s %2d drafted: %d tokens in %d steps, %.0f tokens/s, %.2f ms of processor a token, %d accepted, %d rejected (%d, %d of a prediction)" % (
        case.__name__, num_drafted, num_tokens, steps, num_tokens / seconds, 1000 * processor_s / num_tokens, accepted, rejected, *predicted), flush=True)
    return [[without_names(c) for c in a["choices"]] for a in answers]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--tokens", type=int, default=7)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--program", default="build/flashd")
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    options = parser.parse_args()
    num_different = 0
    for name in options.case or CASES:
        turns = [turn(options, CASES[name], num) for _ in range(options.rounds) for num in (0, options.tokens)]
        num_different += sum(answer != turns[0][i] for answers in turns[1:] for i, answer in enumerate(answers))
    print("%d answers differ" % num_different)
    sys.exit(num_different > 0)


main()
