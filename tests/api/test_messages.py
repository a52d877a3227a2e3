"""Anthropic's own client against /v1/messages. What all protocols share (keys, limits, pings, clients that leave) is in
test_protocols.py."""

import re

import anthropic
import httpx
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


GREEDY = {"temperature": 0}


def chat(client, model, messages, **options):
    return client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=16, **options)


def test_a_message_is_a_chat(claude, client, model):
    answer = claude.messages.create(model=model, messages=QUESTION, extra_body=GREEDY, max_tokens=16)
    same = chat(client, model, QUESTION)
    assert answer.type == "message" and answer.role == "assistant" and answer.id.startswith("msg_")
    assert answer.model == model and answer.stop_sequence is None
    assert [b.type for b in answer.content] == ["text"]
    assert answer.content[0].text == same.choices[0].message.content
    assert answer.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[same.choices[0].finish_reason]
    usage = answer.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == same.usage.prompt_tokens
    assert usage.output_tokens == same.usage.completion_tokens
    assert answer._request_id


def test_members_that_anthropic_requires(claude, model):
    answer = claude.messages.with_raw_response.create(model=model, messages=QUESTION, max_tokens=4).http_response.json()
    assert {"id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container"} == set(answer)
    assert set(answer["content"][0]) == {"type", "text", "citations"}
    assert set(answer["usage"]) == {
        "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation", "output_tokens",
        "output_tokens_details", "server_tool_use", "service_tier", "inference_geo"}


def test_a_stream_adds_up(claude, model):
    options = dict(model=model, messages=QUESTION, extra_body=GREEDY, max_tokens=16)
    whole = claude.messages.create(**options)
    kinds = []
    with claude.messages.stream(**options) as stream:
        for event in stream:
            kinds.append(event.type)
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text and final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    raw = [k for k in kinds if k != "text"]
    assert raw[:2] == ["message_start", "content_block_start"]
    assert raw[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(raw[2:-3]) == {"content_block_delta"}


def test_system_and_blocks(claude, client, model):
    """A system field, in blocks or not, is a system message; what a client sends for billing is left out."""
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, *QUESTION]
    same = chat(client, model, [{"role": "system", "content": "Be brief."}, *turns])
    blocks = [{"role": t["role"], "content": [{"type": "text", "text": t["content"], "cache_control": {
        "type": "ephemeral"}}]} for t in turns]
    billed = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"}, {"type": "text", "text": "Be brief."}]
    for system, messages in (("Be brief.", turns), (billed, blocks)):
        answer = claude.messages.create(model=model, system=system, messages=messages, extra_body=GREEDY, max_tokens=16)
        assert answer.content[0].text == same.choices[0].message.content
        assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens == same.usage.prompt_tokens


def test_a_system_message_among_messages(claude, client, model):
    turns = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}, *QUESTION]
    answer = claude.messages.create(model=model, messages=turns, extra_body=GREEDY, max_tokens=8)
    assert chat(client, model, turns).choices[0].message.content.startswith(answer.content[0].text)


def test_the_last_turn_of_an_assistant_is_continued(claude, model):
    turns = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
    answer = claude.messages.create(model=model, messages=turns, extra_body=GREEDY, max_tokens=4)
    assert "Paris" in answer.content[0].text


def test_stop_sequences(claude, model):
    """What the answer says depends on the processor: of two words the model thinks alike."""
    whole = claude.messages.create(model=model, messages=QUESTION, extra_body=GREEDY, max_tokens=32).content[0].text
    stop = whole[8:14]
    answer = claude.messages.create(model=model, messages=QUESTION, extra_body=GREEDY, max_tokens=32, stop_sequences=["zzz", stop])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == stop
    assert answer.content[0].text == whole[:whole.index(stop)]
    with claude.messages.stream(model=model, messages=QUESTION, extra_body=GREEDY, max_tokens=32, stop_sequences=[stop]) as stream:
        assert stream.get_final_message().stop_sequence == stop


def test_turns_with_tools_are_read(claude, model):
    """Calls and results of earlier turns, text beside them, thinking."""
    turns = [*QUESTION,
             {"role": "assistant", "content": [
                 {"type": "thinking", "thinking": "look it up", "signature": "s"},
                 {"type": "redacted_thinking", "data": "x"},
                 {"type": "text", "text": "One moment."},
                 {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"of": "France", "n": 1.0}}]},
             {"role": "user", "content": [
                 {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Paris"}]},
                 {"type": "tool_result", "tool_use_id": "t1"},
                 {"type": "text", "text": "Well?"}]}]
    counted = claude.messages.count_tokens(model=model, messages=turns).input_tokens
    answer = claude.messages.create(model=model, messages=turns, max_tokens=4)
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens == counted
    results = claude.messages.count_tokens(model=model, messages=[*turns[:2], {
        "role": "user", "content": turns[2]["content"][:2]}]).input_tokens
    assert results < counted


def test_what_betas_add_is_accepted(server, claude, model):
    answer = claude.beta.messages.create(
        model=model, messages=QUESTION, max_tokens=4, betas=["interleaved-thinking-2025-05-14", "some-beta-2099-01-01"],
        thinking={"type": "adaptive", "display": "omitted"}, metadata={"user_id": '{"device":"x"}'}, service_tier="auto",
        context_management={"edits": [{"type": "clear_thinking_20251015"}]},
        extra_body={"output_config": {"effort": "high"}, "mcp_servers": [], "container": None})
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert httpx.post(server.url + "/v1/messages?beta=true", headers={"x-api-key": "k", "anthropic-version": "2099-01-01"},
                      json={"model": model, "max_tokens": 1, "messages": QUESTION, "seed": 3}).status_code == 200


def test_more_tokens_than_there_is_room_for(start_server, model):
    """Clients send what the service's models can; the answer ends where the context does, and says so."""
    with start_server("--max-model-len", "64") as server:
        small = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        options = dict(model=model, messages=QUESTION, extra_body={**GREEDY, "ignore_eos": True})
        answer = small.messages.create(max_tokens=20000, **options)
        assert answer.stop_reason == "model_context_window_exceeded"
        assert answer.usage.input_tokens + answer.usage.output_tokens == 64
        with small.messages.stream(max_tokens=128000, **options) as stream:
            assert stream.get_final_message().stop_reason == "model_context_window_exceeded"
        assert small.messages.create(max_tokens=2, **options).stop_reason == "max_tokens"
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            small.messages.create(max_tokens=1, **{**options, "messages": [{"role": "user", "content": "hello " * 64}]})


@pytest.mark.parametrize("change, named", [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": "y"}]}]}, "messages[0].content[0]"),
    ({"messages": [3]}, "messages[0]"),
    ({"messages": "hello"}, "messages"),
    ({"messages": None, "system": []}, "messages"),
    ({"messages": None, "system": [{"type": "text", "text": "x-anthropic-billing-header: x"}]}, "messages"),
    ({"system": 5}, "system"),
    ({"system": [{"type": "image"}]}, "system[0]"),
    ({"stop_sequences": ["a", ""]}, "stop_sequences[1]"),
    ({"stop_sequences": 5}, "stop_sequences"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"tool_choice": {"type": "some"}}, "tool_choice"),
    ({"thinking": True}, "thinking"),
    ({"tools": [{"name": "f"}]}, "input_schema"),
    ({"tools": [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": 5}]}, "tools[1].input_schema must"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name must"),
    ({"tools": [{"type": "custom", "input_schema": {}}]}, "name"),
    ({"tools": [{"name": "f", "input_schema": {}}] * 2}, "tools[1].name is `f`"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": 3}]}]},
     "messages[0].content[0].content must"),
    ({"output_format": {"type": "xml"}}, "output_format.type must"),
    ({"output_format": 3}, "output_format must"),
    ({"output_format": {"type": "json_schema", "schema": {"pattern": "("}}}, "output_format.schema: "),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type must"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema must"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"pattern": "("}}}}, "output_config.format.schema: "),
])
def test_refusals_name_the_field(server, model, change, named):
    body = {"model": model, "max_tokens": 4, "messages": QUESTION, **change}
    answer = httpx.post(server.url + "/v1/messages", timeout=60, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert named in answer.json()["error"]["message"]


def test_what_only_the_service_has_is_told(server, model):
    body = {"model": model, "max_tokens": 1, "messages": QUESTION, "speed": "fast"}
    more = {"tools": [{"type": "web_search_20250305", "name": "web_search"}], "mcp_servers": [{"type": "url", "url": "x", "name": "y"}]}
    assert "x-flashd-warning" not in httpx.post(server.url + "/v1/messages", json=body, timeout=60).headers
    warning = httpx.post(server.url + "/v1/messages", json={**body, **more}, timeout=60).headers["x-flashd-warning"]
    assert "web_search_20250305" in warning and "mcp_servers" in warning


def test_errors_are_the_clients_own(claude, model):
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.messages.create(model="nobody", messages=QUESTION, max_tokens=1)
    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] == "not_found_error"
    assert caught.value.body["request_id"]


def test_a_prompt_that_is_too_long_is_said_in_anthropics_words(claude, model):
    """Claude Code and LangChain read them, and the two numbers, to know by how much a conversation must shrink."""
    ask = dict(model=model, messages=[{"role": "user", "content": "word " * 20000}])
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(**ask, max_tokens=1)
    said = re.fullmatch(r"prompt is too long: (\d+) tokens > (\d+) maximum", caught.value.body["error"]["message"])
    assert int(said[1]) == claude.messages.count_tokens(**ask).input_tokens
    assert int(said[2]) == claude.models.retrieve(model).max_input_tokens - 1  # the answer has one


def test_every_answer_has_the_id_that_the_client_reads(server, start_server):
    """request-id, as Anthropic calls it: of answers, of what a codec refuses, and of what never became a request."""
    ask, speaks = {"messages": QUESTION, "max_tokens": 1}, {"anthropic-version": "2023-06-01"}
    wrong = {"content": "{", "headers": {"content-type": "application/json"}}
    def post(path, **options):
        return httpx.post(server.url + path, timeout=60, **options)
    replies = [post("/v1/messages", json=ask), post("/v1/messages", json={**ask, "stream": True}), post("/v1/messages", json={}),
               post("/v1/messages", **wrong), post("/v1/messages", content="x" * (40 << 20), headers=wrong["headers"]),
               post("/v1/messages/count_tokens", json=ask), post("/v1/messages/count_tokens", **wrong),
               post("/v1/messages/batches", json={}), httpx.get(server.url + "/v1/messages"),
               httpx.get(server.url + "/v1/models", headers=speaks), httpx.get(server.url + "/v1/models/nobody", headers=speaks),
               httpx.post(server.url + "/v1/messages", json=ask, headers={"expect": "much"})]
    assert [r.status_code for r in replies] == [200, 200, 400, 400, 413, 200, 400, 404, 405, 200, 404, 417]
    assert [r.headers["request-id"] for r in replies] == [r.headers["x-request-id"] for r in replies]
    assert "request-id" not in server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).headers
    with start_server("--api-key", "k") as locked, pytest.raises(anthropic.AuthenticationError) as caught:
        anthropic.Anthropic(base_url=locked.url, api_key="none", max_retries=0).models.list()
    assert caught.value.request_id == caught.value.body["request_id"]


def test_count_tokens(claude, client, model):
    counted = claude.messages.count_tokens(model=model, system="Be brief.", messages=QUESTION).input_tokens
    same = chat(client, model, [{"role": "system", "content": "Be brief."}, *QUESTION])
    assert counted == same.usage.prompt_tokens
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.count_tokens(model=model, messages=[])


def test_documents_and_search_results_are_text(server):
    """What Anthropic's clients send beside text where it is text; the rest is refused with its place."""
    def count(*blocks):
        reply = server.post("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": list(blocks)}]})
        return reply.json()["input_tokens"] if reply.status_code == 200 else reply.json()["error"]["message"]

    ask = {"type": "text", "text": "What is said?"}
    plain = {"type": "text", "media_type": "text/plain", "data": "one two three"}
    document = {"type": "document", "source": plain, "title": "numbers", "context": None, "citations": {"enabled": True}}
    result = {"type": "search_result", "source": "https://a.example", "title": "numbers", "content": [ask]}
    marked = {"type": "text", "text": "<document>\n<title>numbers</title>\none two three\n</document>"}
    assert count(document, ask) == count(marked, ask)
    parts = {"type": "content", "content": [{"type": "text", "text": "one two three"}]}
    assert count({**document, "source": parts}, ask) == count(marked, ask)
    assert count({**document, "source": {"type": "content", "content": "one two three"}}, ask) == count(marked, ask)
    assert count(result, ask) > count(ask)
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    for source in (pdf, {"type": "url", "url": "https://a.example"}, None, {"type": "text"}):
        assert count({**document, "source": source}).startswith("messages[0].content[0].source must be text")
    turns = [{"role": "user", "content": "Hi"},
             {"role": "assistant", "content": [
                 {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "a"}},
                 {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                 {"type": "tool_use", "id": "t", "name": "read", "input": {}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [document, result]}]}]
    reply = server.post("/v1/messages", {"max_tokens": 1, "messages": turns})
    assert reply.status_code == 200, reply.text
    assert "skipped a block of type server_tool_use" in reply.headers["x-flashd-warning"]


def test_models_in_anthropics_shape(server):
    """The same addresses as OpenAI's: the version that every client of Anthropic's sends tells them apart."""
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    page = client.models.list()
    name = server.client().models.list().data[0].id
    assert [m.id for m in page] == [name] and page.first_id == page.last_id == name and page.has_more is False
    model = client.models.retrieve(name)
    assert (model.type, model.display_name, model.lifecycle) == ("model", name, "active")
    assert model.created_at.year >= 2024 and model.max_input_tokens > 0
    with pytest.raises(anthropic.NotFoundError) as refused:
        client.models.retrieve("gpt-9")
    assert refused.value.body["type"] == "error" and refused.value.body["error"]["type"] == "not_found_error"
    assert httpx.get(server.url + "/v1/models/gpt-9").json()["error"]["code"] == "model_not_found"
