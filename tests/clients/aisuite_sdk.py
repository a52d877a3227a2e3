# /// script
# dependencies = ["aisuite", "openai", "docstring_parser"]
# ///
"""aisuite, through its provider of OpenAI."""
import aisuite

from checks import ANSWER, ASK_WEATHER, MODEL, QUESTION, REPORT, URL, check, equal, run
from samples import get_weather

client = aisuite.Client({"openai": {"api_key": "none", "base_url": URL + "/v1"}})


@check("chat")
def chat():
    answer = client.chat.completions.create(model=f"openai:{MODEL}", messages=[{"role": "user", "content": QUESTION}])
    equal(answer.choices[0].message.content, ANSWER)


@check("tools with max_turns")
def tools():
    answer = client.chat.completions.create(model=f"openai:{MODEL}", messages=[{"role": "user", "content": ASK_WEATHER}],
                                            tools=[get_weather], max_turns=2)
    equal(answer.choices[0].message.content, REPORT)


run("aisuite")
