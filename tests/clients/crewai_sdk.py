# /// script
# dependencies = ["crewai", "litellm"]
# ///
"""CrewAI."""
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
from crewai import LLM, Agent  # noqa: E402
from crewai.tools import tool  # noqa: E402

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REPORT, URL, check, equal, run  # noqa: E402
from samples import Peak, get_weather  # noqa: E402

llm = LLM(model=f"openai/{MODEL}", base_url=URL + "/v1", api_key="none")


def agent(**options):
    return Agent(role="Guide", goal="to help", backstory="none", llm=llm, **options)


@check("LLM.call")
def plain():
    equal(llm.call(QUESTION), ANSWER)


@check("an agent with a tool")
def tools():
    equal(agent(tools=[tool("get_weather")(get_weather)]).kickoff(ASK_WEATHER).raw, REPORT)


@check("an agent, response_format")
def form():
    equal(agent().kickoff(ASK_PEAK, response_format=Peak).pydantic, Peak(**PEAK))


run("crewai")
