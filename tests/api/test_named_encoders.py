"""Encoders of BERT's layers under other names, and checkpoints that were saved with a head that guesses words: embeddings and scores against transformers,
alone and beside others, and what is refused."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import conftest
from test_cross_encoders import scores, sigmoid
from test_embeddings import rows, same
from test_encoders import check

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder  # noqa: E402
import encoder_llama as llama  # noqa: E402
import encoder_named as named  # noqa: E402
import encoder_rotating as rotating  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())
OLD_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))


@pytest.mark.parametrize("kind", named.KINDS)
def test_means_are_transformers(start_server, tmp_path, kind):
    """Of a model with a head that guesses words, too; the same bits alone and in a batch; texts are its tokenizer's."""
    lists = named.KINDS[kind]["lists"]
    named.write(tmp_path / "m", kind, pooling="mean")
    named.write(tmp_path / "words", kind, "ForMaskedLM", pooling="mean")
    with start_server(model=tmp_path / "m") as server:
        got = rows(server, lists, normalize=False)
        check(got, GOLDENS[kind + "_mean"])
        assert same(got, [rows(server, [ids], normalize=False)[0] for ids in lists]) and same(got[::-1], rows(server, lists[::-1], normalize=False))
        ids = [server.post("/tokenize", {"prompt": text, "parse_special": False}).json()["tokens"] for text in encoder.DOCUMENTS]
        assert ids == GOLDENS[kind + "_ids"]
        assert same(rows(server, encoder.DOCUMENTS), rows(server, ids))
    with start_server("--cpu-isa", "portable", model=tmp_path / "words") as server:
        check(rows(server, lists, normalize=False), GOLDENS[kind + "_mean"])


def test_electra_that_tells_words_apart(start_server, tmp_path):
    named.write(tmp_path / "m", "electra", "ForPreTraining", pooling="mean")
    with start_server(model=tmp_path / "m") as server:
        check(rows(server, encoder.LISTS, normalize=False), GOLDENS["electra_mean"])


@pytest.mark.parametrize("kind", named.KINDS)
def test_scores_are_transformers(start_server, tmp_path, kind):
    named.write(tmp_path / "m", kind, "ForSequenceClassification")
    with start_server(model=tmp_path / "m") as server:
        got, num_tokens = scores(server, encoder.QUERY, encoder.DOCUMENTS)
        assert num_tokens == sum(n for n, _ in GOLDENS[kind + "_scores"])
        assert all(math.isclose(mine, sigmoid(theirs), abs_tol=1e-5) for mine, (_, theirs) in zip(got, GOLDENS[kind + "_scores"]))
        assert [scores(server, encoder.QUERY, text)[0][0] for text in encoder.DOCUMENTS] == got


@pytest.mark.parametrize("name, names", [("BertForMaskedLM", ()), ("BertForPreTraining", OLD_NAMES), ("RobertaForMaskedLM", ()), ("XLMRobertaForMaskedLM", ())])
def test_heads_that_guess_words_are_passed_over(start_server, tmp_path, monkeypatch, name, names):
    """Norms of BERT's first checkpoints have gamma and beta."""
    write, is_roberta = encoder.write_safetensors, "Roberta" in name

    def write_more(path, values):
        write(path, {"cls.predictions.bias": np.zeros(7, np.float32), **{encoder.gguf_name(n, names): v for n, v in values.items()}})

    monkeypatch.setattr(encoder, "write_safetensors", write_more)
    encoder.write_directory(tmp_path / "m", "mean", prefix="roberta." if is_roberta else "bert.", roberta=name if is_roberta else None)
    config = json.loads((tmp_path / "m/config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps(dict(config, architectures=[name])))
    with start_server(model=tmp_path / "m") as server:
        lists = encoder.ROBERTA_LISTS if is_roberta else encoder.LISTS
        check(rows(server, lists, normalize=False), GOLDENS["roberta" if is_roberta else "mean"])


@pytest.mark.parametrize("name, module, write, lists, golden", [
    ("ModernBertForMaskedLM", rotating, rotating.write_modern, rotating.MODERN_LISTS, "modern_mean"),
    ("EuroBertForMaskedLM", llama, lambda path, pooling, **changes: llama.write(path, "eurobert", pooling, **changes), llama.LISTS, "eurobert_mean")])
def test_other_heads_that_guess_words_are_passed_over(start_server, tmp_path, monkeypatch, name, module, write, lists, golden):
    """Of rotating encoders, as ModernBERT and EuroBERT are published."""
    own = module.write_safetensors
    monkeypatch.setattr(module, "write_safetensors", lambda path, values: own(
        path, {"decoder.bias": np.zeros(7, np.float32), **{"model." + n: v for n, v in values.items()}}))
    write(tmp_path / "m", "mean", architectures=[name])
    with start_server(model=tmp_path / "m") as server:
        check(rows(server, lists, normalize=False), GOLDENS[golden])


BIAS = "encoder.relative_attention_bias.weight"


def refused(path):
    done = subprocess.run([conftest.BINARY, "serve", path, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("kind, what, change, changes, why", [
    ("camembert", "Model", lambda v: v.pop("encoder.layer.1.output.LayerNorm.bias"), {}, "encoder.layer.1.output.LayerNorm.bias is missing"),
    ("camembert", "ForSequenceClassification", lambda v: v.pop("classifier.dense.bias"), {}, "classifier.dense.bias is missing"),
    ("distilbert", "Model", lambda v: v.pop("transformer.layer.1.attention.k_lin.bias"), {}, "transformer.layer.1.attention.k_lin.bias is missing"),
    ("distilbert", "Model", lambda v: None, {"activation": "relu"}, 'activation "relu" is not supported'),
    ("distilbert", "Model", lambda v: None, {"dim": 70}, "hidden_size 70 is no multiple of"),
    ("electra", "Model", lambda v: None, {"embedding_size": 36}, "embedding_size is not supported unless it is hidden_size, 72"),
    ("mpnet", "Model", lambda v: None, {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets is not supported unless it is 32"),
    ("mpnet", "Model", lambda v: v.pop(BIAS), {}, BIAS + " is missing"),
    ("mpnet", "Model", lambda v: v.update({BIAS: v[BIAS][:, 1:]}), {}, BIAS + " is 32 x 5 where the config asks for 32 x 6"),
    ("camembert", "ForSequenceClassification", lambda v: None, {"id2label": None}, "a head of 2 labels is not supported"),
])
def test_what_does_not_start(tmp_path, kind, what, change, changes, why):
    named.write(tmp_path / "m", kind, what, pooling="mean", change=change, **changes)
    assert why in refused(tmp_path / "m")
