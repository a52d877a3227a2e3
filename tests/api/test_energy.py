"""--report-energy over a powercap folder of the test's own, whose counter moves all the time and begins anew now and then."""

import concurrent.futures
import json
import threading

import httpx
import pytest

from conftest import MODEL

RANGE = 10**7 - 1  # with the line's end 8 bytes, which are read whole while they are written
ASK = {"prompt": "Once upon a time", "max_tokens": 12, "ignore_eos": True}
SAID = [{"role": "user", "content": "Hello."}]


class Meter(threading.Thread):
    """A CPU package that uses 1 W or so."""

    def __init__(self, folder):
        super().__init__()
        zone = folder / "intel-rapl:0"
        zone.mkdir()
        (zone / "name").write_text("package-0\n")
        (zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
        self.file, self.used, self.stopped = open(zone / "energy_uj", "w+b", buffering=0), 0, threading.Event()
        self.step()
        self.start()

    def step(self):
        self.used += 1000
        self.file.seek(0)
        self.file.write(b"%07d\n" % ((RANGE - 20000 + self.used) % RANGE))

    def run(self):
        while not self.stopped.wait(0.001):
            self.step()


@pytest.fixture(scope="module")
def metered(start_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("powercap")
    meter = Meter(folder)
    try:
        with start_server("--report-energy", "--powercap", str(folder), "--max-model-len", "512", "--pooling", "last") as server:
            server.meter = meter
            yield server
    finally:
        meter.stopped.set()
        meter.join()


def answer(server, path, body):
    done = server.post(path, body)
    assert done.status_code == 200, done.text
    return done.json()


def events(server, path, body):
    with httpx.stream("POST", server.url + path, json={**body, "stream": True}, timeout=120) as stream:
        return [json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.removeprefix("data: ").startswith("{")]


def joules_of(server):
    return server.metrics()["flashd_energy_joules_total"]


def test_the_answers_share_what_was_used(metered):
    """However many run at once: what their usages say together is what the metric says."""
    before, begin = joules_of(metered), metered.meter.used
    bodies = [{**ASK, "max_tokens": 4 + 8 * (i % 3), "n": 1 + i % 2} for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        told = [a["usage"]["energy_joules"] for a in pool.map(lambda b: answer(metered, "/v1/completions", b), bodies)]
    metered.wait_idle()
    used = joules_of(metered) - before
    assert min(told) > 0 and used >= sum(told) > used - 0.001
    assert used <= (metered.meter.used - begin) * 1e-6


def test_every_protocol_says_it(metered):
    chat = {"messages": SAID, "max_tokens": 5}
    assert answer(metered, "/v1/chat/completions", chat)["usage"]["energy_joules"] > 0
    assert answer(metered, "/v1/messages", chat)["usage"]["energy_joules"] > 0
    assert answer(metered, "/v1/responses", {"input": "Hello.", "max_output_tokens": 16})["usage"]["energy_joules"] > 0
    assert answer(metered, "/v1/embeddings", {"input": "Hello. " * 150})["usage"]["energy_joules"] > 0
    assert answer(metered, "/api/generate", {"model": MODEL.name, "prompt": "Hello.", "stream": False, "options": {"num_predict": 4}})["energy_joules"] > 0


def test_a_stream_says_it_when_it_has_ended(metered):
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    usages = [e["usage"] for e in events(metered, "/v1/completions", {**ASK, **options}) if e.get("usage")]
    assert usages[-1]["energy_joules"] > 0 and not any("energy_joules" in u for u in usages[:-2])
    assert [e["usage"]["energy_joules"] > 0 for e in events(metered, "/v1/messages", {"messages": SAID, "max_tokens": 5}) if e["type"] == "message_delta"] == [True]


@pytest.mark.parametrize("options, words", [((), None), (("--report-energy", "--powercap", "/no/such/folder"), "/no/such/folder: No such file")])
def test_where_nothing_is_measured(start_server, options, words):
    """Not asked for, or asked for in vain: one line, and no field."""
    with start_server(*options, "--max-model-len", "512") as server:
        assert "energy_joules" not in answer(server, "/v1/completions", ASK)["usage"]
        assert "flashd_energy_joules_total" not in server.metrics()
        assert server.log().count("usage says nothing of energy") == (words is not None)
        assert words is None or words in server.log()
