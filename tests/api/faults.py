"""A server whose calls can be made to fail one by one (tests/faults/shim.c)."""

import contextlib
import ctypes
import http.client
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import time

import conftest
import httpx

CALLS = {name: i for i, name in enumerate(
    ["none", "allocation", "accept", "read", "write", "eventfd", "mmap", "epoll_ctl", "socket", "open", "shutdown",
     "setsockopt", "madvise"])}
SHORT = 1000  # in place of an errno: one byte gets through
FOREVER = 1 << 30


def build_shim():
    source = conftest.ROOT / "tests" / "faults" / "shim.c"
    shim = conftest.ROOT / "build" / "tests" / "faults" / "shim.so"
    if not shim.exists() or shim.stat().st_mtime < source.stat().st_mtime:
        shim.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-fPIC", "-shared", "-o", shim, source, "-ldl"], check=True)
    return shim


class Plan:
    """The page shared with the shim."""

    def __init__(self, path):
        path.write_bytes(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def arm(self, call, num_passing=0, num_failing=1, error=12):
        self.disarm()
        self.page[4:20] = struct.pack("<iiii", num_passing, num_failing, error, 0)
        self.page[0:4] = struct.pack("<i", CALLS[call])

    def heap_bytes(self):
        """In use at this moment, counted block by block."""
        return struct.unpack("<q", self.page[24:32])[0]

    def set_send_buffer(self, num_bytes):
        self.page[48:52] = struct.pack("<i", num_bytes)

    def move_clock(self, seconds):
        offset, = struct.unpack("<q", self.page[40:48])
        self.page[40:48] = struct.pack("<q", offset + seconds * 1_000_000_000)

    def pass_time(self, server, seconds):
        """As time passes for a server that runs: its loop wakes now and then, and looks after its engine by itself."""
        for done in range(0, seconds, 2):
            self.move_clock(min(2, seconds - done))
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.request("GET", "/version")
            connection.getresponse().read()
            connection.close()

    @contextlib.contextmanager
    def held(self, server, name):
        """The server's thread of that name does not run."""
        pid = server.process.pid
        tasks = pathlib.Path(f"/proc/{pid}/task")
        thread, = [int(t.name) for t in tasks.iterdir() if (t / "comm").read_text().strip() == name]
        self.page[36:40] = struct.pack("<i", 1)
        assert ctypes.CDLL(None).tgkill(pid, thread, signal.SIGUSR2) == 0
        deadline = time.monotonic() + 30
        while struct.unpack("<i", self.page[32:36])[0] == 0:
            assert time.monotonic() < deadline, f"{name} takes no signals"
            time.sleep(0.001)
        try:
            yield
        finally:
            self.page[36:40] = bytes(4)

    def disarm(self):
        """Returns how many calls failed."""
        self.page[0:4] = bytes(4)
        return struct.unpack("<i", self.page[16:20])[0]


@contextlib.contextmanager
def plan_and_environment():
    with tempfile.TemporaryDirectory(prefix="flashd-faults-") as folder:
        path = pathlib.Path(folder) / "plan"
        plan = Plan(path)
        yield plan, {"LD_PRELOAD": str(build_shim()), "FAULTS_FILE": str(path)}


@contextlib.contextmanager
def running(*options, engine="thread"):
    with plan_and_environment() as (plan, environment):
        with conftest.running("--engine", engine, *options, env=environment) as server:
            yield server, plan


def start(plan_arguments, environment, plan, seconds=60, model=conftest.MODEL, options=()):
    """A start with that plan: (exit code, or None when it became ready; its log)."""
    plan.arm(**plan_arguments)
    port = conftest.free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([conftest.BINARY, "serve", model, "--port", str(port), "--engine", "thread", *options], stderr=log,
                                   env={**os.environ, **environment})
        try:
            code = wait_for_exit_or_readiness(process, port, seconds)
        finally:
            plan.disarm()
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        log.seek(0)
        return code, log.read().decode()


def wait_for_exit_or_readiness(process, port, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return process.returncode
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                return None
        time.sleep(0.02)
    raise AssertionError("neither ready nor ended")
