"""/livez when the real engine thread does not run: 503 once it is silent for longer than a step can take, and 200
again when it goes on, with the same bytes as if nothing had been. The clock is the shim's, so nobody waits."""

import httpx
import pytest

import faults
from conftest import SANITIZED
from test_signals import BODY, Stream

pytestmark = pytest.mark.skipif(SANITIZED, reason="the shim is for the plain build")

PATIENCE_SECONDS, PATIENCE_SECONDS_MAX = 30, 600  # ten steps at the speed it had, at least and at most


@pytest.fixture(scope="module")
def steered():
    with faults.running("--no-log-requests") as (server, plan):
        yield server, plan


def health(server, path="/livez"):
    response = httpx.get(server.url + path, timeout=60)
    return response.status_code, response.json().get("error", {}).get("message")


ALIVE, STUCK = (200, None), (503, "the engine is stuck")


def test_an_engine_that_stops_in_the_middle(steered):
    server, plan = steered
    expected = Stream(server, {**BODY, "max_tokens": 60}).result()
    stream = Stream(server, {**BODY, "max_tokens": 60})
    stream.begun.wait()
    with plan.held(server, "engine"):
        assert health(server) == ALIVE
        plan.pass_time(server, PATIENCE_SECONDS - 2)
        assert health(server) == ALIVE == health(server, "/health")
        plan.pass_time(server, PATIENCE_SECONDS_MAX)
        assert health(server) == STUCK == health(server, "/health")
        assert server.metrics()["flashd_requests_in_flight"] == 1  # the loop does its part
        assert stream.is_alive()
    assert stream.result() == expected and expected[1:3] == ("done", "length")
    assert health(server) == ALIVE == health(server, "/health")


def test_an_engine_that_stops_with_nothing_to_do(steered):
    """Silence is no crime until somebody waits; then it counts from the request's arrival."""
    server, plan = steered
    server.wait_idle()
    expected = Stream(server).result()
    with plan.held(server, "engine"):
        plan.move_clock(10 * PATIENCE_SECONDS)
        assert health(server) == ALIVE
        stream = Stream(server)
        while server.metrics()["flashd_requests_in_flight"] == 0:
            assert health(server) == ALIVE
        plan.pass_time(server, PATIENCE_SECONDS - 2)
        assert health(server) == ALIVE
        plan.pass_time(server, PATIENCE_SECONDS_MAX)
        assert health(server) == STUCK
    assert stream.result() == expected
    assert health(server) == ALIVE
