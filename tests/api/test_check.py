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

FORMED = '{"color": "red", "coats": 2, "dry": false}'
WORDS = "one two three four five six seven eight nine ten".split()


def check(*args, code=0):
    done = subprocess.run([str(BINARY), "check", *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def rows(url, code=0, pairs=20):
    return {row["name"]: row for row in json.loads(check(url, "--json", "--model=m", f"--pairs={pairs}", code=code).stdout)}


@pytest.mark.slow
def test_the_real_server_holds_it(server):
    lines = check(server.url, "--pairs=25").stdout.splitlines()
    assert lines[-1] == f"{len(lines) - 1} hold, 0 fail, 0 not offered" and len(lines) > 30


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
        if not is_chat and (self.path != "/v1/completions" or self.fault("chats alone")):
            return self.refuse(404, "no route")
        if isinstance(asked, dict):
            if self.fault("a hostile field breaks it") and "metadata" in asked:
                return 500, b"oh"
            asked = {name: value for name, value in asked.items() if value is not None}
        if not self.is_right(asked, is_chat):
            self.server.spoilt = isinstance(asked, dict) and "metadata" in asked
            return self.refuse(400, "no")
        if self.fault("chats alone") and asked.keys() & {"logprobs", "n", "tools", "response_format"}:
            return self.refuse(400, "that is not served")
        if self.fault("logprobs break it") and asked.get("logprobs"):
            return 500, b"oh"
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

        def number(name, least, most, types=(int, float)):
            value = asked.get(name, 1)
            return isinstance(value, types) and not isinstance(value, bool) and least <= value <= most

        def is_a(name, kind):
            return isinstance(asked.get(name, kind()), kind)
        stop, bias, options = asked.get("stop", "a"), asked.get("logit_bias", {}), asked.get("stream_options")
        return (number("max_tokens", 0, 999, int) and number("temperature", 0, 2) and number("top_p", 0, 1)
                and number("n", 1, 9, int) and number("seed", -2**63, 2**64, int) and number("top_logprobs", 0, 20, int)
                and number("presence_penalty", -2, 2) and number("frequency_penalty", -2, 2)
                and all(isinstance(s, str) and s for s in (stop if isinstance(stop, list) else [stop]))
                and isinstance(bias, dict) and all(token.isdigit() for token in bias)
                and is_a("logprobs", bool) and is_a("stream", bool) and is_a("user", str) and is_a("metadata", dict)
                and is_a("parallel_tool_calls", bool) and (options is None or isinstance(options, dict) and asked.get("stream"))
                and self.has_right_tools(asked) and self.form_of(asked) is not None)

    def has_right_tools(self, asked):
        tools, choice = asked.get("tools", []), asked.get("tool_choice", "auto")
        try:
            names = [tool["function"]["name"] for tool in tools]
            return choice in ("none", "auto") or bool(names) and (choice == "required" or choice["function"]["name"] in names)
        except (TypeError, KeyError):
            return False

    def form_of(self, asked):
        """False: there is none; None: it is wrong."""
        try:
            form = asked.get("response_format")
            return form is not None and form["type"] == "json_schema" and isinstance(form["json_schema"]["schema"], dict)
        except (TypeError, KeyError):
            return None

    def tokens(self, asked, prompt):
        limit = asked.get("max_tokens", 10)
        tokens, reason = [word + " " for word in WORDS[:limit]], "length" if limit <= 10 else "stop"
        if self.form_of(asked) and not self.fault("forms are forgotten"):
            return [FORMED[:9], FORMED[9:]], "stop"
        if self.fault("prompts leak") and "bird" in prompt:
            with self.server.lock:
                tokens, self.server.prompt = [self.server.prompt], prompt
        if self.fault("neighbours") and limit > 5:
            time.sleep(0.02)
            if self.server.in_flight > 1:
                tokens[3] = "neighbour "
        if self.fault("a refusal spoils the next") and self.server.spoilt:
            tokens[0] = "spoilt "
        if self.fault("seeds are ignored") and asked.get("temperature"):
            self.server.count += 1
            tokens[0] = f"{self.server.count} "
        stops = asked.get("stop", [])
        for stop in [stops] if isinstance(stops, str) else stops:
            at = "".join(tokens).find(stop)
            if at >= 0:
                tokens, reason = ["".join(tokens)[:at + (len(stop) if self.fault("the stop stays") else 0)]], "stop"
        return tokens, reason

    def call_of(self, asked):
        """None: nothing is called."""
        choice = asked.get("tool_choice", "auto")
        if choice == "auto" or choice == "none" and not self.fault("none calls"):
            return None
        arguments = FORMED[:-1] if self.fault("arguments are cut") else FORMED
        if self.fault("a streamed call is another") and asked.get("stream"):
            arguments = arguments.replace("red", "blue")
        name = "open_door" if self.fault("another function") else "paint_wall"
        return {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}

    def choice(self, index, text, reason, is_chat, part, call=None):
        own = {part: {"role": "assistant", "content": text, **({"tool_calls": [call]} if call else {})}} if is_chat else {"text": text}
        return {"index": index, "finish_reason": reason, **own}

    def text_of(self, asked, is_chat):
        tokens, reason = self.tokens(asked, asked["messages"][0]["content"] if is_chat else asked["prompt"])
        call = self.call_of(asked) if is_chat else None
        if call:
            tokens, reason = [], "tool_calls"
        count = max(len(tokens), 1)
        usage = {"prompt_tokens": 4, "completion_tokens": count, "total_tokens": 4 + count + self.fault("totals")}
        if asked.get("stream"):
            usage["completion_tokens"] += self.fault("a stream counts otherwise")
            tokens = tokens[:-1] if self.fault("a stream loses its last token") else tokens
            events = [{"choices": [self.choice(0, token, None, is_chat, "delta")]} for token in tokens]
            events += [{"choices": [self.choice(0, "", reason, is_chat, "delta", call)]}, {"choices": [], "usage": usage}]
            text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
            return (text + ("" if self.fault("no [DONE]") else "data: [DONE]\n\n")).encode()
        choices = [self.choice(i, "".join(tokens), reason, is_chat, "message", call) for i in range(asked.get("n", 1))]
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
        server.prompt, server.spoilt = "", False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_right_server():
    with small() as url:
        found = rows(url)
    assert {row["verdict"] for row in found.values()} == {"ok"} and len(found) > 20


GREEDY, SEEDED = "greedy: the same alone and among others", "seeded: the same alone and among others"
MIXED, CANARIES = "mixed: the same alone and among others", "no answer has words of another's prompt"
CHAT, COMPLETIONS = "chat: a stream is what the whole is", "completions: a stream is what the whole is"
LOGPROBS, CHOICES, FORM = "logprobs are probabilities", "n gives as many choices", "json_schema: answers have the form"
REQUIRED, NAMED, NONE = "tools: a required call has its form", "tools: the named function is called", "tools: none calls none"
STREAMED, RESULT = "tools: a streamed call is what the whole is", "tools: a result is taken"
PAIRS = "pairs of hostile fields: answered or refused, and the next is as ever"


def broken_rows(found):
    assert all(row["why"] for row in found.values() if row["verdict"] != "ok")
    return {name for name, row in found.items() if row["verdict"] == "FAIL"}


@pytest.mark.parametrize("fault, broken", [
    ("neighbours", {GREEDY, SEEDED, MIXED}), ("seeds are ignored", {SEEDED, MIXED}), ("prompts leak", {CANARIES}),
    ("a stream loses its last token", {CHAT, COMPLETIONS, FORM}),
    ("no [DONE]", {CHAT, COMPLETIONS}), ("a stream counts otherwise", {CHAT, COMPLETIONS}),
    ("the stop stays", {"stop strings cut before themselves"}), ("totals", {"usage counts"}),
    ("probabilities above 1", {LOGPROBS}), ("greedy takes the second", {LOGPROBS}), ("logprobs break it", {LOGPROBS, MIXED}),
    ("one choice for three", {CHOICES}), ("forms are forgotten", {FORM}), ("another function", {REQUIRED, NAMED, STREAMED}),
    ("arguments are cut", {REQUIRED, NAMED, STREAMED}), ("a streamed call is another", {STREAMED}), ("none calls", {NONE})])
def test_each_fault_is_found(fault, broken):
    with small(fault) as url:
        assert broken_rows(rows(url, code=1, pairs=3)) == broken


@pytest.mark.parametrize("fault", ["a hostile field breaks it", "a refusal spoils the next"])
def test_hostile_pairs(fault):
    with small(fault) as url:
        found = rows(url, code=1, pairs=100)
    assert broken_rows(found) == {PAIRS} and '"metadata":' in found[PAIRS]["why"]


@pytest.mark.parametrize("fault", ["a bad request is answered", "errors are text"])
def test_bad_requests(fault):
    with small(fault) as url:
        found = rows(url, code=1)
    assert broken_rows(found) == {name for name, row in found.items() if row["kind"] == "bad request"} | {PAIRS}


def test_what_is_not_offered_is_told_and_no_failure():
    with small("chats alone") as url:
        found = rows(url)
    missing = {name for name, row in found.items() if row["verdict"] == "not offered"}
    assert missing == {COMPLETIONS, LOGPROBS, CHOICES, FORM, REQUIRED, NAMED, NONE, STREAMED, RESULT}
    assert found[LOGPROBS]["why"] == "status 400: that is not served" and broken_rows(found) == set()


def test_no_server():
    port = free_port()
    assert f"127.0.0.1 port {port}: Connection refused" in check(f"http://127.0.0.1:{port}", code=1).stderr
    assert "no answer" in check(f"http://127.0.0.1:{port}", "--model=m", code=1).stdout
    assert check(code=2).stderr == "flashd: check URL [options] is expected\n"
