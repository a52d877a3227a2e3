"""`flashd chat`: against a scripted server, which sees what it asks, and with a server of its own on a terminal."""

import contextlib
import http.server
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import threading
import time

import pytest

from conftest import BINARY, MODEL, START_SECONDS


def event(**fields):
    return "data: " + json.dumps(fields) + "\n\n"


def delta(text):
    return event(choices=[{"index": 0, "delta": {"content": text}}])


USAGE = event(choices=[], usage={"completion_tokens": 3, "prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}})


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers each question with the server's next script: a list of chunks, or (status, body)."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "the-model"}]}).encode())

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        script = self.server.scripts.pop(0)
        if isinstance(script, tuple):
            return self.reply(*script)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in map(str.encode, script):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def scripted(*scripts):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        server.scripts, server.asked = list(scripts), []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()


def chat(lines, *args, env=None):
    return subprocess.run([str(BINARY), "chat", *args], input="".join(line + "\n" for line in lines), capture_output=True,
                          text=True, timeout=60, env={**os.environ, **(env or {})})


def test_turns_history_and_commands():
    first, rest = delta("Hél")[:17], delta("Hél")[17:]
    with scripted([first, rest + delta("lo"), USAGE, "data: [DONE]\n\n"], [delta("B")], [delta("C")], [delta("D")]) as server:
        done = chat(["one", "two", "/clear", "three", "/system Be brief.", "four", "/quit", "five"], "--url", server.url + "/v1/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Héllo\nB\nC\nD\n", "")
    user, assistant = (lambda t: {"role": "user", "content": t}), (lambda t: {"role": "assistant", "content": t})
    assert [body["messages"] for _, _, body in server.asked] == [
        [user("one")], [user("one"), assistant("Héllo"), user("two")], [user("three")],
        [{"role": "system", "content": "Be brief."}, user("four")]]
    path, key, body = server.asked[0]
    assert (path, key, body["model"], body["stream"]) == ("/v1/chat/completions", None, "the-model", True)


def test_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first\nsecond\n")
    with scripted([delta("a")], [delta("b")]) as server:
        assert chat(["x"], "--url", server.url, "--api-key-file", str(keys), "--model=m").stdout == "a\n"
        assert chat(["x"], "--url=" + server.url, env={"FLASHD_API_KEY": "third"}).stdout == "b\n"
    assert [(key, body["model"]) for _, key, body in server.asked] == [("Bearer first", "m"), ("Bearer third", "the-model")]


def test_what_a_model_writes_does_not_steer_the_terminal():
    with scripted([delta("a\x1b[2Jb\rc\x07\x7f\u009b1md\te\nf")]) as server:
        assert chat(["x"], "--url", server.url).stdout == "a[2Jbc1md\te\nf\n"


@pytest.mark.parametrize("script, sentence", [
    ((400, b'{"error":{"message":"too long"}}'), "too long"), ((502, b"<html>"), "status 502"),
    ([event(error={"message": "the engine died"})], "the engine died"), (["data: {not json\n\n", "x"], None)])
def test_errors_are_told_and_the_question_forgotten(script, sentence):
    with scripted(script, [delta("b")]) as server:
        done = chat(["one", "two"], "--url", server.url)
    assert done.stdout == "b\n" and (sentence in done.stderr if sentence else done.stderr == "")
    assert [m["content"] for m in server.asked[1][2]["messages"]] == ["two"]


@pytest.mark.parametrize("args, sentence", [
    ([], "chat MODEL, or chat --url URL"), (["--url", "https://a"], "no TLS"), (["--url", "http://"], "http://HOST"),
    (["--url", "http://a:"], "http://HOST"), (["--url", "http://127.0.0.1:65545"], "http://HOST"), (["--url", "http://a:0/v1"], "http://HOST"),
    (["--url"], "--url needs a value"), (["--url", "http://a", "--modle", "b"], 'did you mean "--model"?'),
    (["--url", "http://a", "--api-key-file", "/none"], "/none")])
def test_usage(args, sentence):
    done = chat([], *args)
    assert done.returncode == 2 and sentence in done.stderr


def test_nobody_there_and_no_model():
    assert chat(["x"], "--url", "http://127.0.0.1:9").returncode == 1
    done = chat(["x"], "/no/model")
    assert done.returncode == 1 and "/no/model" in done.stderr and "did not start" in done.stderr


# ---- with a server of its own, on a terminal ----


class Terminal:
    def __init__(self, folder, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TMPDIR"] = str(folder)
            os.execv(BINARY, [str(BINARY), "chat", *args])
        self.seen = b""

    def wait_for(self, text, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], self.seen
            with contextlib.suppress(OSError):
                self.seen += os.read(self.fd, 4096)
        self.seen = self.seen.split(text, 1)[1]

    def write(self, text):
        os.write(self.fd, text)

    def wait(self):
        with contextlib.suppress(OSError):
            while os.read(self.fd, 4096):
                pass
        return os.waitpid(self.pid, 0)[1]


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def stop_an_answer(terminal):
    """Ctrl-C while it is written; a short one may be over before, and Ctrl-C at the prompt would end the chat."""
    terminal.write(b"/system You write very long stories.\n")
    terminal.wait_for(b"> ")
    terminal.write(b"Tell me all about the sea, in a thousand words.\n")
    terminal.wait_for(b"words.\r\n")
    terminal.wait_for(b" ")
    terminal.write(b"\x03")
    terminal.wait_for(b"[stopped]\r\n> ")


@pytest.mark.parametrize("ending", [b"/quit\n", b"\x04", signal.SIGTERM])
def test_on_a_terminal(tmp_path, ending):
    folder = tmp_path if len(str(tmp_path)) <= 32 else pathlib.Path("/tmp")
    before = set(folder.glob("flashd-chat-*"))
    terminal = Terminal(folder, str(MODEL))
    terminal.wait_for(b"/help lists the commands\r\n> ")
    (server,) = children(terminal.pid)
    stop_an_answer(terminal)
    terminal.write(b"/hepl\n")
    terminal.wait_for(b"did you mean /help\r\n> ")
    if isinstance(ending, bytes):
        terminal.write(ending)
    else:
        os.kill(terminal.pid, ending)
    assert terminal.wait() == 0
    assert not pathlib.Path(f"/proc/{server}").exists() and set(folder.glob("flashd-chat-*")) == before
