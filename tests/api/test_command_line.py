"""What the program prints about itself: help in short and long, the manual page, the completions of three shells. Each
under the program that it is for; skipped where that is not installed."""

import os
import re
import shutil
import subprocess

import pytest

from conftest import BINARY, MODEL

COMMANDS = {"serve", "chat", "inspect", "bench", "check", "verify", "replay", "help", "version"}


def printed(*args):
    done = subprocess.run([str(BINARY), *args], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def options():
    names = set(re.findall(r"--([a-z-]+)", " ".join(re.findall(r"^ {6}(--.*)", printed("--help"), re.MULTILINE))))
    assert len(names) > 60
    return names


def test_help_is_short_or_long():
    short, long = printed("-h"), printed("--help")
    assert short.count("\n") < 35 and "--max-num-seqs" not in short
    assert "--max-num-seqs" in long and printed("help") == long == printed("serve", "--help")
    for name in COMMANDS:
        assert f"flashd {name}" in short and f"flashd {name}" in long


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"], ["version"], ["--print-man"], ["--print-example-config"],
                                   ["--print-completion", "bash"], ["inspect", str(MODEL)]], ids=lambda words: words[0])
def test_output_that_is_lost_is_a_failure(words):
    """A file on a full disk is not taken for a whole one; a reader that has gone has read what it wanted."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(BINARY), *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "flashd: standard output: " in done.stderr
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([str(BINARY), *words], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode == 0 and "standard output" not in done.stderr


@pytest.mark.skipif(not shutil.which("man"), reason="no man")
def test_manual_page(tmp_path):
    (tmp_path / "flashd.1").write_text(printed("--print-man"))
    done = subprocess.run(["man", "--warnings", "-E", "ascii", "-l", str(tmp_path / "flashd.1")], capture_output=True, text=True,
                          env={"MANWIDTH": "120", "PATH": "/usr/bin:/bin", "LC_ALL": "C"})
    assert done.returncode == 0 and done.stderr == ""
    text = re.sub(".\b", "", done.stdout)
    assert all("--" + name in text for name in options()) and all(name in text for name in COMMANDS)


def shell(program, script, *args):
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    done = subprocess.run([program, "-c", script, program, *args], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.split("\n")


@pytest.mark.parametrize("words, expected", [
    (["flashd", "ser"], {"serve"}), (["flashd", "serve", "--device", ""], {"auto", "cpu", "cuda"}),
    (["flashd", "serve", "--max-num-s"], {"--max-num-seqs"}), (["flashd", "serve", "--no-log"], {"--no-log-requests"}),
    (["flashd", "bench", "--no-ig"], {"--no-ignore-eos"}), (["flashd", "bench", "serve", "--endpoint", "c"], {"chat", "completions"}),
    (["flashd", "bench", "attention", "--pl"], {"--plot"}), (["flashd", "chat", "--ur"], {"--url"}), (["flashd", "chat", "--max-num-s"], {"--max-num-seqs"}),
    (["flashd", "serve", "/etc/passw"], {"/etc/passwd"})])
def test_bash(words, expected):
    script = 'eval "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _flashd; printf "%s\\n" "${COMPREPLY[@]}"'
    found = set(shell("bash", script, printed("--print-completion", "bash"), *words)) - {""}
    assert expected <= found and all(word.startswith(words[-1]) for word in found)


def test_bash_knows_every_option():
    page = printed("--print-completion", "bash")
    assert set(re.findall(r"--([a-z-]+)", page)) >= options()


@pytest.mark.parametrize("line, expected", [
    ("flashd ser", "serve\t"), ("flashd serve --device ", "cuda\t"), ("flashd serve --max-num-s", "--max-num-seqs\t"),
    ("flashd serve --no-log", "--no-log-requests\t"), ("flashd bench attention --pl", "--plot\t")])
def test_fish(tmp_path, line, expected):
    (tmp_path / "page").write_text(printed("--print-completion", "fish"))
    found = shell("fish", 'source $argv[2]; complete -C $argv[3]', str(tmp_path / "page"), line)
    assert any(entry.startswith(expected) for entry in found), found


def test_zsh(tmp_path):
    (tmp_path / "_flashd").write_text(printed("--print-completion", "zsh"))
    script = 'page=$1; _arguments() { print -rl -- "$@" }; f() { local -a words; words=(flashd $1); source $page }; f serve; f chat; f bench; f "bench attention"; f check; f verify; f replay'
    found = shell("zsh", script, str(tmp_path / "_flashd"))
    assert {name for name in options() if any(re.match(rf"--{name}\b", spec) for spec in found)} == options()
    assert all(re.fullmatch(r"--[a-z-]+(=\[.*\]:[^:]*:.*|\[.*\])|(1:command|\*:\w+):.*", spec) for spec in found if spec)


def test_another_shell():
    done = subprocess.run([str(BINARY), "--print-completion", "csh"], capture_output=True, text=True)
    assert done.returncode == 2 and "bash, zsh or fish" in done.stderr
