"""The official OpenAI client, with strict validation of every response."""

import contextlib
import json
import math
import time

import httpx
import openai
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_models(client, model):
    card = client.models.retrieve(model)
    assert card.id == model and card.object == "model" and card.created > 1_700_000_000
    assert card.max_model_len >= 2048
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no/such model")
    assert caught.value.code == "model_not_found"


def test_a_base_url_without_v1(server, model):
    """The same endpoints, by the same name in the metrics."""
    bare = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)

    def counts():
        return {name: value for name, value in server.metrics().items() if name.startswith("http_requests_total") and "2xx" in name}

    before = counts()
    assert bare.models.retrieve(model).id == model == bare.models.list().data[0].id
    assert bare.chat.completions.create(model=model, messages=QUESTION, max_tokens=2).object == "chat.completion"
    response = bare.responses.create(model=model, input="Hi", max_output_tokens=2)
    assert bare.responses.retrieve(response.id).id == response.id
    bare.responses.delete(response.id)
    grown = {name.split('"')[1] for name, value in counts().items() if value > before.get(name, 0)}
    assert grown - {"none"} == {"/v1/models", "/v1/models/*", "/v1/chat/completions", "/v1/responses", "/v1/responses/*"}
    assert httpx.put(server.url + "/chat/completions", json={}).headers["allow"] == "POST, OPTIONS"
    assert httpx.post(server.url + "/v1/v1/chat/completions", json={}).status_code == 404


def test_chat(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-") and answer.model == model
    choice = answer.choices[0]
    assert len(choice.message.content) > 4
    assert choice.message.role == "assistant" and choice.index == 0 and choice.logprobs is None
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


def test_chat_with_parts_equals_chat_with_text(client, model):
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    answers = [client.chat.completions.create(model=model, messages=m, temperature=0, max_tokens=16)
               for m in (QUESTION, parts)]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    assert answers[0].usage.prompt_tokens == answers[1].usage.prompt_tokens


def collect(stream):
    """Per choice: its text, its finish reason; and the chunks."""
    texts, reasons, chunks = {}, {}, []
    for chunk in stream:
        chunks.append(chunk)
        for choice in chunk.choices:
            delta = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] = texts.get(choice.index, "") + (delta or "")
            if choice.finish_reason:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
    return texts, reasons, chunks


def test_chat_stream_equals_whole(client, model):
    options = dict(model=model, messages=QUESTION, temperature=0.8, seed=11, max_tokens=20, n=3)
    whole = client.chat.completions.create(**options)
    texts, reasons, chunks = collect(client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}))
    assert [texts[i] for i in range(3)] == [c.message.content for c in whole.choices]
    assert [reasons[i] for i in range(3)] == [c.finish_reason for c in whole.choices]
    assert len(set(texts.values())) == 3
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])
    assert {(c.id, c.created, c.model, c.object) for c in chunks} == {
        (chunks[0].id, chunks[0].created, model, "chat.completion.chunk")}


def test_stream_helper_accumulates(client, model):
    """The SDK's accumulator concatenates strings and adds numbers: a role or an index sent twice would show."""
    with client.chat.completions.stream(model=model, messages=QUESTION, temperature=0, max_tokens=12, n=2,
                                        stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        final = stream.current_completion_snapshot
    assert [c.message.role for c in final.choices] == ["assistant", "assistant"]
    assert final.choices[0].message.content == final.choices[1].message.content != ""
    assert final.usage.completion_tokens > 0


def test_abandoned_stream(server, client, model):
    before = server.wait_idle()
    stream = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=1000, stream=True,
                                            extra_body={"ignore_eos": True})
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    stream.close()
    after = server.wait_idle()
    gone = 'flashd_requests_finished_total{outcome="client_gone"}'
    assert after[gone] == before[gone] + 1
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] < 1000


def test_completions(client, loose_client, model):
    answer = client.completions.create(model=model, prompt="One, two, three,", temperature=0, max_tokens=8)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert "four" in answer.choices[0].text
    assert answer.usage.completion_tokens == 8 and answer.choices[0].finish_reason == "length"
    texts, reasons, chunks = collect(loose_client.completions.create(
        model=model, prompt="One, two, three,", temperature=0, max_tokens=8, stream=True))
    assert texts == {0: answer.choices[0].text} and reasons == {0: "length"}
    assert all(c.object == "text_completion" for c in chunks)


def test_completions_default_is_16_tokens(client, model):
    answer = client.completions.create(model=model, prompt="Once upon a time", extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16


def test_prompts_of_every_shape(server, client, model):
    prompts = ["The sky is", "Water boils at", "One, two,"]
    ids = [server.post("/tokenize", {"prompt": p}).json()["tokens"] for p in prompts]
    options = dict(model=model, temperature=0, max_tokens=6)
    alone = [client.completions.create(prompt=p, **options).choices[0].text for p in prompts]
    together = client.completions.create(prompt=prompts, **options)
    as_ids = client.completions.create(prompt=ids, **options)
    one_list = client.completions.create(prompt=ids[1], **options)
    assert [c.text for c in together.choices] == alone == [c.text for c in as_ids.choices]
    assert one_list.choices[0].text == alone[1]
    assert together.usage.prompt_tokens == sum(map(len, ids)) == as_ids.usage.prompt_tokens


def test_batch_times_n_indexes(client, model):
    options = dict(model=model, temperature=1, seed=5, max_tokens=6)
    both = client.completions.create(prompt=["A list of", "My name"], n=3, **options)
    assert [c.index for c in both.choices] == list(range(6))
    second = client.completions.create(prompt="My name", n=3, **options)
    assert [c.text for c in both.choices[3:]] == [c.text for c in second.choices]


def test_best_of_returns_the_likeliest(client, model):
    asked = {"model": model, "prompt": ["The sky is", "Once upon"], "max_tokens": 6, "seed": 3, "temperature": 1.2}
    every = client.completions.create(**asked, n=5, logprobs=0)
    best = client.completions.create(**asked, n=2, best_of=5)
    assert [c.index for c in best.choices] == [0, 1, 2, 3] and best.choices[0].logprobs is None
    for i in range(2):
        group = sorted(every.choices[5 * i:5 * i + 5], reverse=True,
                       key=lambda c: sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs))
        assert [c.text for c in best.choices[2 * i:2 * i + 2]] == [c.text for c in group[:2]]
    assert best.usage == every.usage
    with pytest.raises(openai.BadRequestError, match="stream: false"):
        client.completions.create(**asked, best_of=5, stream=True)


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(loose_client, model, stream):
    options = dict(model=model, prompt="One, two, three, four,", temperature=0, max_tokens=40, stream=stream)

    def text_and_reason(**more):
        result = loose_client.completions.create(**options, **more)
        if stream:
            texts, reasons, _ = collect(result)
            return texts[0], reasons[0]
        return result.choices[0].text, result.choices[0].finish_reason

    full, _ = text_and_reason()
    stop = full[10:14]
    cut = full[:full.index(stop)]
    assert text_and_reason(stop=stop) == (cut, "stop")
    assert text_and_reason(stop=["never to be seen", stop]) == (cut, "stop")
    assert text_and_reason(stop=stop, extra_body={"include_stop_str_in_output": True}) == (cut + stop, "stop")
    assert text_and_reason(stop="never to be seen") == (full, "length")


def test_usage_counts_the_token_that_completes_a_stop_string(server, client, model):
    full = client.completions.create(model=model, prompt="One, two, three, four,", temperature=0, max_tokens=40)
    stop = full.choices[0].text[10:14]
    cut = client.completions.create(model=model, prompt="One, two, three, four,", temperature=0, max_tokens=40, stop=stop)
    answer = cut.choices[0].text + stop
    ids = server.post("/tokenize", {"prompt": "One, two, three, four," + answer}).json()["count"]
    assert cut.usage.completion_tokens <= ids - cut.usage.prompt_tokens + 1
    assert 1 <= cut.usage.completion_tokens < full.usage.completion_tokens


def test_stop_token_ids_and_min_tokens(server, client, model):
    options = dict(model=model, prompt="One, two, three, four,", temperature=0, max_tokens=20)
    full = client.completions.create(**options, logprobs=0).choices[0]
    first = server.post("/tokenize", {"prompt": full.logprobs.tokens[0], "add_special_tokens": False}).json()["tokens"]
    assert len(first) == 1
    cut = client.completions.create(**options, extra_body={"stop_token_ids": first})
    assert (cut.choices[0].text, cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("", "stop", 1)
    later = client.completions.create(**options, extra_body={"stop_token_ids": first, "min_tokens": 5})
    assert later.usage.completion_tokens >= 5 and later.choices[0].text != ""


def test_ignore_eos(client, model):
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Say yes."}],
                                            temperature=0, max_tokens=60, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 60 and answer.choices[0].finish_reason == "length"


def test_logit_bias(server, client, model):
    def first_token(**more):
        answer = client.completions.create(model=model, prompt="One, two, three,", temperature=0, max_tokens=1, logprobs=0,
                                           **more)
        token = answer.choices[0].logprobs.tokens[0]
        id, = server.post("/tokenize", {"prompt": token, "add_special_tokens": False}).json()["tokens"]
        return id

    best = first_token()
    assert first_token(logit_bias={str(best): -100}) != best
    other, = server.post("/tokenize", {"prompt": " cat", "add_special_tokens": False}).json()["tokens"]
    assert first_token(logit_bias={str(other): 100}) == other != best


def test_seeds(client, model):
    def draw(**more):
        answer = client.completions.create(model=model, prompt="A story about", temperature=1, max_tokens=12, **more)
        return [c.text for c in answer.choices]

    assert draw(seed=7) == draw(seed=7)
    assert draw(seed=7) != draw(seed=8)
    assert draw(seed=-9223372036854775808) == draw(seed=-9223372036854775808)
    assert draw(seed=9007199254740993) != draw(seed=9007199254740992)  # beyond a double's precision
    assert draw(seed=7, n=3)[0] == draw(seed=7)[0]
    assert len(set(draw(seed=7, n=4))) == 4
    assert draw() != draw()


def test_chat_logprobs(client, model):
    options = dict(model=model, messages=QUESTION, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3)
    answer = client.chat.completions.create(**options)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token and entry.top_logprobs[0].logprob == entry.logprob
        assert bytes(entry.bytes).decode() == entry.token
        assert sum(math.exp(t.logprob) for t in entry.top_logprobs) <= 1 + 1e-5
    assert "".join(e.token for e in entries).startswith(answer.choices[0].message.content)
    streamed = [e for chunk in client.chat.completions.create(**options, stream=True)
                for c in chunk.choices if c.logprobs for e in c.logprobs.content]
    assert streamed == entries


def test_many_logprobs_of_whole_answers(client, model):
    """So many are written beside the loop: what they are, a stream says, too."""
    options = dict(model=model, messages=QUESTION, seed=5, n=4, max_tokens=40, logprobs=True, top_logprobs=20)
    whole = client.chat.completions.create(**options)
    assert sum(len(c.logprobs.content) for c in whole.choices) * 21 > 2048
    streamed = {}
    for chunk in client.chat.completions.create(**options, stream=True):
        for c in chunk.choices:
            streamed.setdefault(c.index, []).extend(c.logprobs.content if c.logprobs else [])
    assert streamed == {c.index: c.logprobs.content for c in whole.choices}


def test_clients_that_leave_many_logprobs(start_server):
    """Around the moment at which their answers are written."""
    body = {"prompt": "x", "max_tokens": 30, "n": 8, "logprobs": 20, "seed": 1}
    with start_server() as server:
        begin = time.monotonic()
        expected = server.post("/v1/completions", body).json()["choices"]
        seconds = time.monotonic() - begin
        for i in range(30):
            with contextlib.suppress(httpx.TimeoutException):
                httpx.post(server.url + "/v1/completions", json=body, timeout=seconds * (0.85 + 0.01 * i))
        assert server.post("/v1/completions", body).json()["choices"] == expected
        server.wait_idle()


def test_completion_logprobs(client, model):
    answer = client.completions.create(model=model, prompt="The sky is", temperature=1, seed=3, max_tokens=8, logprobs=2)
    lp = answer.choices[0].logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) == 8
    offset = 0
    for i, token in enumerate(lp.tokens):
        assert lp.text_offset[i] == offset
        offset += len(token)
        assert token in lp.top_logprobs[i] and 2 <= len(lp.top_logprobs[i]) <= 3
        assert lp.top_logprobs[i][token] == lp.token_logprobs[i]


def test_echo_scores_the_prompt(server, loose_client, model):
    """As lm-evaluation-harness asks."""
    text = "The capital of France is Paris."
    ids = server.post("/tokenize", {"prompt": text}).json()["tokens"]
    answer = loose_client.completions.create(model=model, prompt=[ids], temperature=0, max_tokens=1, logprobs=1, echo=True,
                                       seed=1234)
    lp = answer.choices[0].logprobs
    assert len(lp.tokens) == len(ids) + 1
    assert lp.token_logprobs[0] is None and lp.top_logprobs[0] is None
    assert all(v <= 0 for v in lp.token_logprobs[1:])
    assert answer.choices[0].text.startswith(text)
    alone = loose_client.completions.create(model=model, prompt=text, temperature=0, max_tokens=0, logprobs=1, echo=True)
    assert alone.choices[0].text == text and alone.usage.completion_tokens == 0
    assert alone.choices[0].logprobs.token_logprobs == lp.token_logprobs[:-1]
    assert alone.choices[0].finish_reason == "length"
    chunks = list(loose_client.completions.create(model=model, prompt=text, temperature=0, max_tokens=3, logprobs=1, echo=True,
                                            stream=True))
    streamed = [v for c in chunks for x in c.choices if x.logprobs for v in x.logprobs.token_logprobs]
    assert streamed[:len(ids)] == lp.token_logprobs[:-1] and len(streamed) == len(ids) + 3


def test_echo_without_logprobs(client, model):
    answer = client.completions.create(model=model, prompt=["Hello", "Good day"], max_tokens=0, echo=True)
    assert [c.text for c in answer.choices] == ["Hello", "Good day"]


def test_logprobs_agree_with_scoring(loose_client, model):
    """What generation says of its tokens, scoring the same text says too: the same bits."""
    answer = loose_client.completions.create(model=model, prompt="Once upon a time", temperature=0, max_tokens=12, logprobs=1,
                                       echo=True)
    lp = answer.choices[0].logprobs
    again = loose_client.completions.create(model=model, prompt=answer.choices[0].text, temperature=0, max_tokens=0, logprobs=1,
                                      echo=True)
    assert again.choices[0].logprobs.tokens == lp.tokens
    assert again.choices[0].logprobs.token_logprobs == lp.token_logprobs


@pytest.mark.parametrize("stream", [False, True])
def test_text_offsets_are_the_texts(server, stream):
    """Every token begins where its offset says, across emoji in several tokens, control tokens and an echoed prompt."""
    for prompt in ("a \U0001F680\U0001F600 b", "<|im_start|>user\n\U0001F1EB\U0001F1F7 x"):
        body = {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 4, "temperature": 0, "skip_special_tokens": False}
        if stream:
            text, tokens, offsets = "", [], []
            with httpx.stream("POST", server.url + "/v1/completions", json={**body, "stream": True}, timeout=60) as response:
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        choice = json.loads(line[6:])["choices"][0]
                        text += choice["text"]
                        tokens += choice["logprobs"]["tokens"] if choice["logprobs"] else []
                        offsets += choice["logprobs"]["text_offset"] if choice["logprobs"] else []
        else:
            choice = server.post("/v1/completions", body).json()["choices"][0]
            text, tokens, offsets = choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
        assert len(tokens) == len(offsets) and any("\ufffd" in t for t in tokens)
        for token, offset in zip(tokens, offsets):
            assert "\ufffd" in token or text[offset:].startswith(token), (token, offset)


def test_prompt_logprobs_are_the_echos(server):
    """vLLM's field, on both endpoints, agrees with what an echo says."""
    prompt = "The capital of France is"
    ids = server.post("/tokenize", {"prompt": prompt}).json()["tokens"]
    echo = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 2}).json()["choices"][0]
    answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 2}).json()["choices"][0]
    assert answer["logprobs"] is None and answer["prompt_logprobs"][0] is None
    values = [entry[str(i)]["logprob"] for i, entry in zip(ids[1:], answer["prompt_logprobs"][1:], strict=True)]
    assert values == echo["logprobs"]["token_logprobs"][1:len(ids)]
    for entry in answer["prompt_logprobs"][1:]:
        assert {1, 2} <= {t["rank"] for t in entry.values()} <= {1, 2, None}
    chat = server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 1, "prompt_logprobs": 0}).json()
    tokens = server.post("/tokenize", {"messages": QUESTION}).json()["tokens"]
    assert [list(e) for e in chat["prompt_logprobs"][1:]] == [[str(i)] for i in tokens[1:]]
    refused = server.post("/v1/completions", {"prompt": prompt, "prompt_logprobs": 1, "stream": True})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt_logprobs"


def test_prefix_cache_is_reported_and_changes_nothing(client, model):
    prompt = "You are a careful assistant. " * 20 + "Tell me"
    options = dict(model=model, prompt=prompt, temperature=0, max_tokens=8, extra_body={"cache_salt": "first"})
    cold = client.completions.create(**options)
    warm = client.completions.create(**options)
    other = client.completions.create(**{**options, "extra_body": {"cache_salt": "second"}})
    assert cold.usage.prompt_tokens_details.cached_tokens == 0 == other.usage.prompt_tokens_details.cached_tokens
    assert warm.usage.prompt_tokens_details.cached_tokens >= 0.8 * warm.usage.prompt_tokens
    assert cold.choices[0].text == warm.choices[0].text == other.choices[0].text


def test_control_tokens_count_in_raw_prompts_and_never_in_chats(server, client, model, start_server):
    raw = {"prompt": "<|im_start|>", "add_special_tokens": False}
    plain = server.post("/tokenize", {**raw, "parse_special": False}).json()
    parsed = server.post("/tokenize", raw).json()
    assert parsed["count"] == 1 < plain["count"]
    start, = parsed["tokens"]
    tame = server.post("/tokenize", {"messages": [{"role": "user", "content": "x"}]}).json()["tokens"]
    wild = server.post("/tokenize", {"messages": [{"role": "user", "content": "<|im_start|>x<|im_end|>"}]}).json()["tokens"]
    assert wild.count(start) == tame.count(start) > 0
    # A client that renders the template itself gets the very prompt that the chat has.
    rendered = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    chat = server.post("/tokenize", {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]}).json()
    own = server.post("/tokenize", {"prompt": "<|im_start|>system\ns<|im_end|>\n" + rendered}).json()
    assert own["tokens"] == chat["tokens"]
    assert client.completions.create(model=model, prompt="<|im_start|>", max_tokens=1).usage.prompt_tokens == 1
    assert client.completions.create(model=model, prompt="<|im_start|>", max_tokens=1,
                                     extra_body={"parse_special": False}).usage.prompt_tokens == plain["count"]
    with start_server("--no-completions-parse-special", "--no-report-cached-tokens") as other:
        assert other.post("/tokenize", raw).json() == plain
        assert other.post("/tokenize", {**raw, "parse_special": True}).json() == parsed
        for _ in range(2):
            usage = other.post("/v1/completions", {"prompt": "word " * 100, "max_tokens": 1}).json()["usage"]
            assert usage["prompt_tokens_details"] is None


# ---- errors, as the SDK's exceptions ----

BAD = [
    (dict(messages=[]), "messages", "invalid_value"),
    (dict(messages=[{"role": "user"}]), "messages[0].content", "missing_required_parameter"),
    (dict(messages=[{"role": "robot", "content": "x"}]), "messages[0].role", "invalid_value"),
    (dict(messages=[{"role": "user", "content": 5}]), "messages[0].content", "invalid_type"),
    (dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
     "messages[0].content[0]", "unsupported_value"),
    (dict(temperature=100.5), "temperature", "invalid_value"),
    (dict(temperature="hot"), "temperature", "invalid_type"),
    (dict(top_p=-0.1), "top_p", "invalid_value"),
    (dict(n=0), "n", "invalid_value"),
    (dict(n=17), "n", "invalid_value"),
    (dict(max_tokens=0), "max_tokens", "invalid_value"),
    (dict(max_tokens=2**63), "max_tokens", "invalid_value"),
    (dict(max_tokens=3.9), "max_tokens", "invalid_value"),
    (dict(max_tokens=10**6), "messages", "context_length_exceeded"),
    (dict(logit_bias={"foo": 0}), "logit_bias.foo", "invalid_value"),
    (dict(logit_bias={"999999": 0}), "logit_bias.999999", "invalid_value"),
    (dict(stop=[""]), "stop[0]", "invalid_value"),
    (dict(top_logprobs=3), "top_logprobs", "invalid_value"),
    (dict(seed=2**63), "seed", "invalid_value"),
    (dict(response_format={"type": "xml"}), "response_format.type", "unsupported_value"),
    (dict(tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="sometimes"), "tool_choice",
     "invalid_value"),
    (dict(extra_body={"stop_token_ids": [10**6]}), "stop_token_ids[0]", "invalid_value"),
    (dict(extra_body={"min_p": -1}), "min_p", "invalid_value"),
    (dict(extra_body={"continue_final_message": True}), "continue_final_message", "invalid_value"),
    (dict(extra_body={"chat_template_kwargs": {"bos_token": "<|im_start|>"}}), "chat_template_kwargs.bos_token",
     "invalid_value"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("change, param, code", BAD)
def test_bad_requests(client, model, change, param, code, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": model, "messages": QUESTION, "stream": stream, **change})
    error = caught.value
    assert (error.param, error.code, error.type) == (param, code, "invalid_request_error")
    assert len(error.body["message"]) > 10 and error.request_id


def test_prompt_too_long(client, model):
    limit = client.models.list().data[0].max_model_len
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[1] * limit)
    assert caught.value.code == "context_length_exceeded"
    assert f"This model's maximum context length is {limit} tokens" in str(caught.value)
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt="word " * 2 * limit)
    tokens = client.completions.create(model=model, prompt="word " * 100, max_tokens=1).usage.prompt_tokens - 100 + 2 * limit
    assert f"This model's maximum context length is {limit} tokens. However, the prompt has {tokens} tokens" in str(caught.value)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 2 * limit}])
    assert f"This model's maximum context length is {limit} tokens" in str(caught.value)


def test_wrong_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-5", messages=QUESTION)
    assert caught.value.code == "model_not_found" and caught.value.param == "model"


@pytest.mark.parametrize("prompt", [[], [-1], [10**6], [1.5], ["a", None], [["a", {}]], [[1], 5], {"a": 1}, 5])
def test_bad_prompts(server, prompt):
    response = server.post("/v1/completions", {"prompt": prompt})
    assert response.status_code == 400 and response.json()["error"]["param"].startswith("prompt")


def test_api_keys(start_server):
    with start_server("--api-key", "first", "--api-key", "second") as server:
        for key in ("first", "second"):
            assert server.client(api_key=key).models.list().data
        for key in ("wrong", "firs", "firstsecond"):
            with pytest.raises(openai.AuthenticationError) as caught:
                server.client(api_key=key).models.list()
            assert caught.value.code == "invalid_api_key"
        prompt = "The quick brown fox jumps over the lazy dog. " * 10
        cached = []
        for key in ("first", "first", "second"):
            usage = server.client(api_key=key).completions.create(model=server.client(api_key=key).models.list().data[0].id,
                                                                  prompt=prompt, max_tokens=1).usage
            cached.append(usage.prompt_tokens_details.cached_tokens)
        assert cached[0] == 0 and cached[1] > 0 and cached[2] == 0  # a key's cache is its own
