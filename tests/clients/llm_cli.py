# /// script
# dependencies = ["llm", "llm-ollama", "llm-anthropic"]
# ///
"""llm, the command line and library, with models of OpenAI's protocol told of in a file."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["LLM_USER_PATH"] = FOLDER = tempfile.mkdtemp()
import llm  # noqa: E402

from checks import ANSWER, ASK_PEAK, ASK_WEATHER, MODEL, PEAK, QUESTION, REPORT, URL, check, equal, run  # noqa: E402
from samples import Peak, get_weather  # noqa: E402

pathlib.Path(FOLDER, "extra-openai-models.yaml").write_text(json.dumps([{
    "model_id": "flashd", "model_name": MODEL, "api_base": URL + "/v1", "supports_schema": True, "supports_tools": True}]))
PROGRAM = pathlib.Path(sys.executable).with_name("llm")


@check("the command, streamed and not")
def plain():
    for options in ([], ["--no-stream"]):
        answer = subprocess.run([PROGRAM, "-m", "flashd", "--key", "none", *options, QUESTION], stdout=subprocess.PIPE, text=True, timeout=60)
        equal(answer.stdout.strip(), ANSWER)


@check("a schema")
def form():
    equal(json.loads(llm.get_model("flashd").prompt(ASK_PEAK, schema=Peak, key="none").text()), PEAK)


@check("chain with a tool")
def tools():
    equal(llm.get_model("flashd").chain(ASK_WEATHER, tools=[get_weather], key="none").text(), REPORT)


run("llm")
