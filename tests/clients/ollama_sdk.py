# /// script
# dependencies = ["ollama"]
# ///
"""Ollama's own client."""
import json

import ollama

from checks import (ANSWER, ASK_PEAK, ASK_WEATHER, CITY, MODEL, PEAK, QUESTION, REAL_URL, REPORT, TOOL, URL, WEATHER, check, equal,
                    run)

client = ollama.Client(host=URL)
ASK = [{"role": "user", "content": QUESTION}]


@check("chat")
def chat():
    equal(client.chat(model=MODEL, messages=ASK).message.content, ANSWER)


@check("chat, streamed")
def streamed():
    chunks = list(client.chat(model=MODEL, messages=ASK, stream=True))
    equal("".join(c.message.content for c in chunks), ANSWER)
    assert chunks[-1].done and chunks[-1].eval_count


@check("generate, asynchronous")
async def generate():
    equal((await ollama.AsyncClient(host=URL).generate(model=MODEL, prompt=QUESTION)).response, ANSWER)


@check("tools, one round")
def tools():
    messages = [{"role": "user", "content": ASK_WEATHER}]
    options = dict(model=MODEL, tools=[{"type": "function", "function": TOOL}])
    message = client.chat(messages=messages, **options).message
    equal(message.tool_calls[0].function.arguments, {"city": CITY})
    messages += [message, {"role": "tool", "tool_name": "get_weather", "content": WEATHER}]
    equal(client.chat(messages=messages, **options).message.content, REPORT)


@check("format: a schema")
def form():
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "height": {"type": "integer"}}, "required": ["name"]}
    equal(json.loads(client.chat(model=MODEL, messages=[{"role": "user", "content": ASK_PEAK}], format=schema).message.content), PEAK)


@check("list, show, ps")
def lists():
    assert client.list().models[0].model.startswith(MODEL), client.list()
    assert client.show(MODEL).modelinfo and client.ps().models


@check("embed")
def embed():
    equal(len(ollama.Client(host=REAL_URL).embed(model=MODEL, input=["one", "two"]).embeddings), 2)


run("ollama")
