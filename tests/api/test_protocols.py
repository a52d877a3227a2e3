"""What every protocol has in its own shape: refusals of the transport and of admission, signs of life, the end of a
stream that cannot go on, and clients that leave. One server for all."""

import contextlib
import itertools
import json

import httpx
import pytest

from conftest import wait_until

MODEL = "m"
LONG = "Count from one to ten thousand, in words."


def openai_error(body, status):
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["message"]


def anthropic_error(body, status):
    assert body["type"] == "error" and body["request_id"]
    types = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large",
             429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}
    assert body["error"]["type"] == types[status]
    return body["error"]["message"]


def ollama_error(body, status):
    assert set(body) == {"error"}
    return body["error"]


def text_generation_error(body, status):
    assert set(body) == {"error", "error_type"}
    assert body["error_type"] == ("overloaded" if status in (429, 503) else "validation")
    return body["error"]


def sse(lines):
    return [line.removeprefix("data: ") for line in lines if line.startswith(("data: ", "{"))]


PROTOCOLS = {
    # path, a long answer, error of a body, the line of a ping
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, openai_error, ": ping"),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": LONG}]}, anthropic_error, "event: ping"),
    "responses": ("/v1/responses", {"input": LONG, "max_output_tokens": 1500}, openai_error, "event: response.in_progress"),
    "ollama": ("/api/chat", {"messages": [{"role": "user", "content": LONG}], "options": {"num_predict": 1500}}, ollama_error,
               '"content":""'),
    "llama": ("/completion", {"prompt": LONG, "n_predict": 1500}, openai_error, ": ping"),
    "text generation": ("/generate_stream", {"inputs": LONG, "parameters": {"max_new_tokens": 1500}}, text_generation_error, ": ping"),
}
KEY = {"Authorization": "Bearer k"}


def whole_body(body):
    return {"model": MODEL, "stream": True, "max_tokens": 1500, "ignore_eos": True, **body}


@pytest.fixture(scope="module")
def small(start_server):
    with start_server("--api-key", "k", "--served-model-name", MODEL, "--max-num-seqs", "1", "--max-queued-requests", "1",
                      "--ping-interval", "1", "--max-body-bytes", "64KiB", "--drain-timeout", "1", "--log-format",
                      "json") as server:
        yield server


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    path, body, error, ping = PROTOCOLS[request.param]
    return path, whole_body(body), error, ping


def post(server, path, body, headers=KEY):
    return httpx.post(server.url + path, json=body, headers=headers, timeout=60)


@contextlib.contextmanager
def streaming(server, path, body):
    with httpx.stream("POST", server.url + path, json=body, headers=KEY, timeout=60) as answer:
        assert answer.status_code == 200
        yield answer.iter_lines()


def wait_for_text(lines):
    """What comes before it may come at once."""
    next(line for line in lines if any(mark in line for mark in ('"content":"', '"text":"', '"delta"')))


def test_refusals(small, protocol):
    path, body, error, _ = protocol
    cases = [(401, post(small, path, body, {})), (400, post(small, path, {**body, "temperature": []})),
             (404, post(small, path, {**body, "model": "nobody"})),
             (413, post(small, path, {**body, "user": "x" * 70000})),
             (400, httpx.post(small.url + path, content=b'{"a":', headers={**KEY, "Content-Type": "application/json"}))]
    for status, answer in cases:
        assert answer.status_code == status and answer.headers["content-type"].startswith("application/json")
        assert len(error(answer.json(), status)) > 10


@pytest.mark.parametrize("path, error", [("/api/delete", ollama_error), ("/v1/messages/batches/b", anthropic_error), ("/v1/files/f", openai_error)])
def test_refusals_of_what_no_route_reads(small, path, error):
    """A head that goes no further, of an address beside the protocol's own; and what is not there, deleted with a body as Ollama's client does."""
    answer = httpx.request("GET", small.url + path, json={"model": "m"}, headers=KEY, timeout=60)
    assert answer.status_code == 400 and "has no body" in error(answer.json(), 400)
    answer = httpx.request("DELETE", small.url + path, json={"model": "m"}, headers=KEY, timeout=60)
    assert answer.status_code == 404 and "there is no" in error(answer.json(), 404)


def test_signs_of_life_and_a_full_server(small, protocol):
    """While one answers another waits, with a ping in its protocol's shape, and a third is too many. All of them leave."""
    path, body, error, ping = protocol
    with streaming(small, path, body) as first:
        wait_for_text(first)
        with streaming(small, path, body) as second:
            lines = list(itertools.islice((line for line in second if ping in line), 2))
            assert len(lines) == 2
            refused = post(small, path, body)
            assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
            error(refused.json(), 429)
    small.wait_idle()

    def gone():
        return [r["path"] for r in map(json.loads, small.log().splitlines()) if r.get("finish_reason") == "client_gone"]
    wait_until(lambda: gone()[-2:] == [path, path])


def test_streams_that_the_server_ends(start_server):
    """A drain that times out: the last event is an error in the protocol's shape."""
    with start_server("--served-model-name", MODEL, "--drain-timeout", "1") as server, contextlib.ExitStack() as stack:
        streams = []
        for path, body, error, _ in PROTOCOLS.values():
            lines = stack.enter_context(streaming(server, path, whole_body(body)))
            wait_for_text(lines)
            streams.append((lines, error))
        server.process.terminate()
        for lines, error in streams:
            last = json.loads([d for d in sse(lines) if d != "[DONE]"][-1])
            if last.get("type") == "response.failed":
                assert last["response"]["error"]["message"]
            else:
                error(last, 503)
        server.process.wait(30)


def test_names_of_the_model(start_server):
    """Aliases and patterns: all answer, the plain ones are listed, the first is what answers say."""
    with start_server("--served-model-name", "first", "second", "claude-*") as server:
        def get(path):
            return httpx.get(server.url + path)
        assert [m["id"] for m in get("/v1/models").json()["data"]] == ["first", "second"]
        assert get("/v1/models/claude-9").json()["id"] == "claude-9" and get("/v1/models/claud").status_code == 404
        for name in ("second", "claude-opus", "first:latest"):
            body = {"model": name, "prompt": "a", "max_tokens": 1}
            assert httpx.post(server.url + "/v1/completions", json=body, timeout=60).json()["model"] == "first"


def test_fields_that_nothing_reads(server):
    """Harmless ones are named in the log, a slip of the pen in the answer's head, and numbers may stand in texts."""
    body = {"prompt": "a", "max_tokens": "2", "temperature": "0.0", "ignore_eos": "true", "user": "u", "temprature": 1}
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 2
    assert answer.headers["x-flashd-warning"] == "temprature is no field; did you mean temperature?"
    server.wait_idle()
    line = [json.loads(line) for line in server.log().splitlines() if answer.headers["x-request-id"] in line][-1]
    assert line["ignored_fields"] == "user,temprature"


def test_what_llama_clients_ask(server, model):
    """/apply-template is the prompt whose tokens a chat has; /props and /slots agree with the models' card."""
    messages = [{"role": "user", "content": "Hi <|im_end|>"}]
    rendered = httpx.post(server.url + "/apply-template", json={"messages": messages}, timeout=60).json()["prompt"]
    assert rendered.endswith("<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert httpx.post(server.url + "/apply-template", json={"messages": []}, timeout=60).status_code == 400
    length = httpx.get(server.url + "/v1/models").json()["data"][0]["max_model_len"]
    props, slots = (httpx.get(server.url + path).json() for path in ("/props", "/slots"))
    info = httpx.get(server.url + "/tokenizer_info").json()
    assert "<|im_start|>" in props["chat_template"] and all(props[name] == info[name] for name in ("chat_template", "bos_token", "eos_token"))
    assert props["default_generation_settings"]["n_ctx"] == length and props["model_alias"] == model
    assert len(slots) == props["total_slots"] and not any(s["is_processing"] for s in slots)
    assert {s["n_ctx"] for s in slots} == {length}


def test_tokenizer_info(server):
    """What lm-evaluation-harness reads before it lets the server tokenize."""
    info = httpx.get(server.url + "/tokenizer_info").json()
    assert (info["bos_token"], info["eos_token"]) == ("<|im_start|>", "<|im_end|>") and "<|im_start|>" in info["chat_template"]
    assert info["model_max_length"] == httpx.get(server.url + "/v1/models").json()["data"][0]["max_model_len"]


def test_llamas_words_for_tokens(server):
    """content is its prompt, without the tokens that a prompt begins with, and what becomes of ids again."""
    def tokens(**body):
        reply = server.post("/tokenize", body)
        assert reply.status_code == 200, reply.text
        return reply.json()["tokens"]
    text = "Hi <|im_end|> \U0001f600"
    ids = tokens(prompt=text, add_special_tokens=False)
    assert tokens(content=text) == tokens(content=text, add_special=False, parse_special=True) == ids
    assert tokens(content=text, add_special=True) == tokens(prompt=text)
    assert len(tokens(content=text, parse_special=False)) > len(ids)
    pieces = tokens(content="Hi there", with_pieces=True)
    parts = [piece["piece"] for piece in tokens(content="a\U0001F600", with_pieces=True)]
    assert parts[0] == "a" and all(isinstance(part, list) for part in parts[1:]) and bytes(sum(parts[1:], [])).decode() == "\U0001F600"
    assert [set(p) for p in pieces] == [{"id", "piece"}] * len(pieces) and "".join(p["piece"] for p in pieces) == "Hi there"
    back = server.post("/detokenize", {"tokens": ids}).json()
    assert back == {"prompt": text, "content": text}
    for body, param in [({"content": 5}, "content"), ({"content": "x", "with_pieces": 5}, "with_pieces"), ({}, "prompt"),
                        ({"content": "x", "add_special": "x"}, "add_special")]:
        reply = server.post("/tokenize", body)
        assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text


def test_prompts_are_cut_on_request_only(start_server):
    """truncate_prompt_tokens keeps a prompt's end; -1 keeps what leaves room for the answer."""
    with start_server("--max-model-len", "64") as server:
        def complete(ids, **options):
            body = {"prompt": ids, "max_tokens": 4, "temperature": 0, **options}
            return httpx.post(server.url + "/v1/completions", json=body, timeout=60).json()
        ids = list(range(100, 140))
        cut, same = complete(ids, truncate_prompt_tokens=10), complete(ids[-10:])
        assert cut["choices"][0]["text"] == same["choices"][0]["text"] and cut["usage"]["prompt_tokens"] == 10
        assert complete(ids * 5)["error"]["code"] == "context_length_exceeded"
        assert complete(ids * 5, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 60
        assert complete("word " * 300, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 60


def test_timings(server, model):
    body = {"model": model, "messages": [{"role": "user", "content": LONG}], "max_tokens": 8, "timings_per_token": True}
    whole = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=60).json()
    assert whole["timings"]["cache_n"] + whole["timings"]["prompt_n"] == whole["usage"]["prompt_tokens"]
    assert whole["timings"]["predicted_n"] == whole["usage"]["completion_tokens"] and whole["timings"]["predicted_ms"] > 0
    assert whole["timings"]["queue_ms"] > 0 and whole["timings"]["prompt_ms"] > 0
    chunks = [json.loads(d) for d in sse(httpx.post(server.url + "/v1/chat/completions", json={**body, "stream": True},
                                                    timeout=60).text.splitlines()) if d != "[DONE]"]
    assert [("timings" in c) for c in chunks] == [False] * (len(chunks) - 1) + [True]


def test_the_form_of_an_answer(server):
    """Every protocol has its own words for a schema; the answer follows it in each."""
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}
    messages = [{"role": "user", "content": "Give JSON."}]
    form = {"type": "json_schema", "name": "n", "schema": schema}
    asked = {
        "/v1/messages": ({"messages": messages, "max_tokens": 60, "output_config": {"format": form}},
                         lambda a: a["content"][0]["text"]),
        "/v1/responses": ({"input": messages, "max_output_tokens": 60, "text": {"format": form}},
                          lambda a: a["output"][0]["content"][0]["text"]),
        "/api/chat": ({"messages": messages, "stream": False, "format": schema, "options": {"num_predict": 60}},
                      lambda a: a["message"]["content"]),
    }
    for path, (body, text) in asked.items():
        answer = httpx.post(server.url + path, json={**body, "temperature": 0, "seed": 1}, timeout=60)
        assert answer.status_code == 200 and json.loads(text(answer.json()))["a"] in "xy", path
