"""What every protocol has in its own shape: refusals of the transport and of admission, signs of life, the end of a
stream that cannot go on, and clients that leave. One server for all."""

import contextlib
import json

import httpx
import pytest

MODEL = "m"
LONG = "Count from one to ten thousand, in words."


def openai_error(body, status):
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["message"]


def anthropic_error(body, status):
    assert body["type"] == "error" and body["request_id"]
    types = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large",
             429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}
    assert body["error"]["type"] == types[status]
    return body["error"]["message"]


def sse(lines):
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


PROTOCOLS = {
    # path, a long answer, error of a body, the line of a ping
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, openai_error, ": ping"),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": LONG}]}, anthropic_error, "event: ping"),
}
KEY = {"Authorization": "Bearer k"}


def whole_body(body):
    return {"model": MODEL, "stream": True, "max_tokens": 1500, "ignore_eos": True, **body}


@pytest.fixture(scope="module")
def small(start_server):
    with start_server("--api-key", "k", "--served-model-name", MODEL, "--max-num-seqs", "1", "--max-queued-requests", "1",
                      "--ping-interval", "1", "--max-body-bytes", "64KiB", "--drain-timeout", "1", "--log-format",
                      "json") as server:
        yield server


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    path, body, error, ping = PROTOCOLS[request.param]
    return path, whole_body(body), error, ping


def post(server, path, body, headers=KEY):
    return httpx.post(server.url + path, json=body, headers=headers)


@contextlib.contextmanager
def streaming(server, path, body):
    with httpx.stream("POST", server.url + path, json=body, headers=KEY, timeout=60) as answer:
        assert answer.status_code == 200
        yield answer.iter_lines()


def test_refusals(small, protocol):
    path, body, error, _ = protocol
    cases = [(401, post(small, path, body, {})), (400, post(small, path, {**body, "temperature": []})),
             (404, post(small, path, {**body, "model": "nobody"})),
             (413, post(small, path, {**body, "user": "x" * 70000})),
             (400, httpx.post(small.url + path, content=b'{"a":', headers={**KEY, "Content-Type": "application/json"}))]
    for status, answer in cases:
        assert answer.status_code == status and answer.headers["content-type"].startswith("application/json")
        assert len(error(answer.json(), status)) > 10


def test_signs_of_life_and_a_full_server(small, protocol):
    """While one answers another waits, with a ping in its protocol's shape, and a third is too many. All of them leave."""
    path, body, error, ping = protocol
    with streaming(small, path, body) as first:
        next(line for line in first if line)
        with streaming(small, path, body) as second:
            assert next(line for line in second if line) == ping
            refused = post(small, path, body)
            assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
            error(refused.json(), 429)
    small.wait_idle()
    gone = [r for r in map(json.loads, small.log().splitlines()) if r.get("finish_reason") == "client_gone"]
    assert [r["path"] for r in gone[-2:]] == [path, path]


def test_streams_that_the_server_ends(start_server):
    """A drain that times out: the last event is an error in the protocol's shape."""
    with start_server("--served-model-name", MODEL, "--drain-timeout", "1") as server, contextlib.ExitStack() as stack:
        streams = []
        for path, body, error, _ in PROTOCOLS.values():
            lines = stack.enter_context(streaming(server, path, whole_body(body)))
            next(line for line in lines if line)
            streams.append((lines, error))
        server.process.terminate()
        for lines, error in streams:
            error(json.loads([d for d in sse(lines) if d != "[DONE]"][-1]), 503)
        server.process.wait(30)
