#!/usr/bin/env python3
"""image.py [DOCKERFILE] - every step of a Dockerfile, in order, in roots of Debian 12 instead of images; then its entry point with a model.

What a step of docker's builder would do: FROM (debian:12-slim, or an earlier stage), WORKDIR, COPY (of the files that git has, or of a
stage), RUN, USER, ENV; ARG, EXPOSE and STOPSIGNAL are noted. In the end the container's command serves tests' model as its user, in a network
of its own, HEALTHCHECK's command must hold, and STOPSIGNAL must end it with 0. Needs root, debootstrap and Debian's packages: 5 to
15 minutes, Dockerfile.cuda longer.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import root as roots

MODEL = roots.ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def instructions(path):
    text = re.sub(r"\\\n", " ", "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")))
    for line in text.splitlines():
        if line.strip():
            yield line.strip().split(None, 1)


class Stage:
    def __init__(self, name, root):
        self.name, self.root, self.folder, self.env, self.user = name, root, "/", {}, None
        self.command, self.entry, self.health, self.stop = [], [], None, "SIGTERM"

    def run(self, words, **options):
        return roots.run(self.root, *words, env=self.env, user=self.user, **options)


def trust_proxy(stage):
    """A builder behind a proxy that reads along has its certificate."""
    if "PIP_CERT" in os.environ:
        shutil.copy(os.environ["PIP_CERT"], stage.root / "etc/pip-cert.pem")
        stage.env["PIP_CERT"] = "/etc/pip-cert.pem"


def copy_sources(stage, target):
    """What git has, as a checkout would."""
    archive = subprocess.run(["git", "ls-files", "-z"], cwd=roots.ROOT, capture_output=True, check=True).stdout
    target.mkdir(parents=True, exist_ok=True)
    packed = subprocess.Popen(["tar", "--null", "-T-", "-c"], cwd=roots.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unpacked = subprocess.Popen(["tar", "-x", "--no-same-owner", "-C", str(target)], stdin=packed.stdout)
    packed.stdin.write(archive)
    packed.stdin.close()
    assert packed.wait() == 0 and unpacked.wait() == 0


def do(stages, word, rest, base):
    stage = stages[-1] if stages else None
    if word == "FROM":
        image, _, name = rest.partition(" AS ")
        earlier = {s.name: s.root for s in stages}
        assert image in earlier or image == "debian:12-slim", f"no root for {image}"
        root = roots.FOLDER / f"stage-{len(stages)}"
        stages.append(Stage(name, roots.copy(earlier.get(image, base), root)))
        trust_proxy(stages[-1])
    elif word == "WORKDIR":
        stage.folder = rest
        (stage.root / rest[1:]).mkdir(parents=True, exist_ok=True)
    elif word == "COPY" and rest.startswith("--from="):
        source, path, target = rest.removeprefix("--from=").split()
        found = next(s.root for s in stages if s.name == source) / path[1:]
        if found.is_dir():
            shutil.copytree(found, stage.root / target[1:], dirs_exist_ok=True, symlinks=True)
        else:
            (stage.root / target[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, stage.root / target[1:])
    elif word == "COPY":
        assert rest == ". .", f"COPY {rest}: not understood"
        copy_sources(stage, stage.root / stage.folder[1:])
    elif word == "RUN":
        stage.run(["sh", "-c", f"cd {stage.folder} && {rest}"], stdout=subprocess.DEVNULL)
    elif word == "ENV":
        stage.env.update(part.split("=", 1) for part in shlex.split(rest))
    elif word == "USER":
        stage.user = rest
    elif word in ("ENTRYPOINT", "CMD"):
        setattr(stage, {"ENTRYPOINT": "entry", "CMD": "command"}[word], json.loads(rest))
    elif word == "HEALTHCHECK":
        stage.health = rest.split("CMD ", 1)[1]
    elif word == "STOPSIGNAL":
        stage.stop = rest
    else:
        assert word in ("EXPOSE", "ARG"), f"{word}: not understood"


SERVE = r"""
"$@" serve /models/model.gguf --host 0.0.0.0 & server=$!
for i in $(seq 300); do if (%s) >/dev/null 2>&1; then healthy=yes; break; fi; kill -0 $server || exit 1; sleep 0.2; done
[ "$healthy" = yes ] || { echo "never healthy"; exit 1; }
curl -fsS http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once", "max_tokens": 4}' || exit 1
echo; id -u; kill -s %s $server; wait $server
"""


def serve(stage):
    (stage.root / "models").mkdir()
    shutil.copy(MODEL, stage.root / "models/model.gguf")
    stop = stage.stop.removeprefix("SIG")
    check = stage.health.replace("|| exit 1", "")
    done = stage.run(["sh", "-c", SERVE % (check, stop), "sh", *stage.entry], alone=True, capture_output=True, text=True)
    assert '"text_completion"' in done.stdout and f"\n{stage.user.split(':')[0]}\n" in done.stdout, done.stdout + done.stderr
    shown = stage.run([*stage.entry, *stage.command], capture_output=True, text=True)
    assert "usage:" in shown.stdout


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else roots.ROOT / "deploy/Dockerfile"
    stages, base = [], roots.make_base(roots.FOLDER / "base")
    for word, rest in instructions(path):
        begin = time.monotonic()
        do(stages, word, rest, base)
        print("%6.1f s  %s %s" % (time.monotonic() - begin, word, rest[:110]), flush=True)
    serve(stages[-1])
    print("serves as user %s, healthy, ends with 0 on %s" % (stages[-1].user, signal.Signals[stages[-1].stop].name))
    subprocess.run(["du", "-sh", str(stages[-1].root)], check=True)


if __name__ == "__main__":
    main()
