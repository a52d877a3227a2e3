# /// script
# dependencies = ["pydantic-ai-slim[openai,anthropic]"]
# ///
"""pydantic-ai over Chat, Responses and Messages."""
import json

from pydantic_ai import Agent, BinaryContent, NativeOutput, PromptedOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, PNG, QUESTION, REPORT, UNSEEN, URL, WEATHER, call, check, equal, run, script
from samples import Peak, get_weather

provider = OpenAIProvider(base_url=URL + "/v1", api_key="none")
MODELS = [OpenAIChatModel(MODEL, provider=provider), OpenAIResponsesModel(MODEL, provider=provider),
          AnthropicModel("claude-scripted", provider=AnthropicProvider(base_url=URL, api_key="none"))]


@check("run, run_stream: chat, responses, messages")
async def plain():
    for model in MODELS:
        agent = Agent(model)
        equal((await agent.run(QUESTION)).output, ANSWER)
        async with agent.run_stream(QUESTION) as stream:
            equal(await stream.get_output(), ANSWER)


@check("a tool, one round: chat, responses, messages")
async def tools():
    for model in MODELS:
        agent = Agent(model)
        agent.tool_plain(get_weather)
        equal((await agent.run(ASK_WEATHER)).output, REPORT)


@check("a tool that gives an image: responses, messages")
async def image():
    script(("Look.", call("look", {})), (UNSEEN, "Unseen."))
    for model in MODELS[1:]:
        agent = Agent(model)

        @agent.tool_plain
        def look() -> BinaryContent:
            return BinaryContent(PNG, media_type="image/png")

        equal((await agent.run("Look.")).output, "Unseen.")


@check("output by a tool (tool_choice required): chat, responses, messages")
async def output_tool():
    script((ASK_PEAK, call("final_result", PEAK)))
    for model in MODELS:
        equal((await Agent(model, output_type=Peak).run(ASK_PEAK)).output, Peak(**PEAK))


@check("NativeOutput, PromptedOutput")
async def forms():
    for model in MODELS[:2]:
        equal((await Agent(model, output_type=NativeOutput(Peak)).run(ASK_PEAK)).output, Peak(**PEAK))
        equal((await Agent(model, output_type=PromptedOutput(Peak)).run(ASK_PEAK)).output, Peak(**PEAK))


@check("NativeOutput beside a tool: chat, responses")
async def forms_and_tools():
    script((WEATHER, json.dumps(PEAK)))
    for model in MODELS[:2]:
        agent = Agent(model, output_type=NativeOutput(Peak))
        agent.tool_plain(get_weather)
        equal((await agent.run(ASK_WEATHER)).output, Peak(**PEAK))


run("pydantic-ai-slim")
