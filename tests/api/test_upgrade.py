"""Another process takes the server's place under load: no connection refused, no stream cut. UPGRADES=100 as often."""

import contextlib
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from conftest import BINARY, MODEL, Server, running, wait_until
from test_deploy import service_manager
from test_signals import Stream

UPGRADES = int(os.environ.get("UPGRADES", "2"))
ASK = {"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}


def is_alive(pid):
    with contextlib.suppress(FileNotFoundError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


class Upgradable(Server):
    """Its process changes: pid is that of the one that serves."""

    def __init__(self, *options, **keywords):
        super().__init__("--drain-delay", "1", *options, **keywords)
        self.pid = self.process.pid
        self.pids = [self.pid]

    def upgrade(self):
        count = self.log().count("has taken over")
        os.kill(self.pid, signal.SIGUSR2)
        wait_until(lambda: self.log().count("has taken over") > count, self)
        self.pid = int(re.findall(r"process (\d+) has taken over", self.log())[-1])
        self.pids.append(self.pid)

    def end(self):
        os.kill(self.pid, signal.SIGTERM)
        wait_until(lambda: not any(map(is_alive, self.pids[1:])), self)
        assert self.process.wait(60) == 0
        assert self.log().count("ended with code 0") == len(self.pids)

    def kill(self):
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log_file.close()


@contextlib.contextmanager
def upgradable(*options, **keywords):
    server = Upgradable(*options, **keywords)
    try:
        yield server
        server.end()
    finally:
        server.kill()


class Client(threading.Thread):
    """Asks again and again: on a new connection each time, on one that is kept, or in streams. problems: what went wrong."""

    def __init__(self, server, kind):
        super().__init__()
        self.server, self.kind, self.problems, self.count, self.stopped = server, kind, [], 0, False
        self.texts = set()
        self.start()

    def ask_fresh(self):
        self.note(httpx.post(self.server.url + "/v1/completions", json=ASK, timeout=300))

    def note(self, answer):
        if answer.status_code != 200:
            self.problems.append(answer.text)
        else:
            self.texts.add(answer.json()["choices"][0]["text"])

    def ask_story(self):
        self.ask_stream(240)

    def ask_form(self):
        self.ask_stream(120, structured_outputs={"regex": "([A-Z][a-z ]{3,9}[.] ){60,}"})

    def ask_stream(self, num_tokens=60, **fields):
        result = Stream(self.server, {**ASK, "max_tokens": num_tokens, "ignore_eos": True, **fields}).result()
        if result[:3] != (200, "done", "length"):
            self.problems.append(result)
        self.texts.add(result[3])

    def run(self):
        with httpx.Client(timeout=300) as kept:
            while not self.stopped:
                try:
                    if self.kind == "kept":
                        self.note(kept.post(self.server.url + "/v1/completions", json=ASK))
                    else:
                        getattr(self, "ask_" + self.kind)()
                except (httpx.HTTPError, http.client.HTTPException, OSError) as error:
                    self.problems.append(repr(error))
                self.count += 1


@pytest.mark.parametrize("uds", [False, True])
def test_upgrades_under_load(uds, tmp_path):
    if uds:
        return upgrades_on_a_unix_socket(tmp_path)
    with upgradable("--no-log-requests", "--max-model-len", "512", "--seed", "1") as server:
        clients = [Client(server, kind) for kind in ("fresh", "kept", "stream", "stream", "story", "form")]
        try:
            for _ in range(UPGRADES):
                before = [c.count for c in clients]
                server.upgrade()
                wait_until(lambda: all(c.count > n for c, n in zip(clients, before)), server)
        finally:
            for c in clients:
                c.stopped = True
            for c in clients:
                c.join()
        assert [c.problems for c in clients] == [[]] * len(clients), server.log()[-3000:]
        assert len(clients[0].texts | clients[1].texts) == 1 and len(clients[2].texts | clients[3].texts) == 1
        assert len(clients[4].texts) == len(clients[5].texts) == 1
        moved = sum(map(int, re.findall(r"(\d+) streams go on in the new process", server.log())))
        print(f"{UPGRADES} upgrades: {sum(c.count for c in clients)} requests, {sum(c.count for c in clients[2:])} of them streams, {moved} moved")


def test_the_journal_goes_along(tmp_path):
    """Both processes write it, though no other server may."""
    journal = tmp_path / "journal"
    with upgradable("--journal", str(journal), "--max-model-len", "512") as server:
        for count in (1, 2, 3):
            assert httpx.post(server.url + "/v1/completions", json=ASK, timeout=60).status_code == 200
            wait_until(lambda: journal.read_text().count('"type":"answer"') == count, server)
            if count < 3:
                server.upgrade()


def upgrades_on_a_unix_socket(tmp_path):
    path = str(tmp_path / "socket")
    transport = httpx.HTTPTransport(uds=path)
    with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:

        class OnUnix(Upgradable):
            def wait_until_ready(self):
                wait_until(lambda: "ready after" in self.log(), self)

        server = OnUnix("--uds", path, "--max-model-len", "512")
        try:
            for _ in range(2):
                server.upgrade()
                assert client.get("/health", headers={"Connection": "close"}).status_code == 200
            wait_until(lambda: not is_alive(server.pids[1]), server)
            assert client.get("/health", headers={"Connection": "close"}).status_code == 200, "the path is gone"
            server.end()
            assert not os.path.exists(path) and "takes effect" not in server.log()
        finally:
            for pid in server.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            server.process.wait()


def test_what_stays_is_served_to_its_end_by_the_old_process():
    """However long it takes: --drain-timeout is for those that were told to end."""
    with upgradable("--drain-timeout", "0", "--max-model-len", "1024", "--receipts") as server:
        stream = Stream(server, {"prompt": "a", "max_tokens": 250, "ignore_eos": True})
        stream.begun.wait()
        server.upgrade()
        assert is_alive(server.pids[0]) and Stream(server).result()[1] == "done"
        assert stream.result()[:3] == (200, "done", "length")


def test_a_process_that_cannot_start_replaces_nothing(tmp_path):
    config = tmp_path / "flashd.yaml"
    config.write_text("max-model-len: 512\n")
    with upgradable("--config", str(config)) as server:
        config.write_text("max-model-len: 512\nno-such-option: 1\n")
        os.kill(server.pid, signal.SIGUSR2)
        wait_until(lambda: "ended with exit code 2; this one goes on" in server.log(), server)
        assert server.post("/v1/completions", ASK).status_code == 200
        assert "take effect" not in server.log()
        config.write_text("max-model-len: 256\nhost: 127.0.0.2\n")  # the socket stays where it is, and it is said
        server.upgrade()
        assert f"--host 127.0.0.2 --port {server.port} take effect when" in server.log()
        assert httpx.get(server.url + "/v1/models").json()["data"][0]["max_model_len"] == 256


@pytest.mark.parametrize("how", ["moved away", "a link", "found in PATH"])
def test_what_is_at_the_path_by_then_takes_over(how, tmp_path):
    """The program was moved away, and another put in its place; a link in the path leads elsewhere."""
    program, old = tmp_path / "flashd", tmp_path / "old"
    shutil.copy(BINARY, old if how == "a link" else program)
    if how == "a link":
        program.symlink_to(old)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} if how == "found in PATH" else {}
    with upgradable("--max-model-len", "512", binary="flashd" if path else program, env=path) as server:
        if how == "a link":
            program.unlink()
        else:
            program.rename(old)
        program.write_text(f'#!/bin/sh\necho another program >&2\nexec {BINARY} "$@"\n')
        program.chmod(0o755)
        server.upgrade()
        assert "another program" in server.log()
        assert server.post("/v1/completions", ASK).status_code == 200


def test_told_to_end_while_another_starts():
    with upgradable("--max-model-len", "512") as server:
        os.kill(server.pid, signal.SIGUSR2)
        wait_until(lambda: "starts to take over" in server.log(), server)
        server.pids.append(int(re.search(r"process (\d+) starts", server.log()).group(1)))
        os.kill(server.pids[1], signal.SIGSTOP)
        os.kill(server.pid, signal.SIGUSR2)
        wait_until(lambda: "nothing is replaced: another process is starting already" in server.log(), server)
        os.kill(server.pid, signal.SIGINT)
        assert server.process.wait(30) == 0
        os.kill(server.pids[1], signal.SIGCONT)
        wait_until(lambda: not is_alive(server.pids[1]), server)
        server.end = lambda: None


# Becomes a new process with what one left that had made it, and ended before it began.
ORPHAN = """
import fcntl, os, socket, sys
ours, theirs = socket.socketpair()
old = os.fork()
if old == 0:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
    pair = socket.socketpair(type=socket.SOCK_SEQPACKET)
    socket.send_fds(theirs, [b"2"], [listening.fileno(), pair[0].fileno()])
    os._exit(0)
_, fds, _, _ = socket.recv_fds(ours, 1, 2)
os.waitpid(old, 0)
for fd, to in zip([fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in fds], (3, 4)):
    os.dup2(fd, to)
os.execve(sys.argv[1], sys.argv[1:], {**os.environ, "FLASHD_UPGRADE_OF": str(old)})
"""


def test_the_old_process_ends_before_the_new_one_begins():
    """Clients that wait on its socket are answered."""
    with running(emulator=(sys.executable, "-c", ORPHAN)) as server:
        assert server.post("/v1/completions", ASK).status_code == 200
        assert server.stop() == 0


def test_keys_and_systemd_go_along(tmp_path):
    path = str(tmp_path / "notify")
    with service_manager(path) as manager:
        env = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "60000000"}
        with upgradable("--api-key", "secret", "--max-model-len", "512", env=env) as server:
            assert manager.recv(4096) == b"READY=1\nSTATUS=serving"
            server.upgrade()
            told = {manager.recv(4096), manager.recv(4096)}
            assert told == {f"MAINPID={server.pid}".encode(), b"READY=1\nSTATUS=serving"}
            assert b"secret" not in pathlib.Path(f"/proc/{server.pid}/cmdline").read_bytes()
            assert server.post("/v1/completions", ASK).status_code == 401
            headers = {"Authorization": "Bearer secret"}
            assert server.post("/v1/completions", ASK, headers=headers).status_code == 200
            wait_until(lambda: not is_alive(server.pids[0]) or server.process.poll() is not None, server)
        assert manager.recv(4096).startswith(b"STOPPING=1")


@contextlib.contextmanager
def listening_socket():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(64)
        yield s


def activated(s, *options):
    """flashd as systemd starts it: LISTEN_FDS=1, and the socket at descriptor 3."""
    command = 'exec 3<&"$0"; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"'
    return subprocess.Popen(["bash", "-c", command, str(s.fileno()), str(BINARY), "serve", str(MODEL), "--max-model-len", "512",
                             "--port", "1", *options], pass_fds=[s.fileno()], stderr=subprocess.PIPE)


def test_socket_activation():
    """Whoever connects while no process is ready waits: also over a restart."""
    with listening_socket() as s:
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        for _ in range(2):
            process = activated(s)
            try:
                for _ in range(2):
                    assert httpx.post(url + "/v1/completions", json=ASK, timeout=60).status_code == 200
            finally:
                process.terminate()
                _, told = process.communicate(timeout=60)
            assert process.returncode == 0 and f"listening on {url}".encode() in told


@pytest.mark.parametrize("variables, words", [
    ({"LISTEN_FDS": "2"}, b"one socket is expected from systemd, 2 came"),
    ({"LISTEN_FDS": "1"}, b"is no listening socket")])
def test_what_is_no_listening_socket(variables, words):
    command = 'export LISTEN_PID=$$; exec 3</dev/null; exec "$@"'
    done = subprocess.run(["bash", "-c", command, "bash", str(BINARY), "serve", str(MODEL), "--port", "0"], capture_output=True,
                          env={**os.environ, **variables}, timeout=60)
    assert done.returncode == 1 and words in done.stderr
