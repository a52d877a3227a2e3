# /// script
# dependencies = ["claude-agent-sdk"]
# ///
"""Claude Code, Anthropic's command-line agent, which comes within its SDK."""
import importlib.util
import json
import pathlib

from agent import run_agent
from checks import ANSWER, QUESTION, URL, call, check, equal, run, script

PROGRAM = pathlib.Path(importlib.util.find_spec("claude_agent_sdk").origin).parent / "_bundled/claude"
QUIET = {"DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1",
         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def ask(question, *options):
    lines = run_agent([str(PROGRAM), "-p", question, "--output-format", "stream-json", "--verbose", "--model", "claude-scripted", *options],
                      {"peak.txt": "Mont Blanc, 4806 m\n"}, {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": "none", **QUIET})
    return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]


@check("-p: a plain turn")
def plain():
    equal(ask(QUESTION)[-1]["result"], ANSWER)


@check("-p: a turn with a command")
def tools():
    script(("Read it.", call("Bash", {"command": "cat peak.txt", "description": "reads"})), ("4806 m", "The peak is known."))
    events = ask("Read it.", "--allowedTools", "Bash(cat:*)")
    results = [e for e in events if e["type"] == "user"]
    assert "Mont Blanc" in json.dumps(results), results
    equal(events[-1]["result"], "The peak is known.")


run("claude-agent-sdk")
