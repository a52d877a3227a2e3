# /// script
# dependencies = ["dspy"]
# ///
"""DSPy, through litellm."""
import json

import dspy

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, CITY, MODEL, PEAK, QUESTION, REPORT, URL, WEATHER, check, equal, run, script
from samples import Peak, get_weather

dspy.configure(lm=dspy.LM(f"openai/{MODEL}", api_base=URL + "/v1", api_key="none", cache=False), adapter=dspy.JSONAdapter())


class Describe(dspy.Signature):
    """Describes a mountain."""
    wish: str = dspy.InputField()
    peak: Peak = dspy.OutputField()


@check("LM")
def plain():
    answer = dspy.settings.lm(QUESTION)[0]
    equal(answer if isinstance(answer, str) else answer["text"], ANSWER)


@check("Predict, JSONAdapter")
def form():
    script((ASK_PEAK, json.dumps({"peak": PEAK})))
    equal(dspy.Predict(Describe)(wish=ASK_PEAK).peak, Peak(**PEAK))


@check("ReAct with a tool")
def tools():
    ask = {"next_thought": "ask", "next_tool_name": "get_weather", "next_tool_args": {"city": CITY}}
    done = {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": {}, "reasoning": "told", "answer": REPORT}
    script((ASK_WEATHER, json.dumps(ask)), (WEATHER, json.dumps(done)))
    equal(dspy.ReAct("question -> answer", tools=[get_weather])(question=ASK_WEATHER).answer, REPORT)


run("dspy")
