"""What programs say that were written for other servers of OpenAI's protocol: it means here what it means there."""
import json

import httpx
import pytest

from scripted import scripted_server
from test_tools import TEMPLATE

USER = {"role": "user", "content": "Say it."}
TOOL = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}


def chat(server, expected=200, **body):
    body = {"messages": [USER], "max_tokens": 30, "temperature": 0} | body
    answer = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == expected, answer.text
    return answer.json()


def content(server, **body):
    return chat(server, **body)["choices"][0]["message"]["content"]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_minus_one_token_is_as_many_as_fit(server, name):
    body = {"max_tokens": None, name: -1, "stop": [" "], "structured_outputs": {"regex": "[a-z]{20,30} "}}
    answer = chat(server, **body)
    assert answer["choices"][0]["finish_reason"] == "stop" and answer["usage"]["completion_tokens"] > 1
    chat(server, 400, **{"max_tokens": None, name: -2})
    chat(server, 400, **{"max_tokens": None, name: 0})


def test_minus_one_token_of_a_text_completion(server):
    body = {"prompt": "Once", "max_tokens": -1, "structured_outputs": {"regex": "[a-z]{90}"}, "temperature": 0}
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=120).json()
    assert len(answer["choices"][0]["text"]) == 90  # more than the 16 tokens that are the default


def test_a_temperature_above_2(server):
    chat(server, temperature=5, min_p=0.1)
    chat(server, 400, temperature=100.5)


@pytest.mark.parametrize("form", [
    {"type": "json_object", "schema": SCHEMA},
    {"type": "json_schema", "schema": SCHEMA},
    {"type": "grammar", "grammar": 'root ::= "{" "\\"a\\":" "1}"'},
    {"type": "regex", "pattern": r'\{"a": 1\}'},
])
def test_a_form_beside_its_type(server, form):
    assert json.loads(content(server, response_format=form)) == {"a": 1}


@pytest.mark.parametrize("form,param", [
    ({"type": "json_object", "schema": 5}, "response_format.schema"),
    ({"type": "json_schema"}, "response_format.json_schema"),
    ({"type": "grammar"}, "response_format.grammar"),
    ({"type": "regex", "pattern": 5}, "response_format.pattern"),
])
def test_a_form_that_is_none(server, form, param):
    assert chat(server, 400, response_format=form)["error"]["param"] == param


@pytest.mark.parametrize("choice", ["any", {"type": "any"}, {"type": "required"}, {"type": "function", "name": "ping"}, {"type": "tool", "name": "ping"}])
def test_a_call_must_come(server, choice):
    message = chat(server, tools=[TOOL], tool_choice=choice)["choices"][0]["message"]
    assert {c["function"]["name"] for c in message["tool_calls"]} == {"ping"}


@pytest.mark.parametrize("choice", ["none", {"type": "none"}])
def test_no_call_comes(server, choice):
    assert not chat(server, tools=[TOOL], tool_choice=choice)["choices"][0]["message"].get("tool_calls")
    chat(server, tool_choice={"type": "auto"})


def test_a_choice_that_is_none(server):
    for choice in ({"type": "function"}, {"type": "tool", "name": "pong"}, "ping", {"type": "validated"}):
        assert chat(server, 400, tools=[TOOL], tool_choice=choice)["error"]["param"] == "tool_choice"


@pytest.mark.parametrize("thought", [
    {"type": "thinking", "thinking": "Deeply."}, {"type": "thinking", "thinking": [{"type": "text", "text": "Deeply."}]},
    {"type": "reasoning", "reasoning": "Deeply."}, {"type": "reasoning", "text": "Deeply."}])
def test_reasoning_among_the_parts(thought):
    history = [USER, {"role": "assistant", "content": [thought, {"type": "output_text", "text": "Said."}]},
               {"role": "user", "content": [{"type": "input_text", "text": "Again."}]}]
    with scripted_server(template=TEMPLATE) as (server, script):
        script([("<think>\nDeeply.\n</think>\n\nSaid.<|im_end|>\n<|im_start|>user\nAgain.", "yes")])
        assert content(server, messages=history) == "yes"
        history[1]["content"] = [thought]
        script([("<think>\nDeeply.\n</think>\n\n<|im_end|>\n<|im_start|>user\nAgain.", "yes")])
        assert content(server, messages=history) == "yes"


@pytest.mark.parametrize("kind", ["local_shell_call", "shell_call", "apply_patch_call", "computer_call"])
def test_what_was_done_with_tools_of_openais_is_skipped(server, kind):
    items = [USER, {"type": kind, "call_id": "a", "action": {}}, {"type": kind + "_output", "call_id": "a", "output": "x"}, USER]
    answer = httpx.post(server.url + "/v1/responses", json={"input": items, "max_output_tokens": 16}, timeout=120)
    assert answer.status_code == 200 and kind in answer.headers["x-flashd-warning"]


def test_a_compaction_of_anthropics_is_text():
    turns = [USER, {"role": "assistant", "content": [{"type": "compaction", "content": "We spoke of bees."}]}, USER]
    with scripted_server() as (server, script):
        script([("We spoke of bees.", "yes")])
        answer = httpx.post(server.url + "/v1/messages", json={"max_tokens": 20, "messages": turns})
        assert answer.json()["content"][0]["text"] == "yes"


def test_typical_p_of_ollamas_example_does_nothing(server):
    body = {"messages": [USER], "stream": False, "options": {"num_predict": 4, "typical_p": 0.7}}
    answer = httpx.post(server.url + "/api/chat", json=body, timeout=120)
    assert answer.status_code == 200 and "typical_p" in answer.headers["x-flashd-warning"]
