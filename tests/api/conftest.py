"""The real server with the real model, on a free port, for the whole session.

FLASHD_BIN names the binary (build/flashd), FLASHD_MODEL the model. A server that dies, or that a test leaves with a
request in flight, fails the run.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = ROOT / os.environ.get("FLASHD_BIN", "build/flashd")
MODEL = ROOT / os.environ.get("FLASHD_MODEL", "models/SmolLM2-135M-Instruct.Q4_1.gguf")
SANITIZED = "san" in BINARY.parent.name
START_SECONDS = 240 if SANITIZED else 120  # also under an emulator on a busy machine
WAIT_SECONDS = 120
FAULT = re.compile(r"invariant broken|runtime error:|Sanitizer: (?!SEGV|DEADLYSIGNAL|ABRT)")
PART = int(os.environ.get("FLASHD_TEST_PART", "1"))
TEST_SECONDS = int(os.environ.get("TEST_SECONDS", "600"))
os.environ["FLASHD_ALLOWED_HOST"] = "a"  # what requests that are written by hand say
os.environ["PATH"] += f":{ROOT}/build/prometheus/usr/bin:{ROOT}/build/helm"  # tests/unpack-prometheus, tests/unpack-helm
os.environ["ASAN_OPTIONS"] = "allocator_may_return_null=1"  # as malloc does where there is not so much
os.environ["FLASHD_DRAIN_DELAY"] = "0"  # also where a service manager runs the tests


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, server=None, seconds=WAIT_SECONDS):
    """What a server logged is said when the condition does not come true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, server.log()[-2000:] if server else "it did not come true"
        time.sleep(0.01)
    return value


class Server:
    """One flashd process; emulator is what its command begins with."""

    def __init__(self, *options, env=None, model=MODEL, emulator=(), binary=BINARY, **popen):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = tempfile.NamedTemporaryFile(prefix="flashd-", suffix=".log")
        command = [*emulator, str(binary), "serve", str(model), "--port", str(self.port), *options]
        popen = {"stderr": self.log_file, "stdout": subprocess.DEVNULL, **popen}
        self.process = subprocess.Popen(command, env={**os.environ, **(env or {})}, **popen)
        self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(self.url + "/health").status_code == 200:
                    return
            time.sleep(0.02)
        raise AssertionError("not ready: " + self.log())

    def log(self):
        return pathlib.Path(self.log_file.name).read_text()

    def log_line(self, reply, seconds=10):
        """What a server with --log-format json says of a request that has ended: its lines come a little later."""
        name, deadline = f'"request_id":"{reply.headers["x-request-id"]}"', time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self.log().splitlines():
                if name in line and '"duration_ms"' in line:
                    return json.loads(line)
            time.sleep(0.01)
        raise AssertionError("no line: " + self.log())

    def client(self, **options):
        options = {"api_key": "none", "max_retries": 0, "timeout": 300, **options}
        return openai.OpenAI(base_url=self.url + "/v1", **options)

    def post(self, path, json, **options):
        return httpx.post(self.url + path, json=json, timeout=300, **options)

    def metrics(self, accept="text/plain"):
        """{name{labels}: value} of the metrics page, the model's own labels left out."""
        text = httpx.get(self.url + "/metrics", headers={"Accept": accept}).text
        values = {}
        for line in text.splitlines():
            if line.startswith("#") or not line:
                continue
            key, value = line.rsplit(" ", 1)
            key = re.sub(r'model_name="[^"]*",engine="0",?', "", key).replace("{}", "").replace(",}", "}")
            values[key] = float(value)
        return values

    def wait_idle(self, seconds=10):
        """Waits until nothing is in flight; returns the metrics then."""
        deadline = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            busy = (metrics["flashd_requests_in_flight"] or metrics["vllm:num_requests_running"]
                    or metrics["vllm:num_requests_waiting"] or metrics['flashd_kv_blocks{state="held"}'])
            if not busy:
                return metrics
            assert time.monotonic() < deadline, f"still busy: {metrics}"
            time.sleep(0.01)

    def num_fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self, number=signal.SIGTERM, seconds=60):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def faults(self):
        """What no client sees, since the next engine goes on: invariants that broke, and what the sanitizers report but signals."""
        return [line for line in self.log().splitlines() if FAULT.search(line)]


@contextlib.contextmanager
def running(*options, **keywords):
    server = Server(*options, **keywords)
    try:
        yield server
        code = server.stop()
        assert code == 0, f"ended with {code}: {server.log()}"
        assert not server.faults(), server.log()
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        server.log_file.close()


def pytest_collection_modifyitems(config, items):
    """FLASHD_TEST_PART=n: a random one in n of the files."""
    files = sorted({item.path for item in items})
    taken = random.sample(files, -(-len(files) // PART))
    config.hook.pytest_deselected(items=[item for item in items if item.path not in taken])
    items[:] = [item for item in items if item.path in taken]


@pytest.fixture(autouse=True)
def limit_of_time():
    """A test that waits for what never comes fails alone, instead of holding up all others."""
    def fail(*_):
        raise TimeoutError(f"the test has taken {TEST_SECONDS} s")

    signal.signal(signal.SIGALRM, fail)
    signal.alarm(TEST_SECONDS)
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def start_server():
    return running


@pytest.fixture(scope="session")
def serve_written(tmp_path_factory):
    """serve(write, options...) - a server of the model that write puts into a folder, for a fixture to yield from. name: the folder's."""
    def serve(write, *options, name="written"):
        folder = tmp_path_factory.mktemp("model") / name
        folder.mkdir()
        write(folder)
        with running(*options, model=folder) as server:
            yield server

    return serve


@pytest.fixture(scope="session")
def shared_server():
    with running("--log-format", "json") as server:
        yield server


@pytest.fixture
def server(shared_server):
    """The session's server; afterwards it must still run and have nothing left in flight."""
    yield shared_server
    assert shared_server.process.poll() is None, shared_server.log()
    shared_server.wait_idle()


@pytest.fixture
def client(server):
    return server.client(_strict_response_validation=True)


@pytest.fixture
def loose_client(server):
    """For what OpenAI itself sends against the SDK's own types: null for finish_reason in text chunks, and for the
    log probability of a prompt's first token."""
    return server.client()


@pytest.fixture
def model(client):
    return client.models.list().data[0].id
