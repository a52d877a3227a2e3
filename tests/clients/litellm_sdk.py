# /// script
# dependencies = ["litellm", "mcp"]
# ///
"""litellm, over the protocols that it knows us by."""
import json

import litellm

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, CITY, MODEL, PEAK, QUESTION, REAL_URL, REPORT, TOOL, URL, WEATHER, check, equal, run

ASK = [{"role": "user", "content": QUESTION}]
V1 = dict(api_base=URL + "/v1", api_key="none")
ROUTES = [(f"openai/{MODEL}", V1), (f"hosted_vllm/{MODEL}", V1), ("anthropic/claude-scripted", dict(api_base=URL, api_key="none")),
          (f"ollama_chat/{MODEL}", dict(api_base=URL))]


@check("completion: openai, hosted_vllm, anthropic, ollama_chat")
def plain():
    for model, options in ROUTES:
        answer = litellm.completion(model=model, messages=ASK, **options)
        equal((model, answer.choices[0].message.content), (model, ANSWER))


@check("completion, streamed: the same four")
def streamed():
    for model, options in ROUTES:
        chunks = litellm.completion(model=model, messages=ASK, stream=True, **options)
        equal((model, "".join(c.choices[0].delta.content or "" for c in chunks)), (model, ANSWER))


@check("tools, one round: the same four")
def tools():
    for model, options in ROUTES:
        messages = [{"role": "user", "content": ASK_WEATHER}]
        options = dict(model=model, tools=[{"type": "function", "function": TOOL}], **options)
        message = litellm.completion(messages=messages, **options).choices[0].message
        equal((model, json.loads(message.tool_calls[0].function.arguments)), (model, {"city": CITY}))
        messages += [message.model_dump(), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": WEATHER}]
        equal((model, litellm.completion(messages=messages, **options).choices[0].message.content), (model, REPORT))


@check("response_format: a schema")
def form():
    schema = {"type": "object", "additionalProperties": False, "properties": {"name": {"type": "string"}, "height": {
        "type": "integer"}}, "required": ["name", "height"]}
    form = {"type": "json_schema", "json_schema": {"name": "peak", "schema": schema, "strict": True}}
    answer = litellm.completion(model=f"openai/{MODEL}", messages=[{"role": "user", "content": ASK_PEAK}], response_format=form, **V1)
    equal(json.loads(answer.choices[0].message.content), PEAK)


@check("responses")
def responses():
    answer = litellm.responses(model=f"openai/{MODEL}", input=QUESTION, **V1)
    equal(answer.output[-1].content[0].text, ANSWER)


@check("text_completion, embedding")
def others():
    options = dict(api_base=REAL_URL + "/v1", api_key="none")
    assert litellm.text_completion(model=f"text-completion-openai/{MODEL}", prompt="One, two,", max_tokens=3, **options).choices[0].text
    equal(len(litellm.embedding(model=f"openai/{MODEL}", input=["one", "two"], **options).data), 2)


@check("a prompt that is too long is a ContextWindowExceededError")
def too_long():
    try:
        litellm.completion(model=f"openai/{MODEL}", messages=[{"role": "user", "content": "word " * 70000}], **V1)
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("no ContextWindowExceededError")


run("litellm")
