"""test_golden.py - SmolLM2's logits against Hugging Face transformers in float32 over the same dequantised GGUF file.

goldens.npz and greedy.npz were made by make_goldens.py (their `versions` say with what). FLASHD_GOLDEN_ALL=1 compares every
stored position and prompt; without it a part that fits into continuous integration.
"""
import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).parent
PROGRAM = ROOT / os.environ.get("FLASHD_BUILD", "build") / "tests/golden/logits"
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
EVERYTHING = os.environ.get("FLASHD_GOLDEN_ALL") == "1"

LOGIT_TOLERANCE = 2e-3  # portable set, K/V in f32
NEAR_TIE = 0.01  # below this gap of the reference's best two logits, greedy tokens may part


@pytest.fixture(scope="session")
def program():
    subprocess.run(["make", "-s", str(PROGRAM.relative_to(ROOT))], cwd=ROOT, check=True)
    return PROGRAM


@pytest.fixture(scope="session")
def goldens():
    return dict(np.load(HERE / "goldens.npz"))


def sequences(goldens, wanted):
    ends = np.cumsum(goldens["lengths"])
    return [np.arange(end - n, end) for i, (n, end) in enumerate(zip(goldens["lengths"], ends)) if i in wanted]


def run(program, lines, *options):
    text = "".join(" ".join(map(str, line)) + "\n" for line in lines)
    return subprocess.run([program, MODEL, *options], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


def logits_of(program, goldens, wanted, *options):
    rows = sequences(goldens, wanted)
    out = run(program, [goldens["ids"][r] for r in rows], *options)
    return np.concatenate(rows), np.frombuffer(out, np.float32).reshape(sum(map(len, rows)), -1)


def stored_difference(goldens, rows, logits):
    """Largest difference to the stored logits: 64 random ids and the reference's 8 best, at every position."""
    random_part = np.abs(logits[:, goldens["random_ids"]] - goldens["random_logits"][rows]).max()
    best = np.take_along_axis(logits, goldens["best_ids"][rows].astype(np.int64), axis=1)
    lse = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    return max(random_part, np.abs(best - goldens["best"][rows]).max(), np.abs(lse - goldens["lse"][rows]).max())


def test_portable_set_computes_the_reference(program, goldens):
    wanted = set(range(len(goldens["lengths"]))) if EVERYTHING else {3, 11}
    rows, logits = logits_of(program, goldens, wanted, "--isa", "portable", "--kv", "f32")
    difference = stored_difference(goldens, rows, logits)
    print(f"{len(rows)} positions, largest difference {difference:.2e}")
    assert len(rows) >= (2000 if EVERYTHING else 150)
    assert difference <= LOGIT_TOLERANCE


def test_default_set_is_close(program, goldens):
    """The quantised activations of the fast sets: the best token agrees almost always, and by little where not."""
    rows, logits = logits_of(program, goldens, set(range(len(goldens["lengths"]))))
    best = goldens["best_ids"][rows, 0]
    agree = logits.argmax(axis=1) == best
    given_up = logits.max(axis=1) - logits[np.arange(len(rows)), best]
    print(f"{len(rows)} positions, same best token {agree.mean():.4f}, most given up {given_up.max():.3f}")
    assert agree.mean() > 0.95
    assert given_up.max() < 1.0


def test_narrow_kv_is_close(program, goldens):
    """Mean KL divergence from K/V in f32: what activations of 8 bits make of small differences, and the type's own."""
    def log_probabilities(kv):
        x = logits_of(program, goldens, {3}, "--kv", kv)[1].astype(np.float64)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    p = log_probabilities("f32")
    for kv, most in ("int8", 0.02), ("fp8", 0.05):
        kl = (np.exp(p) * (p - log_probabilities(kv))).sum(axis=1).mean()
        print(f"{kv}: mean KL {kl:.2e}")
        assert 0 < kl < most


def check_greedy(program, wanted, *options):
    greedy = dict(np.load(HERE / "greedy.npz"))
    ends = np.cumsum(greedy["prompt_lengths"])
    prompts = [greedy["prompts"][e - n : e] for n, e in zip(greedy["prompt_lengths"], ends)]
    out = run(program, [prompts[i] for i in wanted], "--greedy", str(greedy["tokens"].shape[1]), *options)
    parted = 0
    for i, line in zip(wanted, out.decode().splitlines()):
        ids = np.array(line.split(), np.int32)
        different = np.flatnonzero(ids != greedy["tokens"][i])
        if len(different):
            parted += 1
            assert greedy["gaps"][i][different[0]] < NEAR_TIE, f"prompt {i} parts at token {different[0]}"
    print(f"{len(wanted)} prompts, {parted} part at a near-tie")


def test_portable_set_chooses_the_reference_tokens(program):
    check_greedy(program, list(range(32)) if EVERYTHING else [0, 5], "--isa", "portable", "--kv", "f32")


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_same_bits_however_the_prompt_is_cut(program, goldens, isa):
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if (isa if isa == "avx2" else "avx512bw") not in flags:
        pytest.skip(f"no {isa} on this machine")
    _, whole = logits_of(program, goldens, {0, 5}, "--isa", isa)
    for chunk in ("16", "64", "1"):
        _, cut = logits_of(program, goldens, {0, 5}, "--isa", isa, "--chunk", chunk, "--threads", "1")
        assert whole.tobytes() == cut.tobytes(), f"chunks of {chunk}"
