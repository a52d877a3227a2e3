# /// script
# dependencies = ["langchain", "langchain-openai", "langchain-anthropic", "langchain-ollama"]
# ///
"""LangChain's agents (LangGraph) over Chat, Messages and Ollama's protocol."""
import base64

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, PNG, QUESTION, REAL_URL, REPORT, UNSEEN, URL, call, check, equal, run, script
from samples import Peak, get_weather

MODELS = [ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key="none", max_retries=0),
          ChatAnthropic(model="claude-scripted", base_url=URL, api_key="none", max_retries=0), ChatOllama(model=MODEL, base_url=URL)]


def ask(agent, question):
    return agent.invoke({"messages": [("user", question)]})


@check("invoke, stream: chat, messages, Ollama")
def plain():
    for model in MODELS:
        equal(model.invoke(QUESTION).text, ANSWER)
        equal("".join(chunk.text for chunk in model.stream(QUESTION)), ANSWER)


@check("create_agent with a tool: the same three")
def tools():
    for model in MODELS:
        equal(ask(create_agent(model, [tool(get_weather)]), ASK_WEATHER)["messages"][-1].text, REPORT)


@tool
def look() -> list:
    """Looks."""
    return [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG).decode()}}]


@check("a tool that gives an image: the same three")
def image():
    script(("Look.", call("look", {})), (UNSEEN, "Unseen."))
    for model in MODELS:
        equal(ask(create_agent(model, [look]), "Look.")["messages"][-1].text, "Unseen.")


@check("create_agent, response_format: the same three")
def forms():
    for model in MODELS:
        script((ASK_PEAK, call("Peak", PEAK)))
        equal(ask(create_agent(model, [], response_format=Peak), ASK_PEAK)["structured_response"], Peak(**PEAK))


@check("with_structured_output: Ollama's format")
def form():
    equal(MODELS[2].with_structured_output(Peak, method="json_schema").invoke(ASK_PEAK), Peak(**PEAK))


@check("OllamaEmbeddings")
def embeddings():
    equal(len(OllamaEmbeddings(model=MODEL, base_url=REAL_URL).embed_documents(["one", "two"])), 2)


run("langchain")
