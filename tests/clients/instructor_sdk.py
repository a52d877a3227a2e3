# /// script
# dependencies = ["instructor"]
# ///
"""instructor: answers as objects."""
import instructor
import openai

from checks import ASK_PEAK, MODEL, PEAK, URL, call, check, equal, run, script
from samples import Peak

client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
ASK = [{"role": "user", "content": ASK_PEAK}]


def check_mode(mode):
    peak = instructor.from_openai(client, mode=mode).chat.completions.create(
        model=MODEL, messages=ASK, response_model=Peak, max_retries=0)
    equal(peak.model_dump(), PEAK)


@check("TOOLS")
def tools():
    script((ASK_PEAK, call("Peak", PEAK)))
    check_mode(instructor.Mode.TOOLS)


@check("TOOLS_STRICT")
def strict():
    script((ASK_PEAK, call("Peak", PEAK)))
    check_mode(instructor.Mode.TOOLS_STRICT)


@check("JSON, JSON_SCHEMA, MD_JSON")
def json_modes():
    check_mode(instructor.Mode.JSON)
    check_mode(instructor.Mode.JSON_SCHEMA)
    script((ASK_PEAK, '```json\n{"name": "Mont Blanc", "height": 4806}\n```'))
    check_mode(instructor.Mode.MD_JSON)


@check("create_partial, streamed")
def partial():
    script((ASK_PEAK, call("Peak", PEAK)))
    own = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    last = list(own.chat.completions.create_partial(model=MODEL, messages=ASK, response_model=Peak))[-1]
    equal((last.name, last.height), (PEAK["name"], PEAK["height"]))


@check("RESPONSES_TOOLS")
def responses():
    script((ASK_PEAK, call("Peak", PEAK)))
    own = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS)
    equal(own.responses.create(model=MODEL, input=ASK_PEAK, response_model=Peak).model_dump(), PEAK)


run("instructor")
