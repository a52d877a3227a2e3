"""SIGTERM under a balancer: health says no while requests are still taken, so that none is refused meanwhile."""

import signal

import httpx
import pytest

from conftest import wait_until
from test_deploy import haproxy, needs, service_manager
from test_signals import Stream

ASK = {"prompt": "Once upon a time", "max_tokens": 2, "temperature": 0}


def wait_for_no(server):
    """Until health says no, to a client that keeps its connection: that answer closes it."""
    wait_until(lambda: httpx.get(server.url + "/health").status_code == 503)


def test_requests_are_taken_while_health_says_no(start_server):
    with start_server("--drain-delay", "600") as server, httpx.Client() as client:
        assert client.get(server.url + "/version").headers.get("connection") != "close"
        server.process.terminate()
        wait_for_no(server)
        assert httpx.get(server.url + "/livez").status_code == 200
        answer = client.post(server.url + "/v1/completions", json=ASK)
        assert answer.status_code == 200 and answer.headers["connection"] == "close"
        assert Stream(server).result()[:3] == (200, "done", "length")
        assert "requests are still taken for 600 s" in server.log()
        server.process.terminate()
        assert server.process.wait(20) == 0


def test_it_ends_by_itself(start_server):
    with start_server("--drain-delay", "1") as server:
        server.process.terminate()
        assert server.process.wait(20) == 0
        assert "requests are still taken for 1 s" in server.log() and "draining: 0 requests" in server.log()


def test_a_stream_outlives_the_delay(start_server):
    with start_server("--drain-delay", "1") as server:
        stream = Stream(server, {"prompt": "a", "max_tokens": 300, "ignore_eos": True})
        stream.begun.wait()
        server.process.terminate()
        assert stream.result()[:3] == (200, "done", "length")
        assert server.process.wait(60) == 0


def test_interrupted_it_drains_at_once(start_server):
    with start_server("--drain-delay", "600") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) == 0


@pytest.mark.parametrize("supervisor", [{}, {"INVOCATION_ID": "0" * 32}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_only_a_supervisor_gets_a_delay(start_server, supervisor, monkeypatch):
    for name in ("INVOCATION_ID", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with start_server(env={"FLASHD_DRAIN_DELAY": "-1", **supervisor}) as server:
        server.process.terminate()
        if supervisor:
            wait_for_no(server)
            server.process.terminate()
        assert server.process.wait(20) == 0
        assert ("are still taken for 5 s" in server.log()) == bool(supervisor)


def test_systemd_hears_of_both(start_server, tmp_path):
    path = str(tmp_path / "notify")
    env = {"NOTIFY_SOCKET": path, "FLASHD_DRAIN_DELAY": "-1", "FLASHD_DRAIN_TIMEOUT": "600"}  # longer than the unit's TimeoutStopSec
    with service_manager(path) as manager, start_server(env=env) as server:
        assert manager.recv(4096) == b"READY=1\nSTATUS=serving"
        server.process.terminate()
        assert manager.recv(4096) == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=620000000\nSTATUS=health says no, requests are still taken"
        server.process.terminate()
        assert manager.recv(4096) == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=615000000\nSTATUS=draining"


@pytest.mark.slow
@needs("haproxy")
def test_a_balancer_sees_it_in_time(start_server, tmp_path):
    """One of two servers goes: no request behind the balancer notices."""
    with start_server("--drain-delay", "2") as leaving, start_server() as staying:
        with haproxy(leaving, tmp_path, ("inter 1s", "inter 100ms"),
                     ("    server one", f"    server two {staying.url[7:]} check inter 100ms\n    server one")) as url:
            statuses = set()
            for i in range(400):
                statuses.add(httpx.post(url + "/v1/completions", json=ASK, timeout=60).status_code)
                if i == 20:
                    leaving.process.terminate()
                if i > 20 and leaving.process.poll() is not None:
                    break
            assert leaving.process.wait(20) == 0 and statuses == {200}
