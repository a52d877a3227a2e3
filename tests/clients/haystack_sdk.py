# /// script
# dependencies = ["haystack-ai"]
# ///
"""Haystack."""
import json
import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
from haystack.components.agents import Agent  # noqa: E402
from haystack.components.embedders import OpenAITextEmbedder  # noqa: E402
from haystack.components.generators.chat import OpenAIChatGenerator  # noqa: E402
from haystack.dataclasses import ChatMessage  # noqa: E402
from haystack.tools import create_tool_from_function  # noqa: E402
from haystack.utils import Secret  # noqa: E402

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REAL_URL, REPORT, URL, check, equal, run  # noqa: E402
from samples import Peak, get_weather  # noqa: E402

KEY = Secret.from_token("none")


def generator(**options):
    return OpenAIChatGenerator(model=MODEL, api_base_url=URL + "/v1", api_key=KEY, **options)


@check("OpenAIChatGenerator, streamed and not")
def plain():
    for options in ({}, {"streaming_callback": lambda chunk: None}):
        equal(generator(**options).run([ChatMessage.from_user(QUESTION)])["replies"][0].text, ANSWER)


@check("Agent with a tool")
def tools():
    agent = Agent(chat_generator=generator(), tools=[create_tool_from_function(get_weather)])
    equal(agent.run(messages=[ChatMessage.from_user(ASK_WEATHER)])["messages"][-1].text, REPORT)


@check("response_format")
def form():
    reply = generator(generation_kwargs={"response_format": Peak}).run([ChatMessage.from_user(ASK_PEAK)])["replies"][0]
    equal(json.loads(reply.text), PEAK)


@check("OpenAITextEmbedder")
def embed():
    assert OpenAITextEmbedder(model=MODEL, api_base_url=REAL_URL + "/v1", api_key=KEY).run("one")["embedding"]


run("haystack-ai")
