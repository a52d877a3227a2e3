"""answers.py - sends one request over a connection of its own and reads the answer into a form that can be compared.

Streams are put together again into what the same request without `stream` would answer; their order and end are checked on
the way. What differs between two equal answers by right (id, created) is left out.
"""
import http.client
import json
import time


class Refused(Exception):
    """429: the server is full; after the seconds that it names."""


def connect(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection


def events(response):
    """The JSON of each event; the last line must be [DONE]."""
    done = False
    for line in response:
        line = line.decode()
        if line == "data: [DONE]\n":
            done = True
        elif line.startswith("data: "):
            assert not done, "an event after [DONE]"
            yield json.loads(line[6:])
        else:
            assert line == "\n" or line.startswith(":"), "not an event: %r" % line
    assert done, "the stream ended without [DONE]"


def extend_logprobs(whole, part):
    """Lists of the parts of a stream follow each other."""
    if part is None:
        return whole
    if whole is None:
        whole = {key: [] for key in part}
    for key, values in part.items():
        if values is not None:
            whole[key] = (whole[key] or []) + values
    return whole


def add_calls(calls, deltas):
    """What deltas of calls add up to: names, and arguments in pieces. Their ids are other ones in every answer."""
    for delta in deltas:
        assert delta["index"] in (len(calls), len(calls) - 1), "calls out of order"
        if delta["index"] == len(calls):
            calls.append({"name": delta["function"]["name"], "arguments": ""})
        calls[-1]["arguments"] += delta["function"].get("arguments") or ""


def add_to_choice(choice, part):
    assert choice["finish_reason"] is None, "text after the finish reason"
    piece = part["text"] if "text" in part else part["delta"].get("content") or ""
    choice["text"] += piece
    add_calls(choice["calls"], part.get("delta", {}).get("tool_calls") or [])
    choice["logprobs"] = extend_logprobs(choice["logprobs"], part.get("logprobs"))
    choice["finish_reason"] = part["finish_reason"]


def assemble(stream):
    choices, usage = {}, None
    for event in stream:
        assert "error" not in event, event
        assert usage is None, "an event after the usage"
        usage = event["usage"]
        for part in event["choices"]:
            empty = {"text": "", "calls": [], "logprobs": None, "finish_reason": None}
            add_to_choice(choices.setdefault(part["index"], empty), part)
    assert all(choice["finish_reason"] for choice in choices.values()), "a choice without an end"
    return choices, usage


def rows(answer):
    """Embeddings, as if they were texts."""
    choices = {item["index"]: {"text": json.dumps(item["embedding"]), "calls": [], "logprobs": None, "finish_reason": "stop"}
               for item in answer["data"]}
    return choices, {**answer["usage"], "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}


def whole(answer):
    if "data" in answer:
        return rows(answer)
    choices = {}
    for choice in answer["choices"]:
        message = choice.get("message", {})
        text = choice["text"] if "text" in choice else message["content"] or ""
        calls = [{name: call["function"][name] for name in ("name", "arguments")} for call in message.get("tool_calls") or []]
        choices[choice["index"]] = {"text": text, "calls": calls, "logprobs": choice["logprobs"], "finish_reason": choice["finish_reason"]}
    return choices, answer["usage"]


def send(port, path, body):
    """{choices, usage} of the answer. Refused where the server is full."""
    connection = connect(port, path, body)
    try:
        response = connection.getresponse()
        if response.status == 429:
            raise Refused(float(response.getheader("Retry-After")))
        if response.status != 200:
            raise AssertionError("%d: %s" % (response.status, response.read()[:300]))
        choices, usage = assemble(events(response)) if body.get("stream") else whole(json.loads(response.read()))
        return {"choices": [choices[i] for i in sorted(choices)], "usage": usage}
    finally:
        connection.close()


def send_patiently(port, path, body):
    """As send; waits where the server is full. (answer, times refused)"""
    refused = 0
    while True:
        try:
            return send(port, path, body), refused
        except Refused as full:
            refused += 1
            time.sleep(min(full.args[0], 2))


def abandon(port, path, body, seconds):
    """Sends a request and goes away without reading the answer."""
    connection = connect(port, path, body)
    time.sleep(seconds)
    connection.close()
