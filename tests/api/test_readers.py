"""Clients that drip, stop and pile up: what each costs, and that the others do not notice."""

import contextlib
import json
import resource
import socket
import time

import pytest

from conftest import SANITIZED


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


@pytest.mark.slow
def test_everything_at_its_maximum_at_once(server):
    """The largest head, body, prompts, n, stops, biases and logprobs in one request: an answer, and nothing left behind."""
    body = {"prompt": ["x"] * 30, "n": 16, "best_of": 16, "stop": [chr(97 + i) * 256 for i in range(16)],
            "logit_bias": {str(i): 1 for i in range(1000)}, "logprobs": 20, "echo": True, "max_tokens": 1,
            "stop_token_ids": list(range(64)), "cache_salt": "s" * 128, "user": ""}
    body["user"] = "u" * ((8 << 20) - len(json.dumps(body)) - 10)
    headers = "".join(f"X-{i}: {'h' * 120}\r\n" for i in range(90))
    with connect(server) as sock:
        sock.sendall(request(body, path="/v1/completions?" + "q" * 4000, headers=headers + "Connection: close\r\n"))
        answer = read_all(sock)
    assert answer[9:12] == b"200", answer[:2000]
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["choices"]) == 480


def heap_kib(server):
    """Of the loop's thread. Slots and K/V blocks are mappings of their own."""
    with open(f"/proc/{server.process.pid}/smaps") as file:
        for line in file:
            if line.rstrip().endswith("[heap]"):
                return int(next(x for x in file if x.startswith("Rss:")).split()[1])


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' own memory")
def test_2000_waiting_streams(start_server):
    """What a stream that waits costs beside its slot: a connection, two small arenas and the request's parameters."""
    count = 2000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    body = request({"prompt": "y", "max_tokens": 1, "stream": True})
    options = ["--max-num-seqs", "1", "--max-queued-requests", "4000", "--max-queued-tokens", "100000000",
               "--no-log-requests", "--max-connections", "4096"]
    with start_server(*options) as server, contextlib.ExitStack() as stack:
        def open_streams(n):
            for _ in range(n):
                stack.enter_context(sock := connect(server))
                sock.sendall(body)

        first = stack.enter_context(connect(server))
        first.sendall(request({"prompt": "x", "max_tokens": 7000, "stream": True, "ignore_eos": True}))
        first.recv(100)
        open_streams(100)
        deadline = time.monotonic() + 60
        while server.metrics()["flashd_requests_in_flight"] < 101:
            assert time.monotonic() < deadline
        before = heap_kib(server)
        open_streams(count)
        while server.metrics()["flashd_requests_in_flight"] < 101 + count:
            assert time.monotonic() < deadline
        each = (heap_kib(server) - before) / count
        print(f"{each:.1f} KiB a stream")
        assert each <= 16, each
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
