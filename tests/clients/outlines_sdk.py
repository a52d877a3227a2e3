# /// script
# dependencies = ["outlines[openai,ollama]", "openai"]
# ///
"""Outlines: OpenAI's protocol, vLLM's and Ollama's."""
import json

import ollama
import openai
import outlines

from checks import ANSWER, ASK_PEAK, MODEL, PEAK, QUESTION, REAL_URL, URL, check, equal, run
from samples import Peak


def client(url=URL):
    return openai.OpenAI(base_url=url + "/v1", api_key="none")


@check("text: openai, ollama")
def plain():
    for model in (outlines.from_openai(client(), MODEL), outlines.from_ollama(ollama.Client(URL), MODEL)):
        equal(model(QUESTION), ANSWER)


@check("a class: openai, ollama, vLLM")
def form():
    for model in (outlines.from_openai(client(), MODEL), outlines.from_ollama(ollama.Client(URL), MODEL),
                  outlines.from_vllm(client(), MODEL)):
        equal(json.loads(model(ASK_PEAK, Peak)), PEAK)


@check("a choice, a regular expression: vLLM, the real model")
def choice():
    model = outlines.from_vllm(client(REAL_URL), MODEL)
    assert model("Red or blue?", outlines.types.Choice(["red", "blue"])) in ("red", "blue")
    assert model("A number?", outlines.types.Regex("[0-9]{3}")).isdigit()


run("outlines")
