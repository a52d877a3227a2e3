"""Every field of vLLM's chat and completions protocol: what it does, or that it is refused by its name."""

import json
import pathlib
import re

import httpx
import pytest

ROOT_QUESTION = [{"role": "user", "content": "Say hello."}]
ROOT = pathlib.Path(__file__).resolve().parents[2]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def ask(server, path=TEXT, **fields):
    body = {"max_tokens": 8, "seed": 1, **({"messages": ROOT_QUESTION} if path == CHAT else {"prompt": "It is"}), **fields}
    reply = server.post(path, body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refusal(server, path=TEXT, **fields):
    reply = server.post(path, {**({"messages": ROOT_QUESTION} if path == CHAT else {"prompt": "It is"}), **fields})
    assert reply.status_code == 400, (fields, reply.text)
    return reply.json()["error"]["param"]


def chunks(server, path=TEXT, **fields):
    body = {"max_tokens": 8, "seed": 1, "stream": True,
            **({"messages": ROOT_QUESTION} if path == CHAT else {"prompt": "It is"}), **fields}
    with httpx.stream("POST", server.url + path, json=body, timeout=60) as reply:
        assert reply.status_code == 200
        return [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: {")]


def tokens(server, text):
    return server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]


def test_allowed_token_ids(server):
    digits = [i for d in "0123456789" for i in tokens(server, d)]
    for temperature in (0, 2):
        for choice in ask(server, allowed_token_ids=digits, n=3, temperature=temperature)["choices"]:
            assert re.fullmatch(r"\d{8}", choice["text"]) and choice["finish_reason"] == "length"
    answer = ask(server, CHAT, allowed_token_ids=digits, stop=["7"], max_tokens=100, temperature=2)
    assert re.fullmatch(r"[0-689]*", answer["choices"][0]["message"]["content"])
    assert refusal(server, allowed_token_ids=[]) == "allowed_token_ids"
    assert refusal(server, allowed_token_ids=[1, -1]) == "allowed_token_ids[1]"
    assert refusal(server, allowed_token_ids=[1 << 31]) == "allowed_token_ids[0]"
    assert refusal(server, CHAT, allowed_token_ids="1") == "allowed_token_ids"


def test_the_end_alone_is_allowed(server):
    """min_tokens forbids the only token that is left: the answer ends, and nothing fails."""
    end = server.post("/tokenize", {"prompt": "<|im_end|>"}).json()["tokens"][-1:]
    assert ask(server, allowed_token_ids=end)["usage"]["completion_tokens"] == 1
    assert ask(server, allowed_token_ids=end, min_tokens=3)["choices"][0]["finish_reason"] == "stop"
    # a form that they leave no way to
    out = server.post("/v1/completions", {"prompt": "x", "max_tokens": 9, "guided_choice": ["true", "false"], "allowed_token_ids": end})
    assert out.status_code == 400 and out.json()["error"]["code"] == "form_out_of_reach" and "allowed_token_ids" in out.json()["error"]["message"]
    line = server.log_line(out)  # its own, and no error of the server's
    assert line["status"] == 400 and "cannot be followed" not in server.log()


def test_bad_words(server):
    """A sequence of tokens is what never comes; its parts may."""
    plain = ask(server, temperature=0, max_tokens=24, return_token_ids=True)["choices"][0]
    ids, text = plain["token_ids"], plain["text"]
    word = text.split()[1]
    held = ask(server, temperature=0, max_tokens=24, bad_words=[word])["choices"][0]["text"]
    assert word not in held.split() and held.split()[0] == text.split()[0]
    phrase = server.post("/detokenize", {"tokens": ids[4:7]}).json()["prompt"].strip()
    other = ask(server, temperature=0, max_tokens=24, bad_words=[phrase], return_token_ids=True)["choices"][0]["token_ids"]
    assert other[:6] == ids[:6] and other[6] != ids[6]
    assert all(other[i:i + 3] != ids[4:7] for i in range(len(other)))
    assert ask(server, temperature=0, max_tokens=24, bad_words=[])["choices"][0]["text"] == text
    # one token with a space before it, two without
    assert [len(server.post("/tokenize", {"prompt": word, "add_special_tokens": False}).json()["tokens"]) for word in (" glad", "glad")] == [1, 2]
    body = {"messages": [{"role": "user", "content": "Say hi"}], "temperature": 0, "max_tokens": 8}
    said = [server.post("/v1/chat/completions", {**body, **extra}).json()["choices"][0]["message"]["content"] for extra in ({}, {"bad_words": ["glad"]})]
    assert "glad" in said[0] and "glad" not in said[1]
    for bad, param in [("x", "bad_words"), ([""], "bad_words[0]"), (["a", "  "], "bad_words[1]"), ([1], "bad_words[0]"),
                       (["a"] * 1025, "bad_words"), (["x y " * 300], "bad_words[0]")]:
        assert refusal(server, bad_words=bad) == param


def test_limits_beside_a_form(server):
    """Both hold: the form, and what may not be in it."""
    fields = {"structured_outputs": {"choice": ["red", "green"]}, "temperature": 2, "n": 8}
    choices = ask(server, **fields, allowed_token_ids=tokens(server, "green"))["choices"]
    assert {(c["text"], c["finish_reason"]) for c in choices} == {("green", "stop")}
    assert {c["text"] for c in ask(server, **fields)["choices"]} == {"red", "green"}


def test_limits_are_the_same_in_every_protocol(server):
    digits = [i for d in "0123456789" for i in tokens(server, d)]
    limits = {"allowed_token_ids": digits}
    for path, body, text in [
            ("/v1/messages", {"messages": ROOT_QUESTION, "max_tokens": 4}, lambda a: a["content"][0]["text"]),
            ("/v1/responses", {"input": "hi", "max_output_tokens": 4}, lambda a: a["output"][0]["content"][0]["text"]),
            ("/api/chat", {"messages": ROOT_QUESTION, "stream": False, "options": {"num_predict": 4}}, lambda a: a["message"]["content"])]:
        assert re.fullmatch(r"\d{4}", text(server.post(path, {**body, **limits}).json())), path


def test_return_token_ids(server):
    prompt = tokens(server, "It is")
    answer = ask(server, return_token_ids=True, n=2, temperature=1)
    for choice in answer["choices"]:
        assert choice["prompt_token_ids"] == prompt and len(choice["token_ids"]) == 8
        assert server.post("/detokenize", {"tokens": choice["token_ids"]}).json()["prompt"] == choice["text"]
    for interval in (1, 3):
        events = chunks(server, return_token_ids=True, temperature=0, stream_interval=interval)
        assert events[0]["choices"][0]["prompt_token_ids"] == prompt
        assert all("prompt_token_ids" not in e["choices"][0] for e in events[1:])
        streamed = [i for e in events for i in e["choices"][0]["token_ids"]]
        assert streamed == ask(server, return_token_ids=True, temperature=0)["choices"][0]["token_ids"]
    chat = ask(server, CHAT, return_token_ids=True, return_prompt_text=True, temperature=0)
    rendered = server.post("/apply-template", {"messages": ROOT_QUESTION}).json()["prompt"]
    assert chat["prompt_text"] == rendered and len(chat["prompt_token_ids"]) == chat["usage"]["prompt_tokens"]
    events = chunks(server, CHAT, return_token_ids=True, return_prompt_text=True, temperature=0)
    assert events[0]["prompt_token_ids"] == chat["prompt_token_ids"] and events[0]["prompt_text"] == rendered
    assert [i for e in events for i in e["choices"][0].get("token_ids", [])] == chat["choices"][0]["token_ids"]
    assert "token_ids" not in ask(server)["choices"][0]
    assert server.post("/v1/messages", {"messages": ROOT_QUESTION, "max_tokens": 1, "return_token_ids": True}).status_code == 400


def test_stream_interval(server):
    plain = chunks(server, max_tokens=20, ignore_eos=True, temperature=0)
    few = chunks(server, max_tokens=20, ignore_eos=True, temperature=0, stream_interval=8, return_token_ids=True)
    assert "".join(c["choices"][0]["text"] for c in few) == "".join(c["choices"][0]["text"] for c in plain)
    counts = [len(c["choices"][0]["token_ids"]) for c in few]
    assert sum(counts) == 20 and len(counts) <= 4 and all(n >= 8 for n in counts[1:-1])
    assert len(chunks(server, CHAT, stream_interval=1000, max_tokens=20, ignore_eos=True)) <= 4
    assert refusal(server, stream_interval=0) == "stream_interval"


def test_request_id(server):
    assert ask(server, request_id="my.own-1")["id"] == "cmpl-my.own-1"
    assert {c["id"] for c in chunks(server, CHAT, request_id="x")} == {"chatcmpl-x"}
    assert refusal(server, request_id="a\nb") == "request_id" and refusal(server, request_id="x" * 65) == "request_id"


def test_echo_in_a_chat(server):
    """The last message stands before the answer where the answer goes on in its role."""
    messages = [*ROOT_QUESTION, {"role": "assistant", "content": "Hello, I"}]
    fields = {"messages": messages, "temperature": 0, "add_generation_prompt": False, "continue_final_message": True}
    rest = ask(server, CHAT, **fields)["choices"][0]["message"]["content"]
    assert ask(server, CHAT, **fields, echo=True)["choices"][0]["message"]["content"] == "Hello, I" + rest
    deltas = [c["choices"][0]["delta"].get("content", "") for c in chunks(server, CHAT, **fields, echo=True)]
    assert "".join(deltas) == "Hello, I" + rest
    alone = ask(server, CHAT, temperature=0)["choices"][0]["message"]["content"]
    assert ask(server, CHAT, temperature=0, echo=True)["choices"][0]["message"]["content"] == alone


def test_truncation_side(server):
    prompt = tokens(server, "one two three four five six")
    for side, kept in [("left", prompt[-3:]), ("right", prompt[:3])]:
        answer = ask(server, prompt=prompt, truncate_prompt_tokens=3, truncation_side=side, return_token_ids=True)
        assert answer["choices"][0]["prompt_token_ids"] == kept
    assert refusal(server, truncation_side="middle") == "truncation_side"


def test_system_fingerprint(server):
    """Another build or other kernels may give other bits, and say so."""
    version = httpx.get(server.url + "/version").json()
    whole, stream = ask(server, CHAT)["system_fingerprint"], chunks(server)
    assert whole.startswith(f"fp_{version['version']}_{version['commit']}_cpu")
    assert {c["system_fingerprint"] for c in stream} == {whole} and re.fullmatch(r"\w+(\.\w+)*", whole)


def test_llama_cpps_forms(server):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(ask(server, json_schema=schema, max_tokens=60)["choices"][0]["text"])["a"] in (1, 2)
    assert ask(server, grammar='root ::= "yes"')["choices"][0]["text"] == "yes"


def test_sglangs_forms(server):
    """A form under its other name is not a form that is left out."""
    for path in (TEXT, CHAT):
        said = [ask(server, path, max_tokens=20, **form)["choices"][0] for form in ({"regex": "[ab]{3}"}, {"ebnf": 'root ::= "yes"'})]
        said = [choice.get("text") or choice["message"]["content"] for choice in said]
        assert re.fullmatch("[ab]{3}", said[0]) and said[1] == "yes"
    assert refusal(server, regex="a", ebnf='root ::= "a"') == "ebnf" and refusal(server, regex="(") == "regex"
    for name, value in {"stop_regex": "a", "no_stop_trim": True, "lora_path": "x", "custom_logit_processor": "x",
                        "return_hidden_states": True}.items():
        assert refusal(server, **{name: value}) == name == refusal(server, CHAT, **{name: value})


NEUTRAL = {"length_penalty": 1, "typical_p": 1, "spaces_between_special_tokens": False, "use_beam_search": False,
           "thinking_token_budget": None, "max_repetition_pattern_size": 0, "logprob_token_ids": [], "watermarking": False}
REFUSED = {"length_penalty": 0.5, "use_beam_search": True, "thinking_token_budget": 10,
           "kv_transfer_params": {"a": 1}, "vllm_xargs": {"a": 1}, "repetition_detection": {"min_count": 2},
           "max_repetition_pattern_size": 3, "prompt_embeds": "x", "logits_processors": ["x"],
           "ec_transfer_params": {"a": 1}, "watermarking": True}


def test_a_top_p_of_0_is_the_likeliest_token(server):
    """OpenAI takes it, and clients send it for what a temperature of 0 says."""
    hot = {"temperature": 2, "top_p": 0, "seed": 3}
    turn, options = [{"role": "user", "content": "Count to ten."}], {"num_predict": 8}
    ask = {"messages": turn, "max_tokens": 8}
    best = server.post(CHAT, {**ask, "temperature": 0}).json()["choices"][0]["message"]["content"]
    assert server.post(CHAT, {**ask, **hot}).json()["choices"][0]["message"]["content"] == best
    assert server.post("/v1/messages", {**ask, **hot}).json()["content"][0]["text"] == best
    reply = server.post("/v1/responses", {"input": turn, "max_output_tokens": 8, **hot}).json()
    assert reply["output"][0]["content"][0]["text"] == best
    reply = server.post("/api/chat", {"messages": turn, "stream": False, "options": {**options, **hot}}).json()
    assert reply["message"]["content"] == best
    ask = {"prompt": "One, two,", "max_tokens": 8}
    texts = [server.post(TEXT, {**ask, **extra}).json()["choices"][0]["text"]
             for extra in (hot, {"temperature": 0})]
    assert texts[0] == texts[1]


def test_neutral_values_are_accepted_and_others_refused(server):
    for path in (TEXT, CHAT):
        ask(server, path, **NEUTRAL)
        for name, value in REFUSED.items():
            assert refusal(server, path, **{name: value}) == name
    earlier = {"input": "x", "max_output_tokens": 1, "previous_input_messages": []}
    assert server.post("/v1/responses", earlier).status_code == 200
    reply = server.post("/v1/responses", {**earlier, "previous_input_messages": ROOT_QUESTION})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "previous_input_messages"


def test_ignored_fields_are_named_in_the_log(server):
    """And a close misspelling in a header of the answer."""
    reply = server.post(TEXT, {"prompt": "x", "max_tokens": 1, "user": "me", "temprature": 0.5, "zzz": 1})
    assert reply.headers["x-flashd-warning"] == "temprature is no field; did you mean temperature?"
    assert server.log_line(reply)["ignored_fields"] == "user,temprature,zzz"
    for path, body in [(CHAT, {"messages": ROOT_QUESTION}), ("/v1/messages", {"messages": ROOT_QUESTION}), ("/v1/responses", {"input": "x"})]:
        assert "x-flashd-warning" not in server.post(path, {**body, "max_tokens": 1, "user": "me"}).headers
        assert "top_k" in server.post(path, {**body, "max_tokens": 1, "topk": 1}).headers["x-flashd-warning"]


@pytest.mark.parametrize("name, value", [("temperature", "0.5"), ("max_tokens", "3"), ("n", " 1"), ("echo", "true"), ("seed", "7"),
                                         ("top_k", "5.0"), ("logprobs", "1"), ("stop_token_ids", ["1"]), ("logit_bias", {"1": "2"})])
def test_numbers_in_strings(server, name, value):
    """As pydantic takes them, in every field that is a number."""
    assert server.post(TEXT, {"prompt": "x", "max_tokens": 1, name: value}).status_code == 200


def test_the_form_of_an_answer_reads_texts_alike(server):
    assert server.post(TEXT, {"prompt": "x", "temperature": "warm"}).json()["error"]["param"] == "temperature"


def readme_table():
    """(endpoint, field, what the table of server/api/README.md says of it)."""
    text = (ROOT / "server/api/README.md").read_text().split("## Fields")[1].split("Every answer and chunk")[0]
    for line in re.findall(r"^\| ([a-z_(].*?) \| (.*?) \| (.*?) \|", text, re.M)[1:]:
        for name in re.findall(r"\w+", re.sub(r"\(.*?\)", "", line[0])):
            yield CHAT, name, line[1]
            yield TEXT, name, line[2]


VLLM = """messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n presence_penalty response_format
    seed stop stream stream_options temperature top_p tools tool_choice reasoning_effort include_reasoning parallel_tool_calls user
    use_beam_search top_k min_p repetition_penalty length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens
    skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs allowed_token_ids bad_words echo
    add_generation_prompt continue_final_message add_special_tokens documents chat_template chat_template_kwargs media_io_kwargs
    mm_processor_kwargs structured_outputs priority request_id return_tokens_as_token_ids return_token_ids return_prompt_text cache_salt
    kv_transfer_params vllm_xargs repetition_detection logits_processors session_id stream_interval logprob_token_ids thinking_token_budget
    prompt best_of suffix prompt_embeds watermarking ec_transfer_params routed_experts_prompt_start return_token_offsets mm_payload
    return_mm_kwargs previous_input_messages enable_response_messages""".split()


@pytest.mark.slow
def test_the_table_is_true(server):
    """Every row of it: what is read is told of, what is refused is refused by its name, the rest is named in the log line."""
    rows = list(readme_table())
    assert {name for _, name, _ in rows} >= set(VLLM) and len(rows) > 200
    schemas = httpx.get(server.url + "/openapi.json").json()["components"]["schemas"].values()
    for path in (CHAT, TEXT):
        told = next(s["properties"] for s in schemas if s.get("x-codec") == path)
        kinds = {name: kind for at, name, kind in rows if at == path}
        is_refused = {name for name, schema in told.items() if schema.get("type") == "null" or "not supported" in schema.get("description", "")}
        assert set(told) == {name for name, kind in kinds.items() if kind not in ("-", "ignored")}
        assert is_refused == {name for name, kind in kinds.items() if kind == "refused"}
        for name in is_refused:
            assert refusal(server, path, **{name: {"a": 1}}) == name
        unread = [name for name, kind in kinds.items() if kind in ("-", "ignored") and name not in ("prompt", "messages")]
        for at in range(0, len(unread), 4):
            names = unread[at:at + 4]
            reply = server.post(path, {"messages": ROOT_QUESTION, "prompt": "x", "max_tokens": 1, **dict.fromkeys(names, 1)})
            assert reply.status_code == 200 and set(server.log_line(reply)["ignored_fields"].split(",")) >= set(names), names


def test_logprob_token_ids(server):
    """As much as the best have where they are among them, in the order asked for."""
    best = ask(server, temperature=0, logprobs=20, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["top_logprobs"]
    ids = [int(name.split(":")[1]) for name in list(best[0])[:20]][::-3]
    fields = {"temperature": 0, "logprob_token_ids": ids, "return_tokens_as_token_ids": True}
    given = ask(server, logprobs=1, **fields)["choices"][0]["logprobs"]["top_logprobs"]
    assert [list(at)[:len(ids)] for at in given] == [[f"token_id:{i}" for i in ids]] * len(given)
    assert all(given[0][name] == best[0][name] for name in given[0])
    chat = ask(server, CHAT, logprobs=True, **fields)["choices"][0]["logprobs"]["content"]
    assert all([t["token"] for t in at["top_logprobs"]] == [f"token_id:{i}" for i in ids] for at in chat)
    streamed = [at for c in chunks(server, CHAT, logprobs=True, **fields) for at in (c["choices"][0].get("logprobs") or {"content": []})["content"]]
    assert streamed == chat
    prompt = ask(server, logprobs=1, echo=True, **fields)["choices"][0]["logprobs"]["top_logprobs"]
    assert len(prompt[1]) <= 2 and len(prompt[-1]) >= len(ids)
    assert refusal(server, CHAT, logprob_token_ids=[1]) == "logprob_token_ids"


def test_llama_cpps_names(server):
    fields = {"temperature": 0, "max_tokens": 24}
    assert ask(server, repeat_penalty=1.5, **fields)["choices"] == ask(server, repetition_penalty=1.5, **fields)["choices"]
    assert refusal(server, repeat_penalty=1.5, repeat_last_n=64) == "repeat_last_n"
    assert ask(server, max_tokens=None, n_predict=3, ignore_eos=True)["usage"]["completion_tokens"] == 3
    options = {"num_predict": 1, "repeat_penalty": 1.5, "repeat_last_n": 64}
    reply = server.post("/api/chat", {"messages": ROOT_QUESTION, "stream": False, "options": options})
    assert reply.status_code == 400 and "repeat_last_n" in reply.json()["error"]


@pytest.mark.parametrize("path, body", [("/v1/messages", {"messages": ROOT_QUESTION, "max_tokens": 1}),
                                        ("/v1/responses", {"input": "x", "max_output_tokens": 1}),
                                        ("/api/chat", {"messages": ROOT_QUESTION, "options": {"num_predict": 1}, "stream": False})])
def test_one_answer_where_the_protocol_has_one(server, path, body):
    assert server.post(path, {**body, "n": 1}).status_code == 200
    for n in (2, 0, "x", [1]):
        reply = server.post(path, {**body, "n": n})
        assert reply.status_code == 400 and "n must be 1" in reply.text


def miss_of(server, prompt, **fields):
    return ask(server, prompt=prompt, max_tokens=1, **fields)["usage"]["prompt_tokens_details"]


def test_cache_miss(server):
    """Why the prefix cache had no more of a prompt, and the first token that it did not have."""
    prompt = list(range(1000, 1040))
    fields = {"cache_salt": "of this test"}
    assert miss_of(server, prompt, **fields) == {"cached_tokens": 0, "cache_miss": {"reason": "salted", "position": 0}}
    assert miss_of(server, prompt, **fields) == {"cached_tokens": 32}
    other = [*prompt[:20], 7, *prompt[21:]]
    assert miss_of(server, other, **fields) == {"cached_tokens": 16, "cache_miss": {"reason": "differs", "position": 20}}
    longer = [*prompt, *range(40)]
    assert miss_of(server, longer, **fields) == {"cached_tokens": 32, "cache_miss": {"reason": "new", "position": 32}}
    events = chunks(server, prompt=[*prompt, *range(100)], stream_options={"include_usage": True}, **fields)
    assert events[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 80, "cache_miss": {"reason": "new", "position": 80}}


def test_cache_miss_of_what_was_evicted(start_server):
    prompts = [list(range(100 * i, 100 * i + 20)) for i in range(8)]
    with start_server("--kv-cache-memory-bytes", "10000000", "--max-model-len", "320") as server:
        assert {miss_of(server, p)["cache_miss"]["reason"] for p in prompts} <= {"new", "differs"}
        for i in range(2):
            miss_of(server, list(range(2000 + 300 * i, 2300 + 300 * i)))
        assert "evicted" in {miss_of(server, p).get("cache_miss", {}).get("reason") for p in prompts}
    with start_server("--no-report-cached-tokens") as server:
        assert miss_of(server, prompts[0]) is None
