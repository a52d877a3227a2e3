"""Embeddings: OpenAI's and Ollama's clients, the same bytes whatever runs beside, and what is refused."""

import base64
import concurrent.futures
import http.client
import json
import os
import signal
import sys

import httpx
import numpy as np
import ollama
import pytest

from conftest import ROOT, wait_until
from test_engine_process import engine_pid

sys.path.insert(0, str(ROOT / "tests/golden"))
import encoder  # noqa: E402
import encoder_rotating  # noqa: E402

TEXTS = ["The sky is blue.", "Der Himmel ist blau.", "x", "Why? 🙂", "one two three four five six " * 12]


@pytest.fixture(scope="module")
def averaging(start_server):
    with start_server("--pooling", "mean", "--max-num-batched-tokens", "64") as server:
        yield server


def embed(server, body, path="/v1/embeddings"):
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def floats(embedding):
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return np.array(embedding, dtype=np.float32)


def rows(server, texts, **options):
    return [floats(item["embedding"]) for item in embed(server, {"input": texts, **options})["data"]]


def ids_of(server, text):
    return server.post("/tokenize", {"prompt": text}).json()["tokens"]


def same(a, b):
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b))


# ---- clients ----

def test_openai_client(client, loose_client, model, server):
    """Its own default is base64, which its types know nothing of; numbers read as the same floats."""
    answer = loose_client.embeddings.create(model=model, input=TEXTS)
    assert answer.object == "list" and answer.model == model
    assert [item.index for item in answer.data] == list(range(len(TEXTS)))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(len(ids_of(server, text)) for text in TEXTS)
    numbers = client.embeddings.create(model=model, input=TEXTS, encoding_format="float", user="somebody")
    coded = loose_client.embeddings.create(model=model, input=TEXTS, encoding_format="base64")
    for item, other, letters in zip(answer.data, numbers.data, coded.data):
        assert floats(item.embedding).tobytes() == floats(other.embedding).tobytes()
        assert floats(letters.embedding).tobytes() == floats(item.embedding).tobytes()
        assert abs(np.linalg.norm(floats(item.embedding).astype(float)) - 1) < 1e-6
    one = client.embeddings.create(model=model, input=TEXTS[0], encoding_format="float")
    assert one.data[0].embedding == numbers.data[0].embedding and len(one.data) == 1


def test_dimensions_are_the_first_ones(client, model, server):
    whole, cut = (client.embeddings.create(model=model, input="a", encoding_format="float", **options).data[0].embedding
                  for options in ({}, {"dimensions": 64}))
    raw = rows(server, "a", normalize=False)[0].astype(float)
    vllms = {"use_activation": False, "embed_dtype": "float32", "endianness": "little", "padding": "do_not_pad"}
    assert same(rows(server, "a", **vllms), rows(server, "a", normalize=False))
    assert len(cut) == 64 and len(whole) == len(raw)
    np.testing.assert_allclose(cut, raw[:64] / np.linalg.norm(raw[:64]), rtol=1e-6)
    np.testing.assert_allclose(whole, raw / np.linalg.norm(raw), rtol=1e-6)


def test_other_names_of_the_same(server):
    """Voyage's and Jina's clients say so what OpenAI's say; numbers of other types are refused, and not floats under their name."""
    def row(**options):
        return server.post("/v1/embeddings", {"input": "a", **options}).json()["data"][0]["embedding"]
    short = row(dimensions=8)
    assert row(output_dimension=8) == row(output_dimension=8, output_dtype="float") == row(dimensions=8, embedding_type="float") == short
    assert row(dimensions=8, embedding_type="base64") == row(dimensions=8, encoding_format="base64")
    for name, value in [("output_dtype", "int8"), ("embedding_type", "ubinary"), ("embedding_type", ["float"]), ("output_dimension", 0)]:
        reply = server.post("/v1/embeddings", {"input": "a", name: value})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == name


def test_texts_and_ids_are_the_same(server):
    ids = [ids_of(server, text) for text in TEXTS]
    by_text = rows(server, TEXTS)
    assert same(by_text, rows(server, ids)) and same(by_text[:1], rows(server, ids[0]))


def test_ollama_client(server, model):
    llama = ollama.Client(host=server.url)
    expected = rows(server, TEXTS)
    answer = llama.embed(model=model, input=TEXTS)
    assert answer.model == model and same([floats(e) for e in answer.embeddings], expected)
    assert answer.prompt_eval_count == sum(len(ids_of(server, text)) for text in TEXTS) and answer.total_duration > 0
    assert same([floats(llama.embed(model=model, input=TEXTS[0], truncate=False).embeddings[0])], expected[:1])
    assert len(llama.embed(model=model, input="a", dimensions=32, options={"num_ctx": 64}).embeddings[0]) == 32
    older = floats(llama.embeddings(model=model, prompt=TEXTS[0]).embedding)  # not of length 1, as in Ollama
    assert same([older], rows(server, TEXTS[0], normalize=False))
    with pytest.raises(ollama.ResponseError, match="input is missing"):
        llama._request_raw("POST", "/api/embed", json={"model": model})


# ---- what they are ----

def test_a_mean_is_that_of_the_last_tokens_of_all_prefixes(server, averaging):
    """Summed in the order of positions, whichever chunks they come in: 64 tokens a step there, 512 here."""
    ids = ids_of(server, " ".join(TEXTS))
    assert len(ids) > 80
    states = rows(server, [ids[:n + 1] for n in range(len(ids))], normalize=False)
    mean = (np.cumsum(np.array(states, dtype=float), axis=0)[-1] / len(ids)).astype(np.float32)
    for _ in range(2):  # what the cache holds of it by then is of no use
        body = embed(averaging, {"input": ids, "normalize": False})
        assert same([floats(body["data"][0]["embedding"])], [mean])
    beside = rows(averaging, [ids[:9], ids, ids[:70], ids], normalize=False)
    assert same(beside[1::2], [mean, mean])


def stream(server):
    body = {"prompt": "One, two,", "max_tokens": 24, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=300) as answer:
        return answer.read()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_alone_and_among_others(server, averaging, pooling):
    asked = averaging if pooling == "mean" else server
    texts = [f"{i} {text}" for i in range(3) for text in TEXTS]
    alone = [rows(asked, text)[0] for text in texts]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        others = [pool.submit(stream, asked) for _ in range(3)]
        one_by_one = list(pool.map(lambda text: rows(asked, text, encoding_format="base64")[0], texts))
        [other.result() for other in others]
    assert same(alone, one_by_one) and same(alone, rows(asked, texts))
    asked.wait_idle()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_killed_engine(start_server, pooling):
    """What was computed of a row is lost with it, and is computed again: the same bytes."""
    texts = [f"{i} " + TEXTS[4] for i in range(10)]
    with start_server("--pooling", pooling, "--max-engine-deaths", "0", "--max-num-batched-tokens", "64") as mortal:
        expected = rows(mortal, texts)
        steps = mortal.metrics()["vllm:iteration_tokens_total_count"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(rows, mortal, texts)
            for deaths in range(2):
                wait_until(lambda: mortal.metrics()["vllm:iteration_tokens_total_count"] > steps + 2 or answer.done())
                steps = mortal.metrics()["vllm:iteration_tokens_total_count"]
                os.kill(engine_pid(mortal), signal.SIGKILL)
                wait_until(lambda: mortal.metrics()["flashd_engine_deaths_total"] > deaths)
            assert same(answer.result(), expected)


def test_a_client_that_leaves(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"input": [f"{i} " + TEXTS[4] for i in range(400)]}
    gone = 'flashd_requests_finished_total{outcome="client_gone"}'
    before = server.metrics()[gone]
    connection.request("POST", "/v1/embeddings", json.dumps(body), {"Content-Type": "application/json"})
    wait_until(lambda: server.metrics()["flashd_requests_in_flight"] > 0)
    connection.close()
    wait_until(lambda: server.metrics()[gone] == before + 1)
    server.wait_idle()


# ---- what is refused ----

@pytest.mark.parametrize("body, param, code", [
    ({}, "input", "missing_required_parameter"),
    ({"input": None}, "input", "missing_required_parameter"),
    ({"prompt": "a"}, "input", "missing_required_parameter"),
    ({"input": []}, "input", "invalid_value"),
    ({"input": {}}, "input", "invalid_type"),
    ({"input": 7}, "input", "invalid_type"),
    ({"input": True}, "input", "invalid_type"),
    ({"input": ["a", 1]}, "input[1]", "invalid_type"),
    ({"input": [1, "a"]}, "input[1]", "invalid_type"),
    ({"input": [[1], ["a"]]}, "input[1][0]", "invalid_type"),
    ({"input": [[[1]]]}, "input[0][0]", "invalid_type"),
    ({"input": [1, 2, 49152]}, "input[2]", "invalid_value"),
    ({"input": [[1], [-1]]}, "input[1][0]", "invalid_value"),
    ({"input": [1.5]}, "input[0]", "invalid_value"),
    ({"input": [1e300]}, "input[0]", "invalid_value"),
    ({"input": ["a"] * 100_000}, "input", "invalid_value"),
    ({"input": [[1]] * 100_000}, "input", "invalid_value"),
    ({"input": [1] * 8193}, "input", "context_length_exceeded"),
    ({"input": [[1], [1] * 8193]}, "input[1]", "context_length_exceeded"),
    ({"input": "a " * 20_000}, "input", "context_length_exceeded"),
    ({"input": "a", "dimensions": 0}, "dimensions", "invalid_value"),
    ({"input": "a", "dimensions": 577}, "dimensions", "invalid_value"),
    ({"input": "a", "dimensions": "many"}, "dimensions", "invalid_type"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format", "invalid_value"),
    ({"input": "a", "encoding_format": 1}, "encoding_format", "invalid_type"),
    ({"input": "a", "embed_dtype": "float16"}, "embed_dtype", "invalid_value"),
    ({"input": "a", "endianness": "big"}, "endianness", "invalid_value"),
    ({"input": "a", "padding": "max_length"}, "padding", "invalid_value"),
    ({"input": "a", "model": "no-such-model"}, "model", "model_not_found"),
])
def test_refusals(server, body, param, code):
    answer = server.post("/v1/embeddings", body)
    error = answer.json()["error"]
    assert answer.status_code == (404 if code == "model_not_found" else 400), answer.text
    assert (error["param"], error["code"]) == (param, code) and error["type"] == "invalid_request_error"
    if code == "context_length_exceeded":
        count = 20_001 if isinstance(body["input"], str) else 8193
        assert "is 8192 tokens" in error["message"] and f"has {count} tokens" in error["message"]


def test_what_is_said_of_answers_means_nothing(server):
    """Fields that hold an answer to something: there is none."""
    body = {"input": TEXTS[0], "bad_words": ["x"], "allowed_token_ids": [1], "max_tokens": 7, "stream": True, "n": 3,
            "response_format": {"type": "json_object"}, "logprobs": True}
    assert same([floats(e["embedding"]) for e in embed(server, body)["data"]], rows(server, TEXTS[0]))


def test_what_is_too_long_for_ollama_is_cut(start_server):
    """As its clients expect, unless they say otherwise."""
    with start_server("--max-model-len", "32") as server:
        long = "a b c d e f g h " * 10
        answer = embed(server, {"model": server.client().models.list().data[0].id, "input": long}, "/api/embed")
        assert len(answer["embeddings"]) == 1 and answer["prompt_eval_count"] in (31, 32)
        refusal = server.post("/api/embed", {"input": long, "truncate": False})
        assert refusal.status_code == 400 and "maximum context length" in refusal.json()["error"]
        assert server.post("/v1/embeddings", {"input": [1] * 32}).status_code == 200  # all of it
        cut = rows(server, long, truncate_prompt_tokens=8)
        assert same(cut, rows(server, ids_of(server, long)[-8:]))


def test_rows_alone(server):
    """Text Embeddings Inference's /embed: a row of each text, whatever their number."""
    assert same([floats(row) for row in embed(server, {"inputs": TEXTS}, "/embed")], rows(server, TEXTS))
    assert same([floats(row) for row in embed(server, {"inputs": TEXTS[0], "normalize": True}, "/embed")], rows(server, TEXTS[0]))
    raw = embed(server, {"inputs": TEXTS[:1], "normalize": False, "dimensions": 64, "prompt_name": None}, "/embed")
    assert same([floats(row) for row in raw], rows(server, TEXTS[:1], normalize=False, dimensions=64))
    for body, param in (({}, "inputs"), ({"inputs": 7}, "inputs"), ({"inputs": "a", "truncate": "yes"}, "truncate"),
                        ({"inputs": "a", "prompt_name": "query"}, "prompt_name"),
                        ({"inputs": "a", "truncation_direction": "up"}, "truncation_direction")):
        answer = server.post("/embed", body)
        assert answer.status_code == 400 and param in answer.json()["error"] and answer.json()["error_type"] == "validation", answer.text


def test_rows_alone_of_what_is_too_long(start_server):
    with start_server("--max-model-len", "32") as server:
        long = "a b c d e f g h " * 10
        refusal = server.post("/embed", {"inputs": ["a", long]})
        assert refusal.status_code == 400 and "maximum context length is 32 tokens" in refusal.json()["error"]
        for fields, side in (({}, "right"), ({"truncation_direction": "Right"}, "right"), ({"truncation_direction": "left"}, "left")):
            got = embed(server, {"inputs": [long], "truncate": True, **fields}, "/embed")
            assert same([floats(row) for row in got], rows(server, long, truncate_prompt_tokens=-1, truncation_side=side))


# ---- models that were made for embeddings ----

def write_last_token_model(path):
    """A small Qwen3 as Qwen3-Embedding is published: tensors of the base class, the last token's state, a tokenizer that ends texts."""
    hidden, heads, kv, dim, inner, layers = 64, 4, 2, 16, 96, 2
    tokenizer = encoder_rotating.modern_tokenizer()
    end = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == "[SEP]")
    ending = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    tokenizer["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, ending],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}}, ending, {"Sequence": {"id": "B", "type_id": 1}}, ending],
         "special_tokens": {"[SEP]": {"id": "[SEP]", "ids": [end], "tokens": ["[SEP]"]}}}]}
    tensors = [("", "embed_tokens.weight", (encoder_rotating.num_modern_tokens(), hidden)), ("", "norm.weight", (hidden,))]
    for i in range(layers):
        shapes = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (heads * dim, hidden),
                  "self_attn.k_proj": (kv * dim, hidden), "self_attn.v_proj": (kv * dim, hidden), "self_attn.o_proj": (hidden, heads * dim),
                  "self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
                  "mlp.down_proj": (hidden, inner)}
        tensors += [("", "layers.%d.%s.weight" % (i, name), shape) for name, shape in shapes.items()]
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": inner,
              "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "num_hidden_layers": layers,
              "vocab_size": tensors[0][2][0], "max_position_embeddings": 512, "tie_word_embeddings": True, "eos_token_id": end}
    encoder_rotating.write(path, config, tensors, tokenizer)
    encoder.write_pooling(path, "lasttoken")
    return end


def test_a_tokenizer_that_ends_texts(start_server, tmp_path):
    """Its last token is what the embedding is made of, and is there once."""
    end = write_last_token_model(tmp_path / "m")
    with start_server(model=tmp_path / "m") as server:
        ids = [ids_of(server, text) for text in TEXTS]
        assert all(i[-1] == end and end not in i[:-1] for i in ids)
        got = rows(server, TEXTS)
        assert same(got, rows(server, ids)) and embed(server, {"input": TEXTS})["usage"]["prompt_tokens"] == sum(map(len, ids))
        assert not any(a.tobytes() == b.tobytes() for a, b in zip(got, rows(server, [i[:-1] for i in ids])))
