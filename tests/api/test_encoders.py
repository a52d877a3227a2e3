"""Encoders (BERT's kind): embeddings against transformers, alone and beside others, of texts and of ids, and what is refused."""

import concurrent.futures
import json
import sys

import numpy as np
import pytest

from conftest import ROOT
from test_embeddings import embed, floats, ids_of, rows, same

sys.path.insert(0, str(ROOT / "tests/golden"))
import encoder  # noqa: E402
import encoder_roberta  # noqa: E402

GOLDENS = json.loads((ROOT / "tests/golden/encoder_goldens.json").read_text())
TEXTS = ["The sky is blue.", "Der Himmel ist blaú?", "WHY over overly skys", "天天 the\x0bsky\u200b is", "x", "zzz qqq ☃ [SEP] hello"]
BOUND = 1e-5


@pytest.fixture(scope="module")
def first(serve_written):
    yield from serve_written(lambda folder: encoder.write_directory(folder, "cls"), "--max-num-batched-tokens", "32")


@pytest.fixture(scope="module")
def mean(serve_written):
    """Names as in a checkpoint of a model with a head, and shorter texts."""
    yield from serve_written(lambda folder: encoder.write_directory(folder, "mean", prefix="bert.", longest=200), "--cpu-isa", "portable")


def check(got, expected):
    for mine, theirs in zip(got, expected):
        theirs = np.array(theirs)
        assert np.abs(mine - theirs).max() < BOUND * np.abs(theirs).max()
        cosine = mine.astype(float) @ theirs / np.linalg.norm(mine.astype(float)) / np.linalg.norm(theirs)
        assert cosine > 1 - 1e-9


def test_first_tokens_are_transformers(first):
    check(rows(first, encoder.LISTS, normalize=False), GOLDENS["first"])


def test_means_are_transformers(mean):
    lists = [ids for ids in encoder.LISTS if len(ids) <= 200]
    assert len(lists) == len(encoder.LISTS) - 1
    check(rows(mean, lists, normalize=False), GOLDENS["mean"])


def test_a_gguf_file_is_the_same_model(first, start_server, tmp_path):
    for pooling_type, key in ((2, "first"), (0, "mean")):
        encoder.write_gguf(tmp_path / "m.gguf", pooling_type)
        with start_server(model=tmp_path / "m.gguf") as server:
            got = rows(server, encoder.LISTS, normalize=False)
            check(got, GOLDENS[key])
            if key == "first":
                assert same(got, rows(first, encoder.LISTS, normalize=False)) and same(rows(server, TEXTS), rows(first, TEXTS))


def test_xlm_roberta(start_server, tmp_path):
    """Positions behind the padding's id, one type, texts by scores; the same bits alone and in a batch."""
    encoder.write_directory(tmp_path / "x", "mean", roberta="XLMRobertaModel")
    encoder.write_directory(tmp_path / "r", "mean", prefix="roberta.", roberta="RobertaModel")
    with start_server(model=tmp_path / "x") as server, start_server("--cpu-isa", "portable", model=tmp_path / "r") as other:
        lists = encoder.ROBERTA_LISTS
        got = rows(server, lists, normalize=False)
        check(got, GOLDENS["roberta"])
        check(rows(other, lists, normalize=False), GOLDENS["roberta"])
        assert same(got, [rows(server, [ids], normalize=False)[0] for ids in lists])
        ids = [server.post("/tokenize", {"prompt": text, "parse_special": False}).json()["tokens"] for text in TEXTS]
        assert ids[0] == [0, 5, 3, 19, 16, 7, 8, 9, 48, 2] and all(i[0] == 0 and i[-1] == 2 for i in ids)
        assert same(rows(server, TEXTS), rows(server, ids))
        encoder.write_gguf(tmp_path / "x.gguf", 1, roberta=True)
        with start_server(model=tmp_path / "x.gguf") as file:
            assert same(got, rows(file, lists, normalize=False)) and same(rows(server, TEXTS), rows(file, TEXTS))
        assert len(rows(server, "the " * 298)) == 1 and server.post("/v1/embeddings", {"input": "the " * 299}).status_code == 400


def test_roberta_with_byte_pairs(start_server, tmp_path):
    """A GGUF file is the directory, and says it of a text's ends or not."""
    lists = encoder_roberta.LISTS
    encoder_roberta.write(tmp_path / "r", "mean")
    with start_server(model=tmp_path / "r") as server:
        got = rows(server, lists, normalize=False)
        check(got, GOLDENS["bpe_mean"])
        by_text = rows(server, TEXTS)
        ids = [server.post("/tokenize", {"prompt": text, "parse_special": False}).json()["tokens"] for text in TEXTS]
    assert all(i[0] == 0 and i[-1] == 2 and 2 not in i[1:-1] for i in ids)
    for says_ends in (True, False):
        encoder_roberta.write_gguf(tmp_path / "r.gguf", 1, says_ends=says_ends)
        with start_server(model=tmp_path / "r.gguf") as file:
            assert same(got, rows(file, lists, normalize=False)) and same(by_text, rows(file, TEXTS)) and same(by_text, rows(file, ids))


@pytest.mark.slow
def test_the_same_bits_beside_others(first, mean):
    for server in (first, mean):
        lists = [ids for ids in encoder.LISTS if len(ids) <= 200]
        alone = [rows(server, [ids])[0] for ids in lists]
        assert same(alone, rows(server, lists)) and same(alone, rows(server, lists[::-1])[::-1])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: rows(server, lists[n % 3:] + lists[: n % 3]), range(24)))
        for n, answer in enumerate(answers):
            assert same(alone[n % 3:] + alone[: n % 3], answer)


def test_texts_are_word_pieces(first):
    by_text = rows(first, TEXTS)
    ids = [first.post("/tokenize", {"prompt": text, "parse_special": False}).json()["tokens"] for text in TEXTS]
    assert all(i[0] == 2 and i[-1] == 3 and 3 not in i[1:-1] for i in ids)
    assert ids[0] == [2, 10, 11, 12, 13, 5, 3] and ids[5][-6:] == [1, 8, 24, 9, 25, 3]
    assert same(by_text, rows(first, ids))
    assert embed(first, {"input": TEXTS})["usage"]["prompt_tokens"] == sum(map(len, ids))
    assert len(rows(first, "")[0]) == encoder.HIDDEN  # [CLS] [SEP]
    cut = rows(first, TEXTS[:1], dimensions=8, encoding_format="base64")[0]
    whole = rows(first, TEXTS[:1], normalize=False)[0][:8].astype(float)
    np.testing.assert_allclose(cut, whole / np.linalg.norm(whole), rtol=1e-6)


def test_what_is_too_long(first, mean):
    for server, longest in ((first, 300), (mean, 200)):
        assert len(rows(server, "x " * (longest - 2))) == 1
        answer = server.post("/v1/embeddings", {"input": "x " * (longest - 1)})
        assert answer.status_code == 400 and "maximum context length is %d tokens" % longest in answer.json()["error"]["message"]
        assert server.post("/v1/embeddings", {"input": [7] * (longest + 1)}).status_code == 400
        text = "the sky is blue over der himmel"
        body = {"input": text, "truncate_prompt_tokens": 5}
        ids = ids_of(server, text)
        for side, kept in (("right", ids[:4] + ids[-1:]), ("left", ids[:1] + ids[-4:])):
            got = [floats(item["embedding"]) for item in embed(server, {**body, "truncation_side": side})["data"]]
            assert same(got, rows(server, [kept]))


def test_nothing_is_generated(first):
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                       ("/v1/responses", {"input": "a"}), ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}),
                       ("/v1/rerank", {"query": "a", "documents": ["b"]})):
        answer = first.post(path, body)
        assert answer.status_code == 400 and "embeddings" in answer.text, answer.text
    assert first.post("/v1/embeddings", {"input": [encoder.CONFIG["vocab_size"]]}).status_code == 400
    assert first.post("/v1/embeddings", {"input": []}).status_code == 400
    assert len(rows(first, "a")[0]) == encoder.HIDDEN
