"""Running streams go on in the process that takes the server's place: the bytes are those of an undisturbed run."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import threading

import httpx
import pytest

from conftest import BINARY, MODEL, wait_until
from test_upgrade import Upgradable, upgradable

NUM_TOKENS = 120
STORY = {"prompt": "Once upon a time", "max_tokens": NUM_TOKENS, "ignore_eos": True, "seed": 5, "stream": True}
SAID = [{"role": "user", "content": "Tell me a long story about a fox."}]
CHAT = {"messages": SAID, "max_tokens": NUM_TOKENS, "ignore_eos": True, "seed": 6, "stream": True}
# What moves: (path, body).
MOVING = {
    "text": ("/v1/completions", {**STORY, "return_token_ids": True, "stop": ["never said"], "frequency_penalty": 0.3}),
    "logprobs": ("/v1/completions", {**STORY, "logprobs": 3, "temperature": 0, "echo": True}),
    "chat": ("/v1/chat/completions", {**CHAT, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    "messages": ("/v1/messages", CHAT),
    "responses": ("/v1/responses", {"input": SAID, "max_output_tokens": NUM_TOKENS, "ignore_eos": True, "seed": 7, "stream": True}),
}
OLLAMA = {"model": MODEL.name, "options": {"num_predict": NUM_TOKENS, "seed": 5}, "ignore_eos": True}
MOVING["generate"] = ("/api/generate", {**OLLAMA, "prompt": "Once", "raw": True})
MOVING["llama"] = ("/completion", {"prompt": "Once", "n_predict": NUM_TOKENS, "ignore_eos": True, "seed": 8, "stream": True, "n_probs": 2})
MOVING["text generation"] = ("/generate_stream", {"inputs": "Once", "parameters": {"max_new_tokens": NUM_TOKENS, "seed": 8, "do_sample": True},
                                                  "ignore_eos": True})
MOVING["api_chat"] = ("/api/chat", {**OLLAMA, "messages": SAID})
MOVING["n"] = ("/v1/completions", {**STORY, "n": 3, "return_token_ids": True, "logprobs": 2})
MOVING["prompts"] = ("/v1/completions", {**STORY, "prompt": ["Once upon a time", "The fox"], "n": 2, "echo": True})
# Answers that have a form, which none of them has come to the end of.
NAMES = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 60}}, "required": ["names"]}
TELL = {"type": "function", "function": {"name": "tell", "parameters": {
    "type": "object", "properties": {"story": {"type": "string", "minLength": 900}}, "required": ["story"]}}}
MOVING |= {
    "regex": ("/v1/completions", {**STORY, "structured_outputs": {"regex": "([A-Z][a-z ]{3,9}[.] ){60,}"}, "n": 2}),
    "schema": ("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": NAMES}}}),
    "calls": ("/v1/chat/completions", {**CHAT, "tools": [TELL], "tool_choice": "required"}),
    "words": ("/v1/completions", {**STORY, "bad_words": [" time", " little girl"]}),
}
# What ends where it began, beside streams of whose choices one has ended.
WHOLE = ("/v1/completions", {**STORY, "stream": False})


class Reader(threading.Thread):
    """One request on a connection of its own; what follows it is sent behind it at once. begun: some of the answer is there."""

    def __init__(self, server, path, body, behind=b"", half_close=False):
        super().__init__()
        body = json.dumps(body).encode()
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=300)
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                            % (path.encode(), len(body)) + body + behind)
        if half_close:
            self.socket.shutdown(socket.SHUT_WR)
        self.num_answers = 1 + behind.count(b"GET ")
        self.begun, self.received, self.problem = threading.Event(), b"", ""
        self.start()

    def run(self):
        try:
            while self.received.count(b"HTTP/1.1 ") < self.num_answers or not self.is_complete():
                piece = self.socket.recv(1 << 16)
                if not piece:
                    self.problem = self.problem or "the connection ended"
                    break
                self.received += piece
                if self.received.count(b"\n\r\n") > 5 or b"Content-Length: " in self.received:
                    self.begun.set()
        except OSError as error:
            self.problem = repr(error)
        finally:
            self.begun.set()
            self.socket.close()

    def is_complete(self):
        head, _, rest = self.received.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        return len(rest) >= int(length.group(1)) if length else rest.endswith(b"\r\n0\r\n\r\n")

    def result(self):
        self.join(300)
        assert not self.problem, (self.problem, self.received[-300:])
        return self.received


def body_of(answer):
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    if b"chunked" not in head:
        return rest
    text = b""
    while not rest.startswith(b"0\r\n"):
        size, _, rest = rest.partition(b"\r\n")
        size = int(size, 16)
        text += rest[:size]
        assert rest[size:size + 2] == b"\r\n"
        rest = rest[size + 2:]
    return text


# What differs between two runs of a request, and what says how its tokens were cut into events.
OWN = re.compile(r'"(id|created|created_at|completed_at|(total|load|eval|prompt_eval)_duration|item_id|response_id|sequence_number|usage|timings|completion_tokens|tokens_predicted)"$')
TEXTS = {"text", "content", "delta", "token_ids", "tokens", "token_logprobs", "top_logprobs", "text_offset", "response", "thinking", "arguments", "partial_json"}


def merge(into, event, name=""):
    """Appends what an event says under each of its names."""
    for key, value in event.items():
        path = f"{name}.{key}"
        if OWN.search(f'"{key}"'):
            continue
        if isinstance(value, dict):
            merge(into, value, path)
        elif isinstance(value, list) and value and all(isinstance(v, dict) and "index" in v for v in value):
            for v in value:
                merge(into, v, f"{path}[{v['index']}]")
        elif isinstance(value, str) and key in TEXTS:
            into[path] = into.get(path, "") + value
        elif isinstance(value, list):
            into[path] = into.get(path, []) + value
        elif value is not None and into.get(path, [None])[-1] != value:
            into[path] = into.get(path, []) + [value]


def meaning(answer):
    """A stream's events as what they say together, the same however its tokens were cut; and it is whole."""
    said, numbers, ids = {}, [], set()
    for line in body_of(answer).decode().splitlines():
        line = re.sub(r"_[0-9a-f]{24}", "_ID", line.removeprefix("data: "))
        if not line.startswith("{"):
            assert not line.startswith("event: error"), line
            if line == "[DONE]":
                said["done"] = said.get("done", 0) + 1
            continue
        event = json.loads(line)
        if event.get("type") in ("ping", "response.in_progress"):
            numbers.append(event.get("sequence_number"))
            continue
        numbers.append(event.get("sequence_number"))
        ids.add(event.get("id"))
        if event.get("usage"):
            said["usage"] = {k: v for k, v in event["usage"].items() if not isinstance(v, dict)}
        merge(said, event)
    if numbers and numbers[0] is not None:
        assert numbers == list(range(len(numbers)))
    assert len(ids - {None}) <= 1
    return said


@contextlib.contextmanager
def resting_engine(front):
    """Nothing more is computed: what runs is still running afterwards."""
    (pid,) = map(int, pathlib.Path(f"/proc/{front}/task/{front}/children").read_text().split())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


OPTIONS = ("--threads", "1", "--max-model-len", "512", "--step-timeout", "3600", "--no-enable-prefix-caching")


def moved(server):
    return server.metrics().get('flashd_streams_taken_over_total{result="taken"}', 0)


def begin(server, requests, **keywords):
    readers = {name: Reader(server, *request, **keywords) for name, request in requests.items()}
    for reader in readers.values():
        reader.begun.wait(60)
    return readers


def test_streams_go_on_in_the_new_process():
    """Of every protocol, with what waits behind one on its connection; the old process ends without them."""
    with upgradable(*OPTIONS, "--log-format", "json") as server:
        expected = {name: meaning(r.result()) for name, r in begin(server, MOVING).items()}
        readers = begin(server, MOVING)
        readers["behind"] = Reader(server, *MOVING["text"], behind=b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n")
        readers["half"] = Reader(server, *MOVING["text"], half_close=True)
        for name in ("behind", "half"):
            readers[name].begun.wait(60)
            expected[name] = expected["text"]
        with resting_engine(server.pid):
            server.upgrade()
            wait_until(lambda: moved(server) == len(readers), server)
        for name, reader in readers.items():
            answer = reader.result()
            if name == "behind":
                answer, _, version = answer.rpartition(b"HTTP/1.1 200 OK")
                assert b'"version"' in version
            assert meaning(answer) == expected[name], name
        metrics = server.wait_idle()
        assert metrics["flashd_requests_admitted_total"] == metrics['flashd_requests_finished_total{outcome="done"}'] == len(readers)
        wait_until(lambda: server.log().count('"finish_reason":"length"') == 2 * len(readers) - 2, server)
        told = [line for line in map(json.loads, server.log().splitlines()) if "finish_reason" in line]
        assert {line["client"] for line in told} == {"127.0.0.1"}
        assert f"{len(readers)} streams go on in the new process; 0 requests end here" in server.log()


def test_twice():
    """What has moved moves again, behind tokens of both processes; what the cache had of its prompt stays as it was told."""
    with upgradable(*OPTIONS[:-1]) as server:
        (expected,) = [meaning(r.result()) for r in begin(server, {"chat": MOVING["chat"]}).values()]
        path, body = MOVING["chat"]
        reader = Reader(server, path, {**body, "cache_salt": "of its own"})
        for _ in range(2):
            count = reader.received.count(b"\n\n")
            wait_until(lambda: reader.received.count(b"\n\n") > count + 3, server)
            with resting_engine(server.pid):
                server.upgrade()
                wait_until(lambda: moved(server) == 1, server)
        assert meaning(reader.result()) == expected
        details = set(re.findall(rb'"prompt_tokens_details":{[^}]*}+', body_of(reader.result())))
        assert len(details) == 1 and b"cache_miss" in details.pop()


def texts_of(answer):
    return [choice["text"] for choice in json.loads(body_of(answer))["choices"]]


def said_by_one(texts):
    """What ends the first of two answers soon, and never the other."""
    return next(texts[0][i:i + 3] for i in range(30) if texts[0][i:i + 3] not in texts[1])


def test_what_cannot_move_ends_where_it_began():
    with upgradable(*OPTIONS) as server:
        two = {**STORY, "n": 2, "max_tokens": 400}
        stop = said_by_one(texts_of(Reader(server, "/v1/completions", {**two, "stream": False}).result()))
        requests = {"whole": WHOLE, "ended": ("/v1/completions", {**two, "stop": [stop]})}
        expected = {name: r.result() for name, r in begin(server, requests).items()}
        readers = {name: Reader(server, *request) for name, request in requests.items()}
        wait_until(lambda: b'"finish_reason":"stop"' in readers["ended"].received, server)
        wait_until(lambda: server.metrics()["flashd_requests_in_flight"] == len(readers), server)
        with resting_engine(server.pid):
            server.upgrade()
            wait_until(lambda: "streams go on in the new process" in server.log(), server)
            assert moved(server) == 0
        assert texts_of(readers["whole"].result()) == texts_of(expected["whole"])
        assert meaning(readers["ended"].result()) == meaning(expected["ended"])
        assert "0 streams go on in the new process; 2 requests end here" in server.log()


@pytest.mark.parametrize("change", ["kv-cache-dtype: f32", "served-model-name: another"])
def test_a_process_that_would_answer_otherwise_gets_no_stream(change, tmp_path):
    config = tmp_path / "flashd.yaml"
    config.write_text("")
    with upgradable("--config", str(config), "--threads", "1", "--step-timeout", "3600", "--drain-delay", "0") as server:
        reader = Reader(server, *MOVING["text"])
        reader.begun.wait(60)
        config.write_text(change + "\n")
        with resting_engine(server.pid):
            server.upgrade()
            wait_until(lambda: "streams end here: the new process answers with another" in server.log(), server)
        said = meaning(reader.result())
        assert said["done"] == 1 and len(said[".choices[0].token_ids"]) == NUM_TOKENS


@pytest.mark.parametrize("change, num_moved", [("max-num-seqs: 1", 2), ("max-n: 1", 1), ("max-num-seqs: 1\nmax-queued-requests: 1", 1),
                                               ("max-model-len: 64", 0), ("api-key: [another]", 0)])
def test_what_the_new_process_would_not_take_ends_where_it_began(change, num_moved, tmp_path):
    """Limits that are others by then: no stream sees them, and what waits longer says the same."""
    config, requests = tmp_path / "flashd.yaml", {name: MOVING[name] for name in ("text", "n")}
    config.write_text("")
    with upgradable("--config", str(config), "--threads", "1", "--step-timeout", "3600", "--drain-delay", "0") as server:
        expected = {name: meaning(r.result()) for name, r in begin(server, requests).items()}
        readers = begin(server, requests)
        config.write_text(change + "\n")
        with resting_engine(server.pid):
            server.upgrade()
            wait_until(lambda: "streams end here: the new" in server.log() or "streams go on in the new" in server.log(), server)
            assert moved(server) == num_moved
        assert {name: meaning(r.result()) for name, r in readers.items()} == expected


# Stands between the two processes, and kills the new one, or falls silent, at the nth message of a kind.
RELAY = """#!%s
import os, select, signal, socket, subprocess, sys
kind, count, deed = %r
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
old = socket.socket(fileno=os.dup(4))
os.dup2(theirs.fileno(), 4)
theirs.close()
env = {**os.environ, "FLASHD_UPGRADE_OF": str(os.getpid())}
for fd in (3, 4):
    os.set_inheritable(fd, True)
child = subprocess.Popen([%r, *sys.argv[1:]], env=env, pass_fds=(3, 4))
os.close(3)
os.close(4)
seen, silent = 0, False
while True:
    for s in select.select([old, ours], [], [])[0]:
        data, fds, _, _ = socket.recv_fds(s, 4096, 4)
        if not data:
            child.wait()
            os._exit(0)
        seen += data[:1].decode() == kind
        if seen == count and deed == "kill":
            child.kill()
            child.wait()
            os._exit(1)
        silent |= seen == count and deed == "silence"
        if not silent:
            socket.send_fds(ours if s is old else old, [data], fds)
        for fd in fds:
            os.close(fd)
"""


class Relayed(Upgradable):
    def __init__(self, folder, *moment):
        self.program = folder / "flashd"
        shutil.copy(BINARY, self.program)
        super().__init__(*OPTIONS, binary=self.program)
        relay = folder / "relay"
        relay.write_text(RELAY % (sys.executable, moment, str(BINARY)))
        relay.chmod(0o755)
        os.replace(relay, self.program)


@pytest.mark.parametrize("kind, count, deed", [("O", 1, "kill"), ("R", 1, "kill"), ("R", 1, "silence")])
def test_the_new_process_dies_on_the_way(kind, count, deed, tmp_path):
    """Before and after it has taken a look at a stream; or it says nothing any more. Streams go on in the old process."""
    server = Relayed(tmp_path, kind, count, deed)
    try:
        expected = meaning(Reader(server, *MOVING["text"]).result())
        readers = begin(server, {name: MOVING["text"] for name in "ab"})
        with resting_engine(server.pid):
            os.kill(server.process.pid, signal.SIGUSR2)
            wait_until(lambda: "no more streams go on in the new process" in server.log(), server)
        for reader in readers.values():
            assert meaning(reader.result()) == expected
        if deed == "kill":
            assert server.process.wait(60) == 0
    finally:
        server.process.kill()
        server.process.wait()
        children = [int(pid) for pid in re.findall(r"process (\d+) starts", server.log())]
        for pid in children:
            for child in open(f"/proc/{pid}/task/{pid}/children").read().split() if os.path.exists(f"/proc/{pid}") else []:
                os.kill(int(child), signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.log_file.close()


# ---- stored responses ----

ANSWER = {"input": SAID, "max_output_tokens": 24, "temperature": 0}
LATER = {**ANSWER, "max_output_tokens": 400, "ignore_eos": True, "background": True}
KEYED = {"Authorization": "Bearer k"}


def ask(server, method, path, status=200, headers=KEYED, **body):
    answer = httpx.request(method, f"{server.url}/v1/responses{path}", headers=headers, timeout=300, **({"json": body} if body else {}))
    assert answer.status_code == status, answer.text
    return answer.json()


def ended(server, id):
    return wait_until(lambda: (r := ask(server, "GET", f"/{id}"))["status"] not in ("queued", "in_progress") and r, server)


@pytest.mark.parametrize("change", ["", "served-model-name: another"])
def test_stored_responses_are_there_in_the_next_process(change, tmp_path):
    """Finished ones, also of keys; background answers end where they began, and are told; through two upgrades, to any program."""
    config = tmp_path / "flashd.yaml"
    config.write_text("api-key: [k, other]\n")
    with upgradable("--config", str(config), "--drain-delay", "0") as server:
        first = ask(server, "POST", "", **ANSWER)
        follow = {**ANSWER, "previous_response_id": first["id"], "input": "And then?"}
        expected = ask(server, "POST", "", **follow)
        alone = ended(server, ask(server, "POST", "", **LATER)["id"])
        config.write_text("api-key: [other, k]\n" + change + "\n")
        running = ask(server, "POST", "", **LATER)["id"]
        server.upgrade()
        so_far = wait_until(lambda: (r := httpx.get(f"{server.url}/v1/responses/{running}", headers=KEYED)).status_code == 200 and r.json(), server)
        assert so_far["status"] in ("queued", "in_progress") and so_far["output"] == []
        assert "before an upgrade" in ask(server, "POST", f"/{running}/cancel", 409)["error"]["message"]
        assert ask(server, "GET", f"/{first['id']}") == first
        ask(server, "GET", f"/{first['id']}", 404, {"Authorization": "Bearer other"})
        assert ask(server, "POST", "", **follow)["output"][0]["content"] == expected["output"][0]["content"]
        done = ended(server, running)
        assert done["output"][0]["content"] == alone["output"][0]["content"] and done["status"] == alone["status"]
        wait_until(lambda: server.log().count("ended with code 0") == 1, server)
        server.upgrade()
        wait_until(lambda: server.log().count("ended with code 0") == 2, server)
        assert ask(server, "GET", f"/{running}") == done and ask(server, "GET", f"/{first['id']}") == first


def test_a_background_answer_is_told_over_two_upgrades():
    """The process between waits for the one that generates it, and then ends."""
    with upgradable("--drain-delay", "0", "--threads", "1") as server:
        running = ask(server, "POST", "", **{**LATER, "max_output_tokens": 1000})["id"]
        server.upgrade()
        server.upgrade()
        wait_until(lambda: httpx.get(f"{server.url}/v1/responses/{running}").status_code == 200, server)
        assert server.log().count("ended with code 0") == 0
        assert ended(server, running)["usage"]["output_tokens"] == 1000
        wait_until(lambda: server.log().count("ended with code 0") == 2, server)


def test_a_background_answer_is_lost_with_its_process():
    server = Upgradable("--drain-delay", "0")
    try:
        running = ask(server, "POST", "", **{**LATER, "max_output_tokens": 4000})["id"]
        server.upgrade()
        wait_until(lambda: httpx.get(f"{server.url}/v1/responses/{running}").status_code == 200, server)
        server.process.kill()
        server.process.wait()
        lost = wait_until(lambda: (r := httpx.get(f"{server.url}/v1/responses/{running}")).status_code == 404 and r.json(), server)
        assert lost["error"]["code"] == "response_lost"
    finally:
        server.kill()
