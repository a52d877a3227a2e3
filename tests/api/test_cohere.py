"""Cohere's own client asks for embeddings; llama.cpp's form of them; what else its clients look for."""
import concurrent.futures

import cohere
import httpx
import pytest
from test_embeddings import TEXTS, floats, rows, same



@pytest.fixture
def v2(server):
    return cohere.ClientV2(api_key="none", base_url=server.url)


@pytest.fixture
def v1(server):
    return cohere.Client(api_key="none", base_url=server.url)


def refusal(server, path="/v2/embed", **body):
    reply = server.post(path, body)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]["param"]


def test_v2(server, v2, model):
    expected = rows(server, TEXTS)
    answer = v2.embed(model=model, input_type="search_document", texts=TEXTS, embedding_types=["float"])
    assert same([floats(e) for e in answer.embeddings.float_], expected) and answer.texts == TEXTS
    assert answer.response_type == "embeddings_by_type" and answer.id.startswith("embd-") and answer.embeddings.base64 is None
    tokens = sum(len(server.post("/tokenize", {"prompt": t}).json()["tokens"]) for t in TEXTS)
    assert answer.meta.billed_units.input_tokens == tokens and answer.meta.api_version.version == "2"
    coded = v2.embed(model=model, input_type="search_query", texts=TEXTS, embedding_types=["base64"])
    assert same([floats(e) for e in coded.embeddings.base64], expected)
    assert same([floats(e) for e in v2.embed(model=model, input_type="clustering", texts=TEXTS).embeddings.float_], expected)
    parts = [{"content": [{"type": "text", "text": "The sky "}, {"type": "text", "text": "is blue."}]}]
    joined = v2.embed(model=model, input_type="search_document", inputs=parts, output_dimension=64)
    assert same([floats(e) for e in joined.embeddings.float_], rows(server, TEXTS[:1], dimensions=64)) and joined.texts == TEXTS[:1]


def test_v1(server, v1, model):
    answer = v1.embed(model=model, texts=TEXTS, input_type="search_document")
    assert answer.response_type == "embeddings_floats" and answer.texts == TEXTS
    assert same([floats(e) for e in answer.embeddings], rows(server, TEXTS))
    typed = v1.embed(model=model, texts=TEXTS, input_type="search_document", embedding_types=["float"])
    assert typed.response_type == "embeddings_by_type" and same([floats(e) for e in typed.embeddings.float_], rows(server, TEXTS))


def test_what_has_no_room(start_server):
    with start_server("--max-model-len", "64") as server:
        long = "one two three four five six " * 20
        cut = rows(server, long, truncate_prompt_tokens=-1, truncation_side="right")
        assert same([floats(server.post("/v2/embed", {"texts": [long]}).json()["embeddings"]["float"][0])], cut)
        assert refusal(server, texts=[long], truncate="NONE") == "texts[0]"


def test_what_is_cut(server, v2, model):
    """At the end unless START says at the beginning, and not at all where NONE does."""
    def embed(**fields):
        return floats(v2.embed(model=model, input_type="search_document", texts=["a b c d e f g h i j"], **fields).embeddings.float_[0])

    def cut(side):
        return rows(server, "a b c d e f g h i j", truncate_prompt_tokens=4, truncation_side=side)[0]

    assert same([embed(max_tokens=4), embed(max_tokens=4, truncate="END"), embed(max_tokens=4, truncate="START")],
                [cut("right"), cut("right"), cut("left")])
    assert same([embed(max_tokens=4, truncate="NONE")], rows(server, "a b c d e f g h i j"))


def test_nul_in_a_text(server):
    answer = server.post("/v2/embed", {"texts": ["a\0b", "\U0001f600\"\\"]}).json()
    assert answer["texts"] == ["a\0b", "\U0001f600\"\\"]
    assert same([floats(e) for e in answer["embeddings"]["float"]], rows(server, ["a\0b", "\U0001f600\"\\"]))


def test_refusals(server, v2, model):
    with pytest.raises(cohere.BadRequestError) as error:
        v2.embed(model=model, input_type="image", images=["data:image/png;base64,AAAA"])
    assert "texts" in str(error.value.body)
    cases = [("texts", {}), ("texts", {"texts": "a"}), ("texts[1]", {"texts": ["a", 5]}), ("texts", {"texts": []}), ("images", {"texts": ["a"], "images": ["x"]}),
             ("inputs", {"texts": ["a"], "inputs": []}), ("inputs[0]", {"inputs": [{"content": [{"type": "image_url"}]}]}),
             ("inputs[0]", {"inputs": [5]}), ("inputs", {"inputs": 5}), ("embedding_types", {"texts": ["a"], "embedding_types": ["int8"]}),
             ("embedding_types", {"texts": ["a"], "embedding_types": ["float", "base64"]}), ("truncate", {"texts": ["a"], "truncate": "MIDDLE"}),
             ("max_tokens", {"texts": ["a"], "max_tokens": 0}), ("output_dimension", {"texts": ["a"], "output_dimension": 0}),
             ("priority", {"texts": ["a"], "priority": 1000})]
    for param, body in cases:
        assert refusal(server, **body) == param, body
        assert refusal(server, "/v1/embed", **body) == param, body


def test_the_same_bytes_among_others(server):
    texts = [f"{t} {i}" for i in range(8) for t in TEXTS[:3]]
    alone = [server.post("/v2/embed", {"texts": [t]}).json()["embeddings"] for t in texts]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda t: server.post("/v2/embed", {"texts": [t]}).json()["embeddings"], texts)) == alone


def test_llama_cpps_embeddings(server):
    for path in ("/embedding", "/embeddings"):
        answer = server.post(path, {"content": TEXTS}).json()
        assert [e["index"] for e in answer] == list(range(len(TEXTS)))
        assert same([floats(e["embedding"][0]) for e in answer], rows(server, TEXTS))
    plain = server.post("/embedding", {"input": "a", "embd_normalize": -1}).json()[0]["embedding"]
    assert same([floats(plain[0])], rows(server, "a", normalize=False)) and len(plain) == 1
    assert refusal(server, "/embedding", content="a", embd_normalize=1) == "embd_normalize"
    assert refusal(server, "/embedding") == "content"


def test_what_llama_cpps_clients_look_for(server):
    assert httpx.get(server.url + "/v1/health").json() == httpx.get(server.url + "/health").json()
    assert httpx.get(server.url + "/lora-adapters").json() == []
    reply = httpx.post(server.url + "/slots/0?action=save", json={"filename": "x"})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "action"
    for path in ("/reranking", "/v1/reranking"):
        assert refusal(server, path, query="a", documents=["b"]) == "model"
