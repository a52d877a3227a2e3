"""Encoders with a head that scores pairs of texts: scores against transformers, alone and beside others, and what is refused."""

import concurrent.futures
import json
import math
import subprocess
import sys

import pytest

import conftest

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder  # noqa: E402
import encoder_roberta  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())
QUERY, DOCUMENTS = encoder.QUERY, encoder.DOCUMENTS
PLAIN = "torch.nn.modules.linear.Identity"


@pytest.fixture(scope="module")
def bert(serve_written):
    """Two types of tokens; scores are what the head gives."""
    yield from serve_written(lambda folder: encoder.write_scorer(folder, sentence_transformers={"activation_fn": PLAIN}),
                             "--max-num-batched-tokens", "320", name="some-reranker")


@pytest.fixture(scope="module")
def roberta(serve_written):
    yield from serve_written(lambda folder: encoder.write_scorer(folder, roberta=True), "--cpu-isa", "portable")


def post(server, path, body):
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def scores(server, query, documents):
    answer = post(server, "/v1/score", {"text_1": query, "text_2": documents})
    return [item["score"] for item in answer["data"]], answer["usage"]["prompt_tokens"]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_scores_are_transformers(bert, roberta):
    for server, goldens, made in ((bert, GOLDENS["bert_scores"], float), (roberta, GOLDENS["roberta_scores"], sigmoid)):
        got, num_tokens = scores(server, QUERY, DOCUMENTS)
        assert num_tokens == sum(n for n, _ in goldens)
        for mine, (_, theirs) in zip(got, goldens):
            assert abs(mine - made(theirs)) < 1e-5
        assert len(set(got)) == len(got)


def test_a_sigmoid_unless_the_file_says_otherwise(bert, start_server, tmp_path):
    for i, changes in enumerate(({}, {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}})):
        encoder.write_scorer(tmp_path / str(i), **changes)
        with start_server(model=tmp_path / str(i)) as server:
            got = scores(server, QUERY, DOCUMENTS)[0]
            assert all(math.isclose(a, sigmoid(b), abs_tol=1e-12) for a, b in zip(got, scores(bert, QUERY, DOCUMENTS)[0]))
    encoder.write_scorer(tmp_path / "old", sbert_ce_default_activation_function=PLAIN)
    with start_server(model=tmp_path / "old") as server:
        assert scores(server, QUERY, DOCUMENTS) == scores(bert, QUERY, DOCUMENTS)


def test_forms_of_pairs_by_name(bert, roberta, start_server, tmp_path):
    """Post-processors that name the two tokens and say no more."""
    ends = {"sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": True}
    for server, kind, processor in ((bert, "BertProcessing", {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}),
                                    (roberta, "RobertaProcessing", ends)):
        folder = tmp_path / kind
        changes = {"sentence_transformers": {"activation_fn": PLAIN}} if server is bert else {}
        encoder.write_scorer(folder, roberta=server is roberta, **changes)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["post_processor"] = dict(processor, type=kind)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        with start_server("--cpu-isa", "portable" if server is roberta else "auto", model=folder) as other:
            assert scores(other, QUERY, DOCUMENTS) == scores(server, QUERY, DOCUMENTS)


def test_a_gguf_file_is_the_same_model(bert, roberta, start_server, tmp_path):
    """One that says that it ranks, or nothing of what it makes."""
    expected = {"roberta": scores(roberta, QUERY, DOCUMENTS)[0], "bert": [sigmoid(x) for x in scores(bert, QUERY, DOCUMENTS)[0]]}
    for kind, options in (("roberta", ("--cpu-isa", "portable")), ("bert", ())):
        for pooling_type in (4, None):
            encoder.write_gguf(tmp_path / "m.gguf", pooling_type, roberta=kind == "roberta", head=True)
            with start_server(*options, model=tmp_path / "m.gguf") as server:
                got = scores(server, QUERY, DOCUMENTS)[0]
                assert all(math.isclose(a, b, abs_tol=1e-12) for a, b in zip(got, expected[kind]))


def test_roberta_with_byte_pairs(start_server, tmp_path):
    encoder_roberta.write(tmp_path / "r", head=True)
    encoder_roberta.write_gguf(tmp_path / "r.gguf", head=True)
    with start_server(model=tmp_path / "r") as server, start_server(model=tmp_path / "r.gguf") as file:
        got, num_tokens = scores(server, QUERY, DOCUMENTS)
        assert num_tokens == sum(n for n, _ in GOLDENS["bpe_scores"])
        assert all(abs(mine - sigmoid(theirs)) < 1e-5 for mine, (_, theirs) in zip(got, GOLDENS["bpe_scores"]))
        assert scores(file, QUERY, DOCUMENTS) == (got, num_tokens)


@pytest.mark.parametrize("change, why", [
    (lambda named: [t for t in named if t[0] != "cls.weight"], "without the tensor cls.weight is not supported"),
    (lambda named: [t for t in named if t[0] != "cls.output.weight"], "without the tensor cls.output.weight is not supported"),
    (lambda named: [(n, v.repeat(3, 0) if n == "cls.output.weight" else v) for n, v in named], "a head of 3 labels is not supported"),
    (lambda named: [(n, v[:, 1:] if n == "cls.output.weight" else v) for n, v in named], "tensor cls.output.weight is 1 x 71 where"),
    (lambda named: [(n, v[1:] if n == "cls.bias" else v) for n, v in named], "tensor cls.bias is 1 x 71 where"),
])
def test_heads_of_gguf_files_that_are_none(tmp_path, monkeypatch, change, why):
    write = encoder.write_gguf_file
    monkeypatch.setattr(encoder, "write_gguf_file", lambda path, keys, named: write(path, keys, change(list(named))))
    encoder.write_gguf(tmp_path / "m.gguf", 4, head=True)
    done = subprocess.run([conftest.BINARY, "serve", tmp_path / "m.gguf", "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and why in done.stderr, done.stderr


def test_rerank(bert, roberta):
    for server in (bert, roberta):
        whole = post(server, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS})["results"]
        by_index = [r["relevance_score"] for r in sorted(whole, key=lambda r: r["index"])]
        assert by_index == scores(server, QUERY, DOCUMENTS)[0]
        assert [r["relevance_score"] for r in whole] == sorted(by_index, reverse=True)
        assert all(r["document"]["text"] == DOCUMENTS[r["index"]] for r in whole)
        assert post(server, "/rerank", {"query": QUERY, "documents": DOCUMENTS, "top_n": 2})["results"] == whole[:2]


@pytest.mark.slow
def test_the_same_bits_beside_others(bert, roberta):
    for server in (bert, roberta):
        together = scores(server, QUERY, DOCUMENTS)[0]
        assert [scores(server, QUERY, d)[0][0] for d in DOCUMENTS] == together
        assert scores(server, QUERY, DOCUMENTS[::-1])[0] == together[::-1]
        pairs = post(server, "/score", {"queries": [QUERY] * len(DOCUMENTS), "documents": DOCUMENTS})
        assert [item["score"] for item in pairs["data"]] == together
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(answer[0] == together for answer in pool.map(lambda _: scores(server, QUERY, DOCUMENTS), range(24)))


def test_refusals(bert):
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/v1/completions", {"prompt": "a"}), ("/api/embed", {"input": "a"}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
        answer = bert.post(path, body)
        assert answer.status_code == 400 and "scores pairs of texts" in answer.text, answer.text
    for body, param, code in (({"instruction": "b"}, "instruction", "unsupported_parameter"),
                              ({"documents": ["a", "the " * 298]}, "documents[1]", "context_length_exceeded"),
                              ({"query": "the " * 100_000}, "documents[0]", "context_length_exceeded"),
                              ({"documents": [7]}, "documents[0]", "invalid_type")):
        answer = bert.post("/v1/rerank", {"query": "a", "documents": ["b"], **body})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == (param, code)
    assert len(scores(bert, "a", "the " * 296)[0]) == 1  # three control tokens and the query's one
    bert.wait_idle()


@pytest.mark.parametrize("options, changes, why", [
    ((), {"id2label": {"0": "a", "1": "b"}}, "a head of 2 labels is not supported"),
    ((), {"id2label": None}, "a head of 2 labels is not supported"),
    ((), {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, "are not supported; Sigmoid and"),
    (("--rerank-template", "FILE"), {}, "this encoder has a head that scores"),
    ((), None, "its tokenizer has no form for pairs"),
])
def test_what_does_not_start(tmp_path, options, changes, why):
    encoder.write_scorer(tmp_path / "m", **(changes or {}))
    (tmp_path / "template").write_text("{query} {document}")
    options = [str(tmp_path / "template") if option == "FILE" else option for option in options]
    if changes is None:
        tokenizer = encoder.tokenizer()
        tokenizer["post_processor"]["pair"] = []
        (tmp_path / "m/tokenizer.json").write_text(json.dumps(tokenizer))
    done = subprocess.run([conftest.BINARY, "serve", tmp_path / "m", "--port", "0", *options],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and why in done.stderr, done.stderr
