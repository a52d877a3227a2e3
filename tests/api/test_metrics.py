"""The metrics page: its format, and its values against what the client itself counted."""

import json
import os
import pathlib
import re
import socket
import threading
import time

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from conftest import ROOT, wait_until
from test_debug import begin
from test_engine_process import engine_pid
from test_reload import reload

QUESTION = [{"role": "user", "content": "Name three colours."}]


def test_content_types(server):
    plain = httpx.get(server.url + "/metrics")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    new = httpx.get(server.url + "/metrics", headers={"Accept": accept})
    assert new.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert new.text.endswith("# EOF\n") and "# EOF" not in plain.text


def families(server):
    return {f.name: f for f in text_string_to_metric_families(httpx.get(server.url + "/metrics").text)}


def test_both_formats_parse(server):
    found = families(server)
    text = httpx.get(server.url + "/metrics", headers={"Accept": "application/openmetrics-text"}).text
    assert {f.name for f in openmetrics.text_string_to_metric_families(text)} == set(found)
    assert all(f.documentation for f in found.values())


def test_many_scrapes_share_a_page(server):
    """However many ask, a page is made a few times in a tenth of a second; each of the formats on its own."""
    asked = b"".join(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"/v1/models", b"/metrics")) * 300
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        begun, answers = time.monotonic(), b""
        asking = threading.Thread(target=client.sendall, args=(asked,))
        asking.start()
        while answers.count(b"HTTP/1.1 200") < 600:
            answers += client.recv(1 << 20)
        asking.join()
        most = 4 * (2 + 10 * (time.monotonic() - begun))
    counts = set(re.findall(rb'http_requests_total{handler="/v1/models",method="GET",status="2xx"} (\d+)', answers))
    assert 1 <= len(counts) <= most, (len(counts), most)
    assert httpx.get(server.url + "/metrics", headers={"Accept": "application/openmetrics-text"}).text.endswith("# EOF\n")
    before = server.metrics()
    assert httpx.get(server.url + "/v1/models").status_code == 200
    name = 'http_requests_total{handler="/v1/models",method="GET",status="2xx"}'
    wait_until(lambda: server.metrics()[name] == before[name] + 1)


GAUGES = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason",
          "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
          "vllm:engine_sleep_state"]
COUNTERS = ["vllm:prompt_tokens", "vllm:prompt_tokens_cached", "vllm:generation_tokens", "vllm:request_success",
            "vllm:num_preemptions", "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"]
HISTOGRAMS = ["vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
              "vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
              "vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds",
              "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds", "vllm:request_prompt_tokens",
              "vllm:request_generation_tokens", "vllm:request_max_num_generation_tokens",
              "vllm:request_params_max_tokens", "vllm:request_prefill_kv_computed_tokens", "vllm:request_params_n",
              "vllm:iteration_tokens_total"]


def test_series_exist_from_the_start(start_server):
    with start_server("--served-model-name", 'odd "name"\\') as server:
        found = families(server)
        for names, kind in ((GAUGES, "gauge"), (COUNTERS, "counter"), (HISTOGRAMS, "histogram")):
            for name in names:
                assert found[name].type == kind
                for sample in found[name].samples:
                    assert sample.labels["model_name"] == 'odd "name"\\' and sample.labels["engine"] == "0"
                    assert sample.value == 0 or kind == "gauge"
        taken = {s.labels["result"]: s.value for s in found["flashd_streams_taken_over"].samples}
        assert taken == {"taken": 0, "refused": 0}, "before any upgrade, too"
        states = {s.labels["sleep_state"]: s.value for s in found["vllm:engine_sleep_state"].samples}
        assert states == {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        lora, = found["vllm:lora_requests_info"].samples
        assert lora.labels == {"max_lora": "0", "waiting_lora_adapters": "", "running_lora_adapters": ""} and lora.value > 1e9
        config = found["vllm:cache_config_info"].samples[0].labels
        assert int(config["block_size"]) == 16 and int(config["num_gpu_blocks"]) > 0
        build = found["flashd_build_info"].samples[0].labels
        assert build["version"] and build["commit"]
        phases = {s.labels["phase"]: s.value for s in found["flashd_startup_seconds"].samples}
        assert set(phases) == {"files", "tokenizer", "device", "weights", "kv_pool", "engine"} and sum(phases.values()) > 0


def test_buckets(server):
    def bounds(name):
        return [s.labels["le"] for s in families(server)[name].samples if s.name.endswith("_bucket")]

    ttft = [float(b) for b in bounds("vllm:time_to_first_token_seconds")]
    assert ttft[:-1] == [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640,
                         2560]
    itl = [float(b) for b in bounds("vllm:inter_token_latency_seconds")]
    assert itl[:7] == [.0005, .001, .002, .003, .004, .005, .0075]
    assert itl[7:-1] == [.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
    assert bounds("vllm:request_prompt_tokens")[:4] == ["1.0", "2.0", "5.0", "10.0"]
    assert bounds("vllm:iteration_tokens_total")[-2:] == ["16384.0", "+Inf"]


def difference(after, before, name):
    return after[name] - before[name]


def test_values_are_exact(server, client, model):
    before = server.wait_idle()
    num, prompt, completion, cached, stops = 0, 0, 0, 0, {"stop": 0, "length": 0}
    for i in range(6):
        stream = i % 2 == 0
        options = dict(model=model, messages=QUESTION, max_tokens=5 + 3 * i, temperature=0, n=1 + i % 3)
        if stream:
            chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
            usage = chunks[-1].usage
            reasons = [c.finish_reason for k in chunks for c in k.choices if c.finish_reason]
        else:
            answer = client.chat.completions.create(**options)
            usage, reasons = answer.usage, [c.finish_reason for c in answer.choices]
        num += len(reasons)
        prompt += usage.prompt_tokens
        cached += usage.prompt_tokens_details.cached_tokens
        completion += usage.completion_tokens
        for reason in reasons:
            stops[reason] += 1
    after = server.wait_idle()

    def grew(name):
        return difference(after, before, name)

    assert grew("vllm:prompt_tokens_total") == prompt
    assert grew("vllm:prompt_tokens_cached_total") == cached
    assert grew("vllm:generation_tokens_total") == completion
    assert grew('vllm:request_success_total{finished_reason="stop"}') == stops["stop"]
    assert grew('vllm:request_success_total{finished_reason="length"}') == stops["length"]
    assert grew('vllm:request_success_total{finished_reason="abort"}') == 0
    assert grew("vllm:time_to_first_token_seconds_count") == num == grew("vllm:e2e_request_latency_seconds_count")
    assert grew("vllm:inter_token_latency_seconds_count") == completion - num
    assert grew("vllm:request_generation_tokens_sum") == completion
    assert grew("vllm:request_params_n_count") == num
    assert grew("vllm:request_queue_time_seconds_count") == num == grew("vllm:request_prefill_time_seconds_count")
    assert grew("flashd_requests_admitted_total") == 6 == grew('flashd_requests_finished_total{outcome="done"}')
    assert after["vllm:kv_cache_usage_perc"] == 0
    blocks = {s: after[f'flashd_kv_blocks{{state="{s}"}}'] for s in ("free", "cached", "held")}
    config = families(server)["vllm:cache_config_info"].samples[0].labels
    assert sum(blocks.values()) == int(config["num_gpu_blocks"])


def grown_errors(after, before, name="flashd_errors_total"):
    return {k.removeprefix(name): v - before.get(k, 0) for k, v in after.items() if k.startswith(name) and v > before.get(k, 0)}


def test_errors_by_code(server):
    """Each is counted once, in a stream that has begun, too; what clients can bring about is told apart from what the server lacks."""
    before = server.metrics()
    late = {"prompt": [100], "max_tokens": 1500, "ignore_eos": True}
    for stream in (False, True):
        answer = server.post("/v1/completions", {**late, "stream": stream}, headers={"x-request-timeout": "0.4"})
        assert "deadline_exceeded" in answer.text
    assert server.post("/v1/completions", {"prompt": "a", "max_tokens": -5}).status_code == 400
    assert server.post("/v1/completions", {"prompt": "a", "model": "none"}).status_code == 404
    assert httpx.get(server.url + "/nowhere").status_code == 404
    assert httpx.get(server.url + "/v1/chat/completions").status_code == 405
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"GET / HTTP/3.0\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 505 ")
    assert grown_errors(server.wait_idle(), before) == {
        '{status="504",code="deadline_exceeded"}': 2, '{status="400",code="invalid_value"}': 1, '{status="404",code="model_not_found"}': 1,
        '{status="404",code="unknown_url"}': 1, '{status="405",code="none"}': 1, '{status="505",code="none"}': 1}


def test_every_code_of_an_error_is_counted():
    """Those that the sources name are in the table of what is counted."""
    told = set()
    for path in [*(ROOT / "server").rglob("*.c"), *(ROOT / "server").rglob("*.h")]:
        text = path.read_text()
        for status, code in re.findall(r'(?:exchange_error|api_error_set)\(\s*[^,]+,\s*(\d+),\s*[^,]+,\s*(?:"(\w+)"|NULL),', text):
            told.add((status, code))
        told |= {("400", code) for code in re.findall(r'api_error_invalid\(\s*[^,]+,\s*"(\w+)",', text)}
        told |= {(status, "") for status in re.findall(r"\brefuse\([^,()]+, ([45]\d\d),", text)}
    counted = set(re.findall(r'^    \{(\d+), (?:"(\w+)"|NULL)\},$', (ROOT / "server/http_metrics.c").read_text(), re.MULTILINE))
    assert len(told) > 25 and told <= counted


def test_errors_by_key(start_server, tmp_path):
    """Of keys that have a name, those that come with SIGHUP, too."""
    keys = tmp_path / "keys"
    keys.write_text("first name=acme max-seqs=1\nsecond\n")

    def ask(key, **body):
        return server.post("/v1/completions", {"prompt": [100], "max_tokens": 1, **body}, headers={"Authorization": f"Bearer {key}"}).status_code

    def errors():
        return grown_errors(server.metrics(), {}, "flashd_key_errors_total")

    with start_server("--api-key-file", str(keys)) as server:
        assert [v for k, v in server.metrics().items() if 'key="acme"' in k] == [0, 0, 0]
        stream, _ = begin(server, "goes-on", {"Authorization": "Bearer first"})
        assert [ask("first"), ask("first", max_tokens=-5), ask("second", max_tokens=-5), ask("none")] == [429, 400, 400, 401]
        stream.__exit__(None, None, None)
        assert errors() == {'{key="acme",status="429"}': 1, '{key="acme",status="4xx"}': 1}
        keys.write_text("first name=acme\nsecond name=other\n")
        reload(server, "read again: --api-key")
        assert ask("second", max_tokens=-5) == 400
        assert errors() == {'{key="acme",status="429"}': 1, '{key="acme",status="4xx"}': 1, '{key="other",status="4xx"}': 1}
        assert families(server)["flashd_key_errors"].type == "counter"


def test_a_probe_that_is_told_no_is_no_failure(start_server):
    """As while a model loads: readiness is 503, and the alert on 5xx is not for that."""
    with start_server("--drain-delay", "600") as server:
        before = server.metrics()
        server.process.terminate()
        wait_until(lambda: httpx.get(server.url + "/health").status_code == 503)
        after = server.metrics()
        assert grown_errors(after, before) == {} == grown_errors(after, before, "flashd_http_requests_total")
        server.process.terminate()


def test_requests_by_route(server):
    def series(**labels):
        return "http_requests_total{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}"

    before = server.metrics()
    with httpx.Client(base_url=server.url) as client:
        for body in ({"prompt": "a"}, {"prompt": "b"}, {"prompt": 1}):
            client.post("/tokenize", json=body)
        client.get("/nowhere")
        client.get("/health")
        client.head("/v1/models")
    after = server.metrics()
    grown = {k: after[k] - v for k, v in before.items() if k.startswith("http_requests_total") and after[k] > v}
    assert grown == {series(handler="/tokenize", method="POST", status="2xx"): 2,
                     series(handler="/tokenize", method="POST", status="4xx"): 1,
                     series(handler="/v1/models", method="GET", status="2xx"): 1,
                     series(handler="none", method="none", status="4xx"): 1}
    count = 'http_request_duration_seconds_count{handler="/tokenize",method="POST"}'
    assert after[count] - before[count] == 3


def resident_bytes(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024


def test_what_the_system_knows_of_the_processes(server):
    pid = server.process.pid
    with httpx.Client() as client:
        client.get(server.url + "/health")
        page = client.get(server.url + "/metrics").text
        assert f"process_open_fds {server.num_fds()}\n" in page
    m = server.metrics()
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert m["process_max_fds"] == int(re.search(r"^Max open files +(\d+)", limits, re.MULTILINE).group(1))
    assert m["process_resident_memory_bytes"] == pytest.approx(resident_bytes(pid), rel=0.5)
    assert m["flashd_engine_resident_memory_bytes"] == pytest.approx(resident_bytes(engine_pid(server)), rel=0.5)
    assert abs(m["process_start_time_seconds"] - os.stat(f"/proc/{pid}").st_ctime) < 60 < m["process_start_time_seconds"]
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 50, "ignore_eos": True})
    after = server.metrics()
    assert after["flashd_engine_cpu_seconds_total"] > m["flashd_engine_cpu_seconds_total"] > 0
    assert after["process_cpu_seconds_total"] >= m["process_cpu_seconds_total"] > 0


def test_the_ledger_balances_while_requests_run(server):
    for _ in range(3):
        server.wait_idle()
        with httpx.stream("POST", server.url + "/v1/completions", timeout=60, json={
                "prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            m = server.metrics()
            ended = sum(v for k, v in m.items() if k.startswith("flashd_requests_finished_total"))
            assert m["flashd_requests_admitted_total"] == ended + m["flashd_requests_in_flight"]
            assert m["flashd_requests_in_flight"] == 1


def test_refused_requests_are_not_admitted(server):
    before = server.wait_idle()
    assert server.post("/v1/completions", {"prompt": "x", "temperature": 900}).status_code == 400
    assert difference(server.wait_idle(), before, "flashd_requests_admitted_total") == 0


def log_lines(server, request_id):
    found = []
    for line in server.log().splitlines():
        entry = json.loads(line)
        if entry.get("request_id") == request_id:
            found.append(entry)
    return found


def test_one_log_line_a_request(server, client, model):
    secret = "xylophone-7731"
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": secret}], max_tokens=4,
                                            seed=42, extra_headers={"X-Request-Id": "log-test-1"})
    line, = wait_until(lambda: log_lines(server, "log-test-1"), server)
    assert line["path"] == "/v1/chat/completions" and line["method"] == "POST" and line["status"] == 200
    assert line["prompt_tokens"] == answer.usage.prompt_tokens and line["completion_tokens"] == 4
    assert line["finish_reason"] == answer.choices[0].finish_reason and line["model"] == model
    assert line["n"] == 1 and line["stream"] == 0 and line["seed"] == "42"
    assert 0 <= line["queue_ms"] <= line["ttft_ms"] <= line["duration_ms"] < 60_000
    body = {"prompt": "The sky is", "temperature": 2, "max_tokens": 12}
    drawn = server.post("/v1/completions", body)
    seed = server.log_line(drawn)["seed"]  # all of its 64 bits, whoever reads the line
    assert isinstance(seed, str) and -2**63 <= int(seed) < 2**63
    for given in (seed, int(seed)):
        assert server.post("/v1/completions", {**body, "seed": given}).json()["choices"] == drawn.json()["choices"]
    time.sleep(1.1)  # refusals within a second of one before have a line together
    refused = server.post("/v1/chat/completions", {"messages": 1}, headers={"X-Request-Id": "log-test-2"})
    assert refused.status_code == 400
    assert len(wait_until(lambda: log_lines(server, "log-test-2"), server)) == 1
    assert secret not in server.log() and answer.choices[0].message.content not in server.log()
