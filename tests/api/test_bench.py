"""`flashd bench serve`: against the real server, and against one that refuses, hangs up, stalls and speaks in parts."""

import contextlib
import json
import socket
import subprocess
import threading
import time
import xml.etree.ElementTree

import pytest

from conftest import BINARY, free_port


def bench(*args, code=0, timeout=120):
    done = subprocess.run([str(BINARY), "bench", "serve", *map(str, args)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def figures(*args, code=0):
    return json.loads(bench(*args, "--json", code=code).stdout)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_real_server(server, endpoint, tmp_path):
    before = server.wait_idle()
    told = figures(server.url, "--requests", 12, "--streams", 4, "--input", 20, "--output", 8, "--endpoint", endpoint,
                   "--slo-ttft", 1e8, "--slo-itl", 1e8, "--svg", tmp_path / "plot.svg")
    assert told["complete"] == told["requests"] == 12 and told["refused"] == []
    assert told["completion_tokens"] == 12 * 8 and 12 * 20 <= told["prompt_tokens"] <= 12 * 80 and not told["counted_chunks"]
    assert told["ttft_ms"]["count"] == told["e2e_ms"]["count"] == 12 and told["itl_ms"]["count"] > 12
    assert 0 < told["ttft_ms"]["p50"] <= told["ttft_ms"]["p99"] <= told["ttft_ms"]["max"] <= told["e2e_ms"]["max"]
    assert told["goodput_per_second"] == told["requests_per_second"] > 0
    after = server.wait_idle()
    name = "vllm:generation_tokens_total"
    assert after[name] - before[name] == 12 * 8
    root = xml.etree.ElementTree.parse(tmp_path / "plot.svg").getroot()
    curves = [e for e in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(curves) == 2 and "nan" not in (tmp_path / "plot.svg").read_text().lower()
    assert "prefers-color-scheme: dark" in (tmp_path / "plot.svg").read_text()


def test_table_and_goodput(server):
    done = bench(server.url + "/v1", "--requests=3", "--rate=50", "--input=5", "--output=4", "--slo-ttft=0.001")
    for row in ("complete", "goodput", "generated tokens/s", "first token (TTFT)", "between chunks (ITL)", "per token (TPOT)"):
        assert row in done.stdout
    assert "0.00   0.0 %" in done.stdout  # no first token within a microsecond


def test_a_seed_chooses_the_prompts(start_server):
    """The same seed asks the same again: the prefix cache knows it; another seed does not."""
    with start_server() as server:
        def cached(seed):
            before = server.wait_idle()["vllm:prefix_cache_hits_total"]
            bench(server.url, "--requests=2", "--streams=1", "--input=60", "--output=1", f"--seed={seed}")
            return server.wait_idle()["vllm:prefix_cache_hits_total"] - before
        first, other, again = cached(1), cached(2), cached(1)
        assert first < 60 and other < 60 < again


def test_a_trace(server):
    """Lengths differ, and the server counts as many tokens as were asked."""
    before = server.wait_idle()
    told = figures(server.url, "--trace=code", "--scale=0.02", "--input=2000", "--rate=100", "--requests=12", "--vocab=40000",
                   "--slo-ttft=1e8")
    assert told["complete"] == 12 and told["other_length"] == 0
    rows = told["by_prompt"]
    assert len(rows) > 1 and sum(row["ttft_ms"]["count"] for row in rows) == sum(row["good"] for row in rows) == 12
    after = server.wait_idle()
    for name, field in (("vllm:prompt_tokens_total", "prompt_tokens"), ("vllm:generation_tokens_total", "completion_tokens")):
        assert after[name] - before[name] == told[field]
    again = figures(server.url, "--trace=code", "--scale=0.02", "--input=2000", "--rate=100", "--requests=12", "--vocab=40000")
    assert [again[field] for field in ("prompt_tokens", "completion_tokens")] == [
        told[field] for field in ("prompt_tokens", "completion_tokens")]


# ---- a server that misbehaves ----

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
LAST = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
DONE = "data: [DONE]\n\n"


def chunk(text):
    return f"{len(text.encode()):x}\r\n{text}\r\n"


def refusal(status, body, *headers):
    return "\r\n".join([f"HTTP/1.1 {status} No", f"Content-Length: {len(body)}", *headers, "", body])


BUSY = json.dumps({"error": {"message": "the queue is full", "code": 429}})
WHOLE = HEAD + chunk(TOKEN) + chunk(TOKEN) + chunk(LAST + DONE) + "0\r\n\r\n"


class Fake:
    """Answers the connections in their order with scripts: text, None (hang up at once), or ("stall", text)."""

    def __init__(self, *scripts):
        self.scripts, self.asked, self.open = list(scripts), [], []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def request(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:  # a connection that was only to find the address
                return None
            data += part
        head, body = data.split(b"\r\n\r\n", 1)
        length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        while length and len(body) < length[0]:
            body += connection.recv(65536)
        return head.decode(), json.loads(body) if body else None

    def answer(self, connection):
        with contextlib.suppress(OSError):
            asked = self.request(connection)
            if asked:
                self.asked.append(asked)
                script = self.scripts.pop(0)
                stalls = isinstance(script, tuple)
                data = (script[1] if stalls else script or "").encode()
                for i in range(0, len(data), 7):  # in parts that end anywhere
                    connection.sendall(data[i:i + 7])
                if stalls:
                    self.open.append(connection)
                    return
            connection.close()

    def close(self):
        self.listener.close()
        for connection in self.open:
            connection.close()


@contextlib.contextmanager
def fake(*scripts):
    server = Fake(*scripts)
    try:
        yield server
    finally:
        server.close()


def test_refusals_are_counted():
    with fake(refusal(429, BUSY, "Retry-After: 2"), refusal(429, BUSY, "retry-after: 7"), WHOLE, refusal(500, "boom")) as server:
        told = figures(server.url, "--model=m", "--requests=4", "--streams=1", code=1)
    assert told["complete"] == 1 and told["counted_chunks"] and told["completion_tokens"] == 2
    assert told["refused"] == [{"status": 429, "count": 2, "with_retry_after": 2, "message": "the queue is full"},
                               {"status": 500, "count": 1, "with_retry_after": 0, "message": "boom"}]


def test_retry_after_in_the_table():
    with fake(refusal(429, BUSY, "Retry-After: 2"), refusal(429, BUSY, "Retry-After: 7")) as server:
        done = bench(server.url, "--model=m", "--requests=2", "--streams=1", code=1)
    assert "status 429                    2   Retry-After 2 to 7 s   the queue is full" in done.stdout


@pytest.mark.parametrize("script, kind", [
    (None, "cut_off"),
    (HEAD + chunk(TOKEN), "cut_off"),
    (HEAD + chunk(TOKEN) + "0\r\n\r\n", "cut_off"),  # no finish reason and no [DONE]
    ("not HTTP at all\r\n\r\n", "cut_off"),
    (HEAD + chunk(TOKEN) + chunk('data: {"error":{"message":"the engine died"}}\n\n') + "0\r\n\r\n", "failed"),
    (("stall", HEAD + chunk(TOKEN)), "timed_out"),
    (("stall", ""), "timed_out")])
def test_answers_that_are_none(script, kind):
    with fake(script, WHOLE) as server:
        told = figures(server.url, "--model=m", "--requests=2", "--streams=1", "--timeout=1", code=1)
    assert told["complete"] == 1 and told[kind] == 1


@pytest.mark.parametrize("whole", [WHOLE.replace("data: ", "data:").replace("\n\n", "\r\n\r\n"),
                                   "HTTP/1.0 200 OK\r\n\r\n" + TOKEN + TOKEN + LAST])
def test_other_ways_to_stream(whole):
    if "chunked" in whole:  # the lengths have changed
        parts = [TOKEN, TOKEN, LAST + DONE]
        whole = HEAD + "".join(chunk(p.replace("data: ", "data:").replace("\n\n", "\r\n\r\n")) for p in parts) + "0\r\n\r\n"
    with fake(whole) as server:
        told = figures(server.url, "--model=m", "--requests=1")
    assert told["complete"] == 1 and told["completion_tokens"] == 2 and told["itl_ms"]["count"] == 1


def test_what_is_asked(tmp_path):
    (tmp_path / "key").write_text("secret name=me\n")
    with fake(WHOLE) as server:
        bench(server.url + "/base/v1/", "--model=m", "--requests=1", "--input=3", "--output=9", "--no-ignore-eos",
              "--temperature=0.5", "--api-key-file", tmp_path / "key")
        (head, body), = server.asked
    assert head.startswith("POST /base/v1/chat/completions HTTP/1.1") and "Authorization: Bearer secret\r\n" in head + "\r\n"
    assert len(body["messages"][0]["content"].split()) == 3
    assert {**body, "messages": None} == {"model": "m", "messages": None, "max_tokens": 9, "temperature": 0.5, "stream": True,
                                          "stream_options": {"include_usage": True}}


def test_token_ids_groups_and_members():
    with fake(*[WHOLE] * 8) as server:
        bench(server.url, "--model=m", "--requests=8", "--streams=1", "--input=30", "--output=9", "--vocab=500", "--groups=2", "--prefix=20",
              "--extra-body", '{"top_k": 3, "temperature": 0.7, "structured_outputs": {"regex": "a{request}b"}}')
        bodies = [body for _, body in server.asked]
    for number, body in enumerate(bodies):
        assert len(body["prompt"]) == 30 and all(100 <= token < 500 for token in body["prompt"])
        assert (body["top_k"], body["temperature"], body["structured_outputs"]) == (3, 0.7, {"regex": f"a{number}b"})
    assert len({tuple(body["prompt"][:20]) for body in bodies}) == 2
    assert len({tuple(body["prompt"][20:]) for body in bodies}) == 8


def test_lengths_between():
    with fake(*[WHOLE] * 12) as server:
        bench(server.url, "--model=m", "--requests=12", "--streams=1", "--input=30", "--output=9", "--shortest=5")
        asked = [(len(body["messages"][0]["content"].split()), body["max_tokens"]) for _, body in server.asked]
    assert len(set(asked)) > 6 and all(5 <= words <= 30 and 5 <= tokens <= 9 for words, tokens in asked)


def test_answers_of_another_length():
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    whole = HEAD + chunk(TOKEN) + chunk(TOKEN) + chunk(LAST + usage + DONE) + "0\r\n\r\n"
    with fake(whole, whole, whole) as server:
        assert figures(server.url, "--model=m", "--requests=1", "--output=2")["other_length"] == 0
        assert figures(server.url, "--model=m", "--requests=1", "--output=3", code=1)["other_length"] == 1
        assert figures(server.url, "--model=m", "--requests=1", "--output=3", "--no-ignore-eos")["other_length"] == 0


def test_streams_bound_what_is_in_flight():
    with fake(*[("stall", HEAD)] * 3) as server:
        process = subprocess.Popen([str(BINARY), "bench", "serve", server.url, "--model=m", "--streams=3", "--requests=9", "--json"],
                                   stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while len(server.asked) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(server.asked) == 3 and process.poll() is None
        process.send_signal(2)  # tells what there is
        told = json.loads(process.communicate(timeout=30)[0])
    assert process.returncode == 1 and told["interrupted"] == 3 and told["complete"] == 0


def test_a_picture_that_cannot_be_drawn_is_told_before_the_load():
    port = free_port()
    done = bench(f"http://127.0.0.1:{port}", "--model=m", "--svg=/nonexistent/a.svg", code=1)
    assert done.stderr == "flashd: --svg /nonexistent/a.svg: No such file or directory\n"


def test_no_server():
    port = free_port()
    for more in ((), ("--model=m",)):
        done = bench(f"http://127.0.0.1:{port}", *more, code=1)
        assert done.stderr == f"flashd: 127.0.0.1 port {port}: Connection refused\n" and done.stdout == ""


@pytest.mark.parametrize("args, sentence", [
    (["--strems=3"], 'bench serve: "--strems=3" is not understood; did you mean "--streams"?'),
    (["--streams=0"], '--streams: a whole number from 1 to 65536 is expected, not "0"'),
    (["--streams=1.5"], '--streams: a whole number from 1 to 65536 is expected, not "1.5"'),
    (["--streams"], "--streams needs a value"), (["--json=1"], "--json takes no value"),
    (["--extra-body=[1]"], '--extra-body: a JSON object is expected, not "[1]"'),
    (["--vocab=500", "--endpoint=chat"], "--vocab: a chat has no prompt of token ids"),
    (["--endpoint=embeddings"], '--endpoint: one of chat|completions is expected, not "embeddings"'),
    (["https://a"], "https://a: http://HOST[:PORT] or unix:PATH is expected (there is no TLS here)"),
    (["http://a", "http://b"], 'bench serve: "http://b" is not understood')])
def test_usage(args, sentence):
    done = bench(*args, code=2)
    assert done.stderr == f"flashd: {sentence}\n"


def test_attention_tells_of_a_picture_that_cannot_be_written_before_it_measures():
    done = subprocess.run([str(BINARY), "bench", "attention", "--plot", "/nonexistent/a.svg"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr == "flashd: --plot /nonexistent/a.svg: No such file or directory\n"
