"""A real Prometheus scrapes the server under load: no complaint of its linter, every query that dashboards and gateways ask
answered. Skipped where Debian's package `prometheus` is not installed."""

import concurrent.futures
import contextlib
import json
import re
import subprocess

import httpx
import pytest

from conftest import free_port, wait_until
from test_deploy import needs, output_of, proxy

pytestmark = [needs("prometheus"), needs("promtool")]


def families_of(page):
    """[(name, lines)]"""
    parts = re.split(r"^# HELP (\S+) ", page, flags=re.MULTILINE)[1:]
    return [(name, f"# HELP {name} {rest}") for name, rest in zip(parts[::2], parts[1::2])]


def test_the_linter_has_no_complaint(server):
    """Those about vLLM's own names are left: colons, and a histogram named _total."""
    page = httpx.get(server.url + "/metrics").text
    own = "".join(text for name, text in families_of(page) if not name.startswith("vllm:"))
    assert own.count("# TYPE flashd_") > 20 and "# TYPE process_cpu" in own and "# TYPE http_requests_total" in own
    assert output_of("promtool", "check", "metrics", input=own) == ""
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    complaints = {line.split(" ", 1)[1] for line in (checked.stdout + checked.stderr).splitlines()}
    assert complaints <= {"metric names should not contain ':'", 'non-counter metrics should not have "_total" suffix'}


# Of vLLM's production-stack dashboard (panels, and the variable that they are chosen by).
HISTOGRAMS = ["vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
              "vllm:request_time_per_output_token_seconds"]
DASHBOARD = [
    *(f"histogram_quantile(0.99, sum by (le) (rate({name}_bucket{{SELECTOR}}[5s])))" for name in HISTOGRAMS),
    *(f"rate({name}_sum{{SELECTOR}}[5s]) / rate({name}_count{{SELECTOR}}[5s])" for name in HISTOGRAMS),
    *(f"rate(vllm:{name}_total{{SELECTOR}}[5s])" for name in ("prompt_tokens", "generation_tokens")),
    *(f"vllm:{name}{{SELECTOR}}" for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")),
    *(f"sum by (le) (increase(vllm:{name}_bucket{{SELECTOR}}[5s]))" for name in ("request_prompt_tokens",
                                                                               "request_generation_tokens")),
    "sum by (finished_reason) (increase(vllm:request_success_total{SELECTOR}[5s]))",
    *(f"rate(vllm:{name}_sum{{SELECTOR}}[5s])" for name in (
        "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_max_num_generation_tokens")),
    'vllm:engine_sleep_state{sleep_state="awake"} == 1',
    'sum by (handler) (rate(http_requests_total{status="2xx"}[5s]))',
    "histogram_quantile(0.95, sum by (le) (rate(http_request_duration_seconds_bucket[5s])))",
    "rate(process_cpu_seconds_total[5s])",
    "process_resident_memory_bytes",
]
# What the Gateway API Inference Extension and its routers read of each endpoint.
GATEWAY = ["vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:lora_requests_info",
           "vllm:cache_config_info"]


@contextlib.contextmanager
def prometheus(server, folder):
    port = free_port()
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "500ms"},
        "scrape_configs": [{"job_name": "flashd", "static_configs": [{"targets": [server.url[7:]]}]}]}))
    output_of("promtool", "check", "config", str(folder / "prometheus.yml"))
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with proxy(command, port) as url:
        yield url


def load(server, stop):
    with httpx.Client(base_url=server.url, timeout=300) as client:
        while not stop:
            client.post("/v1/completions", json={"prompt": "One, two, three,", "max_tokens": 12})


@pytest.fixture
def scraped(server, tmp_path):
    """A Prometheus that has scraped the server under load, a dozen times."""
    stop = []
    with prometheus(server, tmp_path) as url, concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(load, server, stop) for _ in range(3)]
        try:
            wait_until(lambda: sum(float(s["value"][1]) for s in query(url, "count_over_time(up[1m])")) >= 12)
            yield url
        finally:
            stop.append(True)
            for job in jobs:
                job.result()


def query(url, expression):
    answer = httpx.get(url + "/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", (expression, answer)
    return answer["data"]["result"]


@pytest.mark.slow
def test_every_query_answers_under_load(server, scraped, model):
    target, = httpx.get(scraped + "/api/v1/targets").json()["data"]["activeTargets"]
    assert target["health"] == "up" and target["lastError"] == ""
    assert {s["value"][1] for s in query(scraped, "min_over_time(up[1m])")} == {"1"}
    for expression in DASHBOARD + GATEWAY:
        found = query(scraped, expression.replace("SELECTOR", f'model_name="{model}"'))
        assert found and all(s["value"][1] not in ("NaN", "+Inf") for s in found), expression
    config = query(scraped, "vllm:cache_config_info")[0]["metric"]
    assert int(config["block_size"]) > 0 and int(config["num_gpu_blocks"]) > 0
    names = httpx.get(scraped + "/api/v1/label/model_name/values").json()["data"]
    assert names == [model]
