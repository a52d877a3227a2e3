# /// script
# dependencies = ["google-adk", "litellm", "mcp"]
# ///
"""Google's Agent Development Kit, through litellm."""
import json

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REPORT, URL, check, equal, run
from samples import Peak, get_weather


async def ask(question, **options):
    model = LiteLlm(model=f"openai/{MODEL}", api_base=URL + "/v1", api_key="none")
    runner = InMemoryRunner(agent=LlmAgent(name="guide", model=model, **options), app_name="guide")
    session = await runner.session_service.create_session(app_name="guide", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=question)])
    events = [e async for e in runner.run_async(user_id="user", session_id=session.id, new_message=message)]
    return events[-1].content.parts[0].text


@check("run_async")
async def plain():
    equal(await ask(QUESTION), ANSWER)


@check("a tool, one round")
async def tools():
    equal(await ask(ASK_WEATHER, tools=[get_weather]), REPORT)


@check("output_schema")
async def form():
    equal(json.loads(await ask(ASK_PEAK, output_schema=Peak)), PEAK)


run("google-adk")
