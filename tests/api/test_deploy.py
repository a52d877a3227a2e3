"""What deploy/ holds, under the programs that it is for; each part is skipped where its program is not installed."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"no {program}")


def output_of(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- systemd ----


@contextlib.contextmanager
def service_manager(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind("\0" + path[1:] if path.startswith("@") else path)
        s.settimeout(30)
        yield s


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(start_server, tmp_path, abstract):
    path = f"@flashd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with service_manager(path) as manager:
        env = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"}
        with start_server(env=env) as server:
            told = []
            while told.count(b"WATCHDOG=1") < 2:
                told.append(manager.recv(4096))
            assert told[0] == b"READY=1\nSTATUS=serving"
            engine = int(output_of("pgrep", "-P", str(server.process.pid)))
            assert b"NOTIFY_SOCKET" not in pathlib.Path(f"/proc/{engine}/environ").read_bytes()
        while told[-1] == b"WATCHDOG=1":
            told.append(manager.recv(4096))
        assert told[-1] == b"STOPPING=1\nSTATUS=draining"


@pytest.mark.parametrize("env", [
    {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "/" + "x" * 200},
    {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "never"}])
def test_a_service_manager_that_is_none(start_server, env):
    with start_server(env=env) as server:
        assert server.post("/tokenize", {"prompt": "a"}).status_code == 200


@needs("systemd-analyze")
def test_the_unit_is_hardened(tmp_path):
    unit = DEPLOY / "flashd.service"
    score = output_of("systemd-analyze", "security", "--offline=true", "--threshold=15", str(unit))
    assert float(re.search(r"exposure level for flashd.service: ([\d.]+)", score).group(1)) <= 1.5
    copy = tmp_path / "flashd.service"
    text = unit.read_text()
    copy.write_text(text.replace("/usr/local/bin/flashd", "/bin/true").replace("Documentation=man:flashd(1)\n", ""))
    told = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    assert told.returncode == 0 and "flashd.service" not in told.stderr, told.stderr


def filtered_calls():
    """The system calls that the unit's SystemCallFilter lets through."""

    def members(group):
        names = set()
        for line in output_of("systemd-analyze", "syscall-filter", group).splitlines()[1:]:
            word = line.strip()
            if word and not word.startswith("#"):
                names |= members(word) if word.startswith("@") else {word}
        return names

    calls = members("@default")
    for word in re.findall(r"^SystemCallFilter=(.*)$", (DEPLOY / "flashd.service").read_text(), re.MULTILINE):
        calls = calls - members(word[1:]) if word.startswith("~") else calls | members(word)
    return calls


@needs("systemd-analyze")
@needs("strace")
@pytest.mark.skipif("san" in os.environ.get("FLASHD_BIN", ""), reason="LeakSanitizer cannot be traced")
def test_the_unit_lets_the_server_do_what_it_does(start_server, tmp_path):
    trace = tmp_path / "trace"
    with start_server(emulator=("strace", "-D", "-f", "-qq", "-o", str(trace))) as server:
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 4}).status_code == 200
    used = set(re.findall(r"^\d+ +([a-z]\w*)\(", trace.read_text(), re.MULTILINE))
    assert {"sendto", "execve", "epoll_pwait"} & used and used <= filtered_calls()
