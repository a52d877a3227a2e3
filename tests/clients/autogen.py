# /// script
# dependencies = ["autogen-agentchat", "autogen-ext[openai]"]
# ///
"""AutoGen over Chat."""
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REPORT, URL, check, equal, run
from samples import Peak, get_weather

INFO = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"}


def agent(**options):
    client = OpenAIChatCompletionClient(model=MODEL, base_url=URL + "/v1", api_key="none", model_info=INFO)
    return AssistantAgent("guide", model_client=client, **options)


@check("run, run_stream")
async def plain():
    equal((await agent().run(task=QUESTION)).messages[-1].content, ANSWER)
    last = [event async for event in agent(model_client_stream=True).run_stream(task=QUESTION)][-1]
    equal(last.messages[-1].content, ANSWER)


@check("a tool, one round")
async def tools():
    equal((await agent(tools=[get_weather], reflect_on_tool_use=True).run(task=ASK_WEATHER)).messages[-1].content, REPORT)


@check("output_content_type")
async def form():
    equal((await agent(output_content_type=Peak).run(task=ASK_PEAK)).messages[-1].content, Peak(**PEAK))


run("autogen-agentchat")
