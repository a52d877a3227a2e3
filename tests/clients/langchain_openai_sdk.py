# /// script
# dependencies = ["langchain-openai"]
# ///
"""LangChain."""
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from checks import (ANSWER, ASK_PEAK, ASK_WEATHER, CITY, MODEL, PEAK, QUESTION, REAL_URL, REPORT, URL, call, check, equal, run,
                    script)
from samples import Peak, get_weather

options = dict(model=MODEL, base_url=URL + "/v1", api_key="none", max_retries=0)
model = ChatOpenAI(**options)
weather = tool(get_weather)


@check("invoke, stream, ainvoke")
async def plain():
    equal(model.invoke(QUESTION).content, ANSWER)
    equal("".join(c.content for c in model.stream(QUESTION)), ANSWER)
    equal((await model.ainvoke(QUESTION)).content, ANSWER)


def tool_round(bound):
    messages = [HumanMessage(ASK_WEATHER)]
    answer = bound.invoke(messages)
    messages.append(answer)
    messages += [ToolMessage(weather.invoke(c["args"]), tool_call_id=c["id"]) for c in answer.tool_calls]
    equal(bound.invoke(messages).text, REPORT)


@check("bind_tools, one round")
def tools():
    tool_round(model.bind_tools([weather]))


@check("bind_tools strict, required, streamed")
def strict():
    bound = model.bind_tools([weather], strict=True, tool_choice="required", parallel_tool_calls=False)
    whole = None
    for chunk in bound.stream(ASK_WEATHER):
        whole = chunk if whole is None else whole + chunk
    equal(whole.tool_calls[0]["args"], {"city": CITY})


@check("bind_tools over /v1/responses")
def responses():
    tool_round(ChatOpenAI(use_responses_api=True, **options).bind_tools([weather]))


@check("with_structured_output: json_schema, json_mode")
def forms():
    for method in ("json_schema", "json_mode"):
        equal(model.with_structured_output(Peak, method=method).invoke(ASK_PEAK), Peak(**PEAK))


@check("with_structured_output: function_calling")
def called_form():
    script((ASK_PEAK, call("Peak", PEAK)))
    equal(model.with_structured_output(Peak, method="function_calling").invoke(ASK_PEAK), Peak(**PEAK))


@check("embeddings")
def embeddings():
    own = OpenAIEmbeddings(model=MODEL, base_url=REAL_URL + "/v1", api_key="none", check_embedding_ctx_length=False)
    equal(len(own.embed_documents(["one", "two"])), 2)


run("langchain-openai")
