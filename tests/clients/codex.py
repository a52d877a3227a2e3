# /// script
# dependencies = ["openai-codex-cli-bin"]
# ///
"""Codex, OpenAI's command-line agent."""
import importlib.util
import json
import pathlib

from agent import run_agent
from checks import ANSWER, MODEL, QUESTION, URL, call, check, equal, run, script

PROGRAM = pathlib.Path(importlib.util.find_spec("codex_cli_bin").origin).parent / "bin/codex"
PROVIDER = {"name": "flashd", "base_url": URL + "/v1", "wire_api": "responses", "env_key": "KEY"}


def ask(question):
    """-> the items of a turn."""
    options = [f"model_providers.flashd.{name}={json.dumps(value)}" for name, value in PROVIDER.items()]
    options += ['model_provider="flashd"', f'model="{MODEL}"']
    command = [str(PROGRAM), "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    for option in options:
        command += ["-c", option]
    lines = run_agent([*command, question], {"peak.txt": "Mont Blanc, 4806 m\n"}, {"KEY": "none"})
    events = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    assert any(e["type"] == "turn.completed" for e in events), lines
    return [e["item"] for e in events if e["type"] == "item.completed"]


@check("exec: a plain turn")
def plain():
    equal(ask(QUESTION)[-1]["text"], ANSWER)


@check("exec: a turn with a command")
def tools():
    script(("Read it.", call("exec_command", {"cmd": "cat peak.txt"})), ("4806 m", "The peak is known."))
    items = ask("Read it.")
    ran = [i for i in items if i["type"] == "command_execution"]
    equal(ran[0]["aggregated_output"].strip(), "Mont Blanc, 4806 m")
    equal(items[-1]["text"], "The peak is known.")


run("openai-codex-cli-bin")
