# /// script
# dependencies = ["claude-agent-sdk"]
# ///
"""Claude Code, Anthropic's command-line agent, which comes within its SDK."""
import concurrent.futures
import importlib.util
import json
import pathlib

from agent import run_agent
from checks import ANSWER, PNG, QUESTION, UNSEEN, URL, call, check, equal, run, script

PROGRAM = pathlib.Path(importlib.util.find_spec("claude_agent_sdk").origin).parent / "_bundled/claude"
QUIET = {"DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1",
         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def ask(question, *options):
    lines = run_agent([str(PROGRAM), "-p", question, "--output-format", "stream-json", "--verbose", "--model", "claude-scripted", *options],
                      {"peak.txt": "Mont Blanc, 4806 m\n", "lake.txt": "Lac Léman, 310 m\n", "dot.png": PNG}, {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": "none", **QUIET})
    return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]


def read(name):
    return call("Bash", {"command": f"cat {name}", "description": "reads"})


@check("-p: a plain turn")
def plain():
    equal(ask(QUESTION)[-1]["result"], ANSWER)


@check("-p: a turn with a command")
def tools():
    script(("Read it.", read("peak.txt")), ("4806 m", "The peak is known."))
    events = ask("Read it.", "--allowedTools", "Bash(cat:*)")
    results = [e for e in events if e["type"] == "user"]
    assert "Mont Blanc" in json.dumps(results), results
    equal(events[-1]["result"], "The peak is known.")


@check("-p: two calls in one answer")
def parallel():
    script(("Read both.", read("peak.txt") + "\n" + read("lake.txt")), ("310 m", "Both are known."))
    events = ask("Read both.", "--allowedTools", "Bash(cat:*)")
    results = json.dumps([e for e in events if e["type"] == "user"])
    assert "Mont Blanc" in results and "310 m" in results, results
    equal(events[-1]["result"], "Both are known.")


@check("-p: a picture that is read, and the turns behind it")
def picture():
    script(("Look at it.", call("Read", {"file_path": "dot.png"})), (UNSEEN, read("peak.txt")), ("4806 m", "A dot, unseen."))
    events = ask("Look at it.", "--allowedTools", "Read", "Bash(cat:*)")
    assert '"image"' in json.dumps([e for e in events if e["type"] == "user"]), events
    equal(events[-1]["result"], "A dot, unseen.")


@check("-p: two at once")
def at_once():
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        equal([events[-1]["result"] for events in threads.map(ask, [QUESTION] * 2)], [ANSWER] * 2)


run("claude-agent-sdk")
