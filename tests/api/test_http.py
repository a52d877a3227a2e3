"""The wire below the API: raw sockets against the real server. Limits at N-1, N and N+1, one answer a request, what a
half-close and a reset mean, and the process's life (start, drain, signals, descriptors)."""

import email.utils
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import BINARY, MODEL, SANITIZED, free_port, wait_until

TIMEOUT = 120
TOKENS = 8 if SANITIZED else 32  # of an answer that must last a little


def connect(server):
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_all(sock):
    data = b""
    while True:
        try:
            piece = sock.recv(1 << 16)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def read_until(sock, mark):
    data = b""
    while mark not in data:
        piece = sock.recv(1 << 16)
        assert piece, data
        data += piece
    return data


def ask(server, data):
    with connect(server) as sock:
        sock.sendall(data)
        return read_all(sock)


def status(answer):
    match = re.match(rb"HTTP/1\.1 (\d{3}) [^\r\n]+\r\n", answer)
    assert match, answer
    return int(match[1])


def split(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    return {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body


def get(path, *headers):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", "Connection: close", *headers, "", ""]).encode()


def post(path, value, *headers):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = [f"POST {path} HTTP/1.1", "Host: a", "Content-Type: application/json",
            f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


def completion(max_tokens, stream=True, **more):
    return {"prompt": "Once upon a time", "max_tokens": max_tokens, "stream": stream, "ignore_eos": True,
            "temperature": 0, **more}


# ---- answers ----


@pytest.mark.parametrize("path", ["/health", "/readyz", "/ping", "/livez", "/version", "/metrics", "/v1/models"])
def test_plain_answers(server, path):
    answer = ask(server, get(path, "X-Request-Id: abc.DEF-1_2"))
    assert status(answer) == 200
    headers, body = split(answer)
    assert int(headers["content-length"]) == len(body)
    assert headers["x-request-id"] == "abc.DEF-1_2" and headers["connection"] == "close"
    assert "access-control-allow-origin" not in headers
    assert email.utils.parsedate_to_datetime(headers["date"])
    head = ask(server, get(path).replace(b"GET", b"HEAD", 1))
    assert status(head) == 200 and split(head)[1] == b""


def test_version(server):
    version = json.loads(split(ask(server, get("/version")))[1])
    printed = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout
    assert printed.strip() == f"flashd {version['version']} ({version['commit']})"


def test_generated_request_ids_differ(server):
    ids = {split(ask(server, get("/version", "X-Request-Id: not valid!")))[0]["x-request-id"] for _ in range(20)}
    assert len(ids) == 20 and all(re.fullmatch(r"req-[0-9a-f]{16}", i) for i in ids)


def test_unknown_url_and_wrong_method(server):
    answer = ask(server, get("/v1/nothing"))
    error = json.loads(split(answer)[1])["error"]
    assert status(answer) == 404 and error["code"] == "unknown_url"
    assert "/v1/nothing" in error["message"] and "POST /v1/chat/completions" in error["message"]
    answer = ask(server, get("/v1/completions"))
    assert status(answer) == 405 and split(answer)[0]["allow"] == "POST, OPTIONS"
    answer = ask(server, b"DELETE /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert status(answer) == 405 and split(answer)[0]["allow"] == "GET, HEAD, OPTIONS"
    for path in ("/api/pull", "/api/chat"):
        assert isinstance(json.loads(split(ask(server, get(path)))[1])["error"], str)
    for path in ("/v1/messages", "/v1/messages/batches"):
        assert json.loads(split(ask(server, get(path)))[1])["type"] == "error"


@pytest.mark.parametrize("asked, meant", [
    ("/messages", "/v1/messages"), ("/v1/models/", "/v1/models"),
    ("/v1/v1/chat/completions", "/v1/chat/completions"), ("/v1/tokenize", "/tokenize")])
def test_unknown_urls_say_what_was_meant(server, asked, meant):
    """A base URL with /v1 too few or too many, or a slash too many."""
    answer = ask(server, post(asked, {}, "Connection: close"))
    assert status(answer) == 404 and f"did you mean {meant}?" in json.loads(split(answer)[1])["error"]["message"]


@pytest.mark.parametrize("path, instead", [
    ("/v1/batches", "send each by itself"), ("/v1/messages/batches", "send each by itself"), ("/v1/files/file-1/content", "files are not kept"),
    ("/v1/audio/speech", "text alone"), ("/v1/conversations", "previous_response_id"), ("/api/create", "started with"), ("/invocations", "POST /v1/completions")])
def test_what_is_not_here_is_said_with_what_there_is(server, path, instead):
    reply = server.post(path, {})
    error = reply.json()["error"]
    said = error if isinstance(error, str) else error["message"]
    assert reply.status_code == 404 and said.startswith(f"there is no {path} here; ") and instead in said and len(said) < 200


def test_an_escaped_slash_is_no_slash(server):
    assert status(ask(server, get("/v1%2fmodels"))) == 404
    answer = ask(server, get("/v1/models/meta%2Fllama"))  # but may be in a model's name
    assert status(answer) == 404 and "meta/llama" in json.loads(split(answer)[1])["error"]["message"]


# ---- pages ----


def preflight(origin):
    return get("/v1/chat/completions", f"Origin: {origin}", "Access-Control-Request-Method: POST",
               "Access-Control-Request-Headers: authorization,content-type").replace(b"GET", b"OPTIONS", 1)


def test_by_default_no_page_may_ask(server):
    for data in [preflight("https://x"), get("/v1/models", "Origin: https://x"), get("/metrics", "Origin: null"),
                 post("/tokenize", {"prompt": "x"}, "Origin: https://x", "Connection: close")]:
        answer = ask(server, data)
        assert status(answer) == 403 and b"--allowed-origin" in answer
        assert "access-control-allow-origin" not in split(answer)[0]
    form = post("/tokenize", {"prompt": "x"}, "Origin: null", "Connection: close").replace(
        b"application/json", b"application/x-www-form-urlencoded", 1)
    assert status(ask(server, form)) == 403


def test_pages_that_are_named_may_ask(start_server):
    with start_server("--allowed-origin", "https://x", "--allowed-origin", "http://localhost:3000") as server:
        for origin in ["https://x", "http://localhost:3000"]:
            answer = ask(server, preflight(origin))
            headers, _ = split(answer)
            assert status(answer) == 204 and headers["access-control-allow-origin"] == origin
            assert "POST" in headers["access-control-allow-methods"] and b"Vary: Origin\r\n" in answer
            assert headers["access-control-allow-headers"] == "authorization,content-type"
            assert split(ask(server, get("/v1/models", f"Origin: {origin}")))[0]["access-control-allow-origin"] == origin
        assert status(ask(server, preflight("https://y"))) == 403


def test_with_a_key_any_page_may_ask(start_server):
    with start_server("--api-key", "k") as server:
        answer = ask(server, preflight("https://x"))
        assert status(answer) == 204 and split(answer)[0]["access-control-allow-origin"] == "*"
        assert status(ask(server, get("/v1/models", "Origin: https://x"))) == 401
        assert status(ask(server, get("/v1/models", "Origin: https://x", "Authorization: Bearer k"))) == 200
        assert status(ask(server, get("/v1/models", "Authorization: Bearer k").replace(b"Host: a", b"Host: evil"))) == 200


@pytest.mark.parametrize("host, expected", [
    ("localhost", 200), ("localhost:1", 200), ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("evil.example", 421),
    ("evil.example:8000", 421), ("127.0.0.1.evil.example", 421)])
def test_names_of_a_server_on_loopback(server, host, expected):
    """A page's own name that resolves to 127.0.0.1 is not this server's (DNS rebinding)."""
    answer = ask(server, get("/v1/models").replace(b"Host: a", f"Host: {host}".encode()))
    assert status(answer) == expected and (expected == 200 or b"--allowed-host" in answer)


# ---- bodies ----


@pytest.mark.parametrize("content_type, expected", [
    ("application/json", 200), ("application/json; charset=utf-8", 200), ("APPLICATION/JSON", 200),
    ("application/x-www-form-urlencoded", 200), ("text/plain", 415), ("application/json; charset=latin1", 415)])
def test_content_type(server, content_type, expected):
    data = post("/tokenize", {"prompt": "x"}, "Connection: close").replace(
        b"Content-Type: application/json", f"Content-Type: {content_type}".encode())
    answer = ask(server, data)
    assert status(answer) == expected and (expected == 200 or b"Content-Type: application/json" in split(answer)[1])


def test_curl_needs_no_content_type(server):
    def curl(data):
        command = ["curl", "-s", "-d", data, f"http://127.0.0.1:{server.port}/tokenize"]
        return json.loads(subprocess.run(command, capture_output=True, timeout=TIMEOUT).stdout)

    assert curl('{"prompt":"x"}')["count"] == 1
    assert "Content-Type: application/json" in curl("prompt=x")["error"]["message"]


def test_content_encoding_is_refused(server):
    assert status(ask(server, post("/tokenize", b"xx", "Content-Encoding: gzip"))) == 415


# ---- limits ----


@pytest.mark.parametrize("extra, expected", [(-1, 200), (0, 200), (1, 431)])
def test_header_bytes(server, extra, expected):
    head = b"GET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Fill: "
    data = head + b"x" * (16 * 1024 + extra - len(head) - 4) + b"\r\n\r\n"
    answer = ask(server, data)
    assert status(answer) == expected
    assert expected == 200 or b"--max-header-bytes" in answer


@pytest.mark.parametrize("count, expected", [(99, 200), (100, 200), (101, 431)])
def test_header_count(server, count, expected):
    answer = ask(server, get("/version", *[f"X-{i}: y" for i in range(count - 2)]))
    assert status(answer) == expected
    assert expected == 200 or b"--max-headers" in answer


@pytest.mark.parametrize("size, expected", [(8191, 200), (8192, 200), (8193, 414)])
def test_url_bytes(server, size, expected):
    answer = ask(server, get("/version?" + "q" * (size - len("/version?"))))
    assert status(answer) == expected
    assert expected == 200 or b"--max-url-bytes" in answer


@pytest.mark.parametrize("extra, expected", [(-1, 200), (0, 200), (1, 413)])
def test_body_bytes(server, extra, expected):
    body = b'{"prompt":"x"' + b" " * ((8 << 20) + extra - 14) + b"}"
    answer = ask(server, post("/tokenize", body, "Connection: close"))
    assert status(answer) == expected
    assert expected == 200 or b"--max-body-bytes" in answer


def test_chunked_body(server):
    head = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n"
    pieces = [b'{"pro', b'mpt":', b'"x"}']
    body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
    with connect(server) as sock:
        for byte in head + b"Transfer-Encoding: chunked\r\n\r\n" + body:
            sock.send(bytes([byte]))
        assert status(read_all(sock)) == 200


def test_endless_head_does_not_grow_memory(server):
    def rss_kib():
        return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1])

    before = rss_kib()
    for _ in range(50):
        with connect(server) as sock:
            try:
                sock.sendall(b"GET / HTTP/1.1\r\nX: ")
                for _ in range(64):
                    sock.sendall(b"x" * 65536)
            except OSError:
                pass
    assert rss_kib() - before < 4096


SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("data, expected", [
    (b"GET /version HTTP/1.1\nHost: a\n\n", 400),
    (b"GET /version HTTP/1.1\r\n\r\n", 400),
    (b"GET /version HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    (b"GET /version HTTP/1.1\r\nHost: a\r\n Content-Length: 5\r\n\r\nhello", 400),
    (b"GET /version HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    (b"BREW /version HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    (b"GET /version HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nX-Abc:\rxTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
])
def test_nothing_is_parsed_after_an_error(server, data, expected):
    answer = ask(server, data + SMUGGLED)
    assert status(answer) == expected
    assert len(re.findall(rb"HTTP/1\.1 \d{3}", answer)) == 1
    assert split(answer)[0]["connection"] == "close"
    assert set(json.loads(split(answer)[1])["error"]) == {"message", "type", "param", "code"}


def test_an_https_client_is_told_why(server):
    """Its own error is of a wrong version; the operator reads in the log what it was."""
    assert b"speaks plain HTTP" in ask(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


def test_pipelined_answers_keep_their_order(server):
    names = [f"nobody-{i}" for i in range(200)]
    data = b"".join(f"GET /v1/models/{n} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for n in names)
    answer = ask(server, post("/v1/completions", completion(4, stream=False)) + data + get("/version"))
    assert answer.index(b"text_completion") < answer.index(b"nobody-0")
    assert re.findall(rb"nobody-\d+", answer) == [n.encode() for n in names]


def test_garbage(server):
    """What a port scanner sends: the server answers or closes, and goes on."""
    rng = random.Random(1)
    words = [b"GET ", b"/", b" HTTP/1.1", b"\r\n", b"\n", b"Host: a", b": ", b"\0", b"chunked", b"\xff" * 9, b"A" * 999]
    for _ in range(300):
        data = b"".join(rng.choice(words) if rng.random() < 0.8 else rng.randbytes(rng.randrange(64))
                        for _ in range(rng.randrange(30)))
        with connect(server) as sock:
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                answer = read_all(sock)
            except OSError:
                continue
            assert not answer or 200 <= status(answer) <= 505
    assert status(ask(server, get("/health"))) == 200


# ---- keys ----


def test_every_route_but_health_version_metrics_needs_a_key(start_server):
    with start_server("--api-key", "one", "--api-key", "two") as server:
        for path in ["/", "/health", "/readyz", "/ping", "/livez", "/version", "/metrics"]:
            assert status(ask(server, get(path))) == 200
        for path in ["/v1/models", "/models", "/v1/models/x", "/v1", "/docs", "/metrics/", "/health/", "//health"]:
            answer = ask(server, get(path))
            assert status(answer) == 401 and split(answer)[0]["www-authenticate"] == "Bearer"
        for path in ["/v1/completions", "/v1/chat/completions", "/chat/completions", "/tokenize", "/detokenize"]:
            assert status(ask(server, post(path, {}))) == 401
            assert status(ask(server, post(path, {}, "Authorization: Bearer thre"))) == 401
        for key in ["Authorization: Bearer one", "authorization: bearer two", "x-api-key: two"]:
            assert status(ask(server, get("/v1/models", key))) == 200
        assert status(ask(server, b"GET /v1/models HTTP/1.1\r\nHost: a/health?\r\n\r\n")) == 400


# ---- clients that go ----


def test_half_close_keeps_the_stream(server):
    with connect(server) as sock:
        sock.sendall(post("/v1/completions", completion(TOKENS)))
        sock.shutdown(socket.SHUT_WR)
        answer = read_all(sock)
    assert answer.count(b"data: {") >= TOKENS // 2 and b"data: [DONE]" in answer and answer.endswith(b"0\r\n\r\n")


def test_half_close_keeps_the_answer(server):
    with connect(server) as sock:
        sock.sendall(post("/v1/completions", completion(16, stream=False)))
        sock.shutdown(socket.SHUT_WR)
        answer = read_all(sock)
    assert status(answer) == 200 and b'"completion_tokens":16' in answer.replace(b": ", b":")


@pytest.mark.parametrize("how", ["1.1", "1.0", "pipelined"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("with_reset", [True, False])
def test_a_client_that_goes_frees_its_blocks(server, stream, with_reset, how):
    for _ in range(2):
        sock = connect(server)
        data = post("/v1/completions", completion(2000, stream))
        if how == "1.0":
            data = data.replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        sock.sendall(data + get("/version") * 300 if how == "pipelined" else data)
        wait_until(lambda: server.metrics()["vllm:num_requests_running"] > 0)
        if with_reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        server.wait_idle(5 if not SANITIZED else 30)


def test_a_slow_reader_does_not_hold_up_others(server):
    slow = connect(server)
    slow.sendall(post("/v1/completions", completion(3 * TOKENS, logprobs=5)))
    answer = ask(server, post("/v1/completions", completion(8), "Connection: close"))
    assert b"data: [DONE]" in answer
    assert b"data: [DONE]" in read_until(slow, b"0\r\n\r\n")
    slow.close()


# ---- life ----


def wait_until_draining(server):
    wait_until(lambda: status(ask(server, get("/health"))) == 503, server)


def test_listens_at_once_and_is_ready_soon():
    port = free_port()
    begin = time.monotonic()
    process = subprocess.Popen([BINARY, "serve", MODEL, "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None and time.monotonic() - begin < 60
                time.sleep(0.001)
        print(f"listening after {time.monotonic() - begin:.3f} s")
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_port_0_is_logged():
    process = subprocess.Popen([BINARY, "serve", MODEL, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        match = next(m for m in (re.search(r"listening on http://127.0.0.1:(\d+)", line) for line in process.stderr) if m)
        socket.create_connection(("127.0.0.1", int(match[1]))).close()
        threading.Thread(target=process.stderr.read, daemon=True).start()
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize("options, words", [
    (["--host", "example.com"], "--host"),
    (["--host", "203.0.113.1"], "--host"),
    (["--uds", "/nonexistent/folder/socket"], "/nonexistent/folder: No such file or directory"),
    (["--uds", "/etc/passwd"], "--uds"),
    (["--uds", "nowhere/socket"], "--uds nowhere/socket: nowhere: No such file or directory"),
    (["--api-key", ""], "api-key is empty"),
    (["--allowed-origin", "http://a/"], "--allowed-origin"),
    (["--allowed-host", "llm.example:8000"], "--allowed-host llm.example:8000: a name or an address"),
    (["--max-body-bytes", "512MiB"], "--max-buffered-bytes"),
    (["--kv-cache-memory-bytes", "40000GiB"], "--kv-cache-memory-bytes"),
    (["--rerank-template", "/nonexistent"], "--rerank-template: /nonexistent: No such file"),
    (["--lora-modules", "a=/nonexistent"], "--lora-modules /nonexistent: no adapter"),
    (["--no-receipts=true"], "--no-receipts takes no value"),
])
def test_cannot_listen(options, words):
    result = subprocess.run([BINARY, "serve", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=60)
    assert result.returncode in (1, 2) and words in result.stderr


def test_a_used_port_is_an_error(server):
    result = subprocess.run([BINARY, "serve", MODEL, "--port", str(server.port)], capture_output=True, text=True,
                            timeout=60)
    assert result.returncode == 1 and "already in use" in result.stderr


def test_drain_finishes_streams(start_server):
    with start_server("--drain-timeout", "600") as server:
        socks = [connect(server) for _ in range(8)]
        for sock in socks:
            sock.sendall(post("/v1/completions", completion(TOKENS)))
        idle = connect(server)
        idle.sendall(get("/version").replace(b"Connection: close\r\n", b""))
        read_until(idle, b"}")
        begun = [read_until(sock, b"data: ") for sock in socks]  # of some the whole, where this client is slow
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGTERM)
        assert read_all(idle) == b""
        answers = [begin + read_all(sock) for begin, sock in zip(begun, socks)]
        assert all(b"data: [DONE]" in a and a.endswith(b"0\r\n\r\n") and b'"error"' not in a for a in answers)
        assert server.process.wait(60) == 0


def test_drain_refuses_and_times_out(start_server):
    with start_server("--drain-timeout", "2") as server:
        sock = connect(server)
        sock.sendall(post("/v1/completions", completion(8000)))
        read_until(sock, b"data: ")
        server.process.send_signal(signal.SIGTERM)
        wait_until_draining(server)
        for path in ["/health", "/v1/models"]:
            answer = ask(server, get(path))
            assert status(answer) == 503 and 1 <= int(split(answer)[0]["retry-after"]) <= 60
        assert status(ask(server, get("/livez"))) == 200
        answer = read_all(sock)
        assert b'data: {"error"' in answer and answer.endswith(b"0\r\n\r\n")
        assert server.process.wait(60) == 0


def test_a_second_signal_ends_at_once(start_server):
    with start_server() as server:
        sock = connect(server)
        sock.sendall(post("/v1/completions", completion(8000)))
        read_until(sock, b"data: ")
        server.process.send_signal(signal.SIGINT)
        wait_until_draining(server)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        server.process.wait(60)
        assert time.monotonic() - begin < 2


def test_idle_connections_lock_nobody_out(start_server):
    """16 of 16 connections have asked something that needs no key, and stay: a key still gets in."""
    with start_server("--max-connections", "16", "--api-key", "k") as server:
        socks = [connect(server) for _ in range(16)]
        for sock in socks:
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            assert status(sock.recv(4096)) == 200
        for _ in range(20):
            assert status(ask(server, get("/v1/models", "Authorization: Bearer k"))) == 200
        assert server.metrics()["flashd_http_displaced_connections_total"] >= 1
        for sock in socks:
            sock.close()


def test_silent_connections_lock_no_probe_out(start_server):
    """Many more than there are places, while every place is at work."""
    with start_server("--max-connections", "4", "--max-num-seqs", "1") as server:
        busy = [connect(server) for _ in range(4)]
        for sock in busy:
            sock.sendall(post("/v1/completions", completion(2000)))
            read_until(sock, b"HTTP/1.1 200")
        silent = [connect(server) for _ in range(200)]
        for path in ["/livez", "/health", "/metrics", "/readyz"] * 5:
            assert status(ask(server, get(path))) == 200
        answer = ask(server, get("/v1/models"))
        assert status(answer) == 503 and b"--max-connections" in answer and b"Retry-After: " in answer
        for sock in busy + silent:
            sock.close()
        server.wait_idle(5 if not SANITIZED else 30)


def test_connections_of_one_address(start_server):
    with start_server("--max-connections-per-address", "2", "--max-num-seqs", "1") as server:
        busy = []
        while len(busy) < 2:  # the connections that asked for readiness go
            sock = connect(server)
            sock.sendall(post("/v1/completions", completion(2000)))
            if b"HTTP/1.1 200" in sock.recv(12):
                busy.append(sock)
            else:
                sock.close()
        answer = ask(server, get("/version"))
        assert status(answer) == 429 and b"--max-connections-per-address" in answer
        with socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.2", 0)) as sock:
            sock.sendall(get("/version"))
            assert status(read_all(sock)) == 200
        for sock in busy:
            sock.close()
        wait_until(lambda: status(ask(server, get("/version"))) != 429)
        server.wait_idle(5 if not SANITIZED else 30)


def test_refusals_are_limited_in_the_log(start_server):
    """A line a second of each kind, and the number of those left out; the metrics count all."""
    with start_server() as server:
        count = 500
        before = server.metrics()['flashd_http_requests_total{status="4xx"}']
        with connect(server) as sock:
            sock.sendall(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n" * count + get("/version"))
            assert read_all(sock).count(b"HTTP/1.1 404 ") == count
        assert server.metrics()['flashd_http_requests_total{status="4xx"}'] - before == count
        server.stop()
        lines = re.findall(r"requests? refused .*status=404.*", server.log())
        left_out = sum(int(n) for line in lines for n in re.findall(r"left_out=(\d+)", line))
        written = sum(line.startswith("request refused") for line in lines)
        assert written + left_out == count and len(lines) <= 20


def keep_asking(sock):
    """A request over a connection that stays."""
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    return status(sock.recv(1 << 16))


def test_descriptors_run_out(tmp_path):
    """With 64 descriptors it serves as many connections as it says; with 100 clients it refuses, does not spin, and recovers."""
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, old[1]))
    log = tmp_path / "log"
    try:
        preexec = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        port = free_port()
        with log.open("w") as file:
            process = subprocess.Popen([BINARY, "serve", MODEL, "--port", str(port)], stderr=file, preexec_fn=preexec)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
    try:
        server = type("S", (), {"port": port})
        for _ in range(6000):
            try:
                if status(ask(server, get("/health"))) == 200:
                    break
            except ConnectionRefusedError:
                pass
            time.sleep(0.01)
        promised = int(re.search(r"descriptor limit allows; (\d+) are served", log.read_text())[1])
        socks = [connect(server) for _ in range(promised)]
        assert [keep_asking(sock) for sock in socks + socks] == [200] * 2 * promised
        for sock in socks:
            sock.close()
        socks = [connect(server) for _ in range(100)]
        before = sum(map(int, open(f"/proc/{process.pid}/stat").read().split()[13:15]))
        time.sleep(1)
        used = sum(map(int, open(f"/proc/{process.pid}/stat").read().split()[13:15])) - before
        assert used < 50, f"{used} ms/10 of CPU time in a second"
        for sock in socks:
            sock.close()
        time.sleep(0.2)
        assert status(ask(server, get("/health"))) == 200
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_idle_server_does_not_wake_up(start_server):
    with start_server() as server:
        def switches():
            total = 0
            for task in os.listdir(f"/proc/{server.process.pid}/task"):
                text = open(f"/proc/{server.process.pid}/task/{task}/status").read()
                total += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", text)[1])
            return total

        time.sleep(1)
        before = switches()
        time.sleep(3)
        assert switches() - before <= 3


def test_unix_socket(tmp_path, start_server):
    path = str(tmp_path / "s")
    process = subprocess.Popen([BINARY, "serve", MODEL, "--uds", path], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.exists(path))
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            sock.sendall(get("/version"))
            assert status(read_all(sock)) == 200
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert not os.path.exists(path)
