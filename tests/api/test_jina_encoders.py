"""Encoders of Jina's kind (ALiBi on both sides, GEGLU; norms of q and k, and two behind attention): embeddings against their own code, as directories and
as GGUF files, alone and beside others, and what is refused."""

import concurrent.futures
import json
import subprocess
import sys

import pytest

import conftest
from test_embeddings import rows, same
from test_encoders import TEXTS, check

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder_jina as jina  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())


def refused(path):
    done = subprocess.run([conftest.BINARY, "serve", path, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("kind", jina.KINDS)
def test_means_are_those_of_its_own_code(start_server, tmp_path, kind):
    """Under the names of a model with a head, too; a GGUF file, of which there are two forms, is the directory."""
    jina.write(tmp_path / "m", "mean", kind)
    jina.write(tmp_path / "prefixed", "mean", kind, prefix="bert.", architectures=["JinaBertModel"])
    with start_server(model=tmp_path / "m") as server:
        got, by_text = rows(server, jina.LISTS, normalize=False), rows(server, TEXTS)
    check(got, GOLDENS[kind + "_mean"])
    with start_server("--cpu-isa", "portable", model=tmp_path / "prefixed") as server:
        check(rows(server, jina.LISTS, normalize=False), GOLDENS[kind + "_mean"])
    for is_apart in (False, True):
        jina.write_gguf(tmp_path / "m.gguf", 1, kind, is_apart)
        with start_server(model=tmp_path / "m.gguf") as server:
            assert same(got, rows(server, jina.LISTS, normalize=False)) and same(by_text, rows(server, TEXTS))


@pytest.mark.parametrize("kind", jina.KINDS)
def test_the_same_bits_beside_others(start_server, tmp_path, kind):
    jina.write(tmp_path / "m", "cls", kind)
    with start_server("--max-num-batched-tokens", "320", model=tmp_path / "m") as server:
        alone = [rows(server, [ids])[0] for ids in jina.LISTS]
        assert same(alone, rows(server, jina.LISTS)) and same(alone, rows(server, jina.LISTS[::-1])[::-1])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: rows(server, jina.LISTS[n % 3:] + jina.LISTS[: n % 3]), range(12)))
        for n, answer in enumerate(answers):
            assert same(alone[n % 3:] + alone[: n % 3], answer)


LAYER = "encoder.layer.1."


@pytest.mark.parametrize("kind, change, changes, why", [
    ("jina", None, {"feed_forward_type": "reglu"}, 'feed_forward_type is not supported unless it is "geglu"'),
    ("jina", None, {"position_embedding_type": "absolute"}, '"absolute" is not supported; "alibi" is'),
    ("jina", None, {"architectures": ["JinaBertForSequenceClassification"]}, "it needs slopes of ALiBi of its own"),
    ("jina", None, {"hidden_act": "relu"}, 'hidden_act "relu" is not supported'),
    ("jina", None, {"num_attention_heads": 5}, "hidden_size 72 is no multiple of"),
    ("jina", lambda v: v.pop(LAYER + "mlp.wo.bias"), {}, LAYER + "mlp.wo.bias is missing"),
    ("jina", lambda v: v.update({LAYER + "mlp.gated_layers.weight": v[LAYER + "mlp.gated_layers.weight"][1:]}), {}, "gated_layers.weight is 399 x 72"),
    ("jina_code", lambda v: v.pop(LAYER + "attention.self.layer_norm_k.bias"), {}, LAYER + "attention.self.layer_norm_k.bias is missing"),
    ("jina_code", lambda v: v.pop(LAYER + "layer_norm_1.weight"), {}, LAYER + "layer_norm_1.weight is missing"),
    ("jina_code", lambda v: v.update({LAYER + "attention.self.layer_norm_q.weight": v[LAYER + "attention.self.layer_norm_q.weight"][1:]}), {},
     "layer_norm_q.weight is 1 x 71"),
])
def test_what_does_not_start(tmp_path, kind, change, changes, why):
    jina.write(tmp_path / "m", "mean", kind, **({"change": change} if change else {}), **changes)
    assert why in refused(tmp_path / "m")


@pytest.mark.parametrize("kind, change, why", [
    ("jina", lambda named: [(n, v[1:] if n == "blk.1.ffn_up.weight" else v) for n, v in named], "blk.1.ffn_up.weight is 399 x 72"),
    ("jina", lambda named: named + [("blk.0.ffn_gate.weight", named[-1][1])], "blk.0.ffn_gate.weight is 1 x 72"),
    ("jina_code", lambda named: [t for t in named if t[0] != "blk.1.attn_norm_2.bias"], "blk.1.attn_norm_2.bias is missing"),
    ("jina_code", lambda named: [t for t in named if t[0] != "blk.0.attn_k_norm.weight"], "blk.0.attn_k_norm.weight is missing"),
])
def test_gguf_files_that_do_not_start(tmp_path, monkeypatch, kind, change, why):
    write = jina.encoder.write_gguf_file
    monkeypatch.setattr(jina.encoder, "write_gguf_file", lambda path, keys, named: write(path, keys, change(list(named))))
    jina.write_gguf(tmp_path / "m.gguf", 1, kind)
    assert why in refused(tmp_path / "m.gguf")


def test_rerankers_are_refused(tmp_path):
    jina.write_gguf(tmp_path / "m.gguf", 4, "jina")
    assert "a reranker of the architecture jina-bert-v2 is not supported" in refused(tmp_path / "m.gguf")
