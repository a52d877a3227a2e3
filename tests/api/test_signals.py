"""Signals in the middle of streams, logs on a full disk, drains under load: no stream is cut."""

import http.client
import json
import os
import signal
import subprocess
import threading
import time

import httpx
import pytest

from conftest import BINARY, MODEL, free_port

DRAINS = int(os.environ.get("DRAINS", "3"))
BODY = {"prompt": "Once upon a time", "max_tokens": 12, "ignore_eos": True, "temperature": 0}


class Stream(threading.Thread):
    """One stream read to its end by a thread; text, and how it ended."""

    def __init__(self, server, body=BODY, port=None):
        super().__init__()
        self.port, self.body = port or server.port, {**body, "stream": True}
        self.text, self.status, self.ended, self.reason, self.begun = "", None, "", None, threading.Event()
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request("POST", "/v1/completions", json.dumps(self.body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            self.status = response.status
            for line in response:
                if line.startswith(b"data: {"):
                    self.begun.set()
                    event = json.loads(line[6:])
                    self.text += "".join(c["text"] for c in event.get("choices", []))
                    self.reason = (event.get("choices") or [{}])[0].get("finish_reason") or self.reason
                elif line.startswith(b"data: [DONE]"):
                    self.ended = "done"
        except (ConnectionError, http.client.HTTPException) as error:
            self.ended = self.ended or repr(error)
        finally:
            self.begun.set()
            connection.close()

    def result(self):
        self.join(300)
        return self.status, self.ended, self.reason, self.text


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGPIPE, signal.SIGWINCH])
def test_signals_that_change_nothing(server, number):
    expected = Stream(server).result()
    stream = Stream(server)
    stream.begun.wait()
    for _ in range(20):
        server.process.send_signal(number)
        time.sleep(0.002)
    assert stream.result() == expected and expected[1] == "done"


def test_stopped_and_continued(server):
    expected = Stream(server).result()
    streams = [Stream(server) for _ in range(3)]
    streams[0].begun.wait()
    for _ in range(3):
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        server.process.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    assert [s.result() for s in streams] == [expected] * 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_told_again_while_it_ends(start_server, number):
    """The process exits, it does not die of the signal."""
    with start_server() as server:
        server.process.send_signal(number)
        while "draining" not in server.log():
            time.sleep(0.001)
        assert server.stop(number) == 0


def test_logs_on_a_full_disk():
    """Every write of a log line fails; nobody notices."""
    port = free_port()
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([BINARY, "serve", MODEL, "--port", str(port), "--log-level", "debug"], stderr=full)
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None and time.monotonic() < deadline
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        assert [Stream(None, port=port).result()[:3] for _ in range(3)] == [(200, "done", "length")] * 3
    finally:
        process.terminate()
        assert process.wait(60) == 0


def drain_once(start_server, number):
    """Clients keep coming while the server is told to end: each is served whole, refused whole, or not let in."""
    with start_server("--drain-timeout", "120", "--no-log-requests") as server:
        streams = [Stream(server) for _ in range(4)]
        streams[number % 4].begun.wait()
        server.process.terminate()
        streams += [Stream(server) for _ in range(4)]
        results = [s.result() for s in streams]
        assert server.process.wait(120) == 0
        assert results[number % 4][:2] == (200, "done")
        for status, ended, reason, _ in results:
            if status == 200:
                assert (ended, reason) == ("done", "length"), results
            else:
                assert status in (None, 503), results
        assert len({text for status, _, _, text in results if status == 200}) == 1


@pytest.mark.slow
def test_drains_under_load_cut_no_stream(start_server):
    for number in range(DRAINS):
        drain_once(start_server, number)
