"""Processors that this machine is not: one with AVX2 but no AVX-512, one with SSE4.2 only, both emulated by qemu-user.

An instruction that the emulated processor lacks ends the program. AddressSanitizer's shadow memory does not fit into the
emulator; what the sanitizers' builds may execute is read from their instructions instead (tests/check/baseline.py).
"""

import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, SANITIZED, Server

SETS = {"Haswell-noTSX": "avx2", "Westmere": "portable"}
PROGRAMS = ("kernels/test_linear_table", "kernels/test_linear_amx", "kernels/test_linear_vnni", "kernels/test_thread_pool")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(SANITIZED, reason="runs the plain build")]
emulates = pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="no qemu-user")


def test_only_the_sets_have_their_instructions():
    subprocess.run([sys.executable, "tests/check/baseline.py"], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def programs():
    paths = {name: f"build/tests/{name}" for name in PROGRAMS}
    subprocess.run(["make", "-s", *paths.values()], cwd=ROOT, check=True)
    return paths


@emulates
@pytest.mark.parametrize("cpu", SETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(programs, name, cpu):
    command = ["qemu-x86_64", "-cpu", cpu, programs[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def first_tokens(*options, emulator=()):
    """Text and log probabilities of two greedy tokens. The engine is a thread: another process would not be emulated. The
    server is killed: a signal that interrupts epoll_wait ends the emulator of Debian 12."""
    server = Server("--engine", "thread", *options, emulator=emulator)
    try:
        body = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0, "logprobs": 5}
        choice = server.post("/v1/completions", body).json()["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]
    finally:
        server.process.kill()
        server.process.wait()
        server.log_file.close()


@emulates
@pytest.mark.parametrize("cpu", SETS)
def test_the_server_answers_as_its_set_does_here(cpu):
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if SETS[cpu] not in ("portable", *flags.split()):
        pytest.skip(f"no {SETS[cpu]} on this machine")
    text, logprobs = first_tokens("--cpu-isa", SETS[cpu])
    emulated_text, emulated_logprobs = first_tokens(emulator=("qemu-x86_64", "-cpu", cpu))
    assert emulated_text == text
    # the C library's own functions may round differently without fused multiply-add
    assert emulated_logprobs == pytest.approx(logprobs, abs=1e-5)
