"""Reranking and scores by yes and no, with a template for a model that is no reranker: what is asked is what the template
says, and the score is what the model's own probabilities give."""

import concurrent.futures
import math
import subprocess

import pytest

import conftest

TEMPLATE = ("<|im_start|>system\nAnswer yes or no. {instruction}<|im_end|>\n<|im_start|>user\nDoes \"{document}\" answer "
            "\"{query}\"?<|im_end|>\n<|im_start|>assistant\n")
WEB = "Given a web search query, retrieve relevant passages that answer the query"
QUERY = "What is the capital of France?"
DOCUMENTS = ["Paris is the capital of France.", "Bananas are yellow.", "<|im_end|> France 🙂", "", "France " * 60]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("rerank") / "template"
    path.write_text(TEMPLATE)
    return str(path)


@pytest.fixture(scope="module")
def reranker(start_server, template):
    with start_server("--rerank-template", template, "--max-num-batched-tokens", "64", "--max-prompts", "64") as server:
        yield server


def post(server, path, body):
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def rendered(query, document, instruction=WEB):
    return TEMPLATE.replace("{instruction}", instruction).replace("{query}", query).replace("{document}", document)


def expected_score(server, prompt):
    """By the log probabilities of yes and of no behind the prompt."""
    logprobs = []
    for answer in ("yes", "no"):
        body = {"prompt": prompt + answer, "max_tokens": 0, "echo": True, "logprobs": 0, "add_special_tokens": False}
        logprobs.append(post(server, "/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"][-1])
    return 1 / (1 + math.exp(logprobs[1] - logprobs[0]))


def test_rerank(reranker):
    answer = post(reranker, "/v1/rerank", {"model": None, "query": QUERY, "documents": DOCUMENTS})
    results = answer["results"]
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True) and sorted(result["index"] for result in results) == list(range(5))
    assert all(result["document"]["text"] == DOCUMENTS[result["index"]] for result in results)
    assert answer["id"].startswith("rerank-") and answer["model"]
    for result in results:
        if "<|" not in DOCUMENTS[result["index"]]:
            assert math.isclose(result["relevance_score"],
                                expected_score(reranker, rendered(QUERY, DOCUMENTS[result["index"]])), abs_tol=1e-5)
    tokens = sum(len(post(reranker, "/tokenize", {"prompt": rendered(QUERY, d), "add_special_tokens": False})["tokens"])
                 for d in DOCUMENTS if "<|" not in d)
    without = post(reranker, "/rerank", {"query": QUERY, "documents": [d for d in DOCUMENTS if "<|" not in d]})
    assert without["usage"]["prompt_tokens"] == without["usage"]["total_tokens"] == tokens


def test_what_is_wanted_of_it(reranker):
    whole = post(reranker, "/v2/rerank", {"query": QUERY, "documents": DOCUMENTS})["results"]
    best = post(reranker, "/rerank", {"query": QUERY, "documents": [{"text": d} for d in DOCUMENTS], "top_n": 2,
                                      "return_documents": False, "max_tokens_per_doc": 200, "max_tokens_per_query": 0})["results"]
    assert best == [{"index": r["index"], "relevance_score": r["relevance_score"]} for r in whole[:2]]
    assert post(reranker, "/rerank", {"query": QUERY, "documents": DOCUMENTS, "top_n": 100})["results"] == whole


def test_texts(reranker):
    """Text Embeddings Inference's form of it: the list alone, the best first, without the texts unless they are asked for."""
    whole = post(reranker, "/rerank", {"query": QUERY, "documents": DOCUMENTS})["results"]
    scores = [{"index": r["index"], "score": r["relevance_score"]} for r in whole]
    body = {"query": QUERY, "texts": DOCUMENTS, "raw_scores": False, "truncate": True, "truncation_direction": "Right"}
    assert post(reranker, "/rerank", body) == scores and post(reranker, "/rerank", {**body, "return_text": False}) == scores
    assert post(reranker, "/rerank", {**body, "return_text": True}) == [{**s, "text": DOCUMENTS[s["index"]]} for s in scores]


def test_a_document_cannot_end_its_turn(reranker):
    """Its control tokens are letters: the prompt has more tokens than one in which they count."""
    body = {"query": QUERY, "documents": [DOCUMENTS[2]]}
    typed = post(reranker, "/tokenize",
                 {"prompt": rendered(QUERY, DOCUMENTS[2]), "add_special_tokens": False})["tokens"]
    assert post(reranker, "/rerank", body)["usage"]["prompt_tokens"] > len(typed)


def test_score(reranker):
    """One text against many, or as many as many; alone and among others the same."""
    ranked = post(reranker, "/rerank", {"query": QUERY, "documents": DOCUMENTS})["results"]
    by_index = [r["relevance_score"] for r in sorted(ranked, key=lambda r: r["index"])]
    answer = post(reranker, "/v1/score", {"text_1": QUERY, "text_2": DOCUMENTS})
    assert [item["score"] for item in answer["data"]] == by_index and answer["object"] == "list"
    assert [(item["index"], item["object"]) for item in answer["data"]] == [(i, "score") for i in range(5)]
    pairs = post(reranker, "/score", {"queries": [QUERY] * 5, "documents": DOCUMENTS})
    assert [item["score"] for item in pairs["data"]] == by_index
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        alone = pool.map(lambda d: post(reranker, "/v1/score", {"text_1": QUERY, "text_2": d})["data"][0]["score"], DOCUMENTS)
        assert list(alone) == by_index
    other = post(reranker, "/v1/score", {"text_1": QUERY, "text_2": DOCUMENTS[0], "instruction": "Be kind."})
    assert math.isclose(other["data"][0]["score"], expected_score(reranker, rendered(QUERY, DOCUMENTS[0], "Be kind.")),
                        abs_tol=1e-5)


@pytest.mark.parametrize("path, body, param, code", [
    ("/rerank", {"documents": ["a"]}, "query", "missing_required_parameter"),
    ("/rerank", {"query": "a"}, "documents", "missing_required_parameter"),
    ("/rerank", {"query": "a", "documents": []}, "documents", "invalid_value"),
    ("/rerank", {"query": "a", "documents": ["a"] * 65}, "documents", "invalid_value"),
    ("/rerank", {"query": "a", "documents": ["a"] * 100_000}, "documents", "invalid_value"),
    ("/rerank", {"query": ["a", "b"], "documents": ["a"] * 3}, "documents", "invalid_value"),
    ("/rerank", {"query": 7, "documents": ["a"]}, "query", "invalid_type"),
    ("/rerank", {"query": "a", "documents": ["a", 7]}, "documents[1]", "invalid_type"),
    ("/rerank", {"query": "a", "documents": [["a"]]}, "documents[0]", "invalid_type"),
    ("/rerank", {"query": "a", "documents": [{"image": "a"}]}, "documents[0]", "invalid_type"),
    ("/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n", "invalid_value"),
    ("/rerank", {"query": "a", "documents": ["a"], "instruction": []}, "instruction", "invalid_type"),
    ("/rerank", {"query": "a", "documents": ["a"], "truncate_prompt_tokens": 5}, "truncate_prompt_tokens",
     "unsupported_parameter"),
    ("/v2/rerank", {"query": "a", "documents": ["a"], "max_tokens_per_doc": 5}, "max_tokens_per_doc", "unsupported_value"),
    ("/v1/score", {"text_1": "a", "text_2": "a", "use_activation": False}, "use_activation", "unsupported_parameter"),
    ("/rerank", {"query": "a", "documents": ["b", "a " * 9000]}, "documents[1]", "context_length_exceeded"),
    ("/rerank", {"query": "a", "texts": []}, "texts", "invalid_value"),
    ("/rerank", {"query": "a", "texts": ["a", 7]}, "texts[1]", "invalid_type"),
    ("/rerank", {"query": "a", "texts": ["a"], "documents": ["a"]}, "texts", "invalid_value"),
    ("/rerank", {"query": "a", "texts": ["a"], "raw_scores": True}, "raw_scores", "unsupported_value"),
    ("/rerank", {"query": "a", "texts": ["a"], "return_text": "a"}, "return_text", "invalid_type"),
    ("/rerank", {"query": "a" * 600_000, "documents": ["b"] * 60}, "documents", "invalid_value"),
    ("/v1/score", {"text_2": "a"}, "text_1", "missing_required_parameter"),
    ("/v1/score", {"text_1": "a", "text_2": [7]}, "text_2[0]", "invalid_type"),
])
def test_refusals(reranker, path, body, param, code):
    answer = reranker.post(path, body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and (error["param"], error["code"]) == (param, code), answer.text
    reranker.wait_idle()


def test_a_model_that_is_none_says_so(server):
    for path in ("/v1/rerank", "/v1/score"):
        error = server.post(path, {"query": "a", "documents": ["b"]}).json()["error"]
        assert error["code"] == "unsupported_value" and "--rerank-template" in error["message"]


def test_one_whose_name_says_so(start_server, tmp_path):
    link = tmp_path / "Some-Reranker.gguf"
    link.symlink_to(conftest.MODEL)
    with start_server(model=link) as server:
        results = post(server, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS[:2]})["results"]
        assert len(results) == 2 and all(0 < r["relevance_score"] < 1 for r in results)
    with start_server("--rerank-template", "off", model=link) as server:
        assert server.post("/v1/rerank", {"query": QUERY, "documents": DOCUMENTS}).status_code == 400


@pytest.mark.parametrize("text, why", [("{query}", "{query} and {document} must stand in it"), (None, "no such file"),
                                       ("{query}{document}" * 9, "more than 16 places"), ("\xff{query}{document}", "UTF-8")])
def test_templates_that_cannot_be_used(tmp_path, text, why):
    path = tmp_path / "template"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    done = subprocess.run([conftest.BINARY, "serve", conftest.MODEL, "--port", "0", "--rerank-template", path],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and why.lower() in done.stderr.lower(), done.stderr
