"""Spans: traceparent in, OTLP out to a small collector, read with OpenTelemetry's own definitions."""

import base64
import contextlib
import http.server
import json
import socket
import subprocess
import threading
import time

import httpx
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from conftest import BINARY, MODEL, wait_until

ASK = {"prompt": [100, 101, 102], "max_tokens": 4, "ignore_eos": True, "temperature": 0.5, "top_p": 0.9, "n": 2}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def as_protobuf(text):
    """OTLP's JSON is Protobuf's, but for ids in hexadecimal."""
    def fix(value):
        if isinstance(value, list):
            return [fix(v) for v in value]
        if not isinstance(value, dict):
            return value
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ("traceId", "spanId", "parentSpanId") else fix(v)
                for k, v in value.items()}
    return json_format.ParseDict(fix(json.loads(text)), ExportTraceServiceRequest())


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what comes and answers status."""

    def __init__(self, status=200):
        self.status, self.requests, self.paths = status, [], []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self):
        return [(r.resource, s.scope, span) for q in self.requests for r in q.resource_spans for s in r.scope_spans
                for span in s.spans]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json"
        self.server.paths.append(self.path)
        self.server.requests.append(as_protobuf(text))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def collector(**options):
    with Collector(**options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def attributes_of(span):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_request_is_a_span(start_server, model):
    with collector() as sink, start_server("--otlp-endpoint", sink.url, "--log-format", "json") as server:
        begun = time.time_ns()
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "traced"}
        assert server.post("/v1/completions", ASK, headers=headers).status_code == 200
        with httpx.stream("POST", server.url + "/v1/chat/completions", timeout=60,
                          json={"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "stream": True}) as answer:
            assert "[DONE]" in answer.read().decode()
        wait_until(lambda: len(sink.spans()) == 2)
        assert set(sink.paths) == {"/v1/traces"}
        (resource, scope, first), (_, _, second) = sink.spans()
        assert attributes_of(resource)["service.name"] == "flashd" == scope.name
        assert first.trace_id.hex() == TRACE and first.parent_span_id.hex() == PARENT and first.name == "llm_request"
        assert first.kind == Span.SPAN_KIND_SERVER and first.status.code == Status.STATUS_CODE_UNSET
        assert begun <= first.start_time_unix_nano < first.end_time_unix_nano <= time.time_ns()
        said = attributes_of(first)
        expected = {"gen_ai.operation.name": "text_completion", "gen_ai.response.model": model, "gen_ai.request.id": "traced",
                    "gen_ai.request.n": 2, "gen_ai.request.max_tokens": 4, "gen_ai.usage.prompt_tokens": 3,
                    "gen_ai.usage.completion_tokens": 8, "gen_ai.response.finish_reason": "length",
                    "http.response.status_code": 200, "url.path": "/v1/completions", "client.address": "127.0.0.1"}
        assert expected.items() <= said.items()
        assert abs(said["gen_ai.request.temperature"] - 0.5) < 1e-6 and abs(said["gen_ai.request.top_p"] - 0.9) < 1e-6
        parts = [said["gen_ai.latency." + name] for name in ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")]
        assert all(p >= 0 for p in parts) and sum(parts) <= said["gen_ai.latency.e2e"] + 1e-6
        assert abs(said["gen_ai.latency.time_to_first_token"] - sum(parts[:2])) < 1e-5
        assert second.trace_id.hex() != TRACE and len(second.trace_id) == 16 and not second.parent_span_id
        assert attributes_of(second)["gen_ai.operation.name"] == "chat"
        assert f'"trace_id":"{TRACE}"' in server.log() and f'"trace_id":"{second.trace_id.hex()}"' in server.log()
        assert server.metrics()["flashd_spans_sent_total"] == 2 and server.metrics()["flashd_spans_dropped_total"] == 0


@pytest.mark.parametrize("header, taken", [
    (f"00-{TRACE}-{PARENT}-00", None), (f"01-{TRACE}-{PARENT}-01-more", True), (f"00-{TRACE}-{PARENT}-01-more", False),
    (f"00-{'0' * 32}-{PARENT}-01", False), (f"00-{TRACE}-{'0' * 16}-01", False), (f"ff-{TRACE}-{PARENT}-01", False),
    (f"00-{TRACE.upper()}-{PARENT}-01", False), ("00-x", False), ("", False), (f"00-{TRACE}-{PARENT}-0", False),
    (f"00-{TRACE}-{PARENT}-zz", False)])
def test_headers(traced, header, taken):
    """taken None: it is one that wants no spans."""
    server, sink = traced
    before = len(sink.spans())
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"traceparent": header})
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "the-next"})
    wait_until(lambda: len(sink.spans()) == before + (1 if taken is None else 2))
    found = [s.trace_id.hex() == TRACE for _, _, s in sink.spans()[before:]]
    assert found == ([False] if taken is None else [taken, False])


@pytest.fixture(scope="module")
def traced(start_server):
    with collector() as sink, start_server("--otlp-endpoint", sink.url + "/v1/traces") as server:
        yield server, sink


def test_a_header_alone_is_logged(server):
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"traceparent": f"00-{'c' * 32}-{PARENT}-01"})
    wait_until(lambda: f'"trace_id":"{"c" * 32}"' in server.log())


def test_what_is_left_is_sent_at_the_end(start_server):
    with collector() as sink:
        with start_server("--otlp-endpoint", sink.url) as server:
            for _ in range(5):
                server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
        assert len(sink.spans()) == 5


@pytest.mark.parametrize("kind", ["refuses", "answers 500", "never answers"])
def test_a_bad_collector_costs_spans_and_nothing_else(start_server, kind):
    with contextlib.ExitStack() as stack:
        if kind == "answers 500":
            url = stack.enter_context(collector(status=500)).url
        else:
            s = stack.enter_context(socket.socket())
            s.bind(("127.0.0.1", 0))
            if kind == "never answers":
                s.listen(1)
            url = "http://127.0.0.1:%d" % s.getsockname()[1]
        server = stack.enter_context(start_server("--otlp-endpoint", url))
        for _ in range(3):
            assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status_code == 200
        if kind != "never answers":
            wait_until(lambda: server.metrics()["flashd_spans_dropped_total"] == 3)
            assert server.log().count("spans do not reach --otlp-endpoint") == 1
        assert server.metrics()["flashd_spans_sent_total"] == 0


@pytest.mark.parametrize("endpoint", ["localhost:4318", "https://a", "http://", "http://a:b", "http://a:123456", "http://[::1",
                                      "http://a:", "http://a:0", "http://a:65536", "ftp://a"])
def test_endpoints_that_are_none(endpoint):
    done = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--otlp-endpoint", endpoint], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1 and "http://host[:port][/path] is expected" in done.stderr
