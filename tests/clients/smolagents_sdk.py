# /// script
# dependencies = ["smolagents[openai]"]
# ///
"""smolagents: agents that call tools and agents that write code."""
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

from checks import ASK_WEATHER, CITY, MODEL, REPORT, URL, WEATHER, call, check, equal, run, script
from samples import get_weather

model = OpenAIModel(model_id=MODEL, api_base=URL + "/v1", api_key="none")
weather = tool(get_weather)


@check("ToolCallingAgent")
def tools():
    script((WEATHER, call("final_answer", {"answer": REPORT})))
    equal(ToolCallingAgent(tools=[weather], model=model, max_steps=3, verbosity_level=0).run(ASK_WEATHER), REPORT)


@check("ToolCallingAgent, streamed")
def streamed():
    script((WEATHER, call("final_answer", {"answer": REPORT})))
    agent = ToolCallingAgent(tools=[weather], model=model, max_steps=3, verbosity_level=0, stream_outputs=True)
    equal(agent.run(ASK_WEATHER), REPORT)


@check("CodeAgent")
def code():
    script((ASK_WEATHER, f'Thought: ask.\n<code>\nfinal_answer(get_weather("{CITY}"))\n</code>'))
    equal(CodeAgent(tools=[weather], model=model, max_steps=2, verbosity_level=0).run(ASK_WEATHER), WEATHER)


@check("CodeAgent, use_structured_outputs_internally")
def structured_code():
    script((ASK_WEATHER, '{"thought": "ask", "code": "final_answer(get_weather(\\"Zürich\\"))"}'))
    agent = CodeAgent(tools=[weather], model=model, max_steps=2, verbosity_level=0, use_structured_outputs_internally=True)
    equal(agent.run(ASK_WEATHER), WEATHER)


run("smolagents")
