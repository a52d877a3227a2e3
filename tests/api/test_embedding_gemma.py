"""EmbeddingGemma's kind: Gemma 3's layers that see both sides, a mean, dense layers behind it; against transformers, alone and beside
others, as a directory and as GGUF, and what is refused."""

import concurrent.futures
import json
import subprocess
import sys

import numpy as np
import pytest

import conftest
from test_embeddings import embed, floats, rows, same
from test_encoders import check

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder_gemma as gemma  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())
TEXTS = ["the sky is blue.", "why over overly skys", "x", "the sky is over " * 15]


@pytest.fixture(scope="module")
def server(serve_written):
    yield from serve_written(gemma.write, "--max-num-batched-tokens", "32", name="some-embedder")


def through(goldens, dense=gemma.DENSE):
    return [gemma.through_dense(row, dense) for row in goldens]


def test_it_is_transformers(server, start_server, tmp_path):
    """Texts that are longer than the window, and as long as it; both forms of its config.json; with and without dense layers."""
    got = rows(server, gemma.LISTS, normalize=False)
    assert len(got[0]) == 50
    check(got, through(GOLDENS["gemma_mean"]))
    gemma.write(tmp_path / "plain", dense=(), saved=True)
    gemma.write(tmp_path / "first", "cls", dense=gemma.TANH)
    for name, expected in (("plain", GOLDENS["gemma_mean"]), ("first", through(GOLDENS["gemma_first"], gemma.TANH))):
        with start_server("--cpu-isa", "portable", model=tmp_path / name) as other:
            check(rows(other, gemma.LISTS, normalize=False), expected)


def test_a_gguf_file_is_the_same_model(server, start_server, tmp_path):
    gemma.write_gguf(tmp_path / "m.gguf")
    gemma.write_gguf(tmp_path / "plain.gguf", dense=())
    with start_server(model=tmp_path / "m.gguf") as file:
        assert same(rows(server, gemma.LISTS, normalize=False), rows(file, gemma.LISTS, normalize=False))
        assert same(rows(server, TEXTS), rows(file, TEXTS))
    with start_server(model=tmp_path / "plain.gguf") as file:
        check(rows(file, gemma.LISTS, normalize=False), GOLDENS["gemma_mean"])


def test_the_same_bits_beside_others(server):
    alone = [rows(server, [ids])[0] for ids in gemma.LISTS]
    assert same(alone, rows(server, gemma.LISTS)) and same(alone, rows(server, gemma.LISTS[::-1])[::-1])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: rows(server, gemma.LISTS[n % 3:] + gemma.LISTS[: n % 3]), range(24)))
    for n, answer in enumerate(answers):
        assert same(alone[n % 3:] + alone[: n % 3], answer)


def test_dimensions_are_those_behind_the_dense_layers(server):
    whole = rows(server, TEXTS[:1], normalize=False)[0].astype(float)
    unit = rows(server, TEXTS[:1])[0].astype(float)
    assert len(whole) == 50 and np.abs(unit - whole / np.linalg.norm(whole)).max() < 1e-6
    cut = floats(embed(server, {"input": TEXTS[:1], "dimensions": 8})["data"][0]["embedding"])
    assert np.abs(cut - whole[:8] / np.linalg.norm(whole[:8])).max() < 1e-6
    answer = server.post("/v1/embeddings", {"input": "x", "dimensions": 51})
    assert answer.status_code == 400 and "from 1 to 50" in answer.json()["error"]["message"], answer.text


def test_it_generates_nothing(server):
    answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    assert answer.status_code == 400 and "makes embeddings and nothing else" in answer.json()["error"]["message"]


def refusal(path):
    done = subprocess.run([conftest.BINARY, "serve", path, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("changes, why", [
    ({"use_bidirectional_attention": False}, "use_bidirectional_attention is false"),
    ({"architectures": ["Gemma3ForCausalLM"]}, "use_bidirectional_attention is true"),
])
def test_what_is_refused(changes, why, tmp_path):
    gemma.write(tmp_path / "m", **changes)
    assert why in refusal(tmp_path / "m")


@pytest.mark.parametrize("dense, spoil, why", [
    ((("2_Dense", 71, 50, False, "Identity"),), None, "takes 71 values where there are 72"),
    ((("2_Dense", 72, 20000, False, "Identity"),), None, "gives 20000 values; up to 16384"),
    (gemma.DENSE, "missing", "2_Dense/: tensor linear.weight is missing"),
    (gemma.DENSE, "shape", "other than the 150 x 72"),
    (gemma.DENSE, "file", "3_Dense/"),
])
def test_dense_layers_that_do_not_fit(dense, spoil, why, tmp_path):
    gemma.write(tmp_path / "m", dense=dense)
    folder = tmp_path / "m" / "2_Dense"
    if spoil == "missing":
        gemma.write_safetensors(folder / "model.safetensors", {"weight": np.zeros((150, 72), np.float32)})
    elif spoil == "shape":
        gemma.write_safetensors(folder / "model.safetensors", {"linear.weight": np.zeros((72, 150), np.float32)})
    elif spoil == "file":
        (tmp_path / "m" / "3_Dense" / "model.safetensors").unlink()
    assert why in refusal(tmp_path / "m")


def test_dense_layers_that_are_not_known(tmp_path, start_server):
    """The model is served, and says at a request that it has no such embedding."""
    gemma.write(tmp_path / "m", dense=(("2_Dense", 72, 50, False, "GELU"),))
    with start_server(model=tmp_path / "m") as server:
        answer = server.post("/v1/embeddings", {"input": "x"})
        assert answer.status_code == 400, answer.text


def test_random_weights(start_server, tmp_path):
    gemma.write(tmp_path / "m")
    with start_server("--load-format", "dummy", model=tmp_path / "m") as server:
        row = rows(server, ["x"])[0]
        assert len(row) == 50 and abs(np.linalg.norm(row.astype(float)) - 1) < 1e-5
