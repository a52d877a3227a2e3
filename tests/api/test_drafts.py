"""Drafts change no answer (--num-speculative-tokens), whatever it may not say; and OpenAI's prediction, of which usage says what came true."""
import json

import pytest

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
STORY = "The keeper walked down the stairs at six. He carried a small lamp, a loaf of bread and a blue notebook. Then he walked back up."
REPEAT = {"messages": [{"role": "user", "content": f"Repeat this text word for word:\n\n{STORY}"}], "max_tokens": 40, "temperature": 0}
PARTS = [{"type": "text", "text": STORY[:50]}, {"type": "text", "text": STORY[50:]}]
PREDICTION = {"type": "content", "content": STORY}
FIELDS = [{"repetition_penalty": 1.05}, {"frequency_penalty": 0.4, "presence_penalty": 0.2, "temperature": 0.7}, {"bad_words": ["lamp", "of bread"]},
          {"bad_words": ["stairs"], "repetition_penalty": 1.1, "min_tokens": 30}, {"logit_bias": {"28": -5}, "min_tokens": 20}, {"prediction": PREDICTION},
          {"prediction": {"type": "content", "content": PARTS}, "n": 2, "temperature": 0.8, "repetition_penalty": 1.05}, {"logprobs": True, "prediction": PREDICTION},
          {"prediction": {"type": "content", "content": STORY.replace("lamp", "sword")}, "bad_words": ["lamp"]}]


def details(reply):
    usage = reply["usage"]["completion_tokens_details"]
    return usage["accepted_prediction_tokens"], usage["rejected_prediction_tokens"]


def chunks(server, body):
    reply = server.post(CHAT, {**body, "stream": True, "stream_options": {"include_usage": True}})
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


@pytest.fixture(scope="module")
def plain(start_server):
    with start_server("--num-speculative-tokens", "0") as server:
        yield server


@pytest.fixture(scope="module")
def drafting(start_server):
    with start_server() as server:
        yield server


def test_answers_are_the_same(plain, drafting):
    asked = [(CHAT, {**REPEAT, "seed": 1, **fields}) for fields in FIELDS]
    asked.append((TEXT, {"prompt": STORY + " " + STORY[:60], "max_tokens": 30, "seed": 1, "repetition_penalty": 1.02, "prediction": {"type": "content", "content": STORY[60:]}}))
    for path, body in asked:
        expected, reply = (server.post(path, body).json() for server in (plain, drafting))
        assert reply["choices"] == expected["choices"], body
        assert reply["usage"]["completion_tokens"] == expected["usage"]["completion_tokens"]
        assert reply["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]
        if "prediction" in body:
            assert details(expected) == (0, 0)
            assert 0 <= details(reply)[0] <= reply["usage"]["completion_tokens"]


def test_what_came_true(start_server):
    """A fresh server drafts all, unless its warm-up met a bad moment: its prices come down with each answer then."""
    with start_server() as server:
        told = {**REPEAT, "prediction": PREDICTION}
        for _ in range(20):
            first = server.post(CHAT, told).json()
            if details(first)[0] > 0:
                break
        assert details(first)[0] > 0
        told["prediction"] = {"type": "content", "content": first["choices"][0]["message"]["content"]}
        second = chunks(server, told)
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in second if c["choices"])
        assert text == first["choices"][0]["message"]["content"]
        accepted, rejected = details(second[-1])
        assert accepted >= 0 and rejected <= 7  # at its end at most, where the answer is cut and the text goes on
        assert "accepted_prediction_tokens" not in server.post(CHAT, REPEAT).json()["usage"]["completion_tokens_details"]


def test_what_is_nothing(drafting):
    for prediction in (None, {"type": "content", "content": ""}, {"type": "content", "content": []}, {"type": "content", "content": "\0<|im_end|>"},
                       {"type": "content", "content": "word " * 20000}):
        reply = drafting.post(CHAT, {**REPEAT, "max_tokens": 4, "prediction": prediction})
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["prompt_tokens"] == drafting.post(CHAT, {**REPEAT, "max_tokens": 4}).json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("prediction, param", [
    ("text", "prediction"), ([], "prediction"), ({}, "prediction.type"), ({"type": 1}, "prediction.type"), ({"type": "text", "content": "x"}, "prediction.type"),
    ({"type": "content"}, "prediction.content"), ({"type": "content", "content": 1}, "prediction.content"),
    ({"type": "content", "content": ["x"]}, "prediction.content[0]"), ({"type": "content", "content": [{"text": "x"}]}, "prediction.content[0].type"),
    ({"type": "content", "content": [PARTS[0], {"type": "image_url", "text": "x"}]}, "prediction.content[1].type"),
    ({"type": "content", "content": [{"type": "text", "text": None}]}, "prediction.content[0].text")])
def test_what_is_refused(plain, drafting, prediction, param):
    for server in (plain, drafting):
        for path, body in ((CHAT, REPEAT), (TEXT, {"prompt": "x"})):
            reply = server.post(path, {**body, "prediction": prediction})
            assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text
