"""Every pair of fields, each with a hostile value, in every protocol: 200 or a 4xx in the protocol's own shape, and the request
after it has the bytes that it always has.

A pair stands alone in an otherwise good body, so that nothing hides it. FLASHD_PAIRS: how many pairs of each protocol are
taken, at random from a fixed seed; "all": every one, 9 million (make pairs)."""

import http.client
import itertools
import json
import os
import random

import httpx
import pytest

PAIRS = os.environ.get("FLASHD_PAIRS", "100")
QUESTION = [{"role": "user", "content": "hi"}]
VALUES = [None, True, 0, -1, 1, 2, 1.5, 1e308, -(1 << 63), "", "1", "x\0y", "\U0001f600" * 50, [], [1, 2], ["a", ""], [[]], {},
          {"a": {"b": []}}, {"type": "json_schema"}]
PROTOCOLS = {
    "/v1/chat/completions": {"messages": QUESTION, "max_tokens": 1},
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/messages": {"messages": QUESTION, "max_tokens": 1},
    "/v1/responses": {"input": "x", "max_output_tokens": 1, "store": False},
    "/api/chat": {"messages": QUESTION, "options": {"num_predict": 1}, "stream": False},
    "/api/generate": {"prompt": "x", "options": {"num_predict": 1}, "stream": False},
}
PROBE = {"prompt": "Once upon a", "max_tokens": 2, "temperature": 0, "logprobs": 3}


@pytest.fixture(scope="module")
def small_server(start_server):
    """A short context bounds what a pair without max_tokens may ask for."""
    with start_server("--max-model-len", "48", "--max-n", "2", "--no-log-requests") as server:
        yield server
        assert server.process.poll() is None, server.log()
        server.wait_idle()


def fields_of(server, path):
    schemas = httpx.get(server.url + "/openapi.json").json()["components"]["schemas"].values()
    return sorted(next(s for s in schemas if s.get("x-codec") == path)["properties"])


def has_the_shape_of_an_error(path, error):
    if path.startswith("/api/"):
        return isinstance(error["error"], str)
    if path == "/v1/messages":
        return error["type"] == "error" and isinstance(error["error"]["message"], str)
    return set(error["error"]) >= {"message", "type", "param", "code"} and len(error["error"]["message"]) > 10


def pairs_of(fields):
    """Every two fields with every two values; or some of them."""
    if PAIRS == "all":
        yield from ((a, x, b, y) for a, b in itertools.combinations(fields, 2) for x in VALUES for y in VALUES)
        return
    choose = random.Random(1)
    for _ in range(int(PAIRS)):
        a, b = choose.sample(fields, 2)
        yield a, choose.choice(VALUES), b, choose.choice(VALUES)


class Connection:
    """Kept alive from one request to the next, whatever the answer is."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        return reply.status, reply.read()

    def probe(self):
        status, text = self.post("/v1/completions", PROBE)
        assert status == 200
        return json.loads(text)["choices"]


@pytest.mark.parametrize("path", PROTOCOLS)
def test_pairs(small_server, path):
    fields, connection = fields_of(small_server, path), Connection(small_server)
    assert len(fields) >= 50 and len(VALUES) >= 12
    expected, statuses = connection.probe(), {}
    for a, x, b, y in pairs_of(fields):
        status, text = connection.post(path, {**PROTOCOLS[path], a: x, b: y})
        statuses[status] = statuses.get(status, 0) + 1
        assert status in (200, 400, 404), (a, x, b, y, status, text)
        if status != 200:
            assert has_the_shape_of_an_error(path, json.loads(text)), (a, x, b, y, text)
        assert connection.probe() == expected, (a, x, b, y)
    print(path, len(fields), "fields", statuses)
