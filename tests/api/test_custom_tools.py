"""OpenAI's custom tools, whose calls are a text, with OpenAI's own client before a scripted model: chat and responses."""
import json

import httpx
import openai
import pytest

from scripted import scripted_server
from test_response_tools import MODEL
from test_tools import CALL, TEMPLATE, TOOLS

PATCH = 'say "hi" {1}\n\tÜ🦜\\n'
RUN = '<tool_call>\n{"name": "run", "arguments": ' + json.dumps({"input": PATCH}) + "}\n</tool_call>"
OTHER = '<tool_call>\n{"name": "run", "arguments": {"code": 1}}\n</tool_call>'
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "ab+|c"}}
LARK = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: \"x\"+"}}
CUSTOM = {"type": "custom", "custom": {"name": "run", "description": "Runs code", "format": {"type": "text"}}}
FLAT = {"type": "custom", "name": "run", "description": "Runs code"}
FLAT_TOOLS = [FLAT, {"type": "function", **TOOLS[0]["function"], "strict": False}]
ASK = [{"role": "user", "content": "Run it."}]


@pytest.fixture(scope="module")
def custom():
    with scripted_server(template=TEMPLATE) as (server, script):
        yield server, server.client(), script


def chat(client, **more):
    return client.chat.completions.create(**{"model": MODEL, "messages": ASK, "tools": [CUSTOM, TOOLS[0]], **more})


def test_a_chat_whole_and_streamed(custom):
    _, client, script = custom
    script([("Run", f"Now.\n{RUN}\n{CALL}")])
    one, two = chat(client).choices[0].message.tool_calls
    assert one.type == "custom" and one.custom.name == "run" and one.custom.input == PATCH
    assert two.type == "function" and json.loads(two.function.arguments)["days"] == 2
    text, kinds = "", {}
    for chunk in chat(client, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.id:
                kinds[call.index] = call.type
            text += (call.model_extra.get("custom") or {}).get("input", "")
    assert text == PATCH and kinds == {0: "custom", 1: "function"}


def test_arguments_of_another_form_come_as_they_are(custom):
    _, client, script = custom
    script([("Run", OTHER)])
    assert chat(client).choices[0].message.tool_calls[0].custom.input == '{"code": 1}'


def test_a_function_that_says_custom_is_a_function(custom):
    _, client, script = custom
    script([("Run", CALL)])
    tools = [{**TOOLS[0], "custom": True, "function": {**TOOLS[0]["function"], "custom": True}}]
    call, = chat(client, tools=tools).choices[0].message.tool_calls
    assert call.type == "function" and json.loads(call.function.arguments)["days"] == 2


def test_a_chat_goes_on_behind_a_call(custom):
    server, client, script = custom
    said = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "run", "input": PATCH}}]}
    messages = [*ASK, said, {"role": "tool", "tool_call_id": "c1", "content": "It ran."}]
    script([("It ran.", "Good.")])
    assert chat(client, messages=messages).choices[0].message.content == "Good."
    prompt = httpx.post(server.url + "/apply-template", json={"messages": messages, "tools": [CUSTOM]}, timeout=30)
    assert prompt.status_code == 400, "llama.cpp's route knows functions alone"


def test_responses_whole_streamed_and_the_next_turn(custom):
    _, client, script = custom
    script([("Run", RUN), ("It ran.", "Good.")])
    options = dict(model=MODEL, input="Run it.", tools=FLAT_TOOLS)
    answer = client.responses.create(**options)
    item = answer.output[0]
    assert item.type == "custom_tool_call" and item.name == "run" and item.input == PATCH and item.id.startswith("ctc_")
    assert client.responses.input_tokens.count(**options).input_tokens == answer.usage.input_tokens
    *events, last = client.responses.create(stream=True, **options)
    kinds = [e.type for e in events]
    assert "response.custom_tool_call_input.delta" in kinds and "response.function_call_arguments.delta" not in kinds
    assert "".join(e.delta for e in events if e.type == "response.custom_tool_call_input.delta") == PATCH
    done, = [e for e in events if e.type == "response.custom_tool_call_input.done"]
    assert done.input == PATCH and done.item_id == last.response.output[0].id
    assert last.response.output[0].input == PATCH
    with client.responses.stream(**options) as stream:
        assert stream.get_final_response().output[0].input == PATCH
    result = [{"type": "custom_tool_call_output", "call_id": item.call_id, "output": "It ran."}]
    again = client.responses.create(model=MODEL, input=result, tools=FLAT_TOOLS, previous_response_id=answer.id)
    assert again.output_text == "Good."
    again = client.responses.create(model=MODEL, tools=FLAT_TOOLS, input=[
        {"role": "user", "content": "Run it."}, item.model_dump(), *result])
    assert again.output_text == "Good."


def test_they_count_among_the_tokens_of_an_input(custom):
    _, client, script = custom
    script([("Run", "No.")])
    ask = dict(model=MODEL, input="Run it.", tools=FLAT_TOOLS)
    counted = client.responses.input_tokens.count(**ask).input_tokens
    assert counted == client.responses.create(**ask).usage.input_tokens


def test_a_lark_grammar_is_told_and_not_held(custom):
    server, _, script = custom
    script([('start: \\"x\\"+', RUN)])
    for path, body in [("chat/completions", {"messages": ASK, "tools": [{"type": "custom", "custom": {"name": "run", "format": LARK}}]}),
                       ("responses", {"input": "Run it.", "tools": [{**FLAT, "format": {"type": "grammar", **LARK["grammar"]}}]})]:
        answer = httpx.post(f"{server.url}/v1/{path}", json={"model": MODEL, **body}, timeout=60)
        assert answer.status_code == 200 and PATCH[:8] in json.dumps(answer.json()).replace('\\\\', '').replace('\\"', '"')
        assert answer.headers["x-flashd-warning"] == "the Lark grammar of tool run is told to the model and not held"


@pytest.mark.parametrize("more, param", [
    (dict(tools=[{"type": "custom", "custom": {}}]), "tools[0].custom.name"),
    (dict(tools=[{"type": "custom", "custom": {"name": "a b"}}]), "tools[0].function.name"),
    (dict(tools=[CUSTOM, {"type": "function", "function": {"name": "run"}}]), "tools[1].function.name"),
    (dict(tools=[{"type": "custom", "custom": {"name": "run", "format": {"type": "grammar"}}}]), "tools[0].custom.format"),
    (dict(tools=[{"type": "custom", "custom": {"name": "run", "format": {"type": "grammar", "grammar": {
        "syntax": "regex", "definition": "("}}}}], tool_choice="required"), "tools[0].function.parameters"),
    (dict(tool_choice={"type": "custom", "custom": {"name": "no"}}), "tool_choice"),
    (dict(messages=[*ASK, {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "run"}}]}]),
     "messages[1].tool_calls"),
])
def test_what_is_wrong_is_said(custom, more, param):
    with pytest.raises(openai.BadRequestError) as refused:
        chat(custom[1], **more)
    assert refused.value.body["param"] == param


def test_a_forced_call_matches_its_pattern(server, client, model):
    """Of the real model; what it may call of several, too."""
    tool = {"type": "custom", "custom": {"name": "run", "format": GRAMMAR}}
    for choice in ("required", {"type": "custom", "custom": {"name": "run"}}, {"type": "allowed_tools", "allowed_tools": {
            "mode": "required", "tools": [{"type": "custom", "custom": {"name": "run"}}]}}):
        call, *_ = client.chat.completions.create(model=model, messages=ASK, tools=[tool, TOOLS[0]], tool_choice=choice,
                                                  parallel_tool_calls=False, max_tokens=60, seed=3).choices[0].message.tool_calls
        text = call.custom.input
        assert call.type == "custom" and (text == "c" or text == "a" + "b" * (len(text) - 1) and len(text) > 1)
