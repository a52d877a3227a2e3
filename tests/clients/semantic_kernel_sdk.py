# /// script
# dependencies = ["semantic-kernel"]
# ///
"""Semantic Kernel."""
import json

from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.functions import KernelArguments, kernel_function

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REPORT, URL, check, equal, run
from samples import Peak, get_weather


async def ask(question, **options):
    service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=AsyncOpenAI(base_url=URL + "/v1", api_key="none"))
    return (await ChatCompletionAgent(service=service, name="guide", **options).get_response(messages=question)).message.content


class Weather:
    @kernel_function(name="get_weather", description="Weather of a city")
    def get_weather(self, city: str) -> str:
        return get_weather(city)


@check("ChatCompletionAgent")
async def plain():
    equal(await ask(QUESTION), ANSWER)


@check("a plugin, one round")
async def tools():
    equal(await ask(ASK_WEATHER, plugins=[Weather()]), REPORT)


@check("response_format")
async def form():
    settings = OpenAIChatPromptExecutionSettings(response_format=Peak)
    equal(json.loads(await ask(ASK_PEAK, arguments=KernelArguments(settings=settings))), PEAK)


run("semantic-kernel")
