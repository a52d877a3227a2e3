"""Limits and overload: what is refused, with which status and which words, and that others do not notice."""

import asyncio
import concurrent.futures
import contextlib
import json
import re
import socket
import time

import httpx
import pytest

JSON = {"Content-Type": "application/json"}


def send(server, content, path="/v1/completions", headers=JSON):
    return httpx.post(server.url + path, content=content, headers=headers, timeout=60)


BAD_JSON = {
    "empty": b"",
    "spaces": b"  \n ",
    "not json": b"prompt=x",
    "cut off": b'{"prompt":"x"',
    "trailing bytes": b'{"prompt":"x"} {}',
    "duplicate key": b'{"prompt":"x","prompt":"y"}',
    "duplicate key, escaped": b'{"prompt":"x","\\u0070rompt":"y"}',
    "invalid utf-8": b'{"prompt":"\xff"}',
    "surrogate in utf-8": b'{"prompt":"\xed\xa0\x80"}',
    "nul": b'{"prompt":"a\x00b"}',
    "byte order mark": b'\xef\xbb\xbf{"prompt":"x"}',
    "utf-16": '{"prompt":"x"}'.encode("utf-16"),
    "number beyond a double": b'{"prompt":"x","seed":1e999}',
    "leading zero": b'{"prompt":"x","seed":01}',
    "bare fraction": b'{"prompt":"x","top_p":.5}',
    "nan": b'{"prompt":"x","top_p":NaN}',
    "depth 65": b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
    "many keys": b"{" + b",".join(b'"k%d":1' % i for i in range(4097)) + b"}",
    "8 MiB of brackets": b"[" * (8 << 20),
    "an array": b"[]",
    "a string": b'"prompt"',
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json(server, name):
    response = send(server, BAD_JSON[name])
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and len(error["message"]) > 10
    assert not re.search(r"0x[0-9a-f]{6,}|/work|/home", error["message"])


@pytest.mark.parametrize("half", ["\ud83d", "\udc00", "a\ud83d\ud83d b\ude00"])
def test_half_a_surrogate_pair_is_the_character_for_none(server, half):
    """Clients leave it that cut a text within an emoji; each turn of their conversation has it from then on."""
    body, whole = ({"prompt": text, "max_tokens": 8, "seed": 1} for text in (half, re.sub("[\ud800-\udfff]", "\ufffd", half)))
    answers = [send(server, json.dumps(b).encode()).json() for b in (body, whole)]
    assert answers[0]["choices"] == answers[1]["choices"] and answers[0]["usage"]["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"]
    large = {"prompt": half, "max_tokens": 1, "user": "x" * (1 << 20)}  # which a worker checks
    assert send(server, json.dumps(large).encode()).status_code == 200


def test_depth_64_is_accepted(server):
    assert send(server, b'{"prompt":"x","max_tokens":1,"a":' + b"[" * 63 + b"]" * 63 + b"}").status_code == 200


def test_body_too_large(server):
    response = send(server, b'{"prompt":"' + b"x" * (9 << 20) + b'"}')
    assert response.status_code == 413


def test_content_type(server):
    response = send(server, b"{}", headers={"Content-Type": "text/plain"})
    assert response.status_code == 415 and "Content-Type: application/json" in response.json()["error"]["message"]


def test_bodies_held_for_all_clients_are_bounded(start_server):
    """40 bodies of 8 MB, each but for its last byte: a part is held, the others get 503; then there is room again."""
    size = 8 << 20
    head = f"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    with start_server("--max-buffered-bytes", "64MiB") as server:
        socks = []
        for _ in range(40):
            socks.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            socks[-1].sendall(head.encode())
            with contextlib.suppress(ConnectionError):
                socks[-1].sendall(b" " * (size - 1))
        assert server.metrics()["flashd_http_buffered_bytes"] <= 64 << 20
        with open(f"/proc/{server.process.pid}/status") as file:
            peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
        print(f"peak resident {peak >> 10} MiB")
        answers = []
        for sock in socks:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                answers.append(sock.recv(1 << 16))
        refused = [a for a in answers if a]
        assert len(refused) >= 30 and all(b"503" in a[:13] and b"--max-buffered-bytes" in a for a in refused)
        for sock in socks:
            sock.close()
        while server.metrics()["flashd_http_buffered_bytes"] > 1 << 20:
            time.sleep(0.01)
        assert send(server, b'{"prompt":"x"}', "/tokenize").status_code == 200


@pytest.mark.parametrize("field", ["n", "max_tokens", "min_tokens", "top_k", "logprobs", "seed"])
@pytest.mark.parametrize("value", ["-9223372036854775809", "9223372036854775808", "1e308", "-1e308", "1.5", '"one"', '"1.5"', "[]"])
def test_integer_fields(server, field, value):
    begin = time.monotonic()
    response = send(server, b'{"prompt":"x","%s":%s}' % (field.encode(), value.encode()))
    assert response.status_code == 400 and response.json()["error"]["param"] == field
    assert time.monotonic() - begin < 5


def test_counts_of_a_request(server):
    def param(**body):
        response = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, **body})
        return response.status_code, response.json().get("error", {}).get("param")

    assert param(prompt=["x"] * 2049) == (400, "prompt")
    assert param(stop=["a"] * 65) == (400, "stop")
    assert param(stop="a" * 257) == (400, "stop")
    assert param(stop_token_ids=[0] * 65) == (400, "stop_token_ids")
    assert param(logit_bias={str(i): 0 for i in range(1025)}) == (400, "logit_bias")
    assert param(logprobs=21) == (400, "logprobs")
    assert param(cache_salt="x" * 129) == (400, "cache_salt")
    assert param(prompt=["x"] * 200, stop=["zz"] * 64) == (200, None)


def test_unknown_fields_are_accepted(server):
    body = {"prompt": "x", "max_tokens": 1, "user": "me", "metadata": {"a": 1}, "new_field": [None], "Temperature": "high"}
    assert server.post("/v1/completions", body).status_code == 200


def test_tokens_of_a_text_are_bounded(server):
    """8 MB at once: what it costs is known before it is spent."""
    for body in ({"prompt": "1 " * 4_000_000}, {"prompt": "1 " * 4_000_000, "return_token_strs": True}):
        refused = server.post("/tokenize", body)
        assert refused.status_code == 413 and "--max-tokenize-tokens" in refused.json()["error"]["message"]


def test_long_bodies_are_prepared_beside_the_loop(server):
    """A body of megabytes keeps nobody waiting: health answers while it is tokenised."""
    text = " " * 7_000_000  # what the tokenizer takes longest for
    with concurrent.futures.ThreadPoolExecutor() as pool:
        long = pool.submit(server.post, "/tokenize", {"prompt": text})
        slowest, answered, start = 0, 0, time.monotonic()
        while not long.done():
            begin = time.monotonic()
            assert httpx.get(server.url + "/health").status_code == 200
            slowest = max(slowest, time.monotonic() - begin)
            answered += 1
        assert long.result().json()["count"] > 100_000
    assert answered >= 5 and slowest < (time.monotonic() - start) / 2
    back = server.post("/tokenize", {"prompt": text[:40_000]}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": back}).json()["prompt"] == text[:40_000]


def test_nul_is_a_character(server):
    ids = server.post("/tokenize", {"prompt": "a\0b", "add_special_tokens": False}).json()["tokens"]
    assert server.post("/detokenize", {"tokens": ids}).json()["prompt"] == "a\0b"
    echo = server.post("/v1/completions", {"prompt": "a\0b", "max_tokens": 1, "echo": True}).json()
    assert echo["choices"][0]["text"].startswith("a\0b") and echo["usage"]["prompt_tokens"] == len(ids)
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a\0b"}], "max_tokens": 1})
    assert chat.status_code == 200


def test_tokenize(server):
    answer = server.post("/tokenize", {"prompt": "Hello, world \U0001F600", "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert server.post("/detokenize", {"tokens": answer["tokens"]}).json()["prompt"] == "Hello, world \U0001F600"
    for body, param in [({}, "prompt"), ({"prompt": 1}, "prompt"), ({"messages": []}, "messages")]:
        response = server.post("/tokenize", body)
        assert response.status_code == 400 and response.json()["error"]["param"] == param
    for body, param in [({}, "tokens"), ({"tokens": [-1]}, "tokens[0]"), ({"tokens": [1, "a"]}, "tokens[1]")]:
        response = server.post("/detokenize", body)
        assert response.status_code == 400 and response.json()["error"]["param"] == param


def test_full_queue_is_429_with_a_truthful_retry_after(start_server):
    with start_server("--max-num-seqs", "1", "--max-queued-requests", "2") as server:
        body = {"prompt": "x", "max_tokens": 60, "ignore_eos": True}
        assert server.post("/v1/completions", body).status_code == 200  # the server learns its speed
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            begin = time.monotonic()
            running = [pool.submit(server.post, "/v1/completions", body) for _ in range(3)]
            while server.metrics()["flashd_requests_in_flight"] < 3:
                time.sleep(0.01)
            refused = server.post("/v1/completions", body)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "rate_limit_exceeded"
            retry_after = int(refused.headers["retry-after"])
            assert 1 <= retry_after <= 60
            assert all(r.result().status_code == 200 for r in running)
            assert retry_after <= 2 * (time.monotonic() - begin) + 1  # how true: unit/server/test_backlog
        too_many = server.post("/v1/completions", {**body, "n": 4})
        assert too_many.status_code == 400 and "--max-queued-requests" in too_many.json()["error"]["message"]
        server.wait_idle()


def test_queued_tokens_are_bounded(start_server):
    """Prompt tokens that wait; a prompt as long as the context always fits alone."""
    with start_server("--max-queued-tokens", "100", "--max-num-seqs", "1", "--max-model-len", "512") as server:
        busy = {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", server.url + "/v1/completions", json=busy, timeout=60) as running:
            lines = running.iter_lines()
            next(lines)
            body = {"prompt": [5] * 300, "max_tokens": 1}
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                first = pool.submit(server.post, "/v1/completions", body)
                while server.metrics()["vllm:num_requests_waiting"] < 1:
                    time.sleep(0.01)
                refused = server.post("/v1/completions", {**body, "prompt": [5] * 250})
                assert refused.status_code == 429 and "--max-queued-tokens" in refused.json()["error"]["message"]
                small = pool.submit(server.post, "/v1/completions", {**body, "prompt": [5] * 200})
                running.close()
                assert first.result().status_code == 200 and small.result().status_code == 200
        batch = server.post("/v1/completions", {**body, "prompt": [[5] * 260] * 2})
        assert batch.status_code == 400 and "--max-queued-tokens" in batch.json()["error"]["message"]
        server.wait_idle()


def test_what_may_still_be_generated_locks_nobody_out(start_server):
    """A small request for much, and many streams for much: whoever comes is taken as long as nothing waits for long."""
    with start_server("--max-num-seqs", "4") as server:
        def stream(body):
            return httpx.stream("POST", server.url + "/v1/completions", timeout=60, json={**body, "stream": True, "ignore_eos": True})

        with stream({"prompt": ["x"] * 13, "max_tokens": 8000, "n": 16}) as first:
            lines = first.iter_lines()
            next(lines)
            with contextlib.ExitStack() as stack:
                others = [stack.enter_context(stream({"prompt": "x", "max_tokens": 4096})) for _ in range(60)]
                assert [r.status_code for r in others] == [200] * 60
        server.wait_idle(60)


@pytest.mark.slow
def test_hundreds_of_requests_at_once_are_all_answered(start_server):
    """As vllm bench serve sends a thousand by default: more than any number of sequences that runs at once."""
    with start_server("--max-num-seqs", "64", "--no-log-requests") as server:
        async def all_at_once():
            limits = httpx.Limits(max_connections=600)
            async with httpx.AsyncClient(timeout=300, limits=limits) as client:
                return await asyncio.gather(*(client.post(server.url + "/v1/completions", json={
                    "prompt": f"{i}", "max_tokens": 1, "temperature": 0}) for i in range(600)))

        assert [r.status_code for r in asyncio.run(all_at_once())] == [200] * 600
        server.wait_idle()


def test_draining_finishes_streams_and_refuses_new_work(start_server):
    with start_server() as server:
        with httpx.stream("POST", server.url + "/v1/completions", timeout=60, json={
                "prompt": "x", "max_tokens": 60, "ignore_eos": True, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.terminate()
            time.sleep(0.2)
            rest = [json.loads(x[6:]) for x in lines if x.startswith("data: {")]
            assert rest[-1]["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(30) == 0


def test_drain_timeout_ends_streams_with_an_error_event(start_server):
    with start_server("--drain-timeout", "1") as server:
        with httpx.stream("POST", server.url + "/v1/completions", timeout=60, json={
                "prompt": "x", "max_tokens": 7000, "ignore_eos": True, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.terminate()
            rest = [x for x in lines if x.startswith("data: ")]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2][6:])["error"]["type"] == "service_unavailable_error"
        assert server.process.wait(30) == 0
