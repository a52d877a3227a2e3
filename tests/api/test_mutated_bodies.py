"""Bodies of every route whose trees were changed at random: values of other types and at edges, members renamed, doubled and
gone, parts of other routes' bodies. Whatever comes, the answer is 2xx or an error in the protocol's own shape with a sentence, never
a fault of the server's; its processes live on, and nothing is left in flight.

FLASHD_MUTATED_BODIES: how many of each template; FLASHD_MUTATED_SEED: of which they are made. One that fails is printed with its number: the
same seed and number make the same body."""

import asyncio
import copy
import json
import os
import pathlib
import random

import httpx
import pytest

from test_pairwise import ROUTES, has_the_shape_of_an_error, read_answer, request

NUM_BODIES = int(os.environ.get("FLASHD_MUTATED_BODIES", "400"))
SEED = os.environ.get("FLASHD_MUTATED_SEED", "1")
NUM_CONNECTIONS, CHANGES_MAX, ANSWER_SECONDS = 4, 4, 60
HUGE = "number beyond every double"  # 1e400, which json does not write
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "b"]}}}
VALUES = [
    [], {}, None, "", " ", 0, -1, 1, 0.5, True, False, HUGE, -1e308, 2**53 + 1, 2**31, -(2**63), 2**64, "\ud800", "a\0b", "\U0010ffff", [[]], [{}],
    [None], [""], {"": {}}, [1, "a", None], "1", "null", "a" * 2000, "<|im_start|>", "user", "assistant", "system", "developer", "tool",
    CALL, TOOL, [TOOL], SCHEMA, {"role": "user", "content": []}, {"role": "assistant"}, {"role": "assistant", "content": None},
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "1"}]}, {"type": "text", "text": "a"}, {"type": "text"},
    {"type": "image_url", "image_url": {"url": "x"}}, {"type": "input_text", "text": "a"}, {"type": "thinking", "thinking": "h", "signature": "s"},
    {"type": "tool_use", "id": "c", "name": "f", "input": {}}, {"type": "tool_result", "tool_use_id": "c", "content": []},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "1"},
    {"type": "reasoning", "summary": []}, {"type": "item_reference", "id": "msg_1"}, "resp_1", {"type": "custom", "custom": {"name": "g"}},
    {"name": "f", "input_schema": {}}, "required", "auto", "none", {"type": "function", "function": {"name": "f"}}, {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, {"regex": "[a-z]{1,3}"}, {"choice": ["a", "b"]}, {"json": SCHEMA},
    {"grammar": 'root ::= "a" root?'}, {"$ref": "#"}, {"5": -100, "x": 1}, [[5, 1], ["a", False]],
]
PARTS_TEMPLATE = """{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('no ' + m.role) }}
{% endif %}{{ '<|im_start|>' + m.role + '\n' }}{% for p in m.content %}{{ p.text }}{% endfor %}{% for c in m.tool_calls %}
{{ '<tool_call>' + c.function.name + c.function.arguments | tojson + '</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
INNER_NAMES = ["role", "content", "type", "text", "name", "function", "arguments", "tool_calls", "tool_call_id", "id", "call_id", "input", "output",
               "schema", "json_schema", "regex", "choice", "properties", "items", "enum", "required", "anyOf", "$ref", "strict"]


def seeds():
    """The fuzzers' bodies that were written by hand, and the least of every route."""
    folder = pathlib.Path(__file__).parent.parent / "fuzz/seeds/request"
    written = [json.loads(path.read_text()) for path in sorted(folder.iterdir()) if len(path.name) < 40 and not path.name.startswith("regression")]
    return [body for body in written if isinstance(body, dict)] + list(ROUTES.values())


def places(tree):
    """-> every container and key in the tree"""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from places(tree[key])


def insert(choose, container, name, value):
    if isinstance(container, dict):
        container.setdefault(name, value)
    elif isinstance(container, list):
        container.insert(choose.randrange(len(container) + 1), value)


def change(choose, body, others, names):
    """One place of the body."""
    container, key = choose.choice(list(places(body)) or [({"": None}, "")])
    name, value = choose.choice(names), copy.deepcopy(choose.choice(VALUES))
    other = choose.choice(others)
    from_other, its_key = choose.choice(list(places(other)))
    kind = choose.randrange(9)
    if kind == 0:
        container[key] = value
    elif kind == 1:
        del container[key]
    elif kind == 2:
        insert(choose, container, name, copy.deepcopy(container[key]))
    elif kind == 3 and isinstance(container, dict):
        container[name] = container.pop(key)
    elif kind == 4 and isinstance(container[key], (list, dict)):
        container[key] = type(container[key])()
    elif kind == 5:
        container[key] = choose.choice([[container[key]], {name: container[key]}])
    elif kind == 6:
        insert(choose, container[key], name, value)
    elif kind == 7:
        container[key] = copy.deepcopy(from_other[its_key])
    else:
        insert(choose, body, its_key if isinstance(its_key, str) else name, copy.deepcopy(from_other[its_key]))


def mutated(number, paths, bodies, names):
    """-> the path and the body that this number of the seed stands for"""
    choose = random.Random(f"{SEED} {number}")
    path = choose.choice(paths)
    body = copy.deepcopy({**ROUTES[path], **choose.choice([{}, choose.choice(bodies)])})
    for _ in range(choose.randint(1, CHANGES_MAX)):
        change(choose, body, bodies, names)
    return path, body


def field_names(server):
    schemas = httpx.get(server.url + "/openapi.json").json()["components"]["schemas"].values()
    return sorted({name for schema in schemas for name in schema.get("properties", {})} | set(INNER_NAMES))


def check_answer(path, status, content_type, text):
    assert status // 100 in (2, 4) or status == 503
    if status >= 400:
        assert has_the_shape_of_an_error(path, json.loads(text)) and b" " in text
    elif content_type.startswith("text/event-stream"):
        data = [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")]
        assert data and all(isinstance(json.loads(d), dict) for d in data if d != "[DONE]")
    else:
        assert all(isinstance(json.loads(line), (dict, list)) for line in text.splitlines() if line)


async def send_some(server, numbers, made, statuses):
    """Over one connection; numbers: an iterator that other connections take from, too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24)
    for number in numbers:
        path, body = made(number)
        bytes_of_body = json.dumps(body).replace(f'"{HUGE}"', "1e400").encode()
        try:
            writer.write(request(path, bytes_of_body) + b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            status, content_type, text = await asyncio.wait_for(read_answer(reader), ANSWER_SECONDS)
            check_answer(path, status, content_type, text)
            alive, _, _ = await asyncio.wait_for(read_answer(reader), ANSWER_SECONDS)
            assert alive == 200
        except Exception as error:
            raise AssertionError(f"seed {SEED}, number {number}: POST {path} {bytes_of_body.decode()}") from error
        statuses[status] = statuses.get(status, 0) + 1
    writer.close()


async def send_all(server, made, statuses):
    numbers = iter(range(NUM_BODIES))
    async with asyncio.TaskGroup() as group:
        for _ in range(NUM_CONNECTIONS):
            group.create_task(send_some(server, numbers, made, statuses))


@pytest.mark.parametrize("template", [None, PARTS_TEMPLATE])
def test_mutated_bodies(start_server, tmp_path, template):
    statuses, bodies, options = {}, seeds(), []
    if template:
        (tmp_path / "template").write_text(template)
        options = ["--chat-template", str(tmp_path / "template")]
    with start_server(*options, "--max-model-len", "64", "--max-n", "2", "--max-requests-per-connection", "1000000000", "--no-log-requests") as server:
        names = field_names(server)
        asyncio.run(send_all(server, lambda number: mutated(number, list(ROUTES), bodies, names), statuses))
        assert server.process.poll() is None, server.log()
        server.wait_idle()
        assert server.metrics()["flashd_engine_deaths_total"] == 0
    print(sum(statuses.values()), "bodies", statuses)
    assert 200 in statuses and 400 in statuses
