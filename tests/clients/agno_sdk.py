# /// script
# dependencies = ["agno", "openai", "anthropic", "ollama"]
# ///
"""Agno over Chat, Responses, Messages and Ollama's protocol."""
import os

os.environ["AGNO_TELEMETRY"] = "false"
from agno.agent import Agent  # noqa: E402
from agno.models.anthropic import Claude  # noqa: E402
from agno.models.ollama import Ollama  # noqa: E402
from agno.models.openai import OpenAIResponses  # noqa: E402
from agno.models.openai.like import OpenAILike  # noqa: E402

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REPORT, URL, check, equal, run  # noqa: E402
from samples import Peak, get_weather  # noqa: E402


def models():
    return [OpenAILike(id=MODEL, base_url=URL + "/v1", api_key="none"), OpenAIResponses(id=MODEL, base_url=URL + "/v1", api_key="none"),
            Claude(id="claude-scripted", api_key="none", client_params={"base_url": URL}), Ollama(id=MODEL, host=URL)]


@check("a plain turn: chat, responses, messages, Ollama")
def plain():
    for model in models():
        equal(Agent(model=model, telemetry=False).run(QUESTION).content, ANSWER)


@check("a tool, one round: the same four")
def tools():
    for model in models():
        equal(Agent(model=model, tools=[get_weather], telemetry=False).run(ASK_WEATHER).content.split("\n")[-1], REPORT)


@check("output_schema: the same four")
def forms():
    for model in models():
        equal(Agent(model=model, output_schema=Peak, telemetry=False).run(ASK_PEAK).content, Peak(**PEAK))


run("agno")
