"""Encoders of Llama's kind: EuroBERT, NVIDIA's embedders, and decoders whose config.json has is_causal false; against transformers, alone and beside
others, and what is refused."""

import json
import subprocess
import sys

import pytest

import conftest
from test_embeddings import rows, same
from test_encoders import check

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder_llama as llama  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())


@pytest.mark.parametrize("kind, pooling", [("eurobert", "mean"), ("llama", "mean"), ("qwen2", "mean"), ("qwen2", "lasttoken")])
def test_it_is_transformers(start_server, tmp_path, kind, pooling):
    llama.write(tmp_path / "m", kind, pooling)
    expected = GOLDENS["%s_%s" % (kind, pooling.removesuffix("token"))]
    with start_server("--cpu-isa", "portable", model=tmp_path / "m") as server:
        check(rows(server, llama.LISTS, normalize=False), expected)
        alone = [rows(server, [ids])[0] for ids in llama.LISTS]
        assert same(alone, rows(server, llama.LISTS)) and same(alone, rows(server, llama.LISTS[::-1])[::-1])


def test_a_gguf_file_is_the_same_model(start_server, tmp_path):
    llama.write_gguf(tmp_path / "m.gguf")
    with start_server("--cpu-isa", "portable", model=tmp_path / "m.gguf") as server:
        check(rows(server, llama.LISTS, normalize=False), GOLDENS["llama_mean"])


@pytest.mark.parametrize("changes", [{"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 0}])
def test_windows_are_refused(tmp_path, changes):
    llama.write(tmp_path / "m", "qwen2", **changes)
    run = subprocess.run([conftest.BINARY, "inspect", str(tmp_path / "m")], capture_output=True, text=True)
    assert run.returncode != 0 and "is_causal is false" in run.stderr
