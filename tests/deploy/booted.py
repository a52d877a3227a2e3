#!/usr/bin/env python3
"""booted.py - the Debian package under a real systemd, which is process 1 of a root of Debian 12 with namespaces of its own.

The package of `make deb` is installed with its dependencies, and the unit is started as shipped: started means ready
(Type=notify), hardened, keys as a credential, reload, the watchdog that ends a stuck loop, a socket that keeps clients waiting over a
restart, a stop that is a lame duck first; then purged, and nothing is left. Needs root, debootstrap and Debian's packages: 3 minutes.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import root as roots

MODEL = roots.ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
UNIFIED = next((p for p in (pathlib.Path("/sys/fs/cgroup/unified"), pathlib.Path("/sys/fs/cgroup")) if (p / "cgroup.procs").exists()), None)
URL = "http://127.0.0.1:8000"

# A group of its own in the second cgroup hierarchy is the root that systemd sees. It gets what a container manager
# gives: a root that is no chroot (PrivateUsers may not be had in one) and is shared (credentials are mounted from elsewhere).
BOOT = """set -e; root=$1; group=$2
echo $$ > "$group/cgroup.procs"
exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child bash -c '
    set -e; root=$1
    mount --bind "$root" "$root"; mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"; mount -t tmpfs tmpfs "$root/run"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"; mount -t tmpfs tmpfs "$root/dev"; mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"; ln -s pts/ptmx "$root/dev/ptmx"; mount -t tmpfs tmpfs "$root/dev/shm"
    for name in null zero full random urandom tty; do touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
    ln -s /proc/self/fd "$root/dev/fd"
    cd "$root"; pivot_root . mnt; exec env -i container=flashd PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . sh -c "umount -l /mnt; mount --make-rshared /
    exec /lib/systemd/systemd --unit=basic.target --log-target=journal"' boot "$root"
"""


class Machine:
    def __init__(self, root, group):
        self.group = group
        group.mkdir()
        self.process = subprocess.Popen(["bash", "-c", BOOT, "boot", str(root), str(group)], stdout=subprocess.DEVNULL,
                                        stderr=open(roots.FOLDER / "boot.log", "w"))
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.wait("process 1", lambda: children.read_text().split())
        self.first = children.read_text().split()[0]
        self.wait("systemd", lambda: "running" in self.told("systemctl", "is-system-running") or
                  "degraded" in self.told("systemctl", "is-system-running"))

    def inside(self, words):
        enter = ["nsenter", "-t", self.first, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]
        return [*enter, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", *words]

    def begin(self, *words):
        return subprocess.Popen(self.inside(words))

    def run(self, *words):
        return subprocess.run(self.inside(words), capture_output=True, text=True, timeout=300)

    def told(self, *words):
        return self.run(*words).stdout.strip()

    def must(self, *words):
        done = self.run(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr, self.told("journalctl", "-n", "30", "--no-pager"))
        return done.stdout.strip()

    def property(self, name):
        return self.told("systemctl", "show", "-P", name, "flashd.service")

    def wait(self, what, holds):
        deadline = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < deadline and self.process.poll() is None, (what, (roots.FOLDER / "boot.log").read_text())
            time.sleep(0.1)

    def status_of(self, path, *options):
        return self.told("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60", *options, URL + path)

    def write(self, path, text, mode=0o600):
        file = roots.FOLDER / "booted" / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(self.first), signal.SIGKILL)
        self.process.wait()
        for _ in range(100):
            try:
                for folder in sorted(self.group.rglob("*"), reverse=True):
                    if folder.is_dir():
                        folder.rmdir()
                self.group.rmdir()
                return
            except OSError:
                time.sleep(0.1)


def say(sentence):
    print(sentence, flush=True)


def install(root):
    package = next((roots.ROOT / "build").glob("flashd_*.deb"))
    shutil.copy(package, root / "tmp")
    roots.run(root, "sh", "-c", "apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd libnss-systemd curl "
              f"/tmp/{package.name}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (root / "srv").mkdir(exist_ok=True)
    shutil.copy(MODEL, root / "srv/model.gguf")
    roots.run(root, "systemctl", "mask", "systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service",
              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def show_start(m):
    m.write("/etc/flashd/api-keys", "first-key name=acme\n")
    m.write("/etc/flashd/flashd.yaml", "model: /srv/model.gguf\nport: 8000\ndrain-delay: 3\n", 0o644)
    m.write("/etc/systemd/system/flashd.service.d/keys.conf",
            "[Service]\nLoadCredential=api-keys:/etc/flashd/api-keys\nEnvironment=FLASHD_API_KEY_FILE=%d/api-keys\n", 0o644)
    m.must("systemctl", "daemon-reload")
    m.must("systemctl", "start", "flashd")
    assert m.status_of("/health") == "200", "started, and not ready"
    assert (m.property("StatusText"), m.property("SubState")) == ("serving", "running")
    user = m.told("stat", "-c", "%u", "/proc/" + m.property("MainPID"))
    assert int(user) > 60000, user
    say(f"start: returns when it is ready, as user {user} of its own, StatusText={m.property('StatusText')}")
    assert m.status_of("/v1/models") == "401"
    assert m.status_of("/v1/models", "-H", "Authorization: Bearer first-key") == "200"
    say("LoadCredential: the key of a file that only root reads is asked for")


def show_reload(m):
    first = m.property("MainPID")
    m.write("/etc/flashd/flashd.yaml", "model: /srv/model.gguf\nport: 8000\ndrain-delay: 3\nlog-level: debug\n", 0o644)
    m.must("systemctl", "reload", "flashd")
    m.wait("the reload's log line", lambda: "log-level" in m.told("journalctl", "-u", "flashd", "--no-pager"))
    assert m.property("MainPID") == first and m.status_of("/health") == "200"
    say("reload: the configuration is read again by the same process")


def show_stop(m):
    stop = m.begin("systemctl", "stop", "flashd")
    m.wait("the lame duck", lambda: m.status_of("/health") == "503")
    body = json.dumps({"prompt": "Once", "max_tokens": 4})
    asked = m.status_of("/v1/completions", "-H", "Authorization: Bearer first-key", "-H", "Content-Type: application/json", "-d", body)
    assert stop.poll() is None and asked == "200", asked
    assert stop.wait(120) == 0 and m.property("Result") == "success" and m.property("ExecMainStatus") == "0"
    say("stop: /health is 503 while a request is still answered, then it ends with 0")


def show_watchdog(m):
    m.must("systemctl", "start", "flashd")
    first = m.property("MainPID")
    m.must("sh", "-c", "kill -STOP " + first)
    m.wait("the watchdog", lambda: m.property("NRestarts") == "1" and m.property("SubState") == "running")
    assert m.property("MainPID") != first and m.status_of("/health") == "200"
    say("watchdog: a loop that stands still is ended and started again")
    m.must("systemctl", "stop", "flashd")


def show_socket(m):
    m.must("systemctl", "start", "flashd.socket")
    assert m.property("SubState") == "dead"
    asked = m.status_of("/v1/models", "-H", "Authorization: Bearer first-key")
    assert asked == "200" and m.property("SubState") == "running", asked
    restart = m.begin("systemctl", "restart", "flashd")
    refused = 0
    while restart.poll() is None:
        refused += m.status_of("/v1/models", "-H", "Authorization: Bearer first-key") == "000"
    assert restart.returncode == 0 and refused == 0, refused
    say("socket: the first client starts it, and no client is refused over a restart")
    m.must("systemctl", "stop", "flashd.socket", "flashd.service")


def show_purge(m):
    m.must("systemctl", "start", "flashd")
    m.must("apt-get", "purge", "-y", "-qq", "flashd")
    assert m.property("SubState") in ("dead", "failed") and m.status_of("/health") == "000"
    left = m.told("find", "/etc/flashd", "/var/lib/flashd", "/usr/bin/flashd", "/lib/systemd/system/flashd.service", "/usr/share/doc/flashd")
    assert left == "", left
    say("purge: stopped, nothing left")


def main():
    roots.FOLDER.mkdir(parents=True, exist_ok=True)
    root = roots.copy(roots.make_base(roots.FOLDER / "base"), roots.FOLDER / "booted")
    install(root)
    say("installed: " + (root / "usr/bin/flashd").name)
    m = Machine(root, UNIFIED / f"flashd-{os.getpid()}")
    try:
        say("process 1: " + m.told("systemctl", "--version").splitlines()[0])
        for show in (show_start, show_reload, show_stop, show_watchdog, show_socket, show_purge):
            show(m)
    finally:
        (roots.FOLDER / "journal.log").write_text(m.told("journalctl", "--no-pager"))
        m.stop()


if __name__ == "__main__":
    main()
