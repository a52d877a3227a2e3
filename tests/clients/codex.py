# /// script
# dependencies = ["openai-codex-cli-bin"]
# ///
"""Codex, OpenAI's command-line agent."""
import concurrent.futures
import importlib.util
import json
import pathlib
import sys

from agent import run_agent
from checks import ANSWER, MODEL, PNG, QUESTION, UNSEEN, URL, call, check, equal, run, script

PROGRAM = pathlib.Path(importlib.util.find_spec("codex_cli_bin").origin).parent / "bin/codex"
# A server of MCP with one tool, over its standard input and output.
MAP = """import json, sys
TOOL = {"name": "height", "description": "Height", "inputSchema": {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}}
for line in sys.stdin:
    ask = json.loads(line)
    answers = {
        "initialize": lambda p: {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "map", "version": "1"}},
        "tools/list": lambda p: {"tools": [TOOL]},
        "tools/call": lambda p: {"content": [{"type": "text", "text": p["arguments"]["of"] + ", 4806 m"}]}}
    if "id" in ask:
        answer = answers.get(ask["method"], lambda p: {})(ask.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": answer}), flush=True)
"""
PROVIDER = {"name": "flashd", "base_url": URL + "/v1", "wire_api": "responses", "env_key": "KEY"}


def ask(question, *more):
    """-> the items of a turn. more: options of it."""
    options = [f"model_providers.flashd.{name}={json.dumps(value)}" for name, value in PROVIDER.items()]
    options += ['model_provider="flashd"', f'model="{MODEL}"', *more]
    command = [str(PROGRAM), "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    for option in options:
        command += ["-c", option]
    files = {"map.py": MAP, "peak.txt": "Mont Blanc, 4806 m\n", "lake.txt": "Lac Léman, 310 m\n", "dot.png": PNG}
    lines = run_agent([*command, question], files, {"KEY": "none"})
    events = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    assert any(e["type"] == "turn.completed" for e in events), lines
    return [e["item"] for e in events if e["type"] == "item.completed"]


def read(name):
    return call("exec_command", {"cmd": f"cat {name}"})


def ran(items):
    """-> what the commands wrote."""
    return [i["aggregated_output"].strip() for i in items if i["type"] == "command_execution"]


@check("exec: a plain turn")
def plain():
    equal(ask(QUESTION)[-1]["text"], ANSWER)


@check("exec: a turn with a command")
def tools():
    script(("Read it.", read("peak.txt")), ("4806 m", "The peak is known."))
    items = ask("Read it.")
    equal(ran(items), ["Mont Blanc, 4806 m"])
    equal(items[-1]["text"], "The peak is known.")


@check("exec: a picture that is looked at")
def picture():
    script(("Look at it.", call("view_image", {"path": "dot.png"})), (UNSEEN, "A dot, unseen."))
    equal(ask("Look at it.")[-1]["text"], "A dot, unseen.")


@check("exec: two calls in one answer")
def parallel():
    script(("Read both.", read("peak.txt") + "\n" + read("lake.txt")), ("310 m", "Both are known."))
    items = ask("Read both.")
    equal(sorted(ran(items)), ["Lac Léman, 310 m", "Mont Blanc, 4806 m"])
    equal(items[-1]["text"], "Both are known.")


@check("exec: a tool of a server of MCP")
def mcp():
    script(("Ask the map.", call("mcp__map__height", {"of": "Mont Blanc"})), ("4806 m", "The map knows it."))
    items = ask("Ask the map.", f"mcp_servers.map.command={json.dumps(sys.executable)}", 'mcp_servers.map.args=["map.py"]')
    equal([(i["server"], i["tool"], i["status"]) for i in items if i["type"] == "mcp_tool_call"], [("map", "height", "completed")])
    equal(items[-1]["text"], "The map knows it.")


@check("exec: two at once")
def at_once():
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        equal([items[-1]["text"] for items in threads.map(ask, [QUESTION] * 2)], [ANSWER] * 2)


run("openai-codex-cli-bin")
