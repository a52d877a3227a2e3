"""Calls and reasoning in Ollama's /api/chat and /api/generate, with its own client before a scripted model."""
import httpx
import ollama
import pytest

from scripted import scripted_server
from test_tools import CALL, PING, TEMPLATE, TOOLS

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
ASK = [{"role": "user", "content": "The weather?"}]
THOUGHT, TEXT = "Zürich, then.", "I will look."
SAID = f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}\n{CALL}\n{PING}"
CALLS = [("get_weather", {"city": 'Zürich "am" See', "days": 2}), ("ping", {})]


@pytest.fixture(scope="module")
def thinking():
    with scripted_server(template=TEMPLATE) as (server, script):
        yield ollama.Client(host=server.url), script


def calls_of(message):
    return [(c.function.name, dict(c.function.arguments)) for c in message.tool_calls or []]


def test_a_whole_answer(thinking):
    client, script = thinking
    script([("weather", SAID)])
    answer = client.chat(model=MODEL, messages=ASK, tools=TOOLS)
    assert (answer.message.thinking, answer.message.content, calls_of(answer.message)) == (THOUGHT, TEXT, CALLS)
    assert answer.done_reason == "stop"


def test_a_stream(thinking):
    client, script = thinking
    script([("weather", SAID)])
    parts = list(client.chat(model=MODEL, messages=ASK, tools=TOOLS, stream=True))
    assert "".join(p.message.thinking or "" for p in parts) == THOUGHT
    assert "".join(p.message.content or "" for p in parts) == TEXT
    assert [c for p in parts for c in calls_of(p.message)] == CALLS
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]


def test_arguments_of_several_lines(thinking):
    """A line of the stream is one object, however the model has laid the arguments out."""
    client, script = thinking
    script([("weather", '<tool_call>\n{"name": "get_weather", "arguments": {\r\n  "city": "Bern",\n  "days": 2\n}}\n</tool_call>')])
    parts = list(client.chat(model=MODEL, messages=ASK, tools=TOOLS, stream=True))
    assert [c for p in parts for c in calls_of(p.message)] == [("get_weather", {"city": "Bern", "days": 2})]


@pytest.mark.parametrize("wrong", ['{"city": Bern, "days": 2}', '{"city": "Be'])
def test_arguments_that_are_no_object(thinking, wrong):
    """A client that makes the call makes no other one: what the model wrote stands in it, here and in Messages."""
    client, script = thinking
    end = "}\n</tool_call>" if wrong[-1] == "}" else ""
    script([("weather", '<tool_call>\n{"name": "get_weather", "arguments": ' + wrong + end)])
    said = [("get_weather", {"arguments": wrong})]
    assert calls_of(client.chat(model=MODEL, messages=ASK, tools=TOOLS).message) == said
    assert [c for p in client.chat(model=MODEL, messages=ASK, tools=TOOLS, stream=True) for c in calls_of(p.message)] == said
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    body = {"model": MODEL, "max_tokens": 200, "messages": ASK, "tools": tools}
    blocks = httpx.post(f"{client._client.base_url}/v1/messages", json=body, timeout=60).json()["content"]
    assert [(b["name"], b["input"]) for b in blocks] == said


def test_half_a_surrogate_pair_is_the_character_for_none(thinking):
    """A call is the one that the model has made but for that character, in the next turn, too."""
    client, script = thinking
    said = '{"city": "Be\\ud83d\\u00fc"}'
    script([('"arguments": {"city": "Be\ufffdü"}', "It is warm."),
            ("weather", f'<tool_call>\n{{"name": "get_weather", "arguments": {said}}}\n</tool_call>')])
    answer = client.chat(model=MODEL, messages=ASK, tools=TOOLS)
    assert calls_of(answer.message) == [("get_weather", {"city": "Be\ufffdü"})]
    call = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": said}}
    turns = [*ASK, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call00001", "content": "20"}]
    more = httpx.post(f"{client._client.base_url}/v1/chat/completions", json={"messages": turns, "tools": TOOLS}, timeout=60).json()
    assert more["choices"][0]["message"]["content"] == "It is warm."


def test_a_round_with_a_tool(thinking):
    client, script = thinking
    script([("20 degrees", "It is warm."), ("weather", CALL)])
    first = client.chat(model=MODEL, messages=ASK, tools=TOOLS)
    more = [*ASK, first.message, {"role": "tool", "tool_name": "get_weather", "content": "20 degrees"}]
    second = client.chat(model=MODEL, messages=more, tools=TOOLS)
    assert second.message.content == "It is warm." and second.prompt_eval_count > first.prompt_eval_count


def test_generate_thinks_and_calls_nothing(thinking):
    client, script = thinking
    script([("weather", f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}")])
    answer = client.generate(model=MODEL, prompt="The weather?")
    parts = list(client.generate(model=MODEL, prompt="The weather?", stream=True))
    assert (answer.thinking, answer.response) == (THOUGHT, TEXT)
    assert ("".join(p.thinking or "" for p in parts), "".join(p.response for p in parts)) == (THOUGHT, TEXT)
    assert client.generate(model=MODEL, prompt="The weather?", raw=True).response.startswith("<think>")
    with pytest.raises(ollama.ResponseError, match="tools are not supported by this endpoint"):
        client._request_raw("POST", "/api/generate", json={"model": MODEL, "prompt": "The weather?", "tools": TOOLS})
