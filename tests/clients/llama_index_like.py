# /// script
# dependencies = ["llama-index-llms-openai-like"]
# ///
"""LlamaIndex, as a server like OpenAI's."""
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, CITY, MODEL, PEAK, QUESTION, REPORT, URL, WEATHER, call, check, equal, run, script
from samples import Peak, get_weather

model = OpenAILike(model=MODEL, api_base=URL + "/v1", api_key="none", is_chat_model=True, is_function_calling_model=True,
                   context_window=4096, max_retries=0)


@check("complete, chat, stream_chat")
def plain():
    equal(model.complete(QUESTION).text, ANSWER)
    messages = [ChatMessage(role="user", content=QUESTION)]
    equal(model.chat(messages).message.content, ANSWER)
    equal("".join(c.delta for c in model.stream_chat(messages)), ANSWER)


@check("predict_and_call")
def tools():
    script((WEATHER, WEATHER))
    answer = model.predict_and_call([FunctionTool.from_defaults(get_weather)], user_msg=ASK_WEATHER)
    equal(str(answer.sources[0].content), WEATHER)


@check("chat_with_tools, one round")
def tool_round():
    tool = FunctionTool.from_defaults(get_weather)
    messages = [ChatMessage(role="user", content=ASK_WEATHER)]
    answer = model.chat_with_tools([tool], chat_history=messages)
    calls = model.get_tool_calls_from_response(answer)
    equal(calls[0].tool_kwargs, {"city": CITY})
    messages += [answer.message, ChatMessage(role="tool", content=WEATHER, additional_kwargs={"tool_call_id": calls[0].tool_id})]
    equal(model.chat(messages, tools=[tool.metadata.to_openai_tool()]).message.content, REPORT)


@check("as_structured_llm")
def form():
    script((ASK_PEAK, call("Peak", PEAK)))
    equal(model.as_structured_llm(Peak).complete(ASK_PEAK).raw, Peak(**PEAK))


run("llama-index-llms-openai-like")
