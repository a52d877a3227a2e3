# /// script
# dependencies = ["openai-agents"]
# ///
"""OpenAI's agents over Responses and Chat."""
import base64
import json

from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, ToolOutputImage, function_tool,
                    set_tracing_disabled)
from openai import AsyncOpenAI

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, PNG, QUESTION, REPORT, UNSEEN, URL, WEATHER, call, check, equal, run, script
from samples import Peak, get_weather

set_tracing_disabled(True)
weather = function_tool(get_weather)


def models():
    client = AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    return [OpenAIResponsesModel(MODEL, client), OpenAIChatCompletionsModel(MODEL, client)]


@check("run, run_streamed: responses, chat")
async def plain():
    for model in models():
        agent = Agent(name="Guide", instructions="Be brief.", model=model)
        equal((await Runner.run(agent, QUESTION)).final_output, ANSWER)
        result = Runner.run_streamed(agent, QUESTION)
        async for _ in result.stream_events():
            pass
        equal(result.final_output, ANSWER)


@check("a tool, one round, whole and streamed: responses, chat")
async def tools():
    for model in models():
        agent = Agent(name="Guide", model=model, tools=[weather], model_settings=ModelSettings(tool_choice="auto"))
        equal((await Runner.run(agent, ASK_WEATHER)).final_output, REPORT)
        result = Runner.run_streamed(agent, ASK_WEATHER)
        async for _ in result.stream_events():
            pass
        equal(result.final_output, REPORT)


@function_tool
def look() -> ToolOutputImage:
    """Looks."""
    return ToolOutputImage(image_url="data:image/png;base64," + base64.b64encode(PNG).decode())


@check("a tool that gives an image: responses")
async def image():
    script(("Look.", call("look", {})), (UNSEEN, "Unseen."))
    agent = Agent(name="Guide", model=models()[0], tools=[look])
    equal((await Runner.run(agent, "Look.")).final_output, "Unseen.")


@check("output_type: responses, chat")
async def forms():
    for model in models():
        equal((await Runner.run(Agent(name="Guide", model=model, output_type=Peak), ASK_PEAK)).final_output, Peak(**PEAK))


@check("output_type beside a tool: responses, chat")
async def forms_and_tools():
    script((WEATHER, json.dumps(PEAK)))
    for model in models():
        agent = Agent(name="Guide", model=model, output_type=Peak, tools=[weather])
        equal((await Runner.run(agent, ASK_WEATHER)).final_output, Peak(**PEAK))


run("openai-agents")
