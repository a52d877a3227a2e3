"""`flashd check`: the real server holds all of it; a small server with one fault at a time is found out by the row that is for it."""

import contextlib
import http.server
import json
import math
import subprocess
import threading
import time

import pytest

from conftest import BINARY, free_port

WORDS = "one two three four five six seven eight nine ten".split()


def check(*args, code=0):
    done = subprocess.run([str(BINARY), "check", *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def rows(url, code=0):
    return {row["name"]: row for row in json.loads(check(url, "--json", "--model=m", code=code).stdout)}


def test_the_real_server_holds_it(server):
    lines = check(server.url).stdout.splitlines()
    assert lines[-1] == f"{len(lines) - 1} hold, 0 fail, 0 refused" and len(lines) > 20


class Small(http.server.BaseHTTPRequestHandler):
    """A server of chats and completions that answers ten words, and lies as its server's fault says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        try:
            with self.server.lock:
                self.server.in_flight += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, data = self.answer(body)
        finally:
            with self.server.lock:
                self.server.in_flight -= 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fault(self, name):
        return self.server.fault == name

    def refuse(self, status, message):
        if self.fault("a bad request is answered"):
            return 200, b"{}"
        if self.fault("errors are text"):
            return status, message.encode()
        return status, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()

    def answer(self, body):
        try:
            asked = json.loads(body)
        except ValueError:
            return self.refuse(400, "no JSON")
        is_chat = self.path == "/v1/chat/completions"
        if not is_chat and self.path != "/v1/completions":
            return self.refuse(404, "no route")
        if not self.is_right(asked, is_chat):
            return self.refuse(400, "no")
        if self.fault("no logprobs here") and asked.get("logprobs"):
            return self.refuse(400, "logprobs are not served")
        return 200, self.text_of(asked, is_chat)

    def is_right(self, asked, is_chat):
        if not isinstance(asked, dict) or asked.get("model") != "m":
            return False
        if is_chat:
            messages = asked.get("messages")
            if not isinstance(messages, list) or not isinstance(messages[0], dict) or messages[0].get("role") != "user":
                return False
        elif "prompt" not in asked:
            return False
        def number(name, least, most):
            value = asked.get(name, 1)
            return isinstance(value, (int, float)) and least <= value <= most
        return (number("max_tokens", 0, 99) and number("temperature", 0, 2) and number("top_p", 0, 1) and number("n", 1, 9)
                and not isinstance(asked.get("stop"), dict) and "logit_bias" not in asked)

    def tokens(self, asked):
        tokens, reason = [word + " " for word in WORDS[:asked.get("max_tokens", 10)]], "length" if asked.get("max_tokens", 10) <= 10 else "stop"
        if self.fault("neighbours") and asked["max_tokens"] > 5:
            time.sleep(0.02)
            if self.server.in_flight > 1:
                tokens[3] = "neighbour "
        if self.fault("seeds are ignored") and asked.get("temperature"):
            self.server.count += 1
            tokens[0] = f"{self.server.count} "
        for stop in asked.get("stop", []):
            at = "".join(tokens).find(stop)
            if at >= 0:
                tokens, reason = ["".join(tokens)[:at + (len(stop) if self.fault("the stop stays") else 0)]], "stop"
        return tokens, reason

    def choice(self, index, text, reason, is_chat, part):
        own = {part: {"role": "assistant", "content": text}} if is_chat else {"text": text}
        return {"index": index, "finish_reason": reason, **own}

    def text_of(self, asked, is_chat):
        tokens, reason = self.tokens(asked)
        count = len(tokens)
        usage = {"prompt_tokens": 4, "completion_tokens": count, "total_tokens": 4 + count + self.fault("totals")}
        if asked.get("stream"):
            usage["completion_tokens"] += self.fault("a stream counts otherwise")
            tokens = tokens[:-1] if self.fault("a stream loses its last token") else tokens
            events = [{"choices": [self.choice(0, token, None, is_chat, "delta")]} for token in tokens]
            events += [{"choices": [self.choice(0, "", reason, is_chat, "delta")]}, {"choices": [], "usage": usage}]
            text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
            return (text + ("" if self.fault("no [DONE]") else "data: [DONE]\n\n")).encode()
        choices = [self.choice(i, "".join(tokens), reason, is_chat, "message") for i in range(asked.get("n", 1))]
        if self.fault("one choice for three"):
            choices = choices[:1]
        if asked.get("logprobs"):
            chosen = math.log(0.2 if self.fault("greedy takes the second") else 0.6)
            top = [0.6, 0.9 if self.fault("probabilities above 1") else 0.3]
            choices[0]["logprobs"] = {"content": [{"token": t, "logprob": chosen, "top_logprobs": [
                {"token": "x", "logprob": math.log(p)} for p in top]} for t in tokens]}
        return json.dumps({"choices": choices, "usage": usage}).encode()


class Listener(http.server.ThreadingHTTPServer):
    request_queue_size = 64


@contextlib.contextmanager
def small(fault=None):
    with Listener(("127.0.0.1", 0), Small) as server:
        server.fault, server.in_flight, server.count, server.lock = fault, 0, 0, threading.Lock()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_right_server():
    with small() as url:
        found = rows(url)
    assert {row["verdict"] for row in found.values()} == {"ok"} and len(found) > 20


GREEDY, SEEDED = "greedy: the same alone and among others", "seeded: the same alone and among others"
CHAT, COMPLETIONS = "chat: a stream is what the whole is", "completions: a stream is what the whole is"


@pytest.mark.parametrize("fault, broken", [
    ("neighbours", {GREEDY, SEEDED}), ("seeds are ignored", {SEEDED}), ("a stream loses its last token", {CHAT, COMPLETIONS}),
    ("no [DONE]", {CHAT, COMPLETIONS}), ("a stream counts otherwise", {CHAT, COMPLETIONS}),
    ("the stop stays", {"stop strings cut before themselves"}), ("totals", {"usage counts"}),
    ("probabilities above 1", {"logprobs are probabilities"}), ("greedy takes the second", {"logprobs are probabilities"}),
    ("one choice for three", {"n gives as many choices"})])
def test_each_fault_is_found(fault, broken):
    with small(fault) as url:
        found = rows(url, code=1)
    assert {name for name, row in found.items() if row["verdict"] == "FAIL"} == broken
    assert all(row["why"] for row in found.values() if row["verdict"] == "FAIL")


@pytest.mark.parametrize("fault", ["a bad request is answered", "errors are text"])
def test_bad_requests(fault):
    with small(fault) as url:
        found = rows(url, code=1)
    assert all((row["verdict"] == "FAIL") == (row["kind"] == "bad request") for row in found.values())


def test_what_is_refused_is_told_and_no_failure():
    with small("no logprobs here") as url:
        row = rows(url)["logprobs are probabilities"]
    assert (row["verdict"], row["why"]) == ("refused", "status 400: logprobs are not served")


def test_no_server():
    port = free_port()
    assert f"127.0.0.1 port {port}: Connection refused" in check(f"http://127.0.0.1:{port}", code=1).stderr
    assert "no answer" in check(f"http://127.0.0.1:{port}", "--model=m", code=1).stdout
    assert check(code=2).stderr == "flashd: check URL [options] is expected\n"
