"""Tool calls and reasoning with the openai SDK, before a scripted model: streamed and whole, one round with a tool."""
import json

import openai
import pytest

from scripted import scripted_server

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]
# Hermes' notation and thinking, as Qwen3 has them.
TEMPLATE = """{%- if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}{{- m.content }}
{%- for c in m.tool_calls or [] %}{{- '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}{{- c.function.arguments | tojson }}{{- '}\\n</tool_call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich \\"am\\" See", "days": 2}}\n</tool_call>'
PING = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
ASK = [{"role": "user", "content": "What about the weather?"}]


@pytest.fixture(scope="module")
def thinking():
    with scripted_server(template=TEMPLATE) as both:
        yield both


@pytest.fixture(scope="module")
def plain():
    """The model's own template, which knows of no tools."""
    with scripted_server() as both:
        yield both


def ask(server, messages=ASK, tools=TOOLS, **more):
    return server.client().chat.completions.create(model="SmolLM2-135M-Instruct.Q4_1.gguf", messages=messages, tools=tools, **more)


def joined(chunks):
    """What a client makes of a stream: (content, reasoning, calls, finish_reason)."""
    content, reasoning, calls, finish = "", "", [], None
    for chunk in chunks:
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or []:
            if call.index == len(calls):
                assert call.id and call.type == "function" and call.function.name
                calls.append([call.id, call.function.name, ""])
            else:
                assert call.id is None and call.function.name is None
            calls[call.index][2] += call.function.arguments
        finish = finish or choice.finish_reason
    return content, reasoning, calls, finish


def whole(answer):
    choice = answer.choices[0]
    calls = [[c.id, c.function.name, c.function.arguments] for c in choice.message.tool_calls or []]
    return choice.message.content or "", getattr(choice.message, "reasoning_content", None) or "", calls, choice.finish_reason


def both_ways(server, **more):
    """Whole and streamed; ids differ, all else is equal."""
    one, other = whole(ask(server, **more)), joined(ask(server, stream=True, **more))
    assert [c[0] for c in one[2]] == [] or {len(c[0]) for c in one[2] + other[2]} == {29}
    strip = lambda parts: (*parts[:2], [c[1:] for c in parts[2]], parts[3])  # noqa: E731
    assert strip(one) == strip(other)
    return strip(one)


def test_calls_and_reasoning(thinking):
    server, script = thinking
    script([("weather", f"<think>\nHm. <b>\n</think>\n\nLet me see.\n{CALL}\n{PING}")])
    content, reasoning, calls, finish = both_ways(server)
    assert (content, reasoning, finish) == ("Let me see.", "Hm. <b>", "tool_calls")
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [
        ("get_weather", {"city": 'Zürich "am" See', "days": 2}), ("ping", {})]
    answer = ask(server)
    assert answer.choices[0].message.reasoning == "Hm. <b>"


def test_reasoning_is_counted(thinking):
    """Alike in every protocol, whole and streamed: the tokens behind which the answer still reasons."""
    server, script = thinking
    thought = "<think>\nLet me think of it.\n"
    script([("weather", f"{thought}</think>\n\nIt is warm.")])
    counted = len(server.post("/tokenize", {"prompt": thought, "add_special_tokens": False}).json()["tokens"])
    usage = ask(server, tools=openai.NOT_GIVEN).usage
    assert usage.completion_tokens_details.reasoning_tokens == counted < usage.completion_tokens
    *_, last = ask(server, tools=openai.NOT_GIVEN, stream=True, stream_options={"include_usage": True})
    assert last.usage == usage
    body = {"messages": ASK, "max_tokens": 100}
    assert server.post("/v1/messages", body).json()["usage"]["output_tokens_details"] == {"thinking_tokens": counted}
    response = server.post("/v1/responses", {"input": ASK[0]["content"]}).json()
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": counted}


def test_calls_alone_have_null_content(thinking):
    server, script = thinking
    script([("weather", CALL)])
    message = ask(server).choices[0].message
    assert message.content is None and len(message.tool_calls) == 1


def test_text_that_mentions_the_notation(thinking):
    server, script = thinking
    text = 'Write <tool_call> and then {"name": ...}; </tool_call> ends it. <tool_call>'
    script([("weather", text)])
    assert both_ways(server) == (text, "", [], "stop")


def test_reasoning_stays_in_the_text_on_demand(thinking):
    server, script = thinking
    script([("weather", f"<think>\nHm.\n</think>\n\n{CALL}")])
    content, reasoning, calls, _ = both_ways(server, extra_body={"separate_reasoning": False})
    assert "<think>\nHm.\n</think>" in content and not reasoning and len(calls) == 1


def test_one_call_at_most(thinking):
    server, script = thinking
    script([("weather", f"{CALL}\n{PING}")])
    assert len(both_ways(server, parallel_tool_calls=False)[2]) == 1


def test_no_calls_without_tools_or_with_none(thinking):
    server, script = thinking
    script([("weather", CALL)])
    assert both_ways(server, tool_choice="none") == (CALL, "", [], "stop")
    assert both_ways(server, tools=openai.NOT_GIVEN) == (CALL, "", [], "stop")


def test_an_answer_cut_within_a_call(thinking):
    server, script = thinking
    script([("weather", CALL)])
    _, _, calls, finish = both_ways(server, max_tokens=25)
    assert finish == "length" and calls[0][0] == "get_weather" and CALL.find(calls[0][1]) > 0


def test_a_stop_string_within_a_call(thinking):
    """What it leaves of the arguments is no call to make, and says so; behind a whole call it is."""
    server, script = thinking
    script([("weather", f"{CALL}\n{PING}\nDone.")])
    _, _, calls, finish = both_ways(server, stop="See")
    assert finish == "stop" and calls[0][1] == '{"city": "Zürich \\"am\\" '
    _, _, calls, finish = both_ways(server, stop="Done")
    assert finish == "tool_calls" and len(calls) == 2
    answer = server.post("/v1/messages", {"max_tokens": 100, "messages": ASK, "stop_sequences": ["See"], "tools": [
        {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]}).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "See")


@pytest.mark.parametrize("broken", ['{"city": "Zür', '{"city": "Zürich"', '{"city": ["Zürich"}}\n</tool_call>'])
def test_a_call_that_the_model_breaks_off(thinking, broken):
    """It is told as far as it came, and is no call to make; a whole one behind it is."""
    server, script = thinking
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {broken}'
    script([("weather", f"{PING}\n{call}")])
    content, _, calls, finish = both_ways(server)
    assert (finish, [name for name, _ in calls]) == ("stop", ["ping", "get_weather"])
    assert calls[1][1] and broken.startswith(calls[1][1])
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    body = {"max_tokens": 100, "messages": ASK, "tools": tools}
    assert server.post("/v1/messages", body).json()["stop_reason"] == "end_turn"
    assert '"stop_reason":"end_turn"' in server.post("/v1/messages", {**body, "stream": True}).text
    if broken.endswith(">"):
        script([("weather", f"{call}\n{PING}")])
        assert both_ways(server)[3] == "tool_calls"


@pytest.mark.parametrize("which", ["thinking", "plain"])
def test_a_round_with_a_tool(which, request):
    server, script = request.getfixturevalue(which)
    script([("weather?", CALL), ("21 degrees", "It is warm.")])
    answer = ask(server).choices[0].message
    assert answer.tool_calls[0].function.name == "get_weather"
    messages = [*ASK, answer.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "21 degrees"}]
    assert whole(ask(server, messages=messages))[0] == "It is warm."
    # The model reads the call as it has written it, so that the prefix cache holds.
    tokens = server.post("/tokenize", {"messages": messages, "tools": TOOLS}).json()["tokens"]
    assert CALL in server.post("/detokenize", {"tokens": tokens}).json()["prompt"]


@pytest.mark.parametrize("turn, shown", [
    ({"role": "assistant"}, "<|im_start|>assistant\n<|im_end|>"),
    ({"role": "assistant", "content": None, "tool_calls": []}, "<|im_start|>assistant\n<|im_end|>"),
    ({"role": "assistant", "content": [], "tool_calls": [{"id": "c", "type": "function", "function": {
        "name": "ping", "arguments": ""}}]}, '"ping"'),
    ({"role": "assistant", "content": [{"type": "text", "text": "Well"}, {"type": "refusal", "refusal": "I will not."}]},
     "Well\nI will not."),
    ({"role": "tool", "tool_call_id": "c", "content": None}, "<|im_start|>tool\n<|im_end|>"),
    # What the model wrote wrongly, or was cut off, and the client sends back with the next question.
    *[({"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {
        "name": "ping", "arguments": text}}]}, '"arguments": {"arguments": ' + json.dumps(text))
      for text in ('{"city": Paris}', '{"city": "Par', "x", '{"a": 1, "a": 2}')],
])
def test_turns_as_clients_send_them_back(thinking, turn, shown):
    server, _ = thinking
    prompt = server.post("/apply-template", {"messages": [*ASK, turn, *ASK], "tools": TOOLS}).json()["prompt"]
    assert shown in prompt


@pytest.mark.parametrize("which", ["thinking", "plain"])
@pytest.mark.parametrize("call", [{"tool_calls": None, "function_call": {"name": "get_weather", "arguments": '{"city": "Paris"}'}},
                                  {"function_call": {"name": "get_weather", "arguments": None}}])
def test_the_form_before_tools(which, call, request):
    """function_call and a message of role function are one call and its result."""
    server, _ = request.getfixturevalue(which)
    function = call["function_call"]
    old = [*ASK, {"role": "assistant", "content": None, **call},
           {"role": "function", "name": function["name"], "content": "21 degrees"}]
    new = [*ASK, {"role": "assistant", "content": None, "tool_calls": [{"id": "call00001", "type": "function", "function": function}]},
           {"role": "tool", "tool_call_id": "call00001", "name": function["name"], "content": "21 degrees"}]
    prompts = [server.post("/apply-template", {"messages": m, "tools": TOOLS}).json()["prompt"] for m in (old, new)]
    assert prompts[0] == prompts[1] and "get_weather" in prompts[0] and "21 degrees" in prompts[0]


def test_a_function_call_that_is_none(thinking):
    server, _ = thinking
    asks = [{"messages": [*ASK, {"role": "assistant", "content": "x", "function_call": call}, *ASK]} for call in (None, "f")]
    assert server.post("/apply-template", asks[0]).status_code == 200
    refused = server.post("/apply-template", asks[1])
    assert refused.status_code == 400 and "messages[1].function_call" in refused.text


FUNCTIONS = [t["function"] for t in TOOLS]


def old(server, **more):
    return server.client().chat.completions.create(model="SmolLM2-135M-Instruct.Q4_1.gguf", messages=ASK,
                                                   **{"functions": FUNCTIONS, **more})


def test_functions_whole_and_streamed(thinking):
    """What OpenAI's chat had before tools."""
    server, script = thinking
    script([("weather", f"Let me look.\n{CALL}\n{PING}")])
    choice = old(server).choices[0]
    assert choice.finish_reason == "function_call" and choice.message.tool_calls is None
    assert choice.message.content == "Let me look." and choice.message.function_call.name == "get_weather"
    assert json.loads(choice.message.function_call.arguments)["days"] == 2
    names, arguments, finish = [], "", None
    for chunk in old(server, stream=True, function_call="auto"):
        call = chunk.choices[0].delta.function_call
        assert not chunk.choices[0].delta.tool_calls
        names += [call.name] if call and call.name else []
        arguments += call.arguments if call else ""
        finish = chunk.choices[0].finish_reason or finish
    assert names == ["get_weather"] and finish == "function_call"
    assert arguments == choice.message.function_call.arguments


def test_functions_are_chosen(thinking):
    server, script = thinking
    script([("weather", CALL)])
    said = old(server, function_call="none").choices[0]
    assert said.finish_reason == "stop" and said.message.function_call is None
    script([("weather", PING)])
    assert old(server, function_call={"name": "ping"}).choices[0].message.function_call.name == "ping"
    tools = server.post("/v1/chat/completions", {"messages": ASK, "tools": TOOLS, "functions": [], "function_call": None})
    assert tools.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "ping"


@pytest.mark.parametrize("more, param", [
    ({"functions": [{"name": "a b"}]}, "functions[0].name"), ({"functions": [{"name": "f"}, {"name": "f"}]}, "functions[1].name"),
    ({"functions": [3]}, "functions[0]"), ({"functions": {"name": "f"}}, "functions"),
    ({"functions": FUNCTIONS, "tools": TOOLS}, "functions"), ({"functions": FUNCTIONS, "function_call": "required"}, "function_call"),
    ({"functions": FUNCTIONS, "function_call": {"name": "nobody"}}, "function_call"),
    ({"functions": FUNCTIONS, "function_call": 3}, "function_call"), ({"function_call": {"a": 3}}, "function_call"),
    ({"functions": [{"name": "f", "parameters": 3}]}, "functions[0].parameters"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name")])
def test_functions_that_are_none(thinking, more, param):
    server, _ = thinking
    refused = server.post("/v1/chat/completions", {"messages": ASK, **more})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == param, refused.text
    assert refused.json()["error"]["message"].startswith(param), refused.text


def test_tools_as_clients_write_them(thinking):
    server, script = thinking
    name = "mcp__a_server_with_a_long_name__" + "x" * 90
    script([("weather", PING.replace("ping", name))])
    tools = [{"function": {"name": name}}]
    assert both_ways(server, tools=tools)[2] == [[name, "{}"]]


def test_a_template_without_tools_is_told_of_them(plain):
    server, script = plain
    script([('"name":"get_weather"', CALL)])
    assert [c[0] for c in both_ways(server)[2]] == ["get_weather"]


# ---- the real model, which would hardly call anything by itself ----

ORDER = {"type": "function", "function": {"name": "order", "strict": True, "parameters": {
    "type": "object", "additionalProperties": False, "required": ["what", "size", "count"], "properties": {
        "what": {"type": "string", "maxLength": 20}, "size": {"enum": ["small", "large"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
PING_ONLY = {"type": "function", "function": {"name": "ping", "parameters": {
    "type": "object", "properties": {}, "additionalProperties": False}}}


def check_order(arguments):
    order = json.loads(arguments)
    assert set(order) == {"what", "size", "count"} and len(order["what"]) <= 20
    assert order["size"] in ("small", "large") and order["count"] in range(1, 10)


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_calls_that_must_come(server, temperature):
    options = dict(messages=[{"role": "user", "content": "Two large pizzas, please."}], tools=[ORDER, PING_ONLY],
                   temperature=temperature, seed=3, max_tokens=300, parallel_tool_calls=False)
    for choice in ("required", {"type": "function", "function": {"name": "order"}}):
        content, _, calls, finish = both_ways(server, tool_choice=choice, **options)
        assert content == "" and finish == "tool_calls" and len(calls) == 1
        if calls[0][0] == "order":
            check_order(calls[0][1])
        else:
            assert choice == "required" and calls[0][0] == "ping" and json.loads(calls[0][1]) == {}
    named = {"type": "function", "function": {"name": "ping"}}
    name, arguments = both_ways(server, tool_choice=named, **options)[2][0]
    assert name == "ping" and json.loads(arguments) == {}


def test_a_function_that_is_named_is_called_once(server):
    """And what an answer of too few tokens has of a call is none of its content."""
    named = {"type": "function", "function": {"name": "ping"}}
    for seed in range(6):
        content, _, calls, finish = both_ways(server, tools=[ORDER, PING_ONLY], tool_choice=named, seed=seed, max_tokens=64)
        assert content == "" and finish == "tool_calls" and len(calls) == 1
        for choice in (named, "required"):
            content, _, calls, finish = both_ways(server, tools=[ORDER, PING_ONLY], tool_choice=choice, seed=seed, max_tokens=12)
            assert (content, calls, finish) == ("", [], "length")


def test_tools_that_are_allowed(server):
    """The model sees them all and calls some."""
    def choice(mode, *names):
        return {"type": "allowed_tools", "allowed_tools": {
            "mode": mode, "tools": [{"type": "function", "function": {"name": name}} for name in names]}}

    options = dict(messages=[{"role": "user", "content": "Two large pizzas, please."}], tools=[ORDER, PING_ONLY], temperature=0,
                   max_tokens=300, parallel_tool_calls=False)
    assert [c[0] for c in both_ways(server, tool_choice=choice("required", "ping"), **options)[2]] == ["ping"]
    assert both_ways(server, tool_choice=choice("required", "order", "ping"), **options) == both_ways(
        server, tool_choice="required", **options)
    prompts = {ask(server, tool_choice=c, **options).usage.prompt_tokens for c in ("auto", choice("auto", "ping"))}
    assert len(prompts) == 1
    for bad in (choice("auto"), choice("sometimes", "ping"), choice("auto", "ping", "pong"), {"type": "allowed_tools"}):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(server, tool_choice=bad, **options)
        assert refused.value.param == "tool_choice" and "allowed_tools" in refused.value.message


PIZZA = {"type": "json_schema", "json_schema": {"name": "pizza", "schema": {
    "type": "object", "required": ["topping"], "additionalProperties": False, "properties": {
        "topping": {"type": "string", "maxLength": 20}}}}}


def test_calls_or_a_form(server):
    """Beside tools an answer has its form, or calls: the real model says what it likes of the two."""
    options = dict(messages=[{"role": "user", "content": "A pizza, please."}], tools=[ORDER], temperature=1, max_tokens=300)
    for seed in range(3):
        content, _, calls, finish = both_ways(server, response_format=PIZZA, seed=seed, **options)
        if finish == "tool_calls":
            assert content == ""
            check_order(calls[0][1])
        elif finish == "stop":
            assert list(json.loads(content)) == ["topping"] and not calls
    _, _, calls, _ = both_ways(server, response_format=PIZZA, tool_choice="required", parallel_tool_calls=False, seed=1, **options)
    check_order(calls[0][1])


def test_a_round_with_a_tool_and_a_form(thinking):
    server, script = thinking
    script([("weather?", CALL), ("21 degrees", '{"topping": "ham"}')])
    _, _, calls, finish = both_ways(server, response_format=PIZZA)
    assert calls[0][0] == "get_weather" and finish == "tool_calls"
    script([("weather?", '{"topping": "ham"}')])
    assert both_ways(server, response_format={"type": "json_object"}) == ('{"topping": "ham"}', "", [], "stop")


def test_strict_tools_leave_text_alone(server):
    """Until a call begins the answer is free: the same as without strict."""
    free = {**ORDER, "function": {**ORDER["function"], "strict": False}}
    options = dict(temperature=0, max_tokens=30, messages=[{"role": "user", "content": "What is the capital of France?"}])
    strict = whole(ask(server, tools=[ORDER], **options))
    assert strict[0] and strict[2] == []
    assert whole(ask(server, tools=[free], **options))[3] == strict[3]


@pytest.mark.parametrize("more, param", [
    (dict(tool_choice={"type": "function", "function": {"name": "pong"}}), "tool_choice"),
    (dict(tool_choice="sometimes"), "tool_choice"),
    (dict(tools=openai.NOT_GIVEN, tool_choice="required"), "tool_choice"),
    (dict(tools=[{"type": "function", "function": {"name": "f", "strict": 1}}]), "tools[0].function.strict"),
    (dict(tool_choice="required", tools=[{"type": "function", "function": {
        "name": "f", "strict": True, "parameters": {"properties": {"a": {"pattern": r"(a)\1"}}}}}]), "tools[0].function.parameters"),
    (dict(tools=[{"type": "web_search"}]), "tools[0].type"),
    (dict(messages=[*ASK, {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {
        "name": "f"}}]}]), "messages[1].tool_calls"),
    (dict(extra_body={"structured_outputs": {"regex": "a+"}}), "structured_outputs.regex"),
    (dict(tools=[{"type": "function", "function": {"name": "a b"}}]), "tools[0].function.name"),
    (dict(tools=[{"type": "function", "function": {"name": name}} for name in ("f", "g", "f")]), "tools[2].function.name"),
])
def test_what_cannot_be_done_is_said(thinking, more, param):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(thinking[0], **more)
    assert refused.value.param == param


def test_a_schema_that_cannot_be_kept_is_told_by_its_tool(thinking):
    def tool(name, parameters):
        return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": True}}
    with pytest.raises(openai.BadRequestError, match=r"tools\[1\]\.function\.parameters: .*a back reference") as refused:
        ask(thinking[0], tools=[tool("get.it", {"type": "object"}), tool("set.it", {"properties": {
            "a": {"pattern": r"(a)\1"}}})])
    assert refused.value.param == "tools[1].function.parameters"


UNHELD = [({"x": {"type": "STRING"}}, "must be the name of a type"), ({"x": {"pattern": r"(a)\1"}}, "a back reference"),
          ({"x": {"type": "string", "enum": [1]}}, ""), ({"x": {"type": "array", "uniqueItems": True, "items": {"type": "object"}}}, "")]


@pytest.mark.parametrize("properties, why", UNHELD)
def test_a_schema_that_cannot_be_kept_is_left_where_a_tool_is_not_strict(server, properties, why):
    """OpenAI's schemas of tools that are not strict are best effort; those that can be kept are."""
    def tool(name, properties, **more):
        return {"type": "function", "function": {
            "name": name, "parameters": {"type": "object", "properties": properties, "required": list(properties)}, **more}}
    held = tool("held", {"n": {"enum": [7]}})
    held["function"]["parameters"]["additionalProperties"] = False
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [held, tool("g.h", properties)], "temperature": 1, "max_tokens": 60,
            "parallel_tool_calls": False}
    for choice in ("required", {"type": "function", "function": {"name": "g.h"}}):
        reply = server.post("/v1/chat/completions", {**body, "tool_choice": choice})
        assert reply.status_code == 200, reply.text
        warning = reply.headers["x-flashd-warning"]
        assert warning.startswith("arguments of tool g.h are not held to its schema: ") and why in warning
    reply = server.post("/v1/chat/completions", {**body, "tool_choice": {"type": "function", "function": {"name": "held"}}})
    call = reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"n": 7} and "x-flashd-warning" not in reply.headers
    many = [tool(f"f{i}", properties) for i in range(20)]
    reply = server.post("/v1/chat/completions", {**body, "tools": many, "tool_choice": "required"})
    assert reply.status_code == 200 and "tool f0 " in reply.headers["x-flashd-warning"]
    assert reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] in {f"f{i}" for i in range(20)}
    strict = [*many, tool("s", properties, strict=True)]
    reply = server.post("/v1/chat/completions", {**body, "tools": strict, "tool_choice": "required"})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "tools[20].function.parameters"


@pytest.mark.parametrize("path, tools, param", [
    ("/v1/chat/completions", lambda p: [PING_ONLY, {"type": "function", "function": {"name": "g.h", "parameters": p, "strict": True}}],
     "tools[1].function.parameters"),
    ("/v1/responses", lambda p: [{"type": "function", "name": "g.h", "parameters": p, "strict": True}], "tools[0].parameters"),
    ("/v1/messages", lambda p: [{"name": "g.h", "input_schema": p, "strict": True}], "tools[0].input_schema")])
@pytest.mark.parametrize("name", ["STRING", "int", "dict"])
def test_a_type_that_is_none_is_told_by_field_and_place(server, path, tools, param, name):
    body = {"tools": tools({"type": "object", "properties": {"x": {"type": name}}}), "tool_choice": "required", "max_tokens": 9}
    body |= {"input": "Hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "Hi"}]}
    if path == "/v1/messages":
        body["tool_choice"] = {"type": "any"}
    reply = server.post(path, body)
    error = reply.json()["error"]
    assert reply.status_code == 400 and "schema-" not in error["message"], error
    assert error["message"].startswith(param + ': "type" at #/properties/x must be the name of a type'), error
    assert path == "/v1/messages" or error["param"] == param


def test_null_is_an_absent_keyword(server):
    """As Go's marshaller writes slices and maps that are empty."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": [1], "required": None}, "maxItems": 2, "prefixItems": None},
                                               "n": {"const": None, "enum": None}}, "required": None, "additionalProperties": None, "$defs": None}
    empty = {"type": None, "properties": None, "required": None, "maxProperties": 0}
    for parameters, allowed in ((schema, {"a", "n"}), (empty, set())):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "temperature": 1, "tool_choice": "required",
                "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}], "parallel_tool_calls": False}
        reply = server.post("/v1/chat/completions", body)
        assert reply.status_code == 200, reply.text
        arguments = json.loads(reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
        assert set(arguments) <= allowed and arguments.get("n") is None, arguments
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema | {"required": ["n"]}}}}
    reply = server.post("/v1/chat/completions", {"messages": body["messages"], "max_tokens": 200, **form})
    assert json.loads(reply.json()["choices"][0]["message"]["content"])["n"] is None

