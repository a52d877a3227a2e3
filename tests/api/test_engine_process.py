"""The engine as a process: what dies, what goes on, what is told. tests/oracle/kills.py kills it a thousand times."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import time

import httpx
import pytest

import conftest
from conftest import wait_until
import faults
from test_signals import BODY, Stream

LONG = {**BODY, "max_tokens": 150, "logprobs": 2, "presence_penalty": 0.5}


@pytest.fixture(scope="module")
def mortal():
    with conftest.running("--max-engine-deaths", "0", "--no-log-requests") as server:
        yield server


def engine_pid(server):
    pid = server.process.pid
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def is_gone(pid):
    return not pathlib.Path(f"/proc/{pid}").exists()


def kill_engine(server, number=signal.SIGKILL):
    deaths = server.metrics()["flashd_engine_deaths_total"]
    os.kill(engine_pid(server), number)
    wait_until(lambda: server.metrics()["flashd_engine_deaths_total"] > deaths)


def wait_ready(server):
    wait_until(lambda: httpx.get(server.url + "/health").status_code == 200)


def test_ps_names_them(mortal):
    front = pathlib.Path(f"/proc/{mortal.process.pid}/cmdline").read_text().split("\0")
    engine = pathlib.Path(f"/proc/{engine_pid(mortal)}/cmdline").read_text().split("\0")
    assert front[1] == "serve" and engine[:2] == ["flashd-engine", "engine"]


def test_no_counter_goes_back(mortal):
    """What dead engines have used counts on, their processor time included."""
    Stream(mortal, LONG).result()
    before = mortal.metrics()
    kill_engine(mortal)
    wait_ready(mortal)
    after = mortal.metrics()
    totals = [name for name in before if name.split("{")[0].endswith(("_total", "_count", "_sum", "_bucket"))]
    assert "flashd_engine_cpu_seconds_total" in totals
    assert [name for name in totals if after[name] < before[name]] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_stream_goes_on(mortal, number):
    expected = Stream(mortal, LONG).result()
    stream = Stream(mortal, LONG)
    stream.begun.wait()
    kill_engine(mortal, number)
    assert stream.result() == expected
    wait_ready(mortal)


def test_streams_that_have_begun_go_on_before_all_who_wait():
    """Also before those of a higher priority: their clients read already."""
    options = ("--max-engine-deaths", "0", "--max-num-seqs", "2", "--log-format", "json")
    with conftest.running(*options) as server:
        running = [Stream(server, {**LONG, "max_tokens": 300, "ignore_eos": True, "seed": i}) for i in range(2)]
        for stream in running:
            stream.begun.wait()
        waiting = [Stream(server, {**LONG, "max_tokens": 20, "ignore_eos": True, "priority": -100}) for _ in range(4)]
        wait_until(lambda: server.metrics()["vllm:num_requests_waiting"] == 4)
        kill_engine(server)
        for stream in running + waiting:
            stream.result()
        lines = [json.loads(line) for line in server.log().splitlines() if '"duration_ms"' in line]
        assert [line["completion_tokens"] for line in lines][0] == 300 and len(lines) == 6


def test_a_request_that_comes_meanwhile_waits(mortal):
    expected = Stream(mortal).result()
    kill_engine(mortal)
    assert Stream(mortal).result() == expected


def test_a_client_that_leaves_meanwhile_leaves_nothing(mortal):
    connection = http.client.HTTPConnection("127.0.0.1", mortal.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True}), {"Content-Type": "application/json"})
    connection.getresponse().readline()
    kill_engine(mortal)
    connection.close()
    wait_ready(mortal)
    mortal.wait_idle()


def test_totals_never_go_back(mortal):
    before = mortal.wait_idle()
    kill_engine(mortal)
    wait_ready(mortal)
    Stream(mortal).result()
    after = mortal.wait_idle()
    totals = [name for name in before if "_total" in name or name.endswith(("_count", "_sum"))]
    assert totals and all(after[name] >= before[name] for name in totals)


def test_health_says_so_and_livez_stays(mortal):
    os.kill(engine_pid(mortal), signal.SIGSTOP)
    assert httpx.get(mortal.url + "/livez").status_code == 200  # nothing is owed
    kill_engine(mortal)
    wait_ready(mortal)


def test_an_engine_ends_with_its_front():
    server = conftest.Server()
    engine = engine_pid(server)
    server.process.kill()
    server.process.wait()
    wait_until(lambda: is_gone(engine))


def test_a_drain_ends_the_engine(mortal):
    with conftest.running() as server:
        engine = engine_pid(server)
    wait_until(lambda: is_gone(engine))


def test_too_many_deaths_end_the_server():
    server = conftest.Server("--max-engine-deaths", "2")
    stream = Stream(server, {**LONG, "max_tokens": 2000, "ignore_eos": True})
    stream.begun.wait()
    kill_engine(server)
    wait_ready(server)
    os.kill(engine_pid(server), signal.SIGKILL)
    assert server.process.wait(30) == 70
    assert stream.result()[2] != "length"  # an error event, not a cut answer
    assert "the engine dies too often" in server.log()


def test_an_engine_that_cannot_start_is_a_sentence(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(conftest.MODEL.read_bytes()[:1 << 20])
    done = subprocess.run([conftest.BINARY, "serve", model, "--port", str(conftest.free_port())], stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"model.gguf" in done.stderr


class DiesAsItLoads(conftest.Server):
    """What the out-of-memory killer does to a model that is too large."""

    def wait_until_ready(self):
        wait_until(lambda: engine_name(self))
        os.kill(engine_pid(self), signal.SIGKILL)
        self.process.wait(60)


def test_an_engine_that_is_killed_as_it_loads():
    server = DiesAsItLoads()
    assert server.process.returncode == 1 and "the engine died of signal 9 (Killed) while it loaded" in server.log()


def test_a_step_that_takes_too_long_ends_the_engine():
    with conftest.running("--step-timeout", "3") as server:
        expected = Stream(server, LONG).result()
        stream = Stream(server, LONG)
        stream.begun.wait()
        os.kill(engine_pid(server), signal.SIGSTOP)
        assert stream.result() == expected and expected[1] == "done"
        assert "the engine is stuck: it is ended" in server.log()


def test_a_device_that_fails_is_replaced(tmp_path):
    """An engine whose model file is cut dies of it and cannot come back; the server says so and ends."""
    model = tmp_path / "model.gguf"
    model.write_bytes(conftest.MODEL.read_bytes())
    server = conftest.Server("--max-engine-deaths", "3", model=model)
    model.unlink()
    os.kill(engine_pid(server), signal.SIGKILL)
    assert server.process.wait(30) == 70
    assert "no such file" in server.log()


def test_another_model_in_its_place_goes_on_with_nothing(tmp_path):
    """Who installs a model and upgrades later has no answer that begins with one's words and ends with the other's."""
    model, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    model.write_bytes(conftest.MODEL.read_bytes())
    other.write_bytes(conftest.MODEL.read_bytes())
    server = conftest.Server(model=model)
    try:
        stream = Stream(server, {**LONG, "max_tokens": 2000})
        stream.begun.wait()
        other.replace(model)
        os.kill(engine_pid(server), signal.SIGKILL)
        assert server.process.wait(60) == 70
        assert stream.result()[2] != "length"
        assert "the model's files are others by now" in server.log()
    finally:
        server.process.kill()


@pytest.mark.skipif(conftest.SANITIZED, reason="the shim is for the plain build")
def test_an_engine_that_hangs_as_it_loads_again_is_replaced():
    with faults.running("--no-log-requests", engine="process") as (server, plan):
        expected = Stream(server).result()
        deaths = server.metrics()["flashd_engine_deaths_total"]
        first = engine_pid(server)
        stopped = stop_next_engine(server, first)
        stream = Stream(server)
        time.sleep(1.5)
        assert engine_pid(server) == stopped and httpx.get(server.url + "/livez").status_code == 200
        wait_until(lambda: plan.pass_time(server, 4) or "the engine is stuck" in server.log())
        assert stream.result() == expected
        assert server.metrics()["flashd_engine_deaths_total"] == deaths + 2


def is_running_engine(pid):
    """Whether it is the engine's program by now: who stands still before that holds up the one that starts it."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"flashd-engine")
    return False


def stop_next_engine(server, pid):
    """Kills that engine and stops the one behind it before it serves; its pid."""
    os.kill(pid, signal.SIGKILL)
    while True:
        with contextlib.suppress(AssertionError, ProcessLookupError):
            if (after := engine_pid(server)) != pid and is_running_engine(after):
                os.kill(after, signal.SIGSTOP)
                assert httpx.get(server.url + "/health").status_code == 503
                return after


class DiesBeforeTheTexts(conftest.Server):
    """The front stands still from its engine's start on, until that one has served and died."""

    def wait_until_ready(self):
        wait_until(lambda: engine_name(self))
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: engine_name(self) == "engine")
        os.kill(engine_pid(self), signal.SIGSEGV)
        self.process.send_signal(signal.SIGCONT)
        super().wait_until_ready()


def engine_name(server):
    """It changes when the engine is ready; None: there is no engine yet."""
    with contextlib.suppress(AssertionError, OSError):
        return pathlib.Path(f"/proc/{engine_pid(server)}/comm").read_text().strip()


def test_an_engine_that_dies_before_the_texts_are_there():
    server = DiesBeforeTheTexts("--no-log-requests")
    try:
        assert server.metrics()["flashd_engine_deaths_total"] == 1
        assert Stream(server).result()[1] == "done"
        assert server.stop() == 0
    finally:
        server.process.kill()


def test_the_front_answers_while_the_engine_stands(mortal):
    """Nothing of the front waits for the engine: metrics, refusals and tokenizing go on."""
    stream = Stream(mortal, LONG)
    stream.begun.wait()
    engine = engine_pid(mortal)
    os.kill(engine, signal.SIGSTOP)
    try:
        assert mortal.metrics()["flashd_requests_in_flight"] == 1
        assert mortal.post("/tokenize", {"prompt": "hello"}).status_code == 200
        assert mortal.post("/v1/completions", {"prompt": 7.5}).status_code == 400
    finally:
        os.kill(engine, signal.SIGCONT)
    assert stream.result()[1] == "done"
