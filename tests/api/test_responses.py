"""OpenAI's own client against /v1/responses. What all protocols share is in test_protocols.py."""

import concurrent.futures
import json
import time

import httpx
import openai
import pytest

from conftest import wait_until

QUESTION = "What is the capital of France?"


def chat(client, model, messages, max_tokens=16):
    return client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=max_tokens)


def text_of(response):
    assert [i.type for i in response.output] == ["message"]
    return response.output[0].content[0].text


def test_a_response_is_a_chat(client, model):
    """Validated strictly by the client, and every field of the request that it echoes."""
    response = client.responses.create(model=model, input=QUESTION, instructions="Be brief.", temperature=0,
                                       max_output_tokens=16, metadata={"a": "b"}, user="u")
    same = chat(client, model, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}])
    assert response.output_text == same.choices[0].message.content == text_of(response)
    assert response.id.startswith("resp_") and response.object == "response" and response.model == model
    assert response.instructions == "Be brief." and response.metadata == {"a": "b"} and response.max_output_tokens == 16
    assert response.temperature == 0 and response.tools == [] and response.tool_choice == "auto" and response.user == "u"
    cut = same.choices[0].finish_reason == "length"
    assert response.status == ("incomplete" if cut else "completed")
    assert (response.incomplete_details.reason if cut else None) == ("max_output_tokens" if cut else None)
    assert response.usage.input_tokens == same.usage.prompt_tokens
    assert response.usage.output_tokens == same.usage.completion_tokens
    assert response.usage.total_tokens == same.usage.total_tokens


def test_a_stream_adds_up(client, model):
    options = dict(model=model, input=[{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}],
                   temperature=0, max_output_tokens=12)
    whole = client.responses.create(**options)
    events = list(client.responses.create(**options, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done",
                          f"response.{whole.status}"]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert "".join(e.delta for e in events[4:-4]) == whole.output_text == events[-4].text
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens
    assert events[0].response.id == events[-1].response.id != whole.id
    assert len({e.item_id for e in events[4:-2] if hasattr(e, "item_id")}) == 1


def test_the_stream_helper(client, model):
    with client.responses.stream(model=model, input=QUESTION, temperature=0, extra_body={"stop": " "}) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and final.output_text


def test_items_are_messages(client, model):
    """Roles, calls with their results and reasoning become one conversation."""
    items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"},
             {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
              "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
             {"role": "user", "content": QUESTION}]
    same = chat(client, model, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                                {"role": "assistant", "content": "Hello."}, {"role": "user", "content": QUESTION}])
    response = client.responses.create(model=model, input=items, temperature=0, max_output_tokens=16)
    assert response.output_text == same.choices[0].message.content
    assert response.usage.input_tokens == same.usage.prompt_tokens
    items += [{"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
               "encrypted_content": "x"},
              {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"of":"France"}'},
              {"type": "function_call_output", "call_id": "c", "output": "Paris"}]
    assert client.responses.create(model=model, input=items, max_output_tokens=16).usage.input_tokens > 40


@pytest.mark.parametrize("output, text", [(None, ""), ({"degrees": 21.0, "sky": ["clear"]}, '{"degrees": 21.0, "sky": ["clear"]}')])
def test_outputs_that_are_no_text(server, client, model, output, text):
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    inputs = [[{"role": "user", "content": QUESTION}, call, {"type": "function_call_output", "call_id": "c", "output": said}]
              for said in (output, text)]
    answers = [client.responses.create(model=model, input=items, temperature=0, max_output_tokens=8) for items in inputs]
    assert answers[0].output_text == answers[1].output_text
    assert answers[0].usage.input_tokens == answers[1].usage.input_tokens
    for wrong in {"type": "function_call_output", "call_id": "c"}, {"type": "function_call_output", "call_id": "c", "output": 3}:
        with pytest.raises(openai.BadRequestError, match="input.1..output"):
            client.responses.create(model=model, input=[call, wrong])


def test_previous_responses(client, loose_client, model):
    first = client.responses.create(model=model, input="My name is Ada.", instructions="Be brief.", temperature=0,
                                    max_output_tokens=16)
    second = client.responses.create(model=model, input="What is my name?", previous_response_id=first.id, temperature=0,
                                     max_output_tokens=16)
    turns = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": first.output_text},
             {"role": "user", "content": "What is my name?"}]
    same = chat(client, model, turns)
    assert second.output_text == same.choices[0].message.content, "instructions are not carried over"
    assert second.usage.input_tokens == same.usage.prompt_tokens
    assert second.previous_response_id == first.id
    streamed = list(client.responses.create(model=model, input="And again?", previous_response_id=second.id,
                                            max_output_tokens=4, stream=True))[-1].response
    again = client.responses.retrieve(streamed.id)
    assert again == streamed
    loose_client.responses.delete(streamed.id)
    with pytest.raises(openai.BadRequestError, match="told whole"):
        client.responses.retrieve(first.id, stream=True)
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        client.responses.input_items.list(streamed.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(streamed.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=model, input="x", previous_response_id=streamed.id)
    assert caught.value.code == "previous_response_not_found" and caught.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(first.id)
    kept_not = client.responses.create(model=model, input="x", store=False, max_output_tokens=1)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(kept_not.id)


def test_a_running_response_is_cancelled(client, server, model):
    stream = client.responses.create(model=model, input="Count to ten thousand, in words.", stream=True,
                                     max_output_tokens=4000, extra_body={"ignore_eos": True})
    events = iter(stream)
    running = next(events).response.id
    answer = httpx.post(f"{server.url}/v1/responses/{running}/cancel")
    assert answer.status_code == 200 and answer.json()["status"] == "cancelled"
    last = list(events)[-1]
    assert last.type == "response.failed" and last.response.status == "failed"
    assert last.response.error.message == "this response was cancelled"


def test_tools_that_only_the_service_has(server, model):
    answer = httpx.post(server.url + "/v1/responses", timeout=60, json={
        "model": model, "input": "hi", "max_output_tokens": 2, "tools": [{"type": "web_search"}, {"type": "computer"}]})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-flashd-warning"] == "skipped a tool of type web_search; skipped a tool of type computer"


def test_log_probabilities(client, model):
    response = client.responses.create(model=model, input=QUESTION, temperature=0, max_output_tokens=4, top_logprobs=2,
                                       include=["message.output_text.logprobs"])
    logprobs = response.output[0].content[0].logprobs
    assert len(logprobs) == 4 and all(len(t.top_logprobs) == 2 for t in logprobs)
    assert response.output_text.startswith(logprobs[0].token)


@pytest.mark.parametrize("background", [False, True])
def test_many_log_probabilities(client, model, background):
    """So many are written beside the loop, and what later requests ask for is kept all the same."""
    options = dict(model=model, input=QUESTION, temperature=1, extra_body={"seed": 4}, max_output_tokens=120, top_logprobs=20,
                   include=["message.output_text.logprobs"])
    whole = client.responses.create(**options, background=background)
    if background:
        whole = wait_until(lambda: (r := client.responses.retrieve(whole.id)).status not in ("queued", "in_progress") and r)
    logprobs = whole.output[0].content[0].logprobs
    assert len(logprobs) * 21 > 2048
    *_, end = client.responses.create(**options, stream=True)
    streamed = end.response
    assert streamed.output[0].content[0].logprobs == logprobs and streamed.output_text == whole.output_text
    assert client.responses.retrieve(whole.id).output[0].content[0].logprobs == logprobs
    follow = dict(model=model, input="And then?", temperature=0, max_output_tokens=3)
    answers = [client.responses.create(**follow, previous_response_id=r.id).output_text for r in (whole, streamed)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("change, param", [
    ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": [5]}, "input[0]"),
    ({"input": [{"role": "x", "content": "y"}]}, "input[0]"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call", "name": "x"}]}, "input[0]"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    ({"max_output_tokens": 0}, "max_output_tokens"), ({"max_output_tokens": "many"}, "max_output_tokens"),
    ({"temperature": 900}, "temperature"), ({"instructions": 5}, "instructions"), ({"store": "x"}, "store"),
    ({"background": True, "store": False}, "background"), ({"background": True, "stream": True}, "stream"), ({"background": 5}, "background"), ({"conversation": "c"}, "conversation"), ({"prompt": {"id": "p"}}, "prompt"),
    ({"previous_response_id": 5}, "previous_response_id"), ({"tools": {}}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"), ({"tools": [{}]}, "tools[0].type"),
    ({"tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "f"}}]}, "tools[1].name"),  # as in a chat
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"pattern": "("}}}}, "text.format.schema"),
    ({"reasoning": {"effort": 5}}, "reasoning.effort"),
    ({"metadata": 5}, "metadata"), ({"service_tier": 5}, "service_tier"), ({"max_tool_calls": "x"}, "max_tool_calls"), ({"user": {}}, "user"),
    ({"metadata": {"a": "b", "c": 5}}, "metadata"), ({"metadata": {"a": None}}, "metadata"), ({"metadata": {"a": "b" * 513}}, "metadata"),
    ({"metadata": {"a" * 65: "b"}}, "metadata"), ({"metadata": dict.fromkeys(map(str, range(17)), "")}, "metadata"),
    ({"reasoning": {"summary": 5}}, "reasoning.summary"), ({"top_logprobs": 1.5}, "top_logprobs"), ({"top_logprobs": 21}, "top_logprobs"), ({"include": [5]}, "include"),
    ({"tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "a b"}]}, "tools[1].name"),
    ({"tools": [{"type": "function", "name": "f", "strict": "x"}]}, "tools[0].strict"),
    ({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "f"}}, "tool_choice"),
    ({"truncation": "maybe"}, "truncation"), ({"truncation": 5}, "truncation"),
    ({"input": "word " * 10000}, "input"), ({"max_output_tokens": 9000}, "input"),
])
def test_refusals_name_the_field(server, model, change, param):
    answer = httpx.post(server.url + "/v1/responses", timeout=60, json={"model": model, "input": "hi", **change})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


def test_what_is_told_again_has_its_type(server, model):
    """Whatever form it came in; the tier is the one there is, and what a request left out of text and reasoning is there."""
    asked = {"model": model, "input": "hi", "max_output_tokens": " 4", "temperature": "0", "top_p": "1.0", "store": "False",
             "parallel_tool_calls": "true", "max_tool_calls": "3", "presence_penalty": "0.5", "service_tier": "flex",
             "metadata": {"é" * 64: "ü" * 512}, "text": {"verbosity": "low"}, "reasoning": {"effort": "low"}}
    told = server.post("/v1/responses", asked).json()
    assert told == {**told, "max_output_tokens": 4, "temperature": 0, "top_p": 1, "store": False, "parallel_tool_calls": True,
                    "max_tool_calls": 3, "presence_penalty": 0.5, "service_tier": "default", "metadata": asked["metadata"],
                    "text": {"format": {"type": "text"}, "verbosity": "low"}, "reasoning": {"effort": "low", "summary": None}}
    form = {"type": "json_object"}
    told = server.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "text": {"format": form}, "reasoning": {"summary": "auto"}}).json()
    assert told["text"] == {"format": form} and told["reasoning"] == {"effort": None, "summary": "auto"}


def test_few_references_are_not_much_work(server):
    """A small body that refers again and again to a stored response of megabytes, which is read for each item."""
    large = {"type": "web_search", "x": "y" * (4 << 20)}
    stored = server.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "tools": [large]}).json()
    item = {"type": "item_reference", "id": stored["output"][0]["id"]}
    assert server.post("/v1/responses/input_tokens", {"input": [item] * 16}).status_code == 200
    refused = server.post("/v1/responses/input_tokens", {"input": [item] * 1000})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "input[16]", refused.text


def test_responses_are_their_keys(start_server):
    """What one key stored another does not see; where there is no room who has most of it makes some."""
    with start_server("--api-key", "one", "--api-key", "two", "--response-store-bytes", "20KiB") as server:
        def ask(key, method, path, **body):
            return httpx.request(method, server.url + path, headers={"Authorization": f"Bearer {key}"},
                                 json=body or None, timeout=60)
        first = ask("one", "POST", "/v1/responses", input="hi", max_output_tokens=1).json()["id"]
        assert ask("one", "GET", f"/v1/responses/{first}").status_code == 200
        assert ask("two", "GET", f"/v1/responses/{first}").status_code == 404
        assert ask("two", "POST", "/v1/responses", input="hi", previous_response_id=first).status_code == 400
        flood = [ask("two", "POST", "/v1/responses", input="x" * 2000, max_output_tokens=1).json()["id"] for _ in range(10)]
        assert [ask("two", "GET", f"/v1/responses/{flood[i]}").status_code for i in (0, -1)] == [404, 200]
        assert ask("one", "GET", f"/v1/responses/{first}").status_code == 200
        assert json.loads(ask("one", "GET", "/v1/responses/none").text)["error"]["code"] == "response_not_found"


def test_a_client_that_floods_the_store_makes_room(start_server):
    """What one tenant stores stays beside what another one of its key does."""
    with start_server("--tenant-header", "--response-store-bytes", "20KiB") as server:
        def ask(tenant, text):
            body = {"input": text, "max_output_tokens": 1}
            return httpx.post(server.url + "/v1/responses", headers={"x-tenant": tenant}, json=body, timeout=60).json()["id"]
        first = ask("one", "hi")
        flood = [ask("two", "x" * 2000) for _ in range(10)]
        found = [httpx.get(f"{server.url}/v1/responses/{id}").status_code for id in (flood[0], flood[-1], first)]
        assert found == [404, 200, 200]


def test_input_tokens(server, client, model):
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}]
    for extra in ({}, {"instructions": "Be brief."}, {"tools": tools}):
        count = client.responses.input_tokens.count(model=model, input="What is new?", **extra)
        reply = client.responses.create(model=model, input="What is new?", max_output_tokens=16, **extra)
        assert (count.object, count.input_tokens) == ("response.input_tokens", reply.usage.input_tokens), extra
    next_turn = {"model": model, "input": "And then?", "previous_response_id": reply.id}
    count = client.responses.input_tokens.count(**next_turn)
    assert count.input_tokens == client.responses.create(**next_turn, max_output_tokens=16).usage.input_tokens
    refused = server.post("/v1/responses/input_tokens", {"input": [{"type": "picture"}]})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "input[0]"


def test_input_items(server, client, model):
    turns = [{"role": "user", "content": "Look."},
             {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":1}'},
             {"type": "function_call_output", "call_id": "c1", "output": "a tree"}]
    first = client.responses.create(model=model, input=turns, instructions="Be brief.", max_output_tokens=16)
    second = client.responses.create(model=model, input="Go on.", previous_response_id=first.id, max_output_tokens=16)
    items = client.responses.input_items.list(second.id, order="asc", limit=100).data
    assert [i.type for i in items] == ["message", "function_call", "function_call_output", "message", "message"]
    assert items[0].content[0].text == "Look." and items[1].arguments == '{"at":1}' and items[2].call_id == "c1"
    assert items[3].role == "assistant" and items[3].content[0].text == first.output_text
    assert items[4].content[0].text == "Go on." and len({i.id for i in items}) == 5
    newest = client.responses.input_items.list(second.id, limit=2)
    assert [i.id for i in newest.data] == [items[4].id, items[3].id] and newest.has_more
    assert [i.id for i in newest] == [i.id for i in reversed(items)]  # page by page
    assert client.responses.input_items.list(second.id, order="asc", after=items[3].id).data[0].id == items[4].id
    for path, status in (("resp_0/input_items", 404), (second.id + "/input_items?limit=0", 400), (second.id + "/input_items?limit=5x", 400),
                         (second.id + "/input_items?order=up", 400), (second.id + "/input_items?after=x", 400), (second.id + "/items", 404)):
        assert httpx.get(f"{server.url}/v1/responses/{path}").status_code == status, path


def test_items_of_a_long_conversation_keep_nobody_waiting(server, client, model):
    """Health answers while a worker takes megabytes of stored messages apart."""
    turns = [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(100000)]
    long = client.responses.create(model=model, input=turns, truncation="auto", max_output_tokens=16)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        page = pool.submit(httpx.get, f"{server.url}/v1/responses/{long.id}/input_items?limit=2", timeout=300)
        slowest, answered, start = 0, 0, time.monotonic()
        while not page.done():
            begin = time.monotonic()
            assert httpx.get(server.url + "/health").status_code == 200
            slowest = max(slowest, time.monotonic() - begin)
            answered += 1
        assert [item["id"][-5:] for item in page.result().json()["data"]] == ["99999", "99998"]
    assert answered >= 3 and slowest < (time.monotonic() - start) / 2
    assert client.responses.delete(long.id) is None


def test_items_that_another_service_left(server):
    """A conversation that began elsewhere goes on here: calls of custom tools are read, what a service did itself is skipped."""
    custom = [{"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": 'echo "a"\n'},
              {"type": "custom_tool_call_output", "call_id": "c", "output": "a"}]
    called = [{"type": "function_call", "call_id": "c", "name": "shell", "arguments": json.dumps({"input": 'echo "a"\n'})},
              {"type": "function_call_output", "call_id": "c", "output": "a"}]
    ask = {"role": "user", "content": "Go on."}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "a"}}
    replies = [server.post("/v1/responses/input_tokens", {"input": [ask, *turns, ask]}) for turns in (custom, called)]
    assert replies[0].json() == replies[1].json() and replies[0].json()["input_tokens"] > 20
    reply = server.post("/v1/responses", {"input": [ask, *custom, search, ask], "max_output_tokens": 4, "stream": False})
    assert reply.status_code == 200 and reply.headers["x-flashd-warning"] == "skipped an item of type web_search_call"
    reply = server.post("/v1/responses", {"input": [{**custom[0], "input": None}]})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "input[0]"


# ---- in the background ----

def in_background(client, model, **options):
    options = {"model": model, "input": QUESTION, "temperature": 0, "max_output_tokens": 16, "background": True, **options}
    return client.responses.create(**options)


def when_done(client, id):
    return wait_until(lambda: (r := client.responses.retrieve(id)).status not in ("queued", "in_progress") and r)


def test_an_answer_in_the_background(server, client, model):
    """Its client asks for it until it is there: the answer is that of one who waits, and goes on in the next turn."""
    before = server.wait_idle()["flashd_requests_admitted_total"]
    begun = in_background(client, model)
    assert begun.status in ("queued", "in_progress") and begun.background is True and begun.output == [] and begun.usage is None
    done = when_done(client, begun.id)
    waited = client.responses.create(model=model, input=QUESTION, temperature=0, max_output_tokens=16)
    assert (done.id, done.status, done.background) == (begun.id, waited.status, True)
    assert done.output_text == waited.output_text and done.usage.output_tokens == waited.usage.output_tokens
    turn = client.responses.create(model=model, input="And of Italy?", previous_response_id=done.id, max_output_tokens=1)
    assert turn.usage.input_tokens > waited.usage.input_tokens
    assert server.wait_idle()["flashd_requests_admitted_total"] == before + 3
    lines = [json.loads(line) for line in server.log().splitlines() if '"/v1/responses"' in line and '"finish_reason"' in line]
    assert [line["finish_reason"] for line in lines[-3:]] == [lines[-3]["finish_reason"], lines[-3]["finish_reason"], "length"]


def test_a_drain_lets_clients_fetch_and_cancel_theirs(start_server):
    with start_server() as server:
        ask = lambda method, path, **body: httpx.request(method, f"{server.url}/v1/responses{path}", timeout=60, **body)
        begin = lambda n: ask("POST", "", json={"input": "hi", "background": True, "max_output_tokens": n, "ignore_eos": True}).json()["id"]
        long, short = begin(7000), begin(4)
        server.process.terminate()
        wait_until(lambda: "draining" in server.log(), server)
        done = wait_until(lambda: (r := ask("GET", f"/{short}").json())["status"] == "incomplete" and r, server)
        assert done["usage"]["output_tokens"] == 4 and ask("GET", f"/{long}").json()["status"] == "in_progress"
        assert ask("POST", "", json={"input": "hi"}).status_code == 503
        assert ask("POST", f"/{long}/cancel").json()["status"] == "cancelled"
        assert server.process.wait(30) == 0


def test_many_in_the_background(client, model):
    """Among others each is what it is alone, whatever order they are asked for in."""
    inputs = [f"Count from {i}." for i in range(8)]
    alone = [client.responses.create(model=model, input=text, temperature=0, max_output_tokens=12).output_text for text in inputs]
    begun = [in_background(client, model, input=text, max_output_tokens=12) for text in inputs]
    assert [when_done(client, b.id).output_text for b in reversed(begun)] == alone[::-1]


def test_one_in_the_background_is_cancelled(server, client, model):
    begun = in_background(client, model, max_output_tokens=4000, extra_body={"ignore_eos": True})
    wait_until(lambda: client.responses.retrieve(begun.id).status == "in_progress")
    assert [r["id"] for r in httpx.get(server.url + "/debug/requests").json()["data"]]
    assert [client.responses.cancel(begun.id).status for _ in range(3)] == ["cancelled"] * 3
    after = client.responses.retrieve(begun.id)
    assert (after.status, after.background, after.output, after.error) == ("cancelled", True, [], None)
    assert server.wait_idle()["vllm:num_requests_running"] == 0
    client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


def test_one_in_the_background_fails(client, model):
    """Of a deadline, which nobody waits for: who asks is told. That it will not end before is not known when it is asked for."""
    begun = in_background(client, model, max_output_tokens=4000, extra_headers={"x-request-timeout": "0.5"},
                          extra_body={"logit_bias": {"0": -100, "2": -100}})
    failed = when_done(client, begun.id)
    assert failed.status == "failed" and "0.500 s" in failed.error.message


def test_who_may_ask(start_server):
    with start_server("--api-key", "a", "b", "--response-store-bytes", "1MiB") as server:
        def ask(method, path, key, **options):
            return httpx.request(method, server.url + path, headers={"Authorization": f"Bearer {key}"}, timeout=60, **options)
        begun = ask("POST", "/v1/responses", "a", json={"input": "hi", "background": True, "max_output_tokens": 2000, "ignore_eos": True}).json()
        assert ask("GET", "/v1/responses/" + begun["id"], "b").status_code == 404
        assert ask("POST", f"/v1/responses/{begun['id']}/cancel", "b").status_code == 404
        assert ask("GET", "/v1/responses/" + begun["id"], "a").json()["status"] in ("queued", "in_progress")
        assert ask("POST", f"/v1/responses/{begun['id']}/cancel", "a").json()["status"] == "cancelled"
    with start_server("--response-store-bytes", "0") as server:
        assert server.post("/v1/responses", {"input": "hi", "background": True}).json()["error"]["param"] == "background"
