"""/openapi.json: what it says is so, for every field and route, and schemathesis finds no answer that it does not tell of.

FLASHD_SCHEMATHESIS_EXAMPLES: how many bodies of each route; more than 20 brings the coverage of all values, too."""

import json
import os
import pathlib
import subprocess
import sys

import httpx
import jsonschema
import pytest

EXAMPLES = int(os.environ.get("FLASHD_SCHEMATHESIS_EXAMPLES", "3"))
QUESTION = [{"role": "user", "content": "hi"}]
LEAST = {"/v1/chat/completions": {"messages": QUESTION}, "/v1/completions": {"prompt": "x"}, "/v1/messages": {"messages": QUESTION},
         "/v1/responses": {"input": "x"}, "/api/chat": {"messages": QUESTION}, "/api/generate": {"prompt": "x"},
         "/v1/embeddings": {"input": "x"}, "/api/embed": {"input": "x"}, "/api/embeddings": {"prompt": "x"},
         "/completion": {"prompt": "x"}, "/v2/embed": {"texts": ["x"]}, "/v1/embed": {"texts": ["x"]}, "/embedding": {"content": "x"},
         "/embed": {"inputs": "x"}, "/": {"inputs": "x"}, "/generate": {"inputs": "x"}}

SET_BY_PROTOCOL = {  # whatever they hold
    **dict.fromkeys(("/api/embed", "/api/embeddings", "/v1/embed", "/v2/embed", "/embed"), {"truncate_prompt_tokens", "truncation_side", "normalize"}),
    "/": {"include_stop_str_in_output"}, "/generate": {"include_stop_str_in_output", "stream"}}


@pytest.fixture(scope="module")
def document(shared_server):
    reply = httpx.get(shared_server.url + "/openapi.json")
    assert reply.status_code == 200 and reply.headers["content-type"] == "application/json"
    return reply.json()


def bodies(document):
    for schema in document["components"]["schemas"].values():
        if "x-codec" in schema:
            yield schema["x-codec"], schema["properties"]


def wrong_value(document, schema):
    """One that the schema forbids, of a type that nobody reads leniently."""
    whole = {"allOf": [schema], "components": document["components"]}
    for value in [{"a": [{}]}, [[["a"]]], "no such value", True, -1e300]:
        if not jsonschema.Draft202012Validator(whole).is_valid(value):
            return value
    return None


def test_every_field_is_read(server, document):
    """A value that its schema forbids is refused by the field's name."""
    accepted, client = [], httpx.Client(base_url=server.url, timeout=60)
    for path, properties in bodies(document):
        assert len(properties) > 5
        if path not in LEAST:
            continue  # this model is no reranker
        for name, schema in properties.items():
            value = wrong_value(document, schema)
            if value is None or name in SET_BY_PROTOCOL.get(path, ()):
                continue
            reply = client.post(path, json={**LEAST[path], "max_tokens": 1, name: value})
            if reply.status_code not in (400, 404) or name not in reply.text:
                accepted.append((path, name, value, reply.text))
    assert not accepted, "\n".join(map(str, accepted))


def test_no_other_field_is_read(server, document):
    """What is told of is never called ignored, and what is not told of is."""
    reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "stop_sequences": "a"})
    assert server.log_line(reply)["ignored_fields"] == "stop_sequences"
    for path in ("/v1/chat/completions", "/v1/completions"):
        properties = dict(bodies(document))[path]
        body = {**LEAST[path], "max_tokens": 1}
        for name in properties:
            kinds = set(properties[name].get("type", [])) - {"null"}
            if name not in body and name not in ("n", "logprobs", "top_logprobs") and kinds <= {"integer", "number", "boolean"} and kinds:
                body[name] = False if "boolean" in kinds else 1
        body.update(min_tokens=0, repeat_last_n=-1, truncate_prompt_tokens=100, request_id=path.strip("/").replace("/", "-"))
        reply = server.post(path, body)
        assert reply.status_code == 200, reply.text
        line = server.log_line(reply)
        assert "ignored_fields" not in line, line


def test_every_route_is_there(server, document):
    for path, operations in document["paths"].items():
        for method in operations:
            reply = httpx.request(method, server.url + path.replace("{model}", "x").replace("{id}", "x"),
                                  json={"max_tokens": 1} if method == "post" else None)
            assert reply.status_code != 405, (path, reply.text)
            assert reply.status_code != 404 or "unknown_url" not in reply.text, (path, reply.text)
            assert str(reply.status_code) in operations[method]["responses"], (path, reply.status_code)
    assert httpx.get(server.url + "/v1/nothing").status_code == 404


def narrowed(document, name):
    """Names that are served and roles that templates know: so that more bodies come as far as a model."""
    document = json.loads(json.dumps(document))
    for _, properties in bodies(document):
        properties["model"] = {"enum": [name, None]}
    document["components"]["schemas"]["Message"]["properties"]["role"] = {"enum": ["system", "user", "assistant"]}
    document["components"]["schemas"]["Message"]["properties"]["content"] = {"type": "string"}
    return document


def test_schemathesis(start_server, tmp_path, document):
    """No 5xx, no status, type or shape of an answer that the document does not tell of."""
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    (tmp_path / "schemathesis.toml").write_text('[phases.coverage]\nunexpected-methods = ["PUT", "PATCH", "TRACE"]\n')
    with start_server("--max-model-len", "96", "--max-n", "2", "--no-log-requests") as server:
        name = server.client().models.list().data[0].id
        (tmp_path / "openapi.json").write_text(json.dumps(narrowed(document, name)))
        result = subprocess.run([
            pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", tmp_path / "schemathesis.toml", "run",
            tmp_path / "openapi.json", "--url", server.url, "--checks", checks, "--max-examples", str(EXAMPLES),
            "--generation-deterministic", "--phases", "coverage,fuzzing" if EXAMPLES > 20 else "fuzzing", "--workers", "2",
            "--request-timeout", "60", "--no-color"], capture_output=True, text=True, cwd=tmp_path)
        print(result.stdout[-6000:], result.stderr[-2000:])
        assert result.returncode == 0
