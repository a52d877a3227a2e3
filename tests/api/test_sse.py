"""The bytes of a stream: HTTP chunks, event framing, exact JSON shapes, pings, backpressure."""

import json
import socket
import time

import pytest

from conftest import wait_until

QUESTION = [{"role": "user", "content": "Count to ten."}]


class RawStream:
    """One request on a socket of its own, read as HTTP chunks."""

    def __init__(self, server, path, body, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.settimeout(120)
        data = json.dumps(body).encode()
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                            % (path.encode(), len(data)) + data)
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while (line := self.file.readline().strip()):
            name, value = line.decode().split(":", 1)
            self.headers[name.lower()] = value.strip()

    def chunks(self):
        while (size := int(self.file.readline(), 16)):
            yield self.file.read(size)
            assert self.file.read(2) == b"\r\n"
        assert self.file.read(2) == b"\r\n"

    def close(self):
        self.file.close()
        self.socket.close()


def read_events(server, path, body):
    """The data of all events; asserts what holds for every stream."""
    stream = RawStream(server, path, {**body, "stream": True})
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["cache-control"] == "no-cache" and stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["transfer-encoding"] == "chunked" and "content-length" not in stream.headers
    assert stream.headers["x-request-id"]
    data = []
    for chunk in stream.chunks():
        text = chunk.decode()  # an event is whole, and so is every character in it
        assert text.endswith("\n\n")
        for event in text[:-2].split("\n\n"):
            if event.startswith(":"):
                continue
            assert event.startswith("data: ") and "\n" not in event
            data.append(event[len("data: "):])
    stream.close()
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1
    return [json.loads(d) for d in data[:-1]]


def test_chat_shapes(server, model):
    events = read_events(server, "/v1/chat/completions",
                         {"messages": QUESTION, "max_tokens": 5, "temperature": 0, "stream_options": {"include_usage": True}})
    head = {k: events[0][k] for k in ("id", "object", "created", "model", "system_fingerprint")}
    assert head["object"] == "chat.completion.chunk" and head["model"] == model

    def chunk(delta, finish_reason=None):
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
                "usage": None}

    assert events[0] == chunk({"role": "assistant", "content": "", "refusal": None})
    assert 2 < len(events) <= 1 + 5 + 1  # the role, a chunk for each step's tokens, the usage
    for event in events[1:-1]:
        assert event == chunk({"content": event["choices"][0]["delta"]["content"]}, "length" if event is events[-2] else None)
    assert all(e["choices"][0]["delta"]["content"] for e in events[1:-1])
    usage = events[-1].pop("usage")
    assert events[-1] == {**head, "choices": []}
    assert usage["completion_tokens"] == 5 and usage["total_tokens"] == 5 + usage["prompt_tokens"]
    assert set(usage) == {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"}


def test_completion_shapes(server, model):
    events = read_events(server, "/v1/completions", {"prompt": "One, two,", "max_tokens": 4, "temperature": 0})
    for event in events:
        assert set(event) == {"id", "object", "created", "model", "system_fingerprint", "choices"} and event["object"] == "text_completion"
        assert set(event["choices"][0]) == {"index", "text", "logprobs", "finish_reason"}
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * (len(events) - 1) + ["length"]


def test_roles_come_first_and_in_order(server):
    events = read_events(server, "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 3, "n": 4})
    choices = [e["choices"][0] for e in events]
    assert [c["index"] for c in choices[:4]] == [0, 1, 2, 3]
    assert all("role" in c["delta"] for c in choices[:4]) and not any("role" in c["delta"] for c in choices[4:])


def test_the_first_chunk_means_the_first_token(start_server):
    """Nothing but pings comes while a prompt waits, and the role comes in one write with the first token."""
    with start_server("--ping-interval", "1", "--max-num-seqs", "1") as server:
        busy = RawStream(server, "/v1/completions", {"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "stream": True})
        next(busy.chunks())
        for path, body in [("/v1/chat/completions", {"messages": QUESTION}), ("/v1/completions", {"prompt": "One,", "echo": True})]:
            waiting = RawStream(server, path, {**body, "max_tokens": 3, "temperature": 0, "stream": True})
            chunks = waiting.chunks()
            assert next(chunks) == b": ping\n\n"
            waiting.close()
        waiting = RawStream(server, "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 3, "temperature": 0, "stream": True})
        chunks = waiting.chunks()
        assert next(chunks) == b": ping\n\n"
        busy.close()
        first = next(c for c in chunks if c != b": ping\n\n")
        deltas = [json.loads(e[6:])["choices"][0]["delta"] for e in first.decode().strip().split("\n\n")]
        assert len(deltas) == 2 and deltas[0]["role"] == "assistant" and deltas[1]["content"]
        list(chunks)
        waiting.close()
        server.wait_idle()


def test_tokens_without_text_have_chunks(server):
    """Usage in every chunk counts each step's tokens, whether a stop string may begin in their text or not."""
    full = server.post("/v1/completions", {"prompt": "One, two,", "max_tokens": 30, "temperature": 0}).json()["choices"][0]["text"]
    events = read_events(server, "/v1/completions", {
        "prompt": "One, two,", "max_tokens": 30, "temperature": 0, "stop": full[2:] + "never",
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
    chunks = [e for e in events if e["choices"]]
    assert "".join(e["choices"][0]["text"] for e in chunks) == full
    assert sum(not e["choices"][0]["text"] for e in chunks) > 5  # all but the beginning is held back
    counts = [e["usage"]["completion_tokens"] for e in chunks]
    assert counts == sorted(set(counts)) and chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_continuous_usage(server):
    events = read_events(server, "/v1/completions", {
        "prompt": "One, two,", "max_tokens": 6, "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts == sorted(counts) and counts[-1] == 6


def test_continuous_usage_begins_with_the_prompt(server):
    """A chat's first chunk has no token yet, and usage all the same: clients read it of each chunk."""
    events = read_events(server, "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "ignore_eos": True, "n": 2,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
    usages = [e["usage"] for e in events]
    assert [u["completion_tokens"] for u in usages[:2]] == [0, 0] and usages[-1]["completion_tokens"] == 6
    assert {u["prompt_tokens"] for u in usages} == {usages[-1]["prompt_tokens"]} and set(usages[0]) == set(usages[-1])
    assert all(u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] for u in usages)


def test_characters_are_never_split(server):
    """Emoji are several tokens of SmolLM2's vocabulary; temperature 2 reaches into the odd parts of it."""
    for seed in range(3):
        body = {"prompt": "\U0001F600\U0001F680\u4F60\u597D\U0001F600", "max_tokens": 30, "temperature": 2, "seed": seed}
        text = "".join(e["choices"][0]["text"] for e in read_events(server, "/v1/completions", body))
        whole = server.post("/v1/completions", body).json()["choices"][0]["text"]
        assert text == whole


def test_stop_string_is_never_sent(server):
    body = {"prompt": "One, two, three, four,", "max_tokens": 40, "temperature": 0}
    full = server.post("/v1/completions", body).json()["choices"][0]["text"]
    stop = full[12:18]
    sent = [e["choices"][0]["text"] for e in read_events(server, "/v1/completions", {**body, "stop": stop})]
    assert "".join(sent) == full[:full.index(stop)]


def test_pings_while_nothing_else_is_sent(start_server):
    with start_server("--ping-interval", "1", "--max-num-seqs", "1") as server:
        busy = RawStream(server, "/v1/completions",
                         {"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "stream": True})
        next(busy.chunks())
        waiting = RawStream(server, "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 2, "stream": True})
        chunks = waiting.chunks()
        assert next(chunks) == b": ping\n\n" == next(chunks)
        busy.close()
        assert list(chunks)[-1] == b"data: [DONE]\n\n"
        waiting.close()
        server.wait_idle()


@pytest.mark.slow
def test_a_slow_reader_gets_everything(server):
    """The stream pauses when the client does not read; nothing is lost and nobody else waits."""
    body = {"prompt": "Hello", "max_tokens": 300, "ignore_eos": True, "temperature": 1, "seed": 1, "logprobs": 20}
    slow = RawStream(server, "/v1/completions", {**body, "stream": True}, receive_buffer=4096)
    time.sleep(0.5)
    assert server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 4}).status_code == 200
    data = b"".join(slow.chunks()).decode()
    slow.close()
    events = [json.loads(e[6:]) for e in data.split("\n\n") if e.startswith("data: {")]
    assert sum(len(e["choices"][0]["logprobs"]["tokens"]) for e in events if e["choices"][0]["logprobs"]) == 300
    whole = server.post("/v1/completions", {**body, "logprobs": None}).json()
    assert "".join(e["choices"][0]["text"] for e in events) == whole["choices"][0]["text"]


def test_a_reader_that_stopped_is_cut_off(start_server):
    with start_server("--write-timeout", "1", "--stream-buffer-soft", "4096") as server:
        stuck = RawStream(server, "/v1/completions", {
            "prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True, "logprobs": 20}, receive_buffer=4096)
        wait_until(lambda: server.metrics()['flashd_requests_finished_total{outcome="client_gone"}'] > 0)
        server.wait_idle()
        stuck.close()


def test_two_requests_on_one_connection(server):
    """Keep-alive and pipelining: the second request is answered after the first stream, on the same socket."""
    body = json.dumps({"prompt": "x", "max_tokens": 3, "stream": True}).encode()
    request = (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
               % len(body) + body)
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.settimeout(60)
        s.sendall(request + request)
        data = b""
        while data.count(b"\r\n0\r\n\r\n") < 2:
            data += s.recv(65536)
    assert data.count(b"HTTP/1.1 200") == 2 and data.count(b"data: [DONE]") == 2
    assert data.index(b"data: [DONE]") < data.rindex(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_errors_before_a_stream_are_plain_json(server, path):
    response = server.post(path, {"stream": True, "temperature": 900})
    assert response.status_code == 400 and response.headers["content-type"] == "application/json"
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
