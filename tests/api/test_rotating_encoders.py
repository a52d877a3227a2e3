"""Encoders that rotate (ModernBERT, Nomic BERT, GTE): embeddings and scores against transformers, alone and beside others, the forms that their
files have, and what is refused."""

import concurrent.futures
import json
import subprocess
import sys

import pytest
import tokenizers

import conftest
from test_cross_encoders import scores, sigmoid
from test_embeddings import embed, floats, rows, same
from test_encoders import check

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder  # noqa: E402
import encoder_mixture as mixture  # noqa: E402
import encoder_rotating as rotating  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())
TEXTS = ["The sky is blue.", "the sky is blue", "caf\u00e9 cafe\u0301 \u5929\u5929 \U0001f642", "a      b\t\tc   \n\n  d", "I'll they've 12345", "x",
         "a |||IP_ADDRESS||| b <|padding|> [CLS] c [MASK] d", "", "   ", "the sky is over " * 15]


def refused(path):
    done = subprocess.run([conftest.BINARY, "serve", path, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def modern(serve_written):
    yield from serve_written(lambda folder: rotating.write_modern(folder, "cls"), "--max-num-batched-tokens", "32")


@pytest.fixture(scope="module")
def nomic(serve_written):
    yield from serve_written(lambda folder: rotating.write_nomic(folder, "mean"), "--cpu-isa", "portable")


@pytest.fixture(scope="module")
def scorer(serve_written):
    yield from serve_written(rotating.write_modern_scorer, name="some-reranker")


def test_modern_is_transformers(modern, start_server, tmp_path):
    """Texts that are longer than the local window, and as long as it; both forms of its config.json."""
    first = rows(modern, rotating.MODERN_LISTS, normalize=False)
    check(first, GOLDENS["modern_first"])
    rotating.write_modern(tmp_path / "saved", "cls", saved=True)
    rotating.write_modern(tmp_path / "mean", "mean")
    with start_server(model=tmp_path / "saved") as server:
        assert same(first, rows(server, rotating.MODERN_LISTS, normalize=False))
    with start_server("--cpu-isa", "portable", model=tmp_path / "mean") as server:
        check(rows(server, rotating.MODERN_LISTS, normalize=False), GOLDENS["modern_mean"])


@pytest.mark.parametrize("period", [3, None])
def test_modern_as_gguf(modern, start_server, tmp_path, period):
    """The directory's bits, of ids and of texts (that [MASK] takes the blank before it a GGUF file cannot say)."""
    texts = [text.replace(" [MASK]", "") for text in TEXTS]
    rotating.write_modern_gguf(tmp_path / "m.gguf", 2, period)
    with start_server(model=tmp_path / "m.gguf") as server:
        assert same(rows(modern, rotating.MODERN_LISTS), rows(server, rotating.MODERN_LISTS))
        assert same(rows(modern, texts), rows(server, texts))
        assert [server.post("/tokenize", {"prompt": t}).json()["tokens"] for t in texts] == [
            modern.post("/tokenize", {"prompt": t}).json()["tokens"] for t in texts]


def test_rerankers_of_modern_as_gguf(scorer, start_server, tmp_path):
    for pooling_type in (4, None):
        rotating.write_modern_gguf(tmp_path / "m.gguf", pooling_type, head=True)
        with start_server(model=tmp_path / "m.gguf") as server:
            assert scores(server, encoder.QUERY, encoder.DOCUMENTS) == scores(scorer, encoder.QUERY, encoder.DOCUMENTS)
    rotating.write_modern_gguf(tmp_path / "m.gguf", 4)
    assert "a reranker without the tensor cls.output.weight is not supported" in refused(tmp_path / "m.gguf")
    rotating.write_modern_gguf(tmp_path / "m.gguf", 1, activation="silu")
    assert 'modern-bert.hidden_activation is "silu", which is not supported; "gelu" is' in refused(tmp_path / "m.gguf")


def test_nomic_is_transformers(nomic, start_server, tmp_path):
    mean = rows(nomic, encoder.LISTS, normalize=False)
    check(mean, GOLDENS["nomic_mean"])
    rotating.write_nomic(tmp_path / "saved", "cls", saved=True)
    with start_server(model=tmp_path / "saved") as server:
        check(rows(server, encoder.LISTS, normalize=False), GOLDENS["nomic_first"])
    rotating.write_nomic_gguf(tmp_path / "m.gguf", 1)
    with start_server("--cpu-isa", "portable", model=tmp_path / "m.gguf") as server:
        assert same(mean, rows(server, encoder.LISTS, normalize=False)) and same(rows(nomic, TEXTS), rows(server, TEXTS))


def test_nomic_with_experts_is_its_own_code(start_server, tmp_path):
    """With a bias of what experts make together and without, which no GGUF file has; the same bits alone."""
    mixture.write(tmp_path / "m", "mean")
    with start_server("--cpu-isa", "portable", model=tmp_path / "m") as server:
        check(rows(server, mixture.LISTS, normalize=False), GOLDENS["mixture_mean"])
    mixture.write(tmp_path / "plain", "cls", has_bias=False)
    mixture.write_gguf(tmp_path / "m.gguf", 2)
    with start_server(model=tmp_path / "plain") as server, start_server(model=tmp_path / "m.gguf") as file:
        got = rows(server, mixture.LISTS, normalize=False)
        check(got, GOLDENS["mixture_plain_first"])
        assert same(got, [rows(server, [ids], normalize=False)[0] for ids in mixture.LISTS])
        assert same(got, rows(file, mixture.LISTS, normalize=False)) and same(rows(server, TEXTS), rows(file, TEXTS))


@pytest.mark.parametrize("change, changes, why", [
    (None, {"moe_every_n_layers": 1}, "moe_every_n_layers is supported from 2 on"),
    (None, {"moe_normalize_expert_weights": True}, "moe_normalize_expert_weights is set"),
    (None, {"expert_choice_router": True}, "expert_choice_router is set"),
    (None, {"mlp_fc1_bias": False}, "mlp_fc1_bias is false, which is not supported"),
    (None, {"activation_function": "swiglu"}, 'activation_function "swiglu" is not supported; "gelu" is'),
    (None, {"num_experts": None}, "the number of experts is missing"),
    (None, {"moe_top_k": 5}, "the number of experts of a token is 5"),
    (None, {"num_experts": 3}, "mlp.router.layer.weight is 4 x 72"),
    (lambda v: v.update({"encoder.layers.1.mlp.experts.mlp.w2": v["encoder.layers.1.mlp.experts.mlp.w2"][1:]}), {}, "the first of 4 experts"),
    (lambda v: v.update({"encoder.layers.1.mlp.experts.mlp.w2": v["encoder.layers.1.mlp.experts.mlp.w2"][:, 1:]}), {}, "mlp.experts.mlp.w2 is 71 x 200"),
    (lambda v: v.update({"encoder.layers.1.mlp.experts.mlp.w2": v["encoder.layers.1.mlp.experts.mlp.w2"][None]}), {}, "should have two dimensions"),
    (lambda v: v.update({"encoder.layers.1.mlp.experts.bias": v["encoder.layers.1.mlp.experts.bias"][1:]}), {}, "mlp.experts.bias is 1 x 71"),
    (lambda v: v.pop("encoder.layers.3.mlp.router.layer.weight"), {}, "encoder.layers.3.mlp.router.layer.weight is missing"),
])
def test_mixtures_that_do_not_start(tmp_path, change, changes, why):
    mixture.write(tmp_path / "m", "mean", **({"change": change} if change else {}), **changes)
    assert why in refused(tmp_path / "m")


@pytest.mark.parametrize("changes, why", [
    ({"moe_every_n_layers": 1}, "moe_every_n_layers is supported from 2 on"),
    ({"moe_every_n_layers": 1 << 31}, "moe_every_n_layers has the impossible value"),
    ({"moe_every_n_layers": 3}, "blk.3.ffn_up.weight is missing"),
    ({"expert_count": 1 << 30}, "experts"),
    ({"expert_count": None}, "expert_count is missing"),
    ({"expert_used_count": 5}, "the number of experts of a token is 5"),
    ({"pooling_type": 4}, "a reranker of the architecture nomic-bert-moe is not supported"),
])
def test_mixtures_as_gguf_that_do_not_start(tmp_path, changes, why):
    mixture.write_gguf(tmp_path / "m.gguf", **{"pooling_type": 1, **changes})
    assert why in refused(tmp_path / "m.gguf")


def test_gte_is_transformers(start_server, tmp_path):
    """By the rotation of its published files, and by that of transformers' own; a reranker of it; the same bits alone."""
    rotating.write_gte(tmp_path / "new", "cls")
    rotating.write_gte(tmp_path / "saved", "cls", saved=True)
    rotating.write_gte_scorer(tmp_path / "scorer")
    for name, isa, golden in (("new", "auto", "stretched_gte_first"), ("saved", "portable", "gte_first")):
        with start_server("--cpu-isa", isa, model=tmp_path / name) as server:
            got = rows(server, encoder.LISTS, normalize=False)
            check(got, GOLDENS[golden])
            assert same(got, [rows(server, [ids], normalize=False)[0] for ids in encoder.LISTS])
    with start_server(model=tmp_path / "scorer") as server:
        got, num_tokens = scores(server, encoder.QUERY, encoder.DOCUMENTS)
        assert num_tokens == sum(n for n, _ in GOLDENS["gte_scores"])
        assert all(abs(mine - sigmoid(theirs)) < 1e-5 for mine, (_, theirs) in zip(got, GOLDENS["gte_scores"]))


def test_scores_are_transformers(scorer, start_server, tmp_path):
    rotating.write_modern_scorer(tmp_path / "m", classifier_pooling="cls",
                                 sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
    with start_server("--cpu-isa", "portable", model=tmp_path / "m") as first:
        for server, goldens, made in ((scorer, GOLDENS["modern_scores_mean"], sigmoid), (first, GOLDENS["modern_scores_first"], float)):
            got, num_tokens = scores(server, encoder.QUERY, encoder.DOCUMENTS)
            assert num_tokens == sum(n for n, _ in goldens)
            for mine, (_, theirs) in zip(got, goldens):
                assert abs(mine - made(theirs)) < (1e-5 if server is scorer else 2e-5)  # of values up to 1, and up to 2
    ranked = scorer.post("/v1/rerank", {"query": encoder.QUERY, "documents": encoder.DOCUMENTS}).json()["results"]
    got = scores(scorer, encoder.QUERY, encoder.DOCUMENTS)[0]
    assert [r["relevance_score"] for r in ranked] == sorted(got, reverse=True)


@pytest.mark.slow
def test_the_same_bits_beside_others(modern, nomic, scorer):
    for server, lists in ((modern, rotating.MODERN_LISTS), (nomic, encoder.LISTS)):
        alone = [rows(server, [ids])[0] for ids in lists]
        assert same(alone, rows(server, lists)) and same(alone, rows(server, lists[::-1])[::-1])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: rows(server, lists[n % 3:] + lists[: n % 3]), range(24)))
        for n, answer in enumerate(answers):
            assert same(alone[n % 3:] + alone[: n % 3], answer)
    together = scores(scorer, encoder.QUERY, encoder.DOCUMENTS)[0]
    assert [scores(scorer, encoder.QUERY, d)[0][0] for d in encoder.DOCUMENTS] == together
    assert scores(scorer, encoder.QUERY, encoder.DOCUMENTS[::-1])[0] == together[::-1]


def test_texts_are_those_of_the_tokenizer(modern):
    """Bytes' pairs, NFC, runs of blanks that are tokens; control tokens in texts are text."""
    reader = tokenizers.Tokenizer.from_str(json.dumps(rotating.modern_tokenizer()))
    reader.encode_special_tokens = True
    expected = [reader.encode(text).ids for text in TEXTS]
    got = [modern.post("/tokenize", {"prompt": text, "parse_special": False}).json()["tokens"] for text in TEXTS]
    assert got == expected
    assert same(rows(modern, TEXTS), rows(modern, expected))
    assert embed(modern, {"input": TEXTS})["usage"]["prompt_tokens"] == sum(map(len, expected))


def test_what_is_too_long(modern, nomic, scorer, start_server, tmp_path):
    for server in (modern, nomic):
        assert len(rows(server, "x" + " x" * 148)) == 1
        answer = server.post("/v1/embeddings", {"input": "x " * 299})
        assert answer.status_code == 400 and "maximum context length is 300 tokens" in answer.json()["error"]["message"]
    answer = scorer.post("/v1/rerank", {"query": "x", "documents": ["x", "x " * 299]})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "documents[1]"
    rotating.write_nomic(tmp_path / "n", "mean", rotary_scaling_factor=2)  # its rotation would depend on the text's length from there on
    with start_server(model=tmp_path / "n") as server:
        lists = [ids for ids in encoder.LISTS if len(ids) <= 200]
        check(rows(server, lists, normalize=False), GOLDENS["nomic_mean"])
        assert "maximum context length is 200 tokens" in server.post("/v1/embeddings", {"input": [7] * 201}).text


def test_rerankers_of_nomic_bert_as_gguf_are_refused(tmp_path):
    rotating.write_nomic_gguf(tmp_path / "m.gguf", 4)
    assert "a reranker of the architecture nomic-bert is not supported" in refused(tmp_path / "m.gguf")


def test_shortened_embeddings(nomic):
    """Of a model whose first values are an embedding, too."""
    whole = rows(nomic, TEXTS[:1], normalize=False)[0][:8].astype(float)
    cut = [floats(item["embedding"]) for item in embed(nomic, {"input": TEXTS[:1], "dimensions": 8})["data"]][0]
    assert abs(cut - whole / (whole @ whole) ** 0.5).max() < 1e-6


@pytest.mark.parametrize("write, changes, why", [
    (rotating.write_modern, {"norm_bias": True}, "norm_bias is set"),
    (rotating.write_modern, {"attention_bias": True}, "attention_bias is set"),
    (rotating.write_modern, {"mlp_bias": True}, "mlp_bias is set"),
    (rotating.write_modern, {"hidden_activation": "silu"}, 'hidden_activation "silu" is not supported; "gelu" is'),
    (rotating.write_modern, {"architectures": ["ModernBertForTokenClassification"]}, '"ModernBertForTokenClassification" is not supported'),
    (rotating.write_modern_scorer, {"classifier_pooling": "max"}, 'classifier_pooling "max" is not supported'),
    (rotating.write_modern_scorer, {"classifier_activation": "relu"}, 'classifier_activation "relu" is not supported'),
    (rotating.write_modern_scorer, {"id2label": {"0": "a", "1": "b"}}, "a head of 2 labels is not supported"),
    (rotating.write_nomic, {"prenorm": True}, "prenorm is set"),
    (rotating.write_nomic, {"qkv_proj_bias": True}, "qkv_proj_bias is set"),
    (rotating.write_nomic, {"activation_function": "gelu"}, 'activation_function "gelu" is not supported; "swiglu" is'),
    (rotating.write_nomic, {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction or rotary_emb_scale_base is set"),
    (rotating.write_nomic, {"num_experts": 8}, "num_experts is set"),
    (rotating.write_gte, {"pack_qkv": False}, "layer_norm_type or pack_qkv is not supported"),
    (rotating.write_gte, {"layer_norm_type": "rms_norm"}, "layer_norm_type or pack_qkv is not supported"),
    (rotating.write_gte, {"logn_attention_scale": True}, "logn_attention_scale is set"),
    (rotating.write_gte, {"position_embedding_type": "absolute"}, '"absolute" is not supported; "rope" is'),
    (rotating.write_gte, {"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.6}}, "without mixed_b"),
    (rotating.write_gte, {"rope_scaling": {"type": "ntk", "factor": 0.5}}, "scaling factor is"),
])
def test_what_does_not_start(tmp_path, write, changes, why):
    args = () if write is rotating.write_modern_scorer else ("mean",)
    write(tmp_path / "m", *args, **changes)
    done = subprocess.run([conftest.BINARY, "serve", tmp_path / "m", "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and why in done.stderr, done.stderr
