# /// script
# dependencies = ["aisuite", "openai", "docstring_parser"]
# ///
"""aisuite, through its provider of OpenAI."""
import aisuite

from checks import ANSWER, ASK_WEATHER, CITY, MODEL, QUESTION, REPORT, URL, WEATHER, check, equal, run

client = aisuite.Client({"openai": {"api_key": "none", "base_url": URL + "/v1"}})


def get_weather(city: str) -> str:
    """Weather of a city."""
    return WEATHER if city == CITY else "unknown"


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
