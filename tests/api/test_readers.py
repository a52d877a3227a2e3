"""Clients that drip, stop and pile up: what each costs, and that the others do not notice."""

import concurrent.futures
import contextlib
import json
import pathlib
import re
import resource
import socket
import time

import httpx
import pytest

import faults
from conftest import SANITIZED, wait_until
from test_sse import RawStream
from test_tenants import ask_from


def connect(server):
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def request(body, path="/v1/completions", headers=""):
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    return (f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def read_all(sock):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(1 << 16):
            data += piece
    return data


def drip(server, data, pause=0.05):
    """Byte by byte until the server has enough; its answer."""
    with connect(server) as sock:
        sock.settimeout(pause)
        for i in range(len(data)):
            try:
                sock.sendall(data[i:i + 1])
                if answer := sock.recv(1 << 16):
                    sock.settimeout(60)
                    return answer + read_all(sock)
                return b""
            except TimeoutError:
                continue
            except ConnectionError:
                return b""
        sock.settimeout(60)
        return read_all(sock)


def test_a_dripped_head_is_408(start_server):
    with start_server("--header-timeout", "1") as server:
        head = b"GET /version HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1000
        assert drip(server, head).startswith(b"HTTP/1.1 408 ")


def test_a_dripped_body_is_408(start_server):
    with start_server("--body-timeout", "1") as server:
        with connect(server) as sock:
            sock.sendall(request({"prompt": "x" * 1000})[:200])
            assert read_all(sock).startswith(b"HTTP/1.1 408 ")


def test_idle_connections_are_closed(start_server):
    with start_server("--idle-timeout", "1", "--header-timeout", "1") as server:
        with connect(server) as sock:
            assert read_all(sock)[:12] in (b"", b"HTTP/1.1 408")
        with connect(server) as sock:
            sock.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = read_all(sock)  # ends when the server closes
            assert answer.startswith(b"HTTP/1.1 200 ") and answer.count(b"HTTP/1.1 ") == 1


LIMITS = {  # option: (value, body that is exactly N, body that is N + 1)
    "--max-json-depth": (8, lambda n: b'{"prompt":"x","max_tokens":1,"a":' + b"[" * (n - 1) + b"]" * (n - 1) + b"}"),
    "--max-json-nodes": (100, lambda n: b'{"prompt":"x","max_tokens":1,"a":[' + b",".join([b"1"] * (n - 4)) + b"]}"),
    "--max-json-keys": (16, lambda n: b'{"prompt":"x","max_tokens":1' + b"".join(b',"k%d":1' % i for i in range(n - 2)) + b"}"),
    "--max-n": (3, lambda n: b'{"prompt":"x","max_tokens":1,"n":%d}' % n),
    "--max-prompts": (3, lambda n: b'{"prompt":[' + b",".join([b'"x"'] * n) + b'],"max_tokens":1}'),
    "--max-stop-strings": (3, lambda n: b'{"prompt":"x","max_tokens":1,"stop":[' + b",".join([b'"zz"'] * n) + b"]}"),
    "--max-stop-bytes": (9, lambda n: b'{"prompt":"x","max_tokens":1,"stop":"' + b"z" * n + b'"}'),
    "--max-logprobs": (3, lambda n: b'{"prompt":"x","max_tokens":1,"logprobs":%d}' % n),
    "--max-body-bytes": (2048, lambda n: b'{"prompt":"x","max_tokens":1,"user":"' + b"u" * (n - 39) + b'"}'),
}


@pytest.fixture(scope="module")
def small_server(start_server):
    options = [x for name, (value, _) in LIMITS.items() for x in (name, str(value))]
    with start_server(*options, "--max-requests-per-connection", "3") as server:
        yield server


@pytest.mark.parametrize("name", LIMITS)
def test_limits_at_their_edges(small_server, name):
    """One less, exactly that many, one more."""
    value, make = LIMITS[name]
    answers = []
    for n in (value - 1, value, value + 1):
        with connect(small_server) as sock:
            sock.sendall(request(make(n), headers="Connection: close\r\n"))
            answers.append(read_all(sock))
    assert [a[9:12] for a in answers] == [b"200", b"200", b"413" if name == "--max-body-bytes" else b"400"], answers


def test_requests_of_a_connection(small_server):
    with connect(small_server) as sock:
        sock.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        answer = read_all(sock)
    assert answer.count(b"HTTP/1.1 200 ") == 3 and answer.count(b"Connection: close") == 1


def deepest(levels):
    return [deepest(levels - 1)] if levels > 1 else []


@pytest.mark.slow
def test_everything_at_its_maximum_at_once(server):
    """The largest head, body, JSON, prompts times n, stops, biases and logprobs in one request: an answer, and nothing left
    behind. It takes every slot there is."""
    body = {"prompt": ["x"] * 36, "n": 16, "best_of": 16, "stop": [chr(97 + i) * 256 for i in range(16)],
            "logit_bias": {str(i): 1 for i in range(1000)}, "logprobs": 20, "echo": True, "max_tokens": 1, "min_tokens": 1,
            "stop_token_ids": list(range(64)), "cache_salt": "s" * 128, "deep": deepest(63), "numbers": [1] * 990_000,
            "keys": {f"k{i}": None for i in range(4096)}, "user": ""}
    data = json.dumps(body, separators=(",", ":")).encode()
    data = data[:-2] + b"u" * ((8 << 20) - len(data)) + b'"}'
    line = b"POST /v1/completions?" + b"q" * (8192 - len("/v1/completions?")) + b" HTTP/1.1\r\n"
    fixed = b"Host: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n" % len(data)
    room = (16 << 10) - len(line) - len(fixed) - len("\r\n")
    headers = b"".join(b"X-%02d: %s\r\n" % (i, b"h" * (room // 96 - 8)) for i in range(95))
    head = line + fixed + headers + b"X-95: " + b"h" * (room - len(headers) - 8) + b"\r\n\r\n"
    assert len(head) == 16 << 10 and len(data) == 8 << 20
    with connect(server) as sock:
        sock.settimeout(300)
        sock.sendall(head + data)
        answer = read_all(sock)
    assert answer[9:12] == b"200", answer[:2000]
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["choices"]) == 576


def resident_bytes(server):
    """Without the model's file."""
    with open(f"/proc/{server.process.pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:"))


OPENAI_HEADERS = "".join(f"X-Stainless-{i}: {'v' * 40}\r\n" for i in range(12)) + f"Authorization: Bearer {'k' * 60}\r\n"
WAITING_STREAMS = {  # none of these costs more than another but by its body: what else preparing needed is gone
    "short": request({"prompt": "y", "max_tokens": 1, "stream": True}),
    "chat": request({"messages": [{"role": "user", "content": "Why is the sky blue? " * 20}], "max_tokens": 1, "stream": True,
                     "logit_bias": {str(i): 1 for i in range(100)}}, path="/v1/chat/completions", headers=OPENAI_HEADERS),
}


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' own memory")
def test_a_word_of_8_mib(start_server):
    """Body, text and tokens of one word that is as long as a request may be: the peak beside what an idle server has."""
    with start_server() as server:
        assert server.post("/tokenize", {"prompt": "x"}).status_code == 200
        status = pathlib.Path(f"/proc/{server.process.pid}/status")
        before = resident_bytes(server)
        pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the peak counts from here
        at_rest = int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]) * 1024 - before
        for letters in "a", "qwertyuiopasdfghjklzxcvbnm":
            word = (letters * (8 << 20))[: (8 << 20) - 100]
            assert server.post("/tokenize", {"prompt": word}).status_code in (200, 413)
        peak = int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) * 1024 - at_rest - before
        print(f"{peak / 2**20:.0f} MiB")
        assert peak < 60 << 20


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' own memory")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages/count_tokens"])
def test_a_chat_of_190000_messages_leaves_no_memory(start_server, path):
    """What it takes for a while goes back, also where several came at once, and where its tokens are counted alone."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(190_001)]
    with start_server() as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert server.post("/v1/chat/completions", {"messages": messages[:1], "max_tokens": 1}).status_code == 200
        before = resident_bytes(server)
        answers = pool.map(lambda i: server.post(path, {"messages": messages, "max_tokens": 1}), range(4))
        assert {answer.status_code for answer in answers} <= {400, 413}
        wait_until(lambda: resident_bytes(server) - before < 128 << 20, server, seconds=30)


@pytest.fixture
def many_sockets():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_streams(server, stack, body, count):
    """Returns their sockets once all are admitted: then their heads are sent."""
    sockets = [stack.enter_context(connect(server)) for _ in range(count)]
    for sock in sockets:
        sock.sendall(body)
    for sock in sockets:
        assert sock.recv(12) == b"HTTP/1.1 200"
    return sockets


def wait_for_events(sock, count):
    received = b""
    while received.count(b"data: ") < count:
        assert (piece := sock.recv(1 << 16))
        received += piece


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' own memory")
@pytest.mark.parametrize("name", WAITING_STREAMS)
def test_2000_waiting_streams(many_sockets, name):
    """What a stream that waits costs: 2,976 bytes of heap at most, counted to the byte, its body, and its slot's pages."""
    count = 2000
    options = ["--max-num-seqs", "1", "--max-queued-requests", "4000", "--max-queued-tokens", "100000000",
               "--no-log-requests", "--max-connections", "4096"]
    with faults.running(*options) as (server, plan), contextlib.ExitStack() as stack:
        running = {"prompt": "x", "max_tokens": 7000, "stream": True, "ignore_eos": True}
        wait_for_events(open_streams(server, stack, request(running), 1)[0], 4)
        open_streams(server, stack, WAITING_STREAMS[name], 100)
        heap, resident = plan.heap_bytes(), resident_bytes(server)
        open_streams(server, stack, WAITING_STREAMS[name], count)
        heap, resident = plan.heap_bytes() - heap, resident_bytes(server) - resident
        print(f"{heap / count:.0f} bytes of heap and {resident / count:.0f} of resident memory a stream")
        body = WAITING_STREAMS[name].partition(b"\r\n\r\n")[2]
        assert heap <= (2976 + len(body)) * count + (80 << 10)  # what grows once for all
        assert resident <= 4 * 4096 * count  # with the slot: its head, its tokens, where given its biases


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' own memory")
def test_streams_that_run(many_sockets):
    """The same once text has come: what it is decoded in stays small."""
    count = 64
    body = request({"prompt": "y", "max_tokens": 2000, "stream": True, "ignore_eos": True, "stop": ["never said"]})
    options = ["--max-num-seqs", str(count + 2), "--max-queued-tokens", "100000000", "--no-log-requests"]
    with faults.running(*options) as (server, plan):
        with contextlib.ExitStack() as stack:
            open_streams(server, stack, body, 2)
            before = plan.heap_bytes()
            for sock in open_streams(server, stack, body, count):
                wait_for_events(sock, 4)
            each = (plan.heap_bytes() - before) / count
            print(f"{each:.0f} bytes of heap a stream")
            assert each <= 4864


def settled(read):
    """What it reads when it has been the same for a while: what the engine has made may still be on its way into the streams."""
    last = None
    while (value := read()) != last:
        last = value
        time.sleep(0.3)
    return value


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' own memory")
def test_readers_that_stop_for_ten_minutes():
    """They cost their slots and a bounded buffer, not a byte more after ten minutes; others and /livez do not notice; and
    when they read again they get everything. The clock is the shim's."""
    body = {"prompt": "x", "max_tokens": 50, "ignore_eos": True, "seed": 3, "logprobs": 20, "stream": True}
    neighbour = {"prompt": "Once upon a time", "max_tokens": 10, "temperature": 0}

    def text_of(stream):
        events = [e[6:] for e in b"".join(stream.chunks()).decode().split("\n\n") if e.startswith("data: ")]
        assert events.pop() == "[DONE]"
        return "".join(json.loads(e)["choices"][0]["text"] for e in events)

    with faults.running("--write-timeout", "3600", "--stream-buffer-soft", "4096", "--no-log-requests") as (server, plan):
        expected = text_of(RawStream(server, "/v1/completions", body))
        alone = server.post("/v1/completions", neighbour).json()["choices"]
        server.wait_idle()
        before = plan.heap_bytes()
        plan.set_send_buffer(4096)
        readers = [RawStream(server, "/v1/completions", body, receive_buffer=4096) for _ in range(4)]
        plan.set_send_buffer(0)
        wait_until(lambda: server.metrics()["vllm:num_requests_running"] + server.metrics()["vllm:num_requests_waiting"] == 0)
        assert server.metrics()["flashd_requests_in_flight"] == 4  # all is generated, and waits in the slots
        stopped = settled(plan.heap_bytes)
        assert (stopped - before) / 4 < 64 << 10
        for _ in range(10):
            plan.move_clock(60)
            assert httpx.get(server.url + "/livez").status_code == 200
            assert server.post("/v1/completions", neighbour).json()["choices"] == alone
        wait_until(lambda: plan.heap_bytes() <= stopped)  # the last neighbour's connection is about to close
        print(f"{(stopped - before) / 4:.0f} bytes of heap a reader")
        assert [text_of(reader) for reader in readers] == [expected] * 4


@pytest.mark.skipif(SANITIZED, reason="the shim")
def test_places_that_slow_readers_keep_are_others_when_they_need_them():
    """Streams whose client stops reading keep all places, as what is unread of each is more than there may be copies of. Another client
    gets in: one of them ends with an error, and the other, read again, is whole."""
    body = {"prompt": [100 + i for i in range(1700)], "max_tokens": 1, "echo": True, "logprobs": 20, "stream": True}
    options = ["--max-num-seqs", "1", "--max-queued-requests", "1", "--max-body-bytes", "512KiB", "--max-buffered-bytes", "1MiB",
               "--write-timeout", "3600", "--stream-buffer-soft", "4096"]
    with faults.running(*options) as (server, plan):
        plan.set_send_buffer(4096)
        readers = [RawStream(server, "/v1/completions", body, receive_buffer=4096) for _ in range(2)]
        plan.set_send_buffer(0)
        wait_until(lambda: server.metrics()["vllm:prompt_tokens_total"] == 3400)  # both have begun, and are at their end
        plan.move_clock(6)
        assert ask_from(server, "127.0.0.1").status_code == 429  # who has them all already
        assert ask_from(server, "127.0.0.3").status_code == 200
        texts = [b"".join(reader.chunks()).decode() for reader in readers]
        assert sorted('"code":"slow_reader"' in text for text in texts) == [False, True]
        assert sorted('"finish_reason":"length"' in text for text in texts) == [False, True]
        server.wait_idle()
