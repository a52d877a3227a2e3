# /// script
# dependencies = ["openai", "pydantic"]
# ///
"""OpenAI's own client."""
import base64
import json
import struct

import openai

from checks import (ANSWER, ASK_PEAK, ASK_WEATHER, CITY, MODEL, PEAK, QUESTION, REAL_URL, REPORT, TOOL, URL, WEATHER, check,
                    equal, run)
from samples import Peak

client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
real = openai.OpenAI(base_url=REAL_URL + "/v1", api_key="none", max_retries=0)
ASK = [{"role": "user", "content": QUESTION}]
TOOLS = [{"type": "function", "function": TOOL}]


@check("chat")
def chat():
    answer = client.chat.completions.create(model=MODEL, messages=ASK)
    equal(answer.choices[0].message.content, ANSWER)
    equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@check("chat, streamed, with usage")
def streamed():
    chunks = list(client.chat.completions.create(model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}))
    equal("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), ANSWER)
    assert chunks[-1].usage.completion_tokens > 1


@check("chat, asynchronous, streamed")
async def asynchronous():
    async with openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none") as own:
        text = ""
        async for chunk in await own.chat.completions.create(model=MODEL, messages=ASK, stream=True):
            text += chunk.choices[0].delta.content or ""
    equal(text, ANSWER)


@check("chat.completions.stream")
def stream_helper():
    with client.chat.completions.stream(model=MODEL, messages=ASK) as stream:
        kinds = {event.type for event in stream}
        equal(stream.get_final_completion().choices[0].message.content, ANSWER)
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds


@check("tools, one round")
def tools():
    messages = [{"role": "user", "content": ASK_WEATHER}]
    message = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
    equal(json.loads(message.tool_calls[0].function.arguments), {"city": CITY})
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": WEATHER}]
    equal(client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message.content, REPORT)


@check("tools, chat.completions.stream")
def streamed_tools():
    own = [openai.pydantic_function_tool(Peak)]
    messages = [{"role": "user", "content": ASK_WEATHER}]
    with client.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS + own) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
    equal([(e.name, json.loads(e.arguments)) for e in done], [("get_weather", {"city": CITY})])


@check("parse")
def parse():
    messages = [{"role": "user", "content": ASK_PEAK}]
    answer = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Peak)
    equal(answer.choices[0].message.parsed, Peak(**PEAK))


@check("completions, echo, logprobs")
def completions():
    answer = real.completions.create(model=MODEL, prompt=["One, two,", "Three, four,"], max_tokens=2, logprobs=1, echo=True)
    equal([c.text[:4] for c in answer.choices], ["One,", "Thre"])
    assert answer.choices[0].logprobs.token_logprobs[0] is None and len(answer.choices[0].logprobs.tokens) > 3


@check("responses")
def responses():
    answer = client.responses.create(model=MODEL, input=QUESTION, instructions="Be brief.")
    equal(answer.output_text, ANSWER)
    equal(client.responses.retrieve(answer.id).output_text, ANSWER)


@check("responses.stream, tools, previous_response_id")
def response_tools():
    tool = {"type": "function", "strict": False, **TOOL}
    with client.responses.stream(model=MODEL, input=ASK_WEATHER, tools=[tool]) as stream:
        for _ in stream:
            pass
        first = stream.get_final_response()
    item = first.output[0]
    equal(json.loads(item.arguments), {"city": CITY})
    result = {"type": "function_call_output", "call_id": item.call_id, "output": WEATHER}
    second = client.responses.create(model=MODEL, input=[result], tools=[tool], previous_response_id=first.id)
    equal(second.output_text, REPORT)


@check("responses.parse")
def response_parse():
    equal(client.responses.parse(model=MODEL, input=ASK_PEAK, text_format=Peak).output_parsed, Peak(**PEAK))


@check("embeddings, float and base64")
def embeddings():
    floats = real.embeddings.create(model=MODEL, input=["one", "two"], encoding_format="float").data
    default = real.embeddings.create(model=MODEL, input="one").data[0].embedding
    coded = real.embeddings.create(model=MODEL, input="one", encoding_format="base64").data[0].embedding
    raw = struct.pack(f"<{len(default)}f", *floats[0].embedding)
    equal(base64.b64decode(coded) if isinstance(coded, str) else struct.pack(f"<{len(coded)}f", *coded), raw)
    equal(struct.pack(f"<{len(default)}f", *default), raw)


@check("models, errors")
def errors():
    equal(client.models.list().data[0].id, MODEL)
    for kind, options in ((openai.NotFoundError, {"model": "nobody"}), (openai.BadRequestError, {"temperature": -1})):
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": ASK, **options})
        except kind as e:
            assert e.message and e.type
        else:
            raise AssertionError(f"no {kind.__name__}")


run("openai")
