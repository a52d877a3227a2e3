"""What an operator sees and ends: /debug/requests, SIGUSR1."""

import signal
import time

import httpx

from conftest import wait_until
from test_signals import Stream

LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}
KEYS = ("--api-key", "boss name=ops admin", "--api-key", "guest name=acme")
BOSS, GUEST = ({"Authorization": f"Bearer {key}"} for key in ("boss", "guest"))


def begin(server, request_id, headers=None):
    """A long stream that has begun."""
    response = httpx.stream("POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=300,
                            headers={"X-Request-Id": request_id, **(headers or {})})
    opened = response.__enter__()
    lines = opened.iter_lines()
    next(lines)
    return response, lines


def test_who_may_look(start_server):
    with start_server(*KEYS) as server:
        for method, path in (("GET", "/debug/requests"), ("DELETE", "/debug/requests/x")):
            assert httpx.request(method, server.url + path).status_code == 401
            refused = httpx.request(method, server.url + path, headers=GUEST)
            assert refused.status_code == 403 and refused.json()["error"]["code"] == "admin_only"
        assert httpx.get(server.url + "/debug/requests", headers=BOSS).json() == {"object": "list", "data": [], "total": 0}
        assert httpx.delete(server.url + "/debug/requests/x", headers=BOSS).status_code == 404


def test_without_keys_only_on_loopback(start_server, server):
    assert httpx.get(server.url + "/debug/requests").json()["total"] == 0
    with start_server("--host", "0.0.0.0") as everywhere:
        assert httpx.get(everywhere.url + "/debug/requests").status_code == 403


def test_requests_are_listed_and_ended(start_server):
    with start_server(*KEYS, "--max-num-seqs", "1", "--log-format", "json") as server:
        first, lines = begin(server, "the-first", GUEST)
        with httpx.Client(base_url=server.url, headers=BOSS) as boss:
            one, = boss.get("/debug/requests").json()["data"]
            assert one["id"] == "the-first" and one["key"] == "acme" and one["state"] == "running" and one["stream"]
            assert one["path"] == "/v1/completions" and one["sequences"] == 1 and one["response_id"].startswith("cmpl-")
            assert one["prompt_tokens"] == one["prompt_tokens_computed"] == 4 and 0 < one["completion_tokens"] < 4000
            assert boss.delete("/debug/requests/" + one["response_id"]).json() == {"id": one["response_id"], "cancelled": 1}
            assert "an operator of this server has ended the request" in "\n".join(lines)
            first.__exit__(None, None, None)
            while boss.get("/debug/requests").json()["total"]:
                time.sleep(0.01)
        line, = wait_until(lambda: [line for line in server.log().splitlines() if '"finish_reason"' in line])
        assert '"key":"acme"' in line and '"finish_reason":"aborted"' in line


def test_ids_that_clients_share(server):
    streams = [begin(server, "twice") for _ in range(2)]
    other, lines = begin(server, "once")
    assert httpx.delete(server.url + "/debug/requests/twice").json() == {"id": "twice", "cancelled": 2}
    for stream, rest in streams:
        assert "has ended the request" in "\n".join(rest)
        stream.__exit__(None, None, None)
    assert [r["id"] for r in httpx.get(server.url + "/debug/requests").json()["data"]] == ["once"]
    other.__exit__(None, None, None)


def test_sigusr1_tells_the_log(start_server):
    with start_server() as server:
        stream, lines = begin(server, "seen-in-the-dump")
        server.process.send_signal(signal.SIGUSR1)
        while "dump: request" not in server.log():
            time.sleep(0.01)
        log = server.log()
        assert "dump: ready; the engine's process is" in log and "dump: engine: 1 sequences run, 0 wait" in log
        assert "dump: front: 1 requests, 1 of them admitted" in log
        assert "request_id=seen-in-the-dump" in log and "state=running" in log
        stream.__exit__(None, None, None)
        server.wait_idle()


def test_a_dump_of_many_is_short(start_server):
    with start_server("--max-num-seqs", "1") as server:
        first, _ = begin(server, "before-the-others")
        streams = [Stream(server, {"prompt": "a", "max_tokens": 1}) for _ in range(70)]
        while server.metrics()["flashd_requests_in_flight"] < 71:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGUSR1)
        while "dump: and 7 requests more" not in server.log():
            time.sleep(0.01)
        assert server.log().count("dump: request") == 64
        httpx.delete(server.url + "/debug/requests/before-the-others")
        first.__exit__(None, None, None)
        assert [s.result()[:2] for s in streams] == [(200, "done")] * 70
