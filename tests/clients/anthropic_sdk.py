# /// script
# dependencies = ["anthropic"]
# ///
"""Anthropic's own client."""
import anthropic

from checks import ANSWER, ASK_WEATHER, CITY, QUESTION, REPORT, TOOL, URL, WEATHER, check, equal, run

MODEL = "claude-scripted"
client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
ASK = [{"role": "user", "content": QUESTION}]
TOOLS = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}]


@check("messages")
def messages():
    answer = client.messages.create(model=MODEL, messages=ASK, max_tokens=100, system="Be brief.")
    equal((answer.content[0].text, answer.stop_reason), (ANSWER, "end_turn"))


@check("messages.stream")
def streamed():
    with client.messages.stream(model=MODEL, messages=ASK, max_tokens=100) as stream:
        equal("".join(stream.text_stream), ANSWER)
        equal(stream.get_final_message().stop_reason, "end_turn")


@check("asynchronous, streamed")
async def asynchronous():
    own = anthropic.AsyncAnthropic(base_url=URL, api_key="none")
    async with own.messages.stream(model=MODEL, messages=ASK, max_tokens=100) as stream:
        equal("".join([text async for text in stream.text_stream]), ANSWER)


def tool_round(ask):
    turns = [{"role": "user", "content": ASK_WEATHER}]
    first = ask(turns)
    use = first.content[-1]
    equal((first.stop_reason, use.type, use.name, use.input), ("tool_use", "tool_use", "get_weather", {"city": CITY}))
    turns += [{"role": "assistant", "content": first.content},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": WEATHER}]}]
    equal(ask(turns).content[0].text, REPORT)


@check("tools, one round")
def tools():
    tool_round(lambda turns: client.messages.create(model=MODEL, messages=turns, max_tokens=100, tools=TOOLS))


@check("tools, one round, streamed")
def streamed_tools():
    def ask(turns):
        with client.messages.stream(model=MODEL, messages=turns, max_tokens=100, tools=TOOLS) as stream:
            return stream.get_final_message()

    tool_round(ask)


@check("messages.count_tokens")
def count_tokens():
    counted = client.messages.count_tokens(model=MODEL, messages=ASK, tools=TOOLS).input_tokens
    equal(counted, client.messages.create(model=MODEL, messages=ASK, max_tokens=1, tools=TOOLS).usage.input_tokens)


@check("errors")
def errors():
    try:
        client.messages.create(model="nobody", messages=ASK, max_tokens=1)
    except anthropic.NotFoundError as e:
        equal(e.body["error"]["type"], "not_found_error")
    else:
        raise AssertionError("no NotFoundError")


run("anthropic")
