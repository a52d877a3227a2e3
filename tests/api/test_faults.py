"""Every allocation and every system call of the server failed in turn: the request that it hits gets 500 or 503 or loses
its connection, the server lives on, its neighbours' bytes are the same, and nothing is left behind."""

import contextlib
import errno
import http.client
import json
import os
import random
import socket
import sys
import time

import pytest

import faults
from conftest import ROOT, SANITIZED
from test_signals import Stream

sys.path.insert(0, str(ROOT / "tests/golden"))
import lora  # noqa: E402

pytestmark = pytest.mark.skipif(SANITIZED, reason="the sanitizers replace the allocator themselves")

START_ALLOCATIONS = int(os.environ.get("START_ALLOCATIONS", "6"))
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
    return ["".join(texts), objects[-1].get("tokens"), [o["usage"]["total_tokens"] for o in objects if o.get("usage")],
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


class Neighbours:
    """Two streams that run while calls fail. They begin while none does; a stream that runs allocates nothing, so each
    failure hits somebody else, and their bytes are those of their runs alone."""

    BODIES = [{"prompt": "A neighbour", "max_tokens": 120, "ignore_eos": True, "temperature": 0, "stop": ["zzzz"]},
              {"prompt": "Another one", "max_tokens": 90, "ignore_eos": True, "seed": 7, "logit_bias": {"5": 1}}]

    def __init__(self, server):
        self.server, self.streams, self.num_ended = server, [], 0
        self.expected = [Stream(server, body).result() for body in self.BODIES]
        assert [result[:3] for result in self.expected] == [(200, "done", "length")] * 2

    def keep_running(self):
        if not all(stream.is_alive() for stream in self.streams) or not self.streams:
            self.check()
            self.streams = [Stream(self.server, body) for body in self.BODIES]
            for stream in self.streams:
                stream.begun.wait()

    def check(self):
        assert [stream.result() for stream in self.streams] in ([], self.expected)
        self.num_ended += len(self.streams)
        self.streams = []


@pytest.fixture(scope="module")
def neighbours(faulty):
    return Neighbours(faulty[0])


@pytest.mark.parametrize("name", REQUESTS)
def test_every_allocation_of_a_request(faulty, neighbours, name):
    """Each in turn, until a request needs fewer than that, while two neighbours run."""
    server, plan = faulty
    path, body = REQUESTS[name]
    ask(server, path, body)
    expected = substance(path, ask(server, path, body)[1])
    before = ledger(server)
    statuses = []
    for k in range(5000):
        neighbours.keep_running()
        if path == "/metrics":
            time.sleep(0.11)  # who asks more often gets the last page
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
    neighbours.check()
    print(f"{name}: {len(statuses) - 1} allocations failed beside neighbours, {neighbours.num_ended} of which ended the same")
    assert ledger(server) == before


# ---- system calls ----

CALL_FAULTS = [
    ("accept", errno.EMFILE), ("accept", errno.ENFILE), ("accept", errno.ECONNABORTED), ("accept", errno.ENOMEM),
    ("accept", errno.EPROTO), ("read", errno.ECONNRESET), ("read", errno.EINTR), ("read", errno.EAGAIN),
    ("read", faults.SHORT), ("write", errno.EPIPE), ("write", errno.ECONNRESET), ("write", errno.EAGAIN),
    ("write", errno.EINTR), ("write", faults.SHORT), ("write", errno.ENOBUFS), ("epoll_ctl", errno.ENOMEM), ("epoll_ctl", errno.ENOSPC),
    ("shutdown", errno.ENOTCONN), ("setsockopt", errno.ENOBUFS), ("mmap", errno.ENOMEM),
    ("madvise", errno.EAGAIN), ("eventfd", errno.EMFILE), ("open", errno.EMFILE)]
HARMLESS = {errno.EINTR, errno.EAGAIN, faults.SHORT}


@pytest.mark.parametrize("call, error", CALL_FAULTS, ids=lambda x: errno.errorcode.get(x, "SHORT") if isinstance(x, int) else x)
def test_every_system_call_of_a_request(faulty, call, error):
    """The first, second, ... call of its kind fails; interrupted, empty and short ones change no byte."""
    server, plan = faulty
    path, body = REQUESTS["stream"]
    expected = substance(path, ask(server, path, body)[1])
    before = ledger(server)
    for k in range(12):
        plan.arm(call, num_passing=k, error=error)
        code, text = ask(server, path, body)
        failed = plan.disarm()
        assert server.process.poll() is None, server.log()[-2000:]
        assert code in (0, 200, 500, 503) and (code == 200 or failed), (k, code, text)
        if error in HARMLESS:
            assert code == 200 and substance(path, text) == expected, (k, code, text)
        if not failed:
            break
    assert ledger(server) == before
    assert substance(path, ask(server, path, body)[1]) == expected


def test_many_short_writes_and_reads(faulty):
    """Byte by byte in both directions."""
    server, plan = faulty
    path, body = REQUESTS["completion"]
    expected = substance(path, ask(server, path, body)[1])
    for call in "read", "write":
        plan.arm(call, num_failing=faults.FOREVER, error=faults.SHORT)
        code, text = ask(server, path, body)
        assert plan.disarm() > 100
        assert code == 200 and substance(path, text) == expected


def test_allocations_that_fail_while_connections_come(faulty):
    """Many open connections: also the tables that grow with their number find no memory once."""
    server, plan = faulty
    with contextlib.ExitStack() as stack:
        for i in range(300):
            plan.arm("allocation", num_passing=i % 4)
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n")
                sock.recv(4096)
            plan.disarm()
            assert server.process.poll() is None, server.log()[-2000:]
    assert ask(server, "/version", None)[0] == 200


# ---- the start ----

def test_faults_at_the_start():
    """It says why and ends with 1 (2 while options are read), or it does without what failed."""
    rng = random.Random(5)
    plans = [{"call": "allocation", "num_passing": int(10 ** rng.uniform(0, 5))} for _ in range(START_ALLOCATIONS)]
    plans += [{"call": call, "num_passing": k, "error": error} for call, error, count in [
        ("eventfd", errno.EMFILE, 2), ("mmap", errno.ENOMEM, 4), ("open", errno.EMFILE, 3), ("socket", errno.EMFILE, 1),
        ("madvise", errno.EAGAIN, 1)] for k in range(count)]
    with faults.plan_and_environment() as (plan, environment):
        for arguments in plans:
            code, log = faults.start(arguments, environment, plan)
            assert code in (None, 1, 2), (arguments, code, log)
            if code is not None:
                assert len(log.strip().splitlines()[-1]) > 15, (arguments, log)


def test_faults_at_the_start_of_a_group_with_adapters(tmp_path):
    """So many pass that one fails in what loads the model: files of adapters, rows of several devices. Of less libuv has its first ones, where it aborts."""
    lora.write_model(tmp_path / "base", "llama")
    path = lora.Adapter("llama", "first", 5).write(tmp_path / "first")
    options = ("--device", "cpu", "--tensor-parallel-size", "2", "--lora-modules", f"first={path}")
    rng, ends = random.Random(7), []
    with faults.plan_and_environment() as (plan, environment):
        for _ in range(2 * START_ALLOCATIONS):
            arguments = {"call": "allocation", "num_passing": int(10 ** rng.uniform(2.2, 4.2))}
            code, log = faults.start(arguments, environment, plan, model=tmp_path / "base", options=options)
            assert code in (None, 1, 2), (arguments, code, log)
            assert code is None or len(log.strip().splitlines()[-1]) > 15, (arguments, log)
            ends.append(code)
    assert 1 in ends
