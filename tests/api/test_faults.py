"""Every allocation and every system call of the server failed in turn: the request that it hits gets 500 or 503 or loses
its connection, the server lives on, its neighbours' bytes are the same, and nothing is left behind."""

import concurrent.futures
import errno
import http.client
import json
import random

import pytest

import faults
from conftest import BINARY, SANITIZED

pytestmark = pytest.mark.skipif(SANITIZED, reason="the sanitizers replace the allocator themselves")

COMPLETION = {"prompt": ["Once", "x"], "max_tokens": 1, "n": 2, "temperature": 0, "stop": ["zebra"],
              "logprobs": 2, "echo": True, "logit_bias": {"5": 1}}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0,
        "chat_template_kwargs": {"x": [1.0, "y"]}}
REQUESTS = {
    "completion": ("/v1/completions", COMPLETION),
    "chat": ("/v1/chat/completions", CHAT),
    "stream": ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    "long body": ("/v1/completions", {**COMPLETION, "user": "x" * 20_000}),  # prepared on the worker pool
    "tokenize": ("/tokenize", {"prompt": "Hello, world " * 20, "return_token_strs": True}),
    "models": ("/v1/models", None),
    "metrics": ("/metrics", None),
}


def ask(server, path, body):
    """(status, body) of one request on a connection of its own; status 0: the connection ended."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    content = None if body is None else json.dumps(body)
    headers = {"Connection": "close", "Content-Type": "application/json"}
    try:
        connection.request("GET" if body is None else "POST", path, content, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except (http.client.HTTPException, ConnectionError):
        return 0, ""
    finally:
        connection.close()


def substance(path, text):
    """What of an answer depends on the request alone."""
    if path == "/metrics":
        return [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    objects = [json.loads(event) for event in events or [text]]
    texts = [c.get("text") or (c.get("delta") or c.get("message") or {}).get("content") or ""
             for o in objects for c in o.get("choices", [])]
    return ["".join(texts), objects[-1].get("tokens"), [o.get("usage") for o in objects if o.get("usage")],
            "data: [DONE]" in text, "error" in objects[-1]]


def ledger(server):
    m = server.wait_idle(30)
    assert m["flashd_requests_admitted_total"] == sum(
        v for k, v in m.items() if k.startswith("flashd_requests_finished_total"))
    return {"slots": m["flashd_request_slots_free"], "held": m['flashd_kv_blocks{state="held"}'],
            "arena": m["flashd_arena_bytes"]}


@pytest.fixture(scope="module")
def faulty():
    with faults.running("--no-log-requests") as (server, plan):
        yield server, plan
        assert plan.disarm() is not None


@pytest.mark.parametrize("name", REQUESTS)
def test_every_allocation_of_a_request(faulty, name):
    """Each in turn, until a request needs fewer than that."""
    server, plan = faulty
    path, body = REQUESTS[name]
    neighbour = ask(server, "/v1/completions", {"prompt": "A neighbour", "max_tokens": 4, "temperature": 0})[1]
    ask(server, path, body)
    expected = substance(path, ask(server, path, body)[1])
    before = ledger(server)
    statuses = []
    for k in range(5000):
        plan.arm("allocation", num_passing=k)
        code, text = ask(server, path, body)
        failed = plan.disarm()
        assert server.process.poll() is None, f"allocation {k}: {server.log()[-2000:]}"
        statuses.append(code)
        assert code in (0, 200, 500, 503) and (code or failed), (k, code, text)
        if code >= 500:
            assert json.loads(text)["error"]["message"], text
        elif code == 200 and '"error"' not in text:  # else the last event of a stream
            assert substance(path, text) == expected, (k, text)
        if not failed:
            break
    assert not failed and len(statuses) > 5
    assert statuses.count(500) + statuses.count(503) > 0 and statuses[-1] == 200
    assert ledger(server) == before
    again = ask(server, "/v1/completions", {"prompt": "A neighbour", "max_tokens": 4, "temperature": 0})[1]
    assert substance("", again) == substance("", neighbour)
