"""A model by its name on the Hugging Face hub, from the cache that huggingface_hub keeps: links into a folder of blobs."""

import os
import signal
import subprocess

import httpx
import pytest

from conftest import BINARY, MODEL, wait_until

NAME = "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"
COMMIT = "9e6855bc4be717fca1ef21360a1db4b29d5c559a"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    repository = tmp_path / "hub" / ("models--" + NAME.replace("/", "--"))
    for folder in "blobs", "refs", f"snapshots/{COMMIT}":
        (repository / folder).mkdir(parents=True)
    (repository / "refs/main").write_text(COMMIT)
    (repository / "blobs/b179c952").symlink_to(MODEL)
    (repository / f"snapshots/{COMMIT}/smollm2-135m-instruct-q4_1.gguf").symlink_to("../../blobs/b179c952")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return tmp_path


def ask(server, model):
    answer = server.post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8,
                                                  "temperature": 0})
    return answer.status_code, answer.json()


@pytest.mark.parametrize("said", [NAME, NAME + ":Q4_1", NAME + "@main"])
def test_a_name_is_served(start_server, cache, said):
    with start_server(model=said) as server:
        names = [m["id"] for m in httpx.get(server.url + "/v1/models").json()["data"]]
        assert names == [NAME, NAME.split("/")[1]]
        answers = [ask(server, name) for name in names]
        assert [code for code, _ in answers] == [200, 200] and {a["model"] for _, a in answers} == {NAME}
        assert ask(server, "another")[0] == 404


def test_its_engine_is_replaced(start_server, cache):
    with start_server(model=NAME) as server:
        before = ask(server, NAME)[1]["choices"]
        engine = int(subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True).stdout.split()[0])
        os.kill(engine, signal.SIGKILL)
        wait_until(lambda: server.metrics()["flashd_engine_deaths_total"] == 1, server)
        assert ask(server, NAME)[1]["choices"] == before


def run(*args):
    return subprocess.run([str(BINARY), *args], capture_output=True, text=True, timeout=60)


def test_what_the_other_commands_say(cache):
    assert "SmolLM2" in run("inspect", NAME).stdout
    missing = run("serve", "a/b")
    assert missing.returncode == 1 and f"nor is it in the Hugging Face cache {cache}/hub" in missing.stderr
    assert "has no GGUF file of Q8_0; there are smollm2-135m-instruct-q4_1.gguf" in run("serve", NAME + ":Q8_0").stderr
    link = next((cache / "hub").rglob("*.gguf"))
    link.unlink()
    link.symlink_to("../../blobs/gone")
    broken = run("serve", NAME)
    assert broken.returncode == 1 and "neither a config.json nor a GGUF file" in broken.stderr
