"""flashd's tokenizer against Hugging Face's: SmolLM2's over 20,000 texts, and each pre-tokenizer and setting over fewer.

With FLASHD_TOKENIZERS set to a directory of tokenizers (see compare_tokenizers.py) those are compared too."""
import argparse
import os
import pathlib
import subprocess

import pytest

import compare_tokenizers as compare

ROOT = pathlib.Path(__file__).resolve().parents[2]
GGUF = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
PROGRAM = ROOT / "build/tests/golden/tokenize_main"


@pytest.fixture(scope="module")
def program():
    subprocess.run(["make", "-s", str(PROGRAM.relative_to(ROOT))], cwd=ROOT, check=True)
    return str(PROGRAM)


def num_differences(case, program, count):
    options = argparse.Namespace(program=program, count=count, quick=True, measure=False)
    return compare.compare(case, options, compare.project_sources())


def test_smollm2(program):
    case = compare.Case(GGUF.stem, compare.smollm_from_gguf(GGUF), GGUF)
    assert num_differences(case, program, 20000) == 0


def test_variants(program, tmp_path):
    cases = list(compare.own_cases(GGUF, tmp_path, compare.project_sources()))[1:]
    assert len(cases) >= 12
    for case in cases:
        assert num_differences(case, program, 400) == 0


@pytest.mark.skipif("FLASHD_TOKENIZERS" not in os.environ, reason="FLASHD_TOKENIZERS is not set")
def test_given(program, tmp_path):
    for directory in sorted(pathlib.Path(os.environ["FLASHD_TOKENIZERS"]).iterdir()):
        for case in compare.given_cases(directory, tmp_path):
            assert num_differences(case, program, 20000) == 0
