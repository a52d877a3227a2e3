"""Calls and reasoning in /v1/responses, with OpenAI's own client before a scripted model."""
import json

import anthropic
import openai
import pytest

from scripted import scripted_server
from test_tools import CALL, PING, TEMPLATE

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOOLS = [{"type": "function", "name": "get_weather", "description": "Weather", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}},
    {"type": "function", "name": "ping", "strict": False, "parameters": {"type": "object", "properties": {}}},
    {"type": "web_search"}]
THOUGHT, TEXT = "Zürich, then.", "I will look."
SAID = f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}\n{CALL}\n{PING}"
ARGUMENTS = {"city": 'Zürich "am" See', "days": 2}


@pytest.fixture(scope="module")
def thinking():
    with scripted_server(template=TEMPLATE) as (server, script):
        yield server.client(), script


def shape(response):
    """What a response is made of, without its ids."""
    parts = []
    for item in response.output:
        if item.type == "message":
            parts.append(("message", item.content[0].text))
        elif item.type == "reasoning":
            parts.append(("reasoning", item.content[0].text))
        else:
            parts.append(("call", item.name, json.loads(item.arguments)))
    return parts


SHAPE = [("reasoning", THOUGHT), ("message", TEXT), ("call", "get_weather", ARGUMENTS), ("call", "ping", {})]


def test_items_of_a_whole_answer(thinking):
    client, script = thinking
    script([("weather", SAID)])
    response = client.responses.create(model=MODEL, input="The weather?", tools=TOOLS)
    assert shape(response) == SHAPE and response.status == "completed" and response.output_text == TEXT
    ids = [i.id for i in response.output] + [i.call_id for i in response.output if i.type == "function_call"]
    assert len(set(ids)) == 6


MIXED = f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}\n{CALL}\nAnd once more.\n{PING}\nDone."


def contents(response):
    return [(i.type, i.status, getattr(i, "arguments", "") or [p.text for p in i.content]) for i in response.output]


@pytest.mark.parametrize("most", [None, 40, 60, 75, 90])
def test_items_come_in_their_order_whole_and_streamed(thinking, most):
    """Text behind a call stays there, and what was complete before an answer was cut off is complete."""
    client, script = thinking
    script([("weather", MIXED)])
    options = dict(model=MODEL, input="The weather?", tools=TOOLS, max_output_tokens=most)
    whole = client.responses.create(**options)
    *_, last = client.responses.create(stream=True, **options)
    assert contents(whole) == contents(last.response)
    if most is None:
        assert [k for k, *_ in shape(whole)] == ["reasoning", "message", "call", "message", "call", "message"]
    else:
        assert {i.status for i in whole.output[:-1]} <= {"completed"} and whole.output[-1].status == "incomplete"


def test_blocks_of_messages_come_in_their_order(thinking):
    client, script = thinking
    script([("weather", MIXED)])
    claude = anthropic.Anthropic(base_url=str(client.base_url).removesuffix("/v1/"), api_key="none", max_retries=0)
    tools = [{"name": t["name"], "input_schema": t["parameters"]} for t in TOOLS[:2]]
    options = dict(model=MODEL, messages=[{"role": "user", "content": "The weather?"}], tools=tools, max_tokens=300)
    whole = claude.messages.create(**options)
    with claude.messages.stream(**options) as stream:
        final = stream.get_final_message()
    assert [b.type for b in whole.content] == ["thinking", "text", "tool_use", "text", "tool_use", "text"]
    def parts(answer):
        return [(b.type, getattr(b, "input", None) or getattr(b, "text", None) or getattr(b, "thinking", None)) for b in answer.content]
    assert parts(final) == parts(whole)


def test_a_call_that_breaks_off_is_incomplete(thinking):
    """The answer itself is not: the model has ended it."""
    client, script = thinking
    script([("weather", f'{PING}\n<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Zür')])
    ask = {"model": MODEL, "input": "The weather?", "tools": TOOLS}
    whole = client.responses.create(**ask)
    with client.responses.stream(**ask) as events:
        streamed = events.get_final_response()
    for response in whole, streamed:
        assert [(i.name, i.status) for i in response.output] == [("ping", "completed"), ("get_weather", "incomplete")]
        assert response.status == "completed"


def test_members_that_open_responses_requires(thinking):
    client, script = thinking
    script([("weather", CALL)])
    tools = [{"type": "function", "name": "ping"}, TOOLS[0]]
    whole = client.responses.with_raw_response.create(model=MODEL, input="The weather?", tools=tools).http_response.json()
    assert whole["presence_penalty"] == whole["frequency_penalty"] == 0
    assert whole["completed_at"] >= whole["created_at"]
    assert whole["tools"] == [{**tools[0], "description": None, "parameters": None, "strict": None}, TOOLS[0]]
    first = next(iter(client.responses.create(model=MODEL, input="The weather?", stream=True)))
    assert first.response.completed_at is None


def test_items_of_a_stream(thinking):
    client, script = thinking
    script([("weather", SAID)])
    with client.responses.stream(model=MODEL, input="The weather?", tools=TOOLS) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert shape(final) == SHAPE
    raw = list(client.responses.create(model=MODEL, input="The weather?", tools=TOOLS, stream=True))
    assert [e.sequence_number for e in raw] == list(range(len(raw))) and len(events) >= len(raw)
    for index, item in enumerate(raw[-1].response.output):
        own = [e for e in raw if getattr(e, "output_index", None) == index]
        assert own[0].type == "response.output_item.added" and own[-1].type == "response.output_item.done"
        assert own[0].item.id == own[-1].item.id == item.id
        assert {e.item_id for e in own[1:-1]} == {item.id}
        deltas = "".join(e.delta for e in own if e.type.endswith(".delta"))
        assert deltas == (item.arguments if item.type == "function_call" else item.content[0].text)


def test_a_round_with_a_tool(thinking):
    """The stored call and its result reach the template, as the same conversation sent whole does."""
    client, script = thinking
    script([("20 degrees", "It is warm."), ("weather", CALL)])
    first = client.responses.create(model=MODEL, input="The weather?", tools=TOOLS)
    call = first.output[0]
    assert call.type == "function_call" and first.output_text == ""
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"}
    second = client.responses.create(model=MODEL, input=[result], tools=TOOLS, previous_response_id=first.id)
    whole = client.responses.create(model=MODEL, tools=TOOLS, input=[
        {"role": "user", "content": "The weather?"}, call.model_dump(exclude_none=True), result])
    assert second.output_text == whole.output_text == "It is warm."
    assert second.usage.input_tokens == whole.usage.input_tokens > first.usage.input_tokens


def test_items_that_are_named(thinking):
    """item_reference, as clients send that let the server store: what the item itself says."""
    client, script = thinking
    script([("20 degrees", "It is warm."), ("weather", SAID)])
    first = client.responses.create(model=MODEL, input="The weather?", tools=TOOLS)
    question, call = {"role": "user", "content": "The weather?"}, first.output[2]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"}
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    items = [item.model_dump(exclude_none=True) for item in first.output]
    answers = [client.responses.create(model=MODEL, tools=TOOLS, input=[question, *turn, result], store=False)
               for turn in (named, items)]
    assert answers[0].output_text == answers[1].output_text == "It is warm."
    assert answers[0].usage.input_tokens == answers[1].usage.input_tokens > first.usage.input_tokens
    for name in ("rs_0123456789abcdef01234567_0", "msg_" + "x" * 100 + "_1", "x", answers[0].output[0].id):
        with pytest.raises(openai.BadRequestError, match="there is no item"):
            client.responses.create(model=MODEL, input=[question, {"type": "item_reference", "id": name}])
    with pytest.raises(openai.BadRequestError, match="at most 1024"):
        client.responses.create(model=MODEL, input=[question, *named[:1] * 1025])


SPACES = [{"type": "namespace", "name": "mcp__map", "description": "What lies where.", "tools": [TOOLS[0], TOOLS[1]]},
          {"type": "namespace", "name": "sea__", "description": "", "tools": [{"type": "custom", "name": "ping", "description": "Sounds"}]}]
MAPPED = CALL.replace("get_weather", "mcp__map__get_weather")
SOUNDED = PING.replace("ping", "sea__ping").replace("{}", '{"input": "loud"}')


def test_tools_of_namespaces(thinking):
    """As Codex sends those of MCP's servers: the model sees them by both names, and a call has them apart, whole, streamed and sent again."""
    client, script = thinking
    script([("20 degrees", "It is warm."), ("weather", f"{MAPPED}\n{SOUNDED}\n{PING}")])
    options = dict(model=MODEL, input="The weather?", tools=[*SPACES, TOOLS[1]])
    whole = client.responses.create(**options)
    look, sound, ping = whole.output
    assert (look.type, look.namespace, look.name, json.loads(look.arguments)) == ("function_call", "mcp__map", "get_weather", ARGUMENTS)
    assert (sound.type, sound.namespace, sound.name, sound.input) == ("custom_tool_call", "sea__", "ping", "loud")
    assert (ping.type, ping.namespace, ping.name) == ("function_call", None, "ping")
    assert [t.type for t in whole.tools] == ["namespace", "namespace", "function"]
    events = list(client.responses.create(stream=True, **options))
    for kind in ("response.output_item.added", "response.output_item.done"):
        assert [(e.item.namespace, e.item.name) for e in events if e.type == kind] == [
            ("mcp__map", "get_weather"), ("sea__", "ping"), (None, "ping")]
    assert [e.name for e in events if e.type == "response.function_call_arguments.done"] == ["get_weather", "ping"]
    results = [{"type": "custom_tool_call_output" if c is sound else "function_call_output", "call_id": c.call_id, "output": "20 degrees"}
               for c in whole.output]
    items = [{"role": "user", "content": "The weather?"}, *(i.model_dump(exclude_none=True) for i in whole.output), *results]
    again = client.responses.create(**{**options, "input": items})
    stored = client.responses.create(**{**options, "input": results}, previous_response_id=whole.id)
    assert again.output_text == stored.output_text == "It is warm."
    assert again.usage.input_tokens == stored.usage.input_tokens
    assert client.responses.input_tokens.count(**{**options, "input": items}).input_tokens == again.usage.input_tokens
    for answer in again, stored:  # the calls that the model made, and those that were sent
        told = client.responses.input_items.list(answer.id, order="asc").data[1:4]
        assert [(i.name, getattr(i, "namespace", None)) for i in told] == [("get_weather", "mcp__map"), ("ping", "sea__"), ("ping", None)]


NEAR = {"type": "namespace", "name": "near", "description": "", "tools": [{**TOOLS[1], "name": "look"}]}
FAR = {"type": "namespace", "name": "far", "description": "", "tools": [{**TOOLS[1], "name": name} for name in ("look", "wait")]}


@pytest.mark.parametrize("choice, called", [
    ({"name": "look", "namespace": "near"}, ("near", "look")), ({"name": "look", "namespace": "far"}, ("far", "look")),
    ({"name": "wait"}, ("far", "wait")), ({"name": "far__wait"}, ("far", "wait")), ({"name": "ping"}, (None, "ping"))])
def test_a_tool_of_a_namespace_is_chosen(client, model, choice, called):
    """As its call has it, or by its name alone where no other tool has that."""
    choice = {"type": "function", **choice}
    for tool_choice in choice, {"type": "allowed_tools", "mode": "required", "tools": [choice]}:
        response = client.responses.create(model=model, input="Go.", tools=[NEAR, FAR, TOOLS[1]], tool_choice=tool_choice,
                                           parallel_tool_calls=False)
        assert [(c.namespace, c.name) for c in response.output] == [called]
        assert client.responses.retrieve(response.id).tool_choice == response.tool_choice


@pytest.mark.parametrize("choice", [{"name": "look"}, {"name": "look", "namespace": "by"}])
def test_a_tool_of_several_namespaces_is_chosen_by_both_names(client, model, choice):
    with pytest.raises(openai.BadRequestError, match="none of the tools"):
        client.responses.create(model=model, input="Go.", tools=[NEAR, FAR], tool_choice={"type": "function", **choice})


def test_what_the_model_sees_of_a_namespace(thinking):
    client, _ = thinking
    count = lambda tools: client.responses.input_tokens.count(model=MODEL, input="Hi", tools=tools).input_tokens  # noqa: E731
    seen = [{**TOOLS[0], "name": "mcp__map__get_weather", "description": "What lies where.\n\nWeather"}, {**TOOLS[1], "name": "mcp__map__ping"}]
    assert count(SPACES[:1]) == count(seen)


@pytest.mark.parametrize("space, field", [({"tools": []}, "tools[0].name"), ({"name": "a", "tools": {}}, "tools[0].tools"),
                                          ({"name": "a", "tools": [1]}, "tools[0].tools[0]"),
                                          ({"name": "a", "tools": [{"type": "function"}]}, "tools[0].tools[0].name")])
def test_namespaces_that_are_none(thinking, space, field):
    client, _ = thinking
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input="Hi", tools=[{"type": "namespace", **space}])
    assert refused.value.param == field


ELSEWHERE = {"type": "object", "properties": {"x": {"$ref": "https://example.org/x"}}}


@pytest.mark.parametrize("tools, field", [
    ([{"type": "web_search"}, TOOLS[0], {"type": "function", "name": "a b"}], "tools[2].name"),
    ([{"type": "web_search"}, TOOLS[0], {"type": "function", "name": "a", "parameters": ELSEWHERE, "strict": True}], "tools[2].parameters"),
    ([TOOLS[0], {**SPACES[0], "tools": [TOOLS[0], {"type": "function", "name": "a", "parameters": ELSEWHERE, "strict": True}]}], "tools[1].tools[1].parameters"),
    ([SPACES[1], TOOLS[0], {"type": "custom", "name": "a", "format": {"type": "no"}}], "tools[2].format"),
    ([SPACES[0], {"type": "function"}], "tools[1].name")])
def test_a_tool_that_is_refused_is_named_by_its_place(thinking, tools, field):
    """That in the request, behind tools that are skipped and among those of namespaces; in Messages, too."""
    client, _ = thinking
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input="Hi", tools=tools, tool_choice="required")
    assert refused.value.param == field and refused.value.body["message"].startswith(field)
    claude = anthropic.Anthropic(base_url=str(client.base_url).removesuffix("/v1/"), api_key="none", max_retries=0)
    own = [{"type": "bash_20250124", "name": "bash"}, {"name": "a", "input_schema": ELSEWHERE, "strict": True}]
    with pytest.raises(anthropic.BadRequestError, match="tools.1..input_schema: "):
        claude.messages.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], tools=own, tool_choice={"type": "any"}, max_tokens=9)


def test_an_answer_with_nothing_in_it(thinking):
    client, script = thinking
    script([("weather", "")])
    whole = client.responses.create(model=MODEL, input="The weather?", tools=TOOLS)
    last = list(client.responses.create(model=MODEL, input="The weather?", tools=TOOLS, stream=True))[-1].response
    assert shape(whole) == shape(last) == [("message", "")]


def test_tools_that_are_allowed(client, model):
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ping"}]}
    response = client.responses.create(model=model, input="The weather?", tools=TOOLS, tool_choice=choice, parallel_tool_calls=False,
                                       temperature=0, max_output_tokens=60)
    assert [c.name for c in response.output] == ["ping"]


def test_a_call_that_must_come(client, model):
    """A real model, held to the tool's schema by masks."""
    response = client.responses.create(model=model, input="The weather in Paris?", tools=TOOLS[:1], tool_choice="required",
                                       temperature=0, max_output_tokens=120)
    call = response.output[0]
    assert call.type == "function_call" and call.name == "get_weather"
    if response.status == "completed":
        assert isinstance(json.loads(call.arguments)["city"], str)
