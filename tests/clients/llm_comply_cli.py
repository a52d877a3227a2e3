# /// script
# dependencies = ["llm-comply"]
# ///
"""llm-comply: the shapes of Responses, Chat and Messages against their published descriptions."""
import json
import pathlib
import subprocess
import sys

from checks import URL, call, check, equal, run, script

PROGRAM = pathlib.Path(sys.executable).with_name("llm-comply")
# By whose names it knows that there is reasoning.
MODELS = {"open-responses": "gpt-5-scripted", "openai-chat": "gpt-5-scripted", "anthropic": "claude-sonnet-4-5"}
# A server of texts reads no images; a request without a model goes to the one that is served.
NOT_HERE = {"image-input", "chat-image-input", "anth-image-input", "error-handling", "chat-error-handling"}
SAID = [("San Francisco", call("get_weather", {"location": "San Francisco"})), ("15 * 37", "<think>\n15 * 37 = 555\n</think>\n\n555"),
        ("exactly 3 words", "Hello there, friend."), ("Say", "Hello."), ("name", "Alice"), ("Count", "1 2 3 4 5")]


def comply(kind):
    script(*SAID)
    command = [PROGRAM, "run", "--base-url", URL + "/v1", "--api-key", "none", "--model", MODELS[kind], "--format", kind, "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=200)
    print(result.stdout)
    results = {r["id"]: r["status"] for r in json.loads(result.stdout)["results"]}
    equal({name for name, status in results.items() if status != "passed"}, NOT_HERE & set(results))


for kind in ("open-responses", "openai-chat", "anthropic"):
    check(kind)(lambda kind=kind: comply(kind))

run("llm-comply")
