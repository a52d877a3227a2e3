"""The SDKs' own helpers over streams: events in order and of their types, and what they add up to is the answer that comes whole."""

import typing

import anthropic
import openai
import pydantic
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["what", "hot"], "properties": {
    "what": {"enum": ["tea", "coffee"]}, "hot": {"type": "boolean"}}}


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    what: typing.Literal["tea", "coffee"]
    hot: bool


CHAT_TOOL = {"type": "function", "function": {"name": "order", "strict": True, "parameters": SCHEMA}}
CHAT = {
    "text": {"max_tokens": 24},
    "cut": {"max_tokens": 3},
    "tool": {"max_tokens": 400, "tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False},
    "plain reasoning": {"max_tokens": 12, "reasoning_effort": "none"},
    "two": {"max_tokens": 8, "n": 2},
    "logprobs": {"max_tokens": 6, "logprobs": True, "top_logprobs": 2},
}
RESPONSES = {
    "text": {"max_output_tokens": 24},
    "cut": {"max_output_tokens": 3},
    "tool": {"max_output_tokens": 400, "tools": [{"type": "function", "name": "order", "strict": True, "parameters": SCHEMA}],
             "tool_choice": "required"},
    "reasoning off": {"max_output_tokens": 12, "reasoning": {"effort": "none"}},
    "logprobs": {"max_output_tokens": 6, "top_logprobs": 2, "include": ["message.output_text.logprobs"]},
}
MESSAGES = {
    "text": {"max_tokens": 24},
    "cut": {"max_tokens": 3},
    "tool": {"max_tokens": 400, "tools": [{"name": "order", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}},
    "thinking off": {"max_tokens": 12, "thinking": {"type": "disabled"}},
}
SEEDED = {"seed": 7, "temperature": 0.8}


@pytest.fixture
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, _strict_response_validation=True)


def settled(value, *passing):
    """Without what differs from answer to answer, nor what only a helper adds."""
    if isinstance(value, list):
        return [settled(v, *passing) for v in value]
    if not isinstance(value, dict):
        return value
    passing = {"id", "created", "created_at", "completed_at", "call_id", "parsed", "parsed_arguments",
               "parsed_output", *passing}
    return {k: settled(v, *passing) for k, v in value.items() if k not in passing}


def dump(answer):
    return settled(answer.model_dump(mode="json", exclude_none=True))


@pytest.mark.parametrize("name", CHAT)
def test_chat(client, model, name):
    options = dict(model=model, messages=QUESTION, **SEEDED, **CHAT[name])
    whole = client.chat.completions.create(**options)
    with client.chat.completions.stream(**options, stream_options={"include_usage": True}) as stream:
        kinds = [event.type for event in stream]
        final = stream.current_completion_snapshot
    own = "index", "object", "annotations", "prompt_tokens_details"  # of a form or of what was in the cache
    for choice in final.choices:
        choice.message.content = choice.message.content or None  # a stream begins before it is known whether there will be any
    assert settled(dump(final), *own) == settled(dump(whole), *own)
    assert "chunk" in kinds
    if name == "tool":
        calls = final.choices[0].message.tool_calls
        assert kinds.count("tool_calls.function.arguments.done") == len(calls) > 0
        assert all(Order.model_validate_json(call.function.arguments) for call in calls)
    elif name != "logprobs":
        assert kinds.count("content.done") == CHAT[name].get("n", 1)


def test_chat_that_is_parsed(client, model):
    options = dict(model=model, messages=QUESTION, **SEEDED, max_tokens=400)
    whole = client.chat.completions.parse(response_format=Order, **options)
    with client.chat.completions.stream(response_format=Order, **options) as stream:
        done = [event for event in stream if event.type == "content.done"]
        final = stream.get_final_completion()
    assert done[0].parsed == final.choices[0].message.parsed == whole.choices[0].message.parsed
    assert isinstance(whole.choices[0].message.parsed, Order)
    with pytest.raises(openai.LengthFinishReasonError):
        with client.chat.completions.stream(response_format=Order, **{**options, "max_tokens": 2}) as stream:
            stream.until_done()
            stream.get_final_completion()


def test_chat_tool_that_is_parsed(client, model):
    tool = openai.pydantic_function_tool(Order)
    options = dict(model=model, messages=QUESTION, tools=[tool], tool_choice="required", **SEEDED, max_tokens=400)
    whole = client.chat.completions.parse(**options)
    with client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion()
    parsed = [c.choices[0].message.tool_calls[0].function.parsed_arguments for c in (whole, final)]
    assert isinstance(parsed[0], Order) and parsed[0] == parsed[1]


@pytest.mark.parametrize("name", RESPONSES)
def test_responses(client, model, name):
    options = dict(model=model, input=QUESTION, temperature=0.8, extra_body={"seed": 7}, **RESPONSES[name])
    whole = client.responses.create(**options)
    with client.responses.stream(**options) as stream:
        events = list(stream)
        final = stream.get_final_response() if whole.status == "completed" else events[-1].response
    assert settled(dump(final), "input_tokens_details") == settled(dump(whole), "input_tokens_details")
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == ("response.incomplete" if whole.status == "incomplete" else "response.completed")
    assert [event.sequence_number for event in events] == sorted(event.sequence_number for event in events)
    if name == "tool":
        assert final.output[0].parsed_arguments and "response.function_call_arguments.done" in kinds
    else:
        done = next(e for e in events if e.type == "response.output_text.done")
        assert done.text == whole.output_text and len(done.logprobs) == (6 if name == "logprobs" else 0)


def test_responses_that_are_parsed(client, model):
    options = dict(model=model, input=QUESTION, temperature=0.8, extra_body={"seed": 7}, text_format=Order, max_output_tokens=400)
    whole = client.responses.parse(**options)
    with client.responses.stream(**options) as stream:
        final = stream.get_final_response()
    assert isinstance(whole.output_parsed, Order) and whole.output_parsed == final.output_parsed


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(claude, model, name):
    options = dict(model=model, messages=QUESTION, extra_body=SEEDED, **MESSAGES[name])
    whole = claude.messages.create(**options)
    with claude.messages.stream(**options) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    cached = "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"
    assert settled(dump(final), *cached) == settled(dump(whole), *cached)
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == len(whole.content)
    if name == "tool":
        assert whole.stop_reason == "tool_use" and "input_json" in kinds and Order.model_validate(final.content[0].input)


def test_messages_that_are_parsed(claude, model):
    options = dict(model=model, messages=QUESTION, extra_body=SEEDED, max_tokens=400, output_format=Order)
    whole = claude.messages.parse(**options)
    with claude.messages.stream(**options) as stream:
        final = stream.get_final_message()
    assert isinstance(whole.parsed_output, Order) and final.parsed_output == whole.parsed_output


def leave(stream, wanted):
    """As a program does that has read enough."""
    with stream as events:
        for event in events:
            if event.type == wanted:
                break


def test_who_leaves_is_let_go(server, client, claude, model):
    gone = 'flashd_requests_finished_total{outcome="client_gone"}'
    before = server.wait_idle()[gone]
    many = {"extra_body": {"ignore_eos": True}}
    leave(client.chat.completions.stream(model=model, messages=QUESTION, max_tokens=1500, **many), "content.delta")
    leave(client.responses.stream(model=model, input=QUESTION, max_output_tokens=1500, **many), "response.output_text.delta")
    leave(claude.messages.stream(model=model, messages=QUESTION, max_tokens=1500, **many), "text")
    assert server.wait_idle()[gone] == before + 3
