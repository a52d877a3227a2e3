"""Decoders with a head that scores pairs: scores against transformers, with a template and without, alone and beside others, and what is refused."""

import json
import math
import subprocess
import sys

import pytest

import conftest
from test_cross_encoders import post, scores, sigmoid

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import decoder_scores as decoders  # noqa: E402
from encoder import DOCUMENTS, QUERY  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())
PLAIN = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
QWEN3_TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only "
    "be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n")


@pytest.fixture(scope="module")
def qwen3(serve_written):
    """Prompts in several steps."""
    yield from serve_written(lambda folder: decoders.write(folder, "Qwen3"), "--kv-cache-dtype", "f32", "--max-num-batched-tokens", "48")


@pytest.mark.parametrize("kind", decoders.KINDS)
def test_scores_are_transformers(start_server, tmp_path, kind):
    decoders.write(tmp_path / "m", kind, **PLAIN)
    with start_server("--cpu-isa", "portable", "--kv-cache-dtype", "f32", model=tmp_path / "m") as server:
        got, num_tokens = scores(server, QUERY, DOCUMENTS)
        expected = GOLDENS[kind.lower() + "_scores"]
        assert num_tokens == sum(n for n, _ in expected)
        assert [mine for mine, (_, theirs) in zip(got, expected) if abs(mine - theirs) > 1e-4] == []


def test_the_sigmoid_and_the_same_bits_beside_others(qwen3):
    together = scores(qwen3, QUERY, DOCUMENTS)[0]
    assert all(abs(mine - sigmoid(theirs)) < 1e-4 for mine, (_, theirs) in zip(together, GOLDENS["qwen3_scores"]))
    assert [scores(qwen3, QUERY, document)[0][0] for document in DOCUMENTS] == together
    assert scores(qwen3, QUERY, DOCUMENTS[::-1])[0] == together[::-1]
    ranked = post(qwen3, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS})["results"]
    assert [r["relevance_score"] for r in ranked] == sorted(together, reverse=True)
    assert all(r["relevance_score"] == together[r["index"]] for r in ranked)


def test_templates(qwen3, start_server, tmp_path):
    """A file's, for which there need be no tokens of yes and no; that of Qwen3-Reranker by the name, unless it is off."""
    for name, template in (("a", "{query}{document}"), ("b", QWEN3_TEMPLATE)):
        (tmp_path / name).write_text(template)
    decoders.write(tmp_path / "Qwen3-Reranker-0.6B-seq-cls", "Qwen3")
    model, found = tmp_path / "Qwen3-Reranker-0.6B-seq-cls", {}
    for option in ("auto", "off", str(tmp_path / "a"), str(tmp_path / "b")):
        with start_server("--kv-cache-dtype", "f32", "--rerank-template", option, model=model) as server:
            found[option] = scores(server, QUERY, DOCUMENTS)
            assert server.post("/v1/rerank", {"query": "a", "documents": ["b"], "instruction": "c"}).status_code == (400 if option == "off" else 200)
    assert found["off"] == scores(qwen3, QUERY, DOCUMENTS) != found["auto"]
    assert found["auto"] == found[str(tmp_path / "b")]
    assert math.isclose(found[str(tmp_path / "a")][0][2], found["off"][0][2])  # no document: one text


def test_it_does_nothing_else(qwen3):
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/v1/completions", {"prompt": "a"}), ("/api/embed", {"input": "a"}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
        answer = qwen3.post(path, body)
        assert answer.status_code == 400 and "scores pairs of texts" in answer.text, answer.text
    qwen3.wait_idle()


@pytest.mark.parametrize("kind, changes, why", [
    ("Qwen3", {"id2label": None}, "a head of 2 labels is not supported"),
    ("Llama", {"id2label": {"0": "a", "1": "b", "2": "c"}}, "a head of 3 labels is not supported"),
    ("Qwen2", {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, "are not supported; Sigmoid and"),
    ("Llama", None, "its tokenizer has no form for pairs"),
])
def test_what_does_not_start(tmp_path, kind, changes, why):
    decoders.write(tmp_path / "m", kind, **(changes or {}))
    if changes is None:
        tokenizer = decoders.tokenizer(kind)
        tokenizer["post_processor"]["pair"] = []
        (tmp_path / "m/tokenizer.json").write_text(json.dumps(tokenizer))
    done = subprocess.run([conftest.BINARY, "serve", tmp_path / "m", "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and why in done.stderr, done.stderr
