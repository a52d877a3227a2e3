"""Ollama's own client against /api. What all protocols share is in test_protocols.py."""

import re

import httpx
import ollama
import pytest

from conftest import MODEL

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
OPTIONS = {"temperature": 0, "num_predict": 12, "num_ctx": 4096, "repeat_last_n": 64}


@pytest.fixture
def llama(server):
    return ollama.Client(host=server.url)


def same_chat(client, model, messages=QUESTION, **options):
    options = {"temperature": 0, "max_tokens": 12, **options}
    return client.chat.completions.create(model=model, messages=messages, **options)


def test_chat(llama, client, model):
    answer = llama.chat(model=model, messages=QUESTION, options=OPTIONS)
    same = same_chat(client, model)
    assert answer.message.role == "assistant" and answer.message.content == same.choices[0].message.content
    assert answer.done and answer.done_reason == same.choices[0].finish_reason and answer.model == model
    assert answer.prompt_eval_count == same.usage.prompt_tokens and answer.eval_count == same.usage.completion_tokens
    assert 0 < answer.eval_duration < answer.total_duration and answer.prompt_eval_duration > 0
    assert answer.created_at


@pytest.mark.parametrize("body, reason", [({}, "load"), ({"prompt": ""}, "load"), ({"prompt": None, "keep_alive": 0}, "unload"), ({"stream": False}, "load"),
                                          ({"keep_alive": "0s"}, "unload"), ({"keep_alive": "10m"}, "load"), ({"keep_alive": -1}, "load")])
def test_generate_nothing_loads(server, model, body, reason):
    """As clients do before they ask, and to let go of a model; nothing is generated."""
    answer = httpx.post(server.url + "/api/generate", json={"model": model, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert {**answer.json(), "created_at": ""} == {
        "model": model, "created_at": "", "response": "", "done": True, "done_reason": reason}


def test_chat_about_nothing_loads(server, llama, model):
    answer = llama.chat(model=model, messages=[])
    assert answer.done and answer.done_reason == "load" and answer.message.content == ""
    refused = httpx.post(server.url + "/api/chat", json={"model": "other"}, timeout=60)
    assert refused.status_code == 404 and "other" in refused.json()["error"]


def test_a_stream_adds_up(llama, model):
    whole = llama.chat(model=model, messages=QUESTION, options=OPTIONS)
    parts = list(llama.chat(model=model, messages=QUESTION, options=OPTIONS, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count and len(parts) > 5


def test_generate(llama, client, model):
    """A prompt is a user's message; raw it is a text completion."""
    answer = llama.generate(model=model, system="Be brief.", prompt=QUESTION[0]["content"], options=OPTIONS)
    same = same_chat(client, model, [{"role": "system", "content": "Be brief."}, *QUESTION])
    assert answer.response == same.choices[0].message.content and answer.prompt_eval_count == same.usage.prompt_tokens
    raw = llama.generate(model=model, prompt="One, two,", raw=True, options=OPTIONS)
    text = client.completions.create(model=model, prompt="One, two,", temperature=0, max_tokens=12)
    assert raw.response == text.choices[0].text
    more = llama.generate(model=model, prompt="One, two,", raw=True, options={"temperature": 0, "num_predict": -1,
                                                                             "stop": ["twenty", "\n"]})
    assert more.eval_count > 16 or more.done_reason == "stop"
    assert "".join(p.response for p in llama.generate(model=model, prompt="One, two,", raw=True, options=OPTIONS,
                                                      stream=True)) == raw.response


def test_options_mean_what_they_say(llama, client, model):
    options = {"temperature": 0.9, "seed": 7, "top_k": 5, "top_p": 0.8, "min_p": 0.01, "repeat_penalty": 1.2,
               "presence_penalty": 0.5, "frequency_penalty": 0.5, "num_predict": 16, "stop": [" the"]}
    answer = llama.chat(model=model, messages=QUESTION, options=options)
    same = same_chat(client, model, temperature=0.9, seed=7, top_p=0.8, presence_penalty=0.5, frequency_penalty=0.5,
                     max_tokens=16, stop=[" the"], extra_body={"top_k": 5, "min_p": 0.01, "repetition_penalty": 1.2})
    assert answer.message.content == same.choices[0].message.content


def test_a_conversation_with_tools_and_thinking_is_read(llama, model):
    messages = [*QUESTION, {"role": "assistant", "content": "", "thinking": "hm",
                            "tool_calls": [{"function": {"name": "look_up", "arguments": {"of": "France"}}}]},
                {"role": "tool", "content": "Paris", "tool_name": "look_up"}]
    assert llama.chat(model=model, messages=messages, think=False, keep_alive="5m", options=OPTIONS).done


def test_what_clients_ask_about_models(llama, model, client):
    listed = llama.list().models
    assert [m.model for m in listed] == [model]
    shown = llama.show(model)
    assert (shown.details.format, shown.details.parameter_size) == ("gguf", "134.52M") == (listed[0].details.format, listed[0].details.parameter_size)
    assert shown.modelinfo["general.architecture"] == "llama" and "completion" in shown.capabilities
    assert {"tools", "embedding"} <= set(shown.capabilities)
    assert shown.modelinfo["llama.context_length"] == client.models.retrieve(model).max_model_len
    assert llama.ps().models[0].model == model
    assert llama.show(model + ":latest").capabilities
    assert llama.chat(model=model + ":latest", messages=QUESTION, options={"num_predict": 1}).done
    with pytest.raises(ollama.ResponseError) as caught:
        llama.show("nobody")
    assert caught.value.status_code == 404


@pytest.mark.parametrize("num_tokens, num_top", [(6, 2), (120, 20)])  # many are written beside the loop
def test_logprobs(server, llama, client, model, num_tokens, num_top):
    """As a chat of OpenAI's has them; of raw text, too."""
    same = same_chat(client, model, temperature=0, max_tokens=num_tokens, logprobs=True, top_logprobs=num_top).choices[0].logprobs.content
    for stream in (False, True):
        answer = llama.chat(model=model, messages=QUESTION, options={"temperature": 0, "num_predict": num_tokens}, logprobs=True,
                            top_logprobs=num_top, stream=stream)
        entries = [e for part in (answer if stream else [answer]) for e in part.logprobs or []]
        assert [(e.token, e.logprob, [t.token for t in e.top_logprobs]) for e in entries] == [
            (e.token, e.logprob, [t.token for t in e.top_logprobs]) for e in same]
    for raw, wanted in ((True, 3), (False, 3)):
        answer = llama.generate(model=model, prompt="One, two,", raw=raw, options={"num_predict": wanted}, logprobs=True)
        assert len(answer.logprobs) == answer.eval_count
        answer = llama.generate(model=model, prompt="One, two,", raw=raw, options={"num_predict": 1}, logprobs=False, top_logprobs=None)
        assert answer.logprobs is None


def test_no_limit_of_tokens(server, model):
    body = {"model": model, "prompt": "One, two,", "raw": True, "stream": False, "stop": [" "]}
    for most in (0, -1, -2):
        assert httpx.post(server.url + "/api/generate", json={**body, "options": {"num_predict": most, "stop": [" "]}},
                          timeout=60).json()["done_reason"] == "stop"


def test_the_models_card(server, llama, model):
    """Ollama's command line cuts twelve characters off the digest, and ends when there are none."""
    for card in (llama.list().models[0], llama.ps().models[0]):
        assert card.model == model and card.size == MODEL.stat().st_size and re.fullmatch("[0-9a-f]{64}", card.digest)
    assert llama.list().models[0].digest == llama.ps().models[0].digest


def test_a_model_that_is_there_is_pulled(server, llama, model):
    """Clients ask for it before they use it."""
    assert llama.pull(model).status == "success" and [p.status for p in llama.pull(model, stream=True)] == ["success"]
    assert httpx.post(server.url + "/api/pull", json={"name": model}).headers["content-type"].startswith("application/x-ndjson")
    with pytest.raises(ollama.ResponseError) as caught:
        llama.pull("llama3")
    assert caught.value.status_code == 404 and model in caught.value.error


def test_version(server):
    assert [int(n) for n in httpx.get(server.url + "/api/version").json()["version"].split(".")] >= [0, 6, 4]


@pytest.mark.parametrize("change, named", [
    ({"options": 5}, "options"), ({"options": {"temperature": "hot"}}, "options.temperature must"), ({"temperature": "hot"}, "temperature must"), ({"options": {"stop": [""]}}, "options.stop[0] must"), ({"options": {"mirostat": 2}},
                                                                                         "mirostat"),
    ({"options": {"num_predict": "x"}}, "options.num_predict"), ({"format": {"pattern": "("}}, "format: "), ({"top_logprobs": 2}, "top_logprobs"), ({"format": "xml"}, "format"), ({"think": 5}, "think"),
    ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": "x", "images": "aGk="}]}, "messages[0]"), ({"truncate": 5}, "truncate"),
    ({"messages": ["x"]}, "messages[0]"),
])
def test_refusals(server, model, change, named):
    answer = httpx.post(server.url + "/api/chat", json={"model": model, "messages": QUESTION, **change}, timeout=60)
    assert answer.status_code == 400 and set(answer.json()) == {"error"} and named in answer.json()["error"]


def test_generate_refuses(server, model):
    for field, value in (("suffix", "x"), ("suffix", 5), ("template", "x"), ("images", ["x"]), ("images", "x"), ("context", [1]), ("context", "x"), ("tools", "x"), ("truncate", 5), ("prompt", 5), ("raw", 5)):
        answer = httpx.post(server.url + "/api/generate", json={"model": model, "prompt": "x", field: value}, timeout=60)
        assert answer.status_code == 400 and field in answer.json()["error"]
