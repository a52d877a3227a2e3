"""Hostile surroundings: closed descriptors, tiny limits, logs that nobody reads, signals at any moment. The server serves,
or it says in a sentence why not and ends with 1 or 2."""

import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import httpx
import pytest

import faults
from conftest import BINARY, MODEL, ROOT, SANITIZED, START_SECONDS, Server, free_port, running, wait_until
from test_engine_process import engine_pid, kill_engine, wait_ready
from test_signals import Stream

REFUSED = {"prompt": "x", "max_tokens": -5}


def answers(server):
    return server.post("/v1/completions", {"prompt": "Once", "max_tokens": 1}).status_code == 200


def run(*arguments, binary=BINARY, seconds=START_SECONDS, **popen):
    """A start that is expected to fail: (exit code, what it said)."""
    arguments = [a if isinstance(a, bytes) else str(a) for a in arguments]
    done = subprocess.run([str(binary), *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          timeout=seconds, **popen)
    return done.returncode, done.stderr.decode()


# ---- descriptors ----

@pytest.mark.parametrize("closed", [c for n in range(4) for c in itertools.combinations(range(3), n)], ids=str)
def test_closed_descriptors(closed):
    """Standard descriptors that are not there are not taken by a file or a socket, which would get the log's lines."""
    def close():
        for fd in closed:
            os.close(fd)

    with running("--log-level", "debug", preexec_fn=close, stdin=subprocess.DEVNULL) as server:
        for fd in closed:
            assert os.readlink(f"/proc/{server.process.pid}/fd/{fd}") == "/dev/null"
        assert server.post("/v1/completions", REFUSED).status_code == 400  # logs a line
        assert answers(server)


@pytest.mark.parametrize("command", ["--help", "--version", "inspect", "serve"])
def test_closed_descriptors_of_other_commands(command):
    process = subprocess.Popen([BINARY, command], preexec_fn=lambda: os.closerange(0, 3))
    assert process.wait(30) in (0, 2)


# ---- limits ----

def limits(**values):
    """limits(NOFILE=(soft, hard)) for preexec_fn."""
    def apply():
        for name, value in values.items():
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), value)
    return apply


@pytest.mark.parametrize("number", [3, 4, 5, 8, 16, 32, 63])
def test_too_few_descriptors(number):
    code, said = run("serve", MODEL, "--port", free_port(), preexec_fn=limits(NOFILE=(number, number)))
    if said:  # the loader of shared libraries needs four of its own, and has its own sentence
        assert "ulimit -n" in said or "error while loading shared libraries" in said
    assert code == (127 if "loading shared" in said else 1) or number < 5


def nested_schema(num_levels):
    schema = {"type": "string"}
    for _ in range(num_levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def test_a_small_stack():
    """Threads ask for what they need; the first one's stack is the system's to grow."""
    kib = 1 << 10
    with running("--max-json-depth", "512", preexec_fn=limits(STACK=(128 * kib, resource.RLIM_INFINITY))) as server:
        ask = {"prompt": "a", "max_tokens": 3, "structured_outputs": {"json": nested_schema(120)}}
        assert server.post("/v1/completions", ask).status_code == 200
    code, said = run("serve", MODEL, "--port", free_port(), preexec_fn=limits(STACK=(512 * kib, 512 * kib)))
    assert code == 1 and "ulimit -s" in said


@pytest.mark.parametrize("soft, hard", [(64, 64), (5, 4096), (20, 200)])
def test_few_descriptors(soft, hard):
    """More clients than descriptors: some are turned away, those that are let in are answered, and afterwards all are."""
    with running(preexec_fn=limits(NOFILE=(soft, hard))) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(300)]
        streams = [Stream(server) for _ in range(8)]
        for stream in streams:
            status, ended, *_ = stream.result()
            assert status is None or ended == "done"
        for connection in held:
            connection.close()
        deadline = time.monotonic() + 30
        while True:
            try:
                assert answers(server)
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert server.num_fds() <= hard


def test_files_may_not_grow():
    """Only a hard limit counts, and the memory shared with the engine is a file, too."""
    code, said = run("serve", MODEL, "--port", 0, preexec_fn=limits(FSIZE=(0, 0)))
    assert code == 1 and "File too large" in said
    with running("--log-level", "debug", preexec_fn=limits(FSIZE=(0, resource.RLIM_INFINITY))) as server:
        assert answers(server) and "ready after" in server.log()


def least_num_fds(server):
    """In a while: a connection whose client has gone may still be closing."""
    readings = []
    for _ in range(20):
        readings.append(server.num_fds())
        time.sleep(0.02)
    return min(readings)


def test_an_engine_that_dies_while_clients_hold_what_they_can():
    """What another engine's start needs of few descriptors is kept back from them."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with running(preexec_fn=limits(NOFILE=(64, 64))) as server, contextlib.ExitStack() as stack:
        promised = int(re.search(r"descriptor limit allows; (\d+) are served", server.log())[1])
        idle = least_num_fds(server)
        for i in range(1, 100):
            client = stack.enter_context(socket.socket())
            client.bind((f"127.0.0.{1 + i}", 0))
            with contextlib.suppress(ConnectionError):
                client.connect(("127.0.0.1", server.port))
                client.sendall(head)
        wait_until(lambda: server.num_fds() >= min(idle + promised, 64))
        for number in range(1, 4):
            os.kill(engine_pid(server), signal.SIGKILL)
            wait_until(lambda: server.process.poll() is not None or server.log().count("the engine is back") == number)
            assert server.process.poll() is None, server.log()
        stack.close()
        wait_ready(server)
        assert answers(server)


def test_lines_that_a_full_disk_refuses_are_counted():
    """Those of the engines' processes with the front's."""
    with running("--log-level", "debug") as server:
        of_engine = len(re.findall("load: |memory plan: |info model ", server.log()))
    assert of_engine > 5
    with open("/dev/full", "w") as full, running("--log-level", "debug", stderr=full) as server:
        for _ in range(2):
            kill_engine(server)
            wait_ready(server)
        wait_until(lambda: server.metrics()["flashd_log_lines_dropped_total"] >= 3 * of_engine)
        assert answers(server)


def test_a_line_that_a_full_disk_cuts_is_alone():
    """What is written when there is room again begins a line of its own, and says what is missing."""
    with running("--log-format", "json") as server:
        def may_write(num_bytes):
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))

        before, kept = server.log(), 40
        may_write(len(before.encode()) + kept)
        assert all(answers(server) for _ in range(5))
        wait_until(lambda: server.metrics()["flashd_log_lines_dropped_total"] >= 5)
        may_write(resource.RLIM_INFINITY)
        assert answers(server)
        wait_until(lambda: "lines were dropped" in server.log())
        torn, *lines = server.log()[len(before):].splitlines()
        assert len(torn) == kept and [json.loads(line) for line in lines]
        assert "or the disk was full" in server.log()


SMALL = ["--kv-cache-memory-bytes", "64MiB", "--max-model-len", "512", "--max-queued-requests", "8", "--max-num-seqs", "4"]


def start_within(mib):
    """A start in so much address space: (exit code, what it said, status of a long request or None if it never served)."""
    port, status = free_port(), None
    process = subprocess.Popen([BINARY, "serve", MODEL, "--port", str(port), *SMALL], stderr=subprocess.PIPE,
                               preexec_fn=limits(AS=(mib << 20, mib << 20)))
    killer = threading.Timer(START_SECONDS, process.kill)
    killer.start()
    while process.poll() is None and status is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                body = {"prompt": "x" * 20_000, "max_tokens": 1}  # a worker's
                status = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body).status_code
                process.terminate()
        except httpx.TransportError:
            time.sleep(0.01)
    said = process.communicate(timeout=60)[1].decode()
    killer.cancel()
    return process.returncode, said, status


@pytest.mark.skipif(SANITIZED, reason="the sanitizers reserve terabytes")
def test_little_address_space():
    """A sentence and 1, or service; nothing in between, down to the megabyte where one becomes the other."""
    def served(mib):
        code, said, status = start_within(mib)
        assert (code == 0 and status in (400, 500, 503)) or (code in (1, 127) and len(said.strip()) > 15), (mib, code, said)
        return code == 0

    low, high = 10, 2048
    assert served(high) and not served(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if served(middle) else (middle, high)
    for mib in 4, 8, 16, 24, 32, 40:
        assert served(high + mib)


@pytest.fixture
def for_others():
    """The program and the model where another user finds them, wherever these tests are."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield [pathlib.Path(shutil.copy(path, folder)) for path in (BINARY, MODEL)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a user who has no other process")
def test_few_threads(for_others):
    """Each start ends in a sentence, up to the first that gets as far as the model, whose context is shorter than that."""
    def apply(most):
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        os.setuid(54321)

    binary, model = for_others
    said, most = "", 0
    while "--max-model-len" not in said:
        most += 1
        code, said = run("serve", model, "--port", 0, "--threads", 2, "--max-model-len", 1 << 24, binary=binary, preexec_fn=lambda: apply(most))
        assert code == 1 and " error " in said and most < 64, (most, said)


def without(folder, *command):
    """command where the folder is empty."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {folder} && exec "$0" "$@"', *map(str, command)]


@pytest.mark.skipif(subprocess.run(without("/proc", "true"), stderr=subprocess.DEVNULL).returncode != 0, reason="mounts are root's")
@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer reads /proc/self/maps")
def test_no_proc():
    """As in a bare chroot: a thread is the engine there, or a sentence says so."""
    command = without("/proc", BINARY, "serve", MODEL, "--port", free_port())
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=START_SECONDS, text=True)
    assert done.returncode == 1 and "/proc is not mounted here (--engine thread does without)" in done.stderr
    with running("--engine", "thread", emulator=without("/proc")) as server:
        assert answers(server)


FIRST_PROCESS = "unshare", "-p", "-f", "--mount-proc"


@pytest.mark.skipif(subprocess.run([*FIRST_PROCESS, "true"], stderr=subprocess.DEVNULL).returncode != 0, reason="namespaces are root's")
def test_a_containers_first_process_has_no_zombies():
    """Who loses its parent there becomes its child; so does nobody's engine that died."""
    with running(emulator=FIRST_PROCESS) as server:
        def children(pid):
            return {int(pid): open(f"/proc/{pid}/comm").read().strip() for pid in open(f"/proc/{pid}/task/{pid}/children").read().split()}

        (first, name), = children(server.process.pid).items()
        assert name == "flashd"
        for _ in range(3):
            subprocess.run(["nsenter", "-t", str(first), "-p", "-m", "sh", "-c", "sleep 0.2 &"], check=True)
        wait_until(lambda: list(children(first).values()).count("sleep") == 3)
        wait_until(lambda: list(children(first).values()) == ["engine"])
        os.kill(*children(first), signal.SIGKILL)
        wait_until(lambda: server.metrics()["flashd_engine_deaths_total"] == 1)
        assert answers(server)
        os.kill(first, signal.SIGTERM)
        assert server.process.wait(60) == 0


@pytest.mark.skipif(SANITIZED, reason="the sanitizers replace the allocator themselves")
def test_the_first_allocations_of_a_start():
    """libuv ends the process without a word when its own tables cannot grow; nobody else does."""
    with faults.plan_and_environment() as (plan, environment):
        for k in range(80):
            code, log = faults.start({"call": "allocation", "num_passing": k}, environment, plan)
            assert (code == -signal.SIGABRT and "invariant" not in log) or (code in (None, 1, 2) and len(log) > 15), (k, code, log)


# ---- logs ----

def refuse_many(server, count):
    """That many requests, each refused with a line in the log, pipelined."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        for _ in range(count // 100):
            connection.sendall(b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * 120) * 100)
            got = b""
            while got.count(b"HTTP/1.1 404") < 100:
                part = connection.recv(1 << 20)
                assert part
                got += part


def test_a_log_that_nobody_reads():
    """Refusals enough to fill many pipes: a line a second says how many; then the reader comes back."""
    count = 20_000
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, 4096)
    with running("--log-format", "json", "--log-level", "debug", stderr=write) as server:
        os.close(write)
        for _ in range(count // 2000):
            refuse_many(server, 2000)
        assert answers(server)
        lines = []

        def collect():
            with os.fdopen(read) as log:
                lines.extend(log)

        reader = threading.Thread(target=collect)
        reader.start()
        server.wait_idle()
        assert server.stop() == 0
        reader.join()
        events = [json.loads(line) for line in lines]
        refused = [e for e in events if e["msg"] == "request refused"]
        told = sum(1 + int(e.get("left_out", 0)) for e in refused)
        assert 0 < len(refused) < 200 and told <= count, (len(refused), told)
        assert events[-1]["msg"] == "ended with code 0"


def test_a_log_that_nobody_reads_does_not_hang_the_end():
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, 4096)
    with running("--log-level", "debug", stderr=write) as server:
        for _ in range(50):
            server.post("/v1/completions", REFUSED)
        assert server.stop(seconds=60) == 0
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("kind", ["closed", "nonblocking"])
def test_odd_log_pipes(kind):
    read, write = os.pipe()
    if kind == "nonblocking":
        os.set_blocking(write, False)
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, 4096)
    with running(stderr=write) as server:
        os.close(write)
        if kind == "closed":
            os.close(read)
        for _ in range(50):
            assert server.post("/v1/completions", REFUSED).status_code == 400
        assert answers(server)
        if kind == "closed":
            assert server.metrics()["flashd_log_lines_dropped_total"] >= 2
        else:
            os.close(read)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_a_client_sends_does_not_steer_a_terminal(log_format):
    with running("--log-format", log_format) as server:
        for hostile in "\x1b[2J", "\x07\x0b", "\x9b31m", "\u2028x", "\u202efdp", "\u2066\u061c", "\U000e0041":
            server.post("/v1/completions", {"prompt": "x", "model": hostile, hostile: 1})
            httpx.get(server.url + "/" + "".join(f"%{b:02x}" for b in hostile.encode()))
        raw = server.log()
    assert all(c.isprintable() or c == "\n" for c in raw), [c for c in raw if not c.isprintable() and c != "\n"]


# ---- signals ----

IGNORED = [signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO,
           signal.SIGPWR, signal.SIGSTKFLT]
NAMES = {signal.SIGIO: "SIGPOLL"}  # where the C library has another name


def test_signals_that_mean_nothing_are_ignored():
    """From the first moment, in streams, and while it drains."""
    process_started = []

    def send_all(server):
        for number in IGNORED:
            server.process.send_signal(number)

    class Bombarded(Server):
        def wait_until_ready(self):
            deadline = time.monotonic() + START_SECONDS
            while "listening" not in self.log() and time.monotonic() < deadline:
                process_started.append(self.process.poll())
                time.sleep(0.005)
            send_all(self)
            super().wait_until_ready()

    server = Bombarded()
    try:
        expected = Stream(server).result()
        stream = Stream(server)
        stream.begun.wait()
        send_all(server)
        assert stream.result() == expected and expected[1] == "done"
        stream = Stream(server, {"prompt": "x", "max_tokens": 60, "ignore_eos": True})
        stream.begun.wait()
        server.process.terminate()
        send_all(server)
        assert stream.result()[:3] == (200, "done", "length")
        assert server.process.wait(60) == 0
        for number in IGNORED:
            assert f"got {NAMES.get(number, signal.Signals(number).name)}: ignored" in server.log(), server.log()
    finally:
        server.process.kill()


def test_a_second_sigterm_leaves_no_request_without_its_line():
    server = Server("--log-format", "json")
    streams = [Stream(server, {"prompt": "x", "max_tokens": 2000, "ignore_eos": True}) for _ in range(3)]
    for stream in streams:
        stream.begun.wait()
    server.process.terminate()
    while "draining" not in server.log():
        time.sleep(0.005)
    server.process.terminate()
    assert server.process.wait(30) == 0
    events = [json.loads(line) for line in server.log().splitlines()]
    assert [e["finish_reason"] for e in events if e["msg"] == "request"] == ["aborted"] * 3
    assert events[-1]["msg"] == "ended with code 0"
    for stream in streams:
        stream.result()


def test_sigterm_while_it_loads():
    """At every moment of a start: it ends with 0, or before it has begun by the signal."""
    for i in range(12):
        process = subprocess.Popen([BINARY, "serve", MODEL, "--port", "0"], stderr=subprocess.PIPE)
        time.sleep(i * 0.02)
        process.terminate()
        said = process.communicate(timeout=60)[1].decode()
        assert process.returncode == 0 or (process.returncode == -signal.SIGTERM and "ready" not in said)
        if process.returncode == 0:
            assert "ended with code 0" in said  # the loading thread may have said more


def test_signals_that_come_blocked():
    """A parent that has blocked SIGTERM hands that on; the server can still be told to end."""
    with running(preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())) as server:
        assert answers(server)


# ---- options ----

def test_two_starts_draw_different_texts():
    """Unless they are told to draw the same."""
    def draw(*options):
        with running(*options) as server:
            body = {"prompt": "Once", "max_tokens": 16, "temperature": 1, "ignore_eos": True}
            text = server.post("/v1/completions", body).json()["choices"][0]["text"]
            told = re.search(r"draw from --seed (\d+)", server.log())
            return text, told and told[1]

    first, seed = draw()
    assert draw()[0] != first
    assert draw("--seed", seed) == (first, None)
    assert draw("--seed", "0")[0] == draw("--seed=0")[0]


@pytest.mark.parametrize("value", ["", ",", "null", "a b", " "])
def test_a_lost_key_does_not_open_the_server(value, tmp_path):
    config = tmp_path / "flashd.yaml"
    for text in f"api-key: {value}\n", f"api-key: [{value}]\n", f'api-key: "{value}"\n', "api-key: []\n":
        config.write_text(text)
        code, said = run("serve", MODEL, "--port", 0, "--config", config)
        assert code == 2 and "secret" not in said and len(said) > 20, (text, said)
    for arguments, env in ([("--api-key", value), {}], [(), {"FLASHD_API_KEY": value}], [(), {"FLASHD_API_KYE": "secret"}]):
        code, said = run("serve", MODEL, "--port", 0, *arguments, env={**os.environ, **env})
        assert code == 2 and "secret" not in said and "api-key" in said, (arguments, env, said)


def test_keys_from_a_file_and_out_of_sight(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("filed-secret\n")
    with running("--api-key", "typed-secret", "other-secret", "--api-key-file", str(keys)) as server:
        pid = server.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in [pid, *children]:
            assert b"secret" not in pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
        for key in "typed-secret", "other-secret", "filed-secret":
            assert httpx.get(server.url + "/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert httpx.get(server.url + "/v1/models", headers={"Authorization": "Bearer x"}).status_code == 401
        assert "secret" not in server.log()


def test_several_names():
    with running("--served-model-name", "a", "b") as server:
        for name in "a", "b":
            answer = server.post("/v1/completions", {"model": name, "prompt": "x", "max_tokens": 1})
            assert answer.status_code == 200 and answer.json()["model"] == "a"


@pytest.mark.parametrize("path", ["/etc", "/proc/self/mem", "/dev/zero", "/dev/null", "/proc/self/status", "/nonexistent"])
def test_what_is_no_template(path):
    code, said = run("serve", MODEL, "--port", 0, "--chat-template", path)
    assert code == 1 and f"--chat-template {path}: " in said


@pytest.mark.parametrize("path, words", [("/nonexistent/model.gguf", "No such file"), ("tests/no-such-model", "No such file"),
                                         ("nobody/no-such-model", "`hf download nobody/no-such-model` does, then serve it"),
                                         ("a/b/c", "No such file"), ("../no-such-model", "No such file"), ("/etc", "config.json"),
                                         ("/etc/passwd", "no GGUF file"), ("/dev/zero", "not a regular file"), ("", "empty")])
def test_what_is_no_model_is_said_before_anybody_can_connect(path, words):
    code, said = run("serve", path, "--port", 0)
    assert code in (1, 2) and words in said and "listening" not in said


@pytest.mark.parametrize("end", ["", "/"])
def test_a_folder_of_gguf_files_is_told_from_a_model(tmp_path, end):
    for name in "b.gguf", "a.Q4_0.gguf", "README.md", ".gguf":
        (tmp_path / name).touch()
    code, said = run("serve", f"{tmp_path}{end}", "--port", 0)
    assert code == 1 and f"such as {tmp_path}/a.Q4_0.gguf\n" in said


def said_at_a_terminal(*options):
    """What `serve` writes to a terminal from its start to its end."""
    ours, theirs = pty.openpty()
    with running(*options, stderr=theirs):
        os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # nobody has it open any more
        while part := os.read(ours, 4096):
            said += part
    os.close(ours)
    return said.decode()


def test_a_terminal_sees_how_much_is_loaded():
    said = said_at_a_terminal()
    bars = re.findall(r"weights \[(#*)(\.*)\] +(\d+) %\r", said)
    assert bars and bars[-1] == ("#" * 24, "", "100") and all(len(full + rest) == 24 for full, rest, _ in bars)
    assert re.search(r"100 %\r[^\x1b]*\x1b\[K2", said)  # the next line of the log stands in its place


@pytest.mark.parametrize("options", [["--log-format", "json"], ["--log-level", "warning"]])
def test_a_log_that_is_read_otherwise_has_no_bar(options):
    assert "weights [" not in said_at_a_terminal(*options)


@pytest.mark.parametrize("option", ["--uds", "--host", "--chat-template", "--served-model-name", "--api-key"])
@pytest.mark.parametrize("value", ["", b"a\xff", "a\x1b[31m", "a\nb"])
def test_texts_that_are_none(option, value):
    code, said = run("serve", MODEL, "--port", 0, option, value)
    assert code == 2 and option[2:] in said and "\x1b" not in said


def test_a_small_cache_is_said():
    with running("--kv-cache-memory-bytes", "1MiB") as server:
        assert re.search(r"warning the K/V cache holds 32 tokens: .*--kv-cache-memory-bytes \d+ would hold one", server.log())


def nice_values(pid):
    return [os.getpriority(os.PRIO_PROCESS, int(thread.name)) for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()]


def test_long_bodies_leave_the_processors_to_the_streams():
    """The workers that read them, and no other thread, take less time than those that compute."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with running() as server:
        front = nice_values(server.process.pid)
        assert front.count(min(own + 10, 19)) >= 4 and front.count(own) == len(front) - 4 or own > 9
        assert os.getpriority(os.PRIO_PROCESS, server.process.pid) == own
        assert set(nice_values(engine_pid(server))) == {own}
        kill_engine(server)
        wait_ready(server)
        assert set(nice_values(engine_pid(server))) == {own}


@pytest.mark.parametrize("typed, meant", [("serv", "serve"), ("inspct", "inspect"), ("--hlep", "--help"), (str(MODEL), f"serve {MODEL}")])
def test_mistyped_commands(typed, meant):
    code, said = run(typed)
    assert code == 2 and f'did you mean "{meant}"?' in said


def test_the_example_of_a_configuration_is_the_programs_own():
    printed = subprocess.run([BINARY, "--print-example-config"], capture_output=True, check=True).stdout
    assert printed == (ROOT / "deploy" / "flashd.example.yaml").read_bytes()
