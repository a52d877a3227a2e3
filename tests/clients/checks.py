"""What the scripts of this folder share: where the servers are, what the model says, and the checks themselves.

A script is one client: its packages stand in its head, its checks are functions under @check, run() calls them and
writes a line of JSON each for tests/clients/run."""
import asyncio
import base64
import importlib.metadata
import inspect
import json
import os
import pathlib
import traceback
import urllib.request

URL = os.environ.get("FLASHD_SCRIPTED_URL")  # the model says what the script says
REAL_URL = os.environ.get("FLASHD_URL")  # SmolLM2
MODEL = "gpt-scripted"
CITY = "Zürich"
TOOL = {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "City"}}, "required": ["city"]}}
QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
ASK_WEATHER, WEATHER, REPORT = "How warm is it there?", "21 degrees", "It is 21 degrees warm."
ASK_PEAK, PEAK = "Describe the highest peak.", {"name": "Mont Blanc", "height": 4806}
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
UNSEEN = "The tool gave an image here"  # what the model reads in an image's place
checks = []


def call(name, arguments):
    return f'<tool_call>\n{json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)}\n</tool_call>'


RULES = [(QUESTION, ANSWER), (ASK_WEATHER, call("get_weather", {"city": CITY})), (WEATHER, REPORT),
         (ASK_PEAK, json.dumps(PEAK))]


def script(*rules):
    """What the model says from now on, before RULES: (when, say) each."""
    rules = [{"when": when, "say": say} for when, say in [*rules, *RULES]]
    pathlib.Path(os.environ["FLASHD_SCRIPT"]).write_text(json.dumps(rules), encoding="utf-8")


def check(what):
    def register(function):
        checks.append((what, function))
        return function

    return register


def equal(got, wanted):
    assert got == wanted, f"{got!r} instead of {wanted!r}"


def counted():
    """What the real server has counted: requests that ended well, prompt tokens, generated tokens."""
    with urllib.request.urlopen(REAL_URL + "/metrics") as page:
        lines = [line.rsplit(" ", 1) for line in page.read().decode().splitlines() if not line.startswith("#")]
    names = ("request_success", "prompt_tokens", "generation_tokens")
    return [sum(int(float(value)) for name, value in lines if name.startswith(f"vllm:{n}_total{{")) for n in names]


def run(package):
    results = open(os.environ["FLASHD_RESULTS"], "w", encoding="utf-8")
    for what, function in checks:
        script()
        try:
            result = function()
            if inspect.isawaitable(result):
                asyncio.run(result)
            wrong = None
        except Exception as e:
            traceback.print_exc()
            wrong = f"{type(e).__name__}: {str(e)[:300]}"
        line = {"client": package, "version": importlib.metadata.version(package), "what": what, "wrong": wrong}
        print(json.dumps(line), file=results, flush=True)
