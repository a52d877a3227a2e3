# /// script
# dependencies = ["strands-agents[openai,ollama,anthropic]"]
# ///
"""Strands Agents over Chat, Messages and Ollama's protocol."""
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.ollama import OllamaModel
from strands.models.openai import OpenAIModel

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REPORT, URL, call, check, equal, run, script
from samples import Peak, get_weather


def models():
    return [OpenAIModel(client_args={"base_url": URL + "/v1", "api_key": "none"}, model_id=MODEL),
            AnthropicModel(client_args={"base_url": URL, "api_key": "none"}, model_id="claude-scripted", max_tokens=200),
            OllamaModel(host=URL, model_id=MODEL)]


@check("a plain turn: chat, messages, Ollama")
def plain():
    for model in models():
        equal(str(Agent(model=model, callback_handler=None)(QUESTION)).strip(), ANSWER)


@check("a tool, one round: the same three")
def tools():
    for model in models():
        equal(str(Agent(model=model, tools=[tool(get_weather)], callback_handler=None)(ASK_WEATHER)).strip(), REPORT)


@check("structured_output_model: the same three")
def forms():
    script((ASK_PEAK, call("Peak", PEAK)))
    for model in models():
        equal(Agent(model=model, callback_handler=None)(ASK_PEAK, structured_output_model=Peak).structured_output, Peak(**PEAK))


run("strands-agents")
