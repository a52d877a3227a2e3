"""Every pair of fields, each with a hostile value, in every protocol: 200 or a 4xx in the protocol's own shape, and the request
after it has the bytes that it always has.

A pair stands alone in an otherwise good body, so that nothing hides it. What follows it on its connection is asked for
before the pair is answered, while other connections have pairs of their own in flight. A model of random weights answers,
whose tokens are bytes. FLASHD_PAIRS: how many pairs of each route are taken, at random from a fixed seed; "all": every
two fields with every two of twelve values, 6 million (make pairs)."""

import asyncio
import itertools
import json
import os
import random
import signal

import httpx
import pytest

import byte_tokenizer
from test_tools import TEMPLATE

PAIRS = os.environ.get("FLASHD_PAIRS", "150")
NUM_CONNECTIONS, PAIRS_AT_ONCE, FIELDS_MIN = 16, 16, 50
SMALL_MODEL = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1,
    "num_key_value_heads": 1, "vocab_size": 264, "max_position_embeddings": 512, "tie_word_embeddings": True, "eos_token_id": 257,
}
QUESTION = [{"role": "user", "content": "hi"}]
EVERY = [True, 0, -1, 1.5, 1e308, "", "1", "x\0y", [], ["a", ""], {"a": {"b": []}}, {"type": "json_schema"}]
VALUES = [*EVERY, None, 1, 2, -(1 << 63), "\U0001f600" * 50, [1, 2], [[]], {}]
CHAT = "/v1/chat/completions"
ROUTES = {
    CHAT: {"messages": QUESTION, "max_tokens": 1},
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/messages": {"messages": QUESTION, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": QUESTION},
    "/v1/responses": {"input": "x", "max_output_tokens": 1, "store": False},
    "/api/chat": {"messages": QUESTION, "options": {"num_predict": 1}, "stream": False},
    "/completion": {"prompt": "x", "n_predict": 1},
    "/infill": {"input_prefix": "x", "input_suffix": "y", "n_predict": 1},
    "/api/generate": {"prompt": "x", "options": {"num_predict": 1}, "stream": False},
    "/v1/embeddings": {"input": "x"},
    "/v2/embed": {"texts": ["x"]},
    "/embed": {"inputs": "x"},
    "/generate": {"inputs": "x", "parameters": {"max_new_tokens": 1}},
    "/generate_stream": {"inputs": "x", "parameters": {"max_new_tokens": 1}},
    "/embedding": {"content": "x"},
    "/api/embed": {"input": "x"},
    "/api/embeddings": {"prompt": "x"},
    "/v1/score": {"text_1": "x", "text_2": "y"},
    "/v1/rerank": {"query": "x", "documents": ["y"]},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [65]},
    "/apply-template": {"messages": QUESTION},
    "/api/show": {"model": "m"},
    "/api/pull": {"model": "m"},
}
PROBE = {"prompt": "Once upon a", "max_tokens": 2, "temperature": 0, "logprobs": 3}


@pytest.fixture(scope="module")
def small_server(start_server, tmp_path_factory):
    """A short context bounds what a pair without max_tokens may ask for."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "config.json").write_text(json.dumps(SMALL_MODEL))
    byte_tokenizer.write(folder, ("<s>", "<|im_end|>", "<|im_start|>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>"), ("yes", "no"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|im_end|>"}))
    files = {"--chat-template": TEMPLATE, "--rerank-template": "{query} {document}"}
    for option, text in files.items():
        (folder / option).write_text(text)
    options = [word for option in files for word in (option, str(folder / option))]
    with start_server(*options, "--load-format", "dummy", "--max-model-len", "128", "--max-n", "2", "--no-log-requests",
                      "--max-requests-per-connection", "1000000000", "--served-model-name", "m", model=folder) as server:
        yield server
        assert server.process.poll() is None, server.log()
        server.wait_idle()


def fields_of(server, path):
    """The route's own, and where these are few some of a chat's, which mean nothing to it."""
    paths, schemas = (httpx.get(server.url + "/openapi.json").json()[k] for k in ("paths", "components"))

    def properties(path):
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        if "$ref" in schema:
            schema = schemas["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return sorted(schema["properties"])

    own = properties(path)
    return own + [name for name in properties(CHAT) if name not in own][:max(0, FIELDS_MIN - len(own))]


def has_the_shape_of_an_error(path, error):
    if path.startswith(("/api/", "/generate")) or path == "/embed":
        return isinstance(error["error"], str)
    if path.startswith("/v1/messages"):
        return error["type"] == "error" and isinstance(error["error"]["message"], str)
    return set(error["error"]) >= {"message", "type", "param", "code"} and len(error["error"]["message"]) > 10


def check_answer(path, status, content_type, text):
    assert status in (200, 400, 404)
    if status != 200:
        assert has_the_shape_of_an_error(path, json.loads(text))
    elif content_type.startswith("text/event-stream"):
        data = [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")]
        assert data and all(json.loads(d) for d in data if d != "[DONE]")
    else:
        assert content_type.split(";")[0] in ("application/json", "application/x-ndjson")
        assert all(json.loads(line) for line in text.splitlines())


def pairs_of(fields):
    """Every two fields with every two of EVERY; or some with any of VALUES."""
    if PAIRS == "all":
        yield from ((a, x, b, y) for a, b in itertools.combinations(fields, 2) for x in EVERY for y in EVERY)
        return
    choose = random.Random(1)
    for _ in range(int(PAIRS)):
        a, b = choose.sample(fields, 2)
        yield a, choose.choice(VALUES), b, choose.choice(VALUES)


def request(path, body):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


async def read_answer(reader):
    """-> status, content type, body"""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    if "content-length" in headers:
        text = await reader.readexactly(int(headers["content-length"]))
    else:
        text, size = b"", 1
        while size > 0:
            size = int(await reader.readline(), 16)
            text += (await reader.readexactly(size + 2))[:-2]
    return int(first.split()[1]), headers["content-type"], text


async def send_pairs(server, path, pairs, expected, statuses):
    """Over one connection, kept alive whatever the answers are; pairs: an iterator that other connections take from, too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24)
    probe = request("/v1/completions", PROBE)
    while some := list(itertools.islice(pairs, PAIRS_AT_ONCE)):
        writer.write(b"".join(request(path, {**ROUTES[path], a: x, b: y}) + probe for a, x, b, y in some))
        for pair in some:
            status, content_type, text = await asyncio.wait_for(read_answer(reader), 60)
            statuses[status] = statuses.get(status, 0) + 1
            try:
                check_answer(path, status, content_type, text)
                status, _, probed = await asyncio.wait_for(read_answer(reader), 60)
                assert status == 200 and json.loads(probed)["choices"] == expected
            except Exception as error:
                raise AssertionError(f"{path} {pair}: {status} {text}") from error
    writer.close()


async def send_all(server, path, pairs):
    """-> how many answers of each status"""
    expected, statuses = server.post("/v1/completions", PROBE).json()["choices"], {}
    async with asyncio.TaskGroup() as group:
        for _ in range(NUM_CONNECTIONS):
            group.create_task(send_pairs(server, path, pairs, expected, statuses))
    return statuses


@pytest.mark.parametrize("path", ROUTES)
def test_pairs(small_server, path):
    signal.alarm(0)  # all pairs take longer than a test may; each answer has its own limit
    fields = fields_of(small_server, path)
    assert len(fields) >= FIELDS_MIN and len(EVERY) >= 12
    statuses = asyncio.run(send_all(small_server, path, pairs_of(fields)))
    print(path, len(fields), "fields", sum(statuses.values()), "pairs", statuses)
