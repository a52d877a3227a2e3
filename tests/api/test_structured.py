"""Answers that must have a form: every way to ask for one, with the real model, and what is refused."""

import concurrent.futures
import json
import re
import threading

import httpx
import jsonschema
import pydantic
import pytest
from conftest import wait_until

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "Tell me about a person."}]


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def chat(server, **fields):
    reply = server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 200, "seed": 1, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def content(server, **fields):
    choice = chat(server, **fields)["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    return choice["message"]["content"]


def completion(server, **fields):
    reply = server.post("/v1/completions", {"prompt": "It is", "max_tokens": 60, "seed": 1, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"]


def test_json_schema(server):
    jsonschema.validate(json.loads(content(server, response_format=format_of(PERSON), temperature=0)), PERSON)
    for temperature in (1, 2):
        reply = chat(server, structured_outputs={"json": PERSON, "disable_any_whitespace": True}, n=6,
                     temperature=temperature)
        for choice in reply["choices"]:
            assert choice["finish_reason"] == "stop", choice
            jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)


def test_json_object(server):
    body = {"response_format": {"type": "json_object"}, "temperature": 0, "max_tokens": 100}
    choice = chat(server, **body)["choices"][0]
    assert choice["message"]["content"].startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize("fields", [
    {"structured_outputs": {"choice": ["yes", "no", "maybe so"]}}, {"guided_choice": ["yes", "no", "maybe so"]}])
def test_choice(server, fields):
    assert {c["text"] for c in completion(server, n=8, temperature=2, **fields)} <= {"yes", "no", "maybe so"}


@pytest.mark.parametrize("fields", [{"structured_outputs": {"regex": r"[a-z]{3}-\d{2,4}é?"}},
                                    {"guided_regex": r"[a-z]{3}-\d{2,4}é?"}])
def test_regex(server, fields):
    for choice in completion(server, n=8, temperature=2, **fields):
        assert choice["finish_reason"] == "stop" and re.fullmatch(r"[a-z]{3}-\d{2,4}é?", choice["text"])


@pytest.mark.parametrize("name", ["guided_grammar", "grammar"])
def test_grammar(server, name):
    grammar = 'root ::= sum\nsum ::= number (" + " number){1,3}\nnumber ::= [1-9] [0-9]{0,2}'
    fields = {name: grammar} if name == "guided_grammar" else {"structured_outputs": {name: grammar}}
    for choice in completion(server, n=4, temperature=2, **fields):
        assert re.fullmatch(r"[1-9]\d{0,2}( \+ [1-9]\d{0,2}){1,3}", choice["text"])


def test_many_alternatives(server):
    """A mask is made of all of them; more than can be followed at once are refused, not answered with nothing."""
    def alternatives(n):
        return {"anyOf": [{"type": "object", "properties": {f"k{i}": {"enum": [i, i + 1]}}, "required": [f"k{i}"],
                           "additionalProperties": False} for i in range(n)]}

    (name, value), = json.loads(content(server, response_format=format_of(alternatives(900)), temperature=0)).items()
    assert value - int(name[1:]) in (0, 1)
    reply = server.post("/v1/chat/completions", {"messages": QUESTION, "response_format": format_of(alternatives(1100))})
    assert reply.status_code == 400 and "alternatives begin alike" in reply.json()["error"]["message"]


def test_schema_as_text_and_no_spaces(server):
    text = content(server, guided_json=json.dumps({"enum": [[1, 2], {"a": None}]}), temperature=0)
    assert json.loads(text) in ([1, 2], {"a": None})
    text = content(server, structured_outputs={"json": PERSON, "disable_any_whitespace": True}, temperature=0)
    assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) or "\\" in text


def test_white_space_and_closed_objects(server):
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}}}
    fields = {"json": schema, "whitespace_pattern": " ", "disable_additional_properties": True}
    reply = server.post("/v1/completions", {"prompt": "x", "structured_outputs": fields})
    assert reply.status_code == 400 and "whitespace_pattern" in reply.json()["error"]["message"]
    fields["whitespace_pattern"] = "\n?"
    for choice in completion(server, n=8, temperature=2, structured_outputs=fields):
        assert choice["finish_reason"] == "stop"
        assert not re.search(r"[ \t]|\n\n", choice["text"])
        value = json.loads(choice["text"])
        assert set(value) <= {"a"} and len(set(value.get("a", []))) == len(value.get("a", []))


def test_structural_tag(server):
    """Text is free; behind each " the" stands a number of three digits."""
    tag = {"type": "structural_tag", "triggers": [" the"],
           "structures": [{"begin": " the", "schema": {"type": "integer", "minimum": 100, "maximum": 999}, "end": "!"}]}
    for fields in ({"response_format": tag}, {"structured_outputs": {"structural_tag": json.dumps(tag)}}):
        texts = [c["text"] for c in completion(server, n=6, temperature=1, **fields)]
        assert any(" the" in t for t in texts) and any(len(t) > 20 for t in texts)
        for text in texts:
            assert re.fullmatch(r"(?s)(?:(?! the).)*(?: the[1-9]\d\d!(?:(?! the).)*)*(?: the(?:[1-9]\d{0,2})?)?", text), text
    tag["structures"][0]["begin"] = "the"
    reply = server.post("/v1/completions", {"prompt": "x", "response_format": tag})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "response_format"
    assert "begins with no trigger" in reply.json()["error"]["message"]


def test_a_stream_is_the_same_answer(server, client, model):
    whole = content(server, response_format=format_of(PERSON), temperature=0)
    chunks = list(client.chat.completions.create(model=model, messages=QUESTION, max_tokens=200, seed=1, stream=True, temperature=0,
                                                 response_format=format_of(PERSON)))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_same_alone_and_among_others(server):
    bodies = [{"response_format": format_of(PERSON), "seed": 1}, {"guided_choice": ["red", "green"], "seed": 2},
              {"seed": 3}, {"guided_regex": "[a-z ]{5,40}\\.", "seed": 4}]
    bodies = [{**b, "max_tokens": 24, "temperature": 1.5, "logprobs": True} for b in bodies * 2]
    alone = [chat(server, **b)["choices"] for b in bodies[:4]] * 2
    together = [None] * len(bodies)

    def ask(i):
        together[i] = chat(server, **bodies[i])["choices"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert together == alone


def test_length_and_stop_cut_it(server):
    choice = chat(server, response_format=format_of(PERSON), max_tokens=4)["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"].startswith("{")
    text = content(server, response_format=format_of(PERSON), stop='"name"')
    assert text.startswith("{") and "name" not in text


def test_the_end(server):
    """What may be drawn where nothing but the end is left."""
    for fields in ({}, {"ignore_eos": True}, {"min_tokens": 20}, {"ignore_eos": True, "min_tokens": 20}):
        choice = completion(server, guided_choice=["abc"], **fields)[0]
        assert (choice["text"], choice["finish_reason"]) == ("abc", "stop")
    longest = completion(server, guided_regex="[ab]{1,30}", min_tokens=20, temperature=2)[0]
    assert re.fullmatch("[ab]{20,30}", longest["text"]) and longest["finish_reason"] == "stop"
    endless = completion(server, guided_regex="[ab]+", ignore_eos=True, max_tokens=30)[0]
    assert re.fullmatch("[ab]+", endless["text"]) and endless["finish_reason"] == "length"


def test_log_probabilities_are_raw(server):
    entry = chat(server, guided_choice=["zebra"], logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"][0]
    assert entry["logprob"] < entry["top_logprobs"][0]["logprob"]


def test_several_prompts(server):
    choices = completion(server, prompt=["One", "Two"], n=2, guided_choice=["left", "right"])
    assert len(choices) == 4 and all(c["text"] in ("left", "right") for c in choices)


class Colour(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    warm: bool
    shades: list[str] = pydantic.Field(max_length=2)


def test_parse(loose_client, model):
    reply = loose_client.chat.completions.parse(model=model, messages=QUESTION, response_format=Colour, max_tokens=300,
                                                temperature=0)
    assert reply.choices[0].finish_reason == "stop"
    assert isinstance(reply.choices[0].message.parsed, Colour)


class Street(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    number: int = pydantic.Field(ge=1, le=999)


class Resident(pydantic.BaseModel):
    """As plain pydantic writes it: $defs, defaults, and not a word of additionalProperties."""
    name: str = pydantic.Field(max_length=12)
    street: Street
    old: Street | None = None
    tags: list[str] = pydantic.Field(default=[], max_length=1)


def ask_form(server, path, schema, seed):
    """The answer's text by each protocol's own way to ask for a form."""
    head = {"messages": QUESTION, "max_tokens": 400, "temperature": 0.8, "seed": seed}
    if path == "/v1/responses":
        head |= {"input": "A person.", "max_output_tokens": 400, "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}
        del head["messages"], head["max_tokens"]
    elif path == "/api/chat":
        head |= {"stream": False, "format": schema, "options": {"temperature": 0.8, "seed": seed, "num_predict": 400}}
    elif path == "tools":
        head |= {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}], "tool_choice": "required"}
    elif path == "guided":
        head |= {"guided_json": schema}
    else:
        head |= {"response_format": format_of(schema)}
    reply = server.post(path if path.startswith("/") else "/v1/chat/completions", head)
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    if path == "/v1/responses":
        return answer["output"][-1]["content"][0]["text"]
    message = answer["message"] if path == "/api/chat" else answer["choices"][0]["message"]
    return message["tool_calls"][0]["function"]["arguments"] if path == "tools" else message["content"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "guided", "tools", "/v1/responses", "/api/chat"])
def test_listed_properties_are_all(server, path):
    """A small model would invent keys until its tokens end."""
    schema = Resident.model_json_schema()
    for seed in range(4):
        value = json.loads(ask_form(server, path, schema, seed))
        Resident.model_validate(value)
        assert set(value) <= {"name", "street", "old", "tags"} and set(value["street"]) == {"name", "number"}


def test_other_properties_where_they_are_asked_for(server):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"],
              "additionalProperties": {"enum": [1]}, "maxProperties": 3, "minProperties": 2}
    for seed in range(2):
        value = json.loads(ask_form(server, "guided", schema, seed))
        assert "a" in value and len(value) == 2 or len(value) == 3, value


BAD = [
    (format_of({"type": "array", "uniqueItems": True}), "response_format.json_schema.schema", "unsupported_value",
     "uniqueItems"),
    (format_of({"type": "spam"}), "response_format.json_schema.schema", "invalid_value", "name of a type"),
    (format_of({"pattern": "("}), "response_format.json_schema.schema", "invalid_value", "("),
    (format_of({"$ref": "http://example.org/x"}), "response_format.json_schema.schema", "unsupported_value", "$ref"),
    (format_of({"const": "\0"}), "response_format.json_schema.schema", "invalid_value", "U+0000"),
]


@pytest.mark.parametrize("response_format, param, code, says", BAD)
def test_refusals(server, response_format, param, code, says):
    reply = server.post("/v1/chat/completions", {"messages": QUESTION, "response_format": response_format})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["code"]) == (400, param, code) and says in error["message"]


@pytest.mark.parametrize("fields, param", [
    ({"guided_regex": "(a"}, "guided_regex"), ({"guided_regex": "(a)\\1"}, "guided_regex"),
    ({"guided_grammar": "root ::= a"}, "guided_grammar"), ({"guided_regex": "a{1,100000}{1,100000}"}, "guided_regex"),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
    ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice")])
def test_more_refusals(server, fields, param):
    for path, body in (("completions", {"prompt": "x"}), ("chat/completions", {"messages": QUESTION})):
        reply = server.post("/v1/" + path, {**body, **fields})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


# Both alternatives go on alike for as long as brackets open: each doubles the readings.
AMBIGUOUS = 'root ::= a\na ::= "(" a ")" | "(" a "]" | "(" a "}" | "(("'


def test_a_form_that_goes_past_a_limit_is_not_asked_for_again(server):
    """It is the request's own: official clients would send a 500 twice more, to the same end."""
    form = {"structured_outputs": {"grammar": AMBIGUOUS}, "max_tokens": 900, "max_output_tokens": 900, "temperature": 0}
    reply = server.post("/v1/chat/completions", {"messages": QUESTION, **form})
    error = reply.json()["error"]
    assert reply.status_code == 400 and reply.headers["x-should-retry"] == "false", reply.text
    assert error["code"] == "form_too_large" and error["param"] == "structured_outputs.grammar"
    assert "alternatives that begin alike" in error["message"]
    text = server.post("/v1/chat/completions", {"messages": QUESTION, "stream": True, **form}).text
    assert text.endswith("data: [DONE]\n\n")
    assert json.loads(text.split("data: ")[-2])["error"] == error | {
        "message": json.loads(text.split("data: ")[-2])["error"]["message"]}
    text = server.post("/v1/responses", {"input": "Hi", "stream": True, **form}).text
    failed = json.loads(text.split("data: ")[-1])
    assert failed["type"] == "response.failed" and failed["response"]["error"]["code"] == "invalid_prompt"
    text = server.post("/v1/messages", {"messages": QUESTION, "stream": True, **form}).text
    assert json.loads(text.split("data: ")[-1])["error"]["type"] == "invalid_request_error"


def test_it_is_counted_and_logged(server):
    before = server.wait_idle()
    for _ in range(2):
        completion(server, guided_regex="counted [a-z]{3}")
    server.post("/v1/completions", {"prompt": "x", "guided_regex": "("})
    after = server.wait_idle()

    def gained(name):
        return after[name] - before[name]

    assert gained('flashd_grammars_total{result="compiled"}') == 1
    assert gained('flashd_grammars_total{result="cached"}') == 1
    assert gained('flashd_grammars_total{result="refused"}') == 1
    assert gained("flashd_grammar_compile_seconds_total") > 0 and after["flashd_grammar_bytes"] > 0
    assert gained("flashd_masks_total") >= 4
    assert '"constraint":"regex"' in server.log()


@pytest.mark.slow
def test_slow_forms_keep_no_other_waiting(server):
    """Masks of forty readings of each byte take a hundred times as long as a schema's: who asks for them waits, nobody else."""
    form = {"structured_outputs": {"grammar": "root ::= " + " ".join(["[^\\n]{1,9}"] * 40)}}
    schema = {"structured_outputs": {"json": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 40}}, "required": ["a"]}}}
    body = {"temperature": 0, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(4) as pool, httpx.Client(timeout=120) as client:
        url = server.url + "/v1/chat/completions"
        asks = [{"role": "user", "content": f"Write a long story about {who}."} for who in ("a bear", "the sea", "Anna", "trains")]
        slow = [pool.submit(client.post, url, json=body | form | {"messages": [ask], "max_tokens": 14}) for ask in asks]
        masks = server.metrics()["flashd_masks_total"]
        wait_until(lambda: server.metrics()["flashd_masks_total"] >= masks + 20)
        quick = [client.post(url, json=body | schema | {"messages": [asks[0]], "max_tokens": 20}) for _ in range(2)]
        assert [q.status_code for q in quick] == [200, 200]
        assert sum(f.done() for f in slow) <= 1
        assert {f.result().status_code for f in slow} == {200}


# A family's own marks, which the prompt opens.
THINKING = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{- '[THINK]\\n' + m.reasoning_content + '\\n[/THINK]\\n\\n' }}{% endif %}{{- m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n[THINK]\\n' }}{% endif %}"""


def end_of_turn(server):
    [token] = server.post("/tokenize", {"prompt": "<|im_end|>", "add_special_tokens": False}).json()["tokens"]
    return token


def test_a_form_begins_behind_reasoning(start_server, tmp_path):
    """Where the prompt opens it, by the marks that the template has: a chat's, and a text."""
    path = tmp_path / "template.jinja"
    path.write_text(THINKING)
    with start_server("--chat-template", str(path)) as server:
        form = {"structured_outputs": {"choice": ["yes"]}, "max_tokens": 8, "temperature": 0}
        choice = chat(server, **form)["choices"][0]
        assert choice["finish_reason"] == "length" and choice["message"]["reasoning_content"] and not choice["message"]["content"]
        ending = chat(server, logit_bias={str(end_of_turn(server)): 100}, **form)["choices"][0]
        assert ending["finish_reason"] == "length"  # a model that would end within its reasoning has not answered
        for prompt, bound in [("Well? [THINK]\n", False), ("Well? <think>\n", True), ("Well?", True)]:
            [choice] = completion(server, prompt=prompt, **form)
            assert (choice["text"] == "yes") == bound, choice


@pytest.mark.parametrize("limits", ['"minimum":9007199254740993,"maximum":9007199254740993', '"const":9007199254740993',
                                    '"minimum":9223372036854775807,"exclusiveMaximum":9223372036854775808'])
def test_whole_numbers_beyond_a_double(server, limits):
    """Bounds are what the schema says digit by digit, also in arguments of tools."""
    schema = '{"type":"object","properties":{"n":{"type":"integer",%s}},"required":["n"],"additionalProperties":false}' % limits
    expected = int(limits.split(":")[1].split(",")[0])
    head = '{"messages":[{"role":"user","content":"x"}],"max_tokens":60,"temperature":0,'
    asks = [head + f'"response_format":{{"type":"json_schema","json_schema":{{"name":"x","schema":{schema}}}}}}}',
            head + f'"tools":[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}],"tool_choice":"required"}}']
    for ask in asks:
        answer = httpx.post(server.url + "/v1/chat/completions", content=ask, timeout=60)
        assert answer.status_code == 200, answer.text
        message = answer.json()["choices"][0]["message"]
        calls = message.get("tool_calls")
        assert json.loads(calls[0]["function"]["arguments"] if calls else message["content"]) == {"n": expected}
