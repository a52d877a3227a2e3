"""Adapters that come and go while the server runs (--lora-dir): the bytes of one that was there from the start, streams that go on beside it, one that
leaves under a stream, what is refused and who may, an engine that dies, another process that takes over."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import tempfile
import threading

import httpx
import pytest

import conftest
from test_debug import BOSS, GUEST, KEYS
from test_engine_process import Stream, engine_pid, kill_engine, wait_ready
from test_lora import LONG, PATHS, PROMPT, lora, modules, text

BODY = {**LONG, "max_tokens": 40}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters").resolve()
    for name, rank in (("fox", 8), ("hen", 16), ("cow", 4)):
        lora.of_smollm2(name, rank).write(folder / name)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """Of adapters that are there from the start."""
    with conftest.running(*modules(**{name: folder / name for name in ("fox", "hen", "cow")}), "--served-model-name", "base") as server:
        return {name: answers(server, name) for name in ("base", "fox", "hen", "cow")}


@pytest.fixture
def barn(folder):
    with barn_of(folder) as server:
        yield server


def barn_of(folder, *options, **keywords):
    return conftest.running("--lora-dir", str(folder), "--max-engine-deaths", "0", "--served-model-name", "base", *options, **keywords)


def load(server, name, path=None, **options):
    return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path or name)}, **options)


def unload(server, name, **options):
    return server.post("/v1/unload_lora_adapter", {"lora_name": name}, **options)


def loaded(server, *names):
    for name in names:
        answer = load(server, name)
        assert answer.status_code == 200 and "Success" in answer.json()["message"], answer.text


def names(server):
    return [m["id"] for m in httpx.get(server.url + "/v1/models").json()["data"]]


def answers(server, model):
    texts = [text(server, model, **fields) for fields in ({}, {"temperature": 1, "seed": 7}, {"logprobs": 3, "prompt": "one two three four " * 20})]
    chat = server.post("/v1/chat/completions", {**PATHS["chat"][1], "model": model, "max_tokens": 20, "temperature": 0}).json()
    return texts, chat["choices"], chat["model"], chat["system_fingerprint"], Stream(server, {**BODY, "model": model}).result()


def refusal(answer, status=400):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["message"]


def test_the_bytes_are_those_of_one_from_the_start(barn, folder, expected):
    """Also beside a stream of the model itself, which goes on as it would have."""
    stream = Stream(barn, {**BODY, "model": "base"})
    stream.begun.wait()
    loaded(barn, "fox", "hen", "cow")
    assert stream.result() == expected["base"][-1]
    assert names(barn) == ["base", "fox", "hen", "cow"]
    assert httpx.get(barn.url + "/v1/models/hen").json()["root"] == str(folder / "hen")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert dict(zip(expected, pool.map(lambda name: answers(barn, name), expected))) == expected
    labels = next(key for key in barn.metrics() if key.startswith("vllm:lora_requests_info"))
    assert 'max_lora="8"' in labels and 'running_lora_adapters="fox,hen,cow"' in labels
    assert [a["name"] for a in httpx.get(barn.url + "/lora-adapters").json()] == ["fox", "hen", "cow"]
    assert unload(barn, "hen").json() == {"message": "Success: LoRA adapter 'hen' removed successfully."}
    assert names(barn) == ["base", "fox", "cow"] and 'running_lora_adapters="fox,cow"' in "".join(barn.metrics())
    assert [m["name"] for m in httpx.get(barn.url + "/api/tags").json()["models"]] == ["base", "fox", "cow"]


def test_who_has_one_that_leaves_ends_as_it_would_have(folder, expected):
    """Nobody finds it any more; its place is free when the last request has ended. The next there shares no prefix with it."""
    with barn_of(folder, "--max-loras", "1") as server:
        loaded(server, "fox")
        assert "all 1 places" in refusal(load(server, "hen"))
        body = {**LONG, "max_tokens": 150, "model": "fox"}
        stream = Stream(server, body)
        stream.begun.wait()
        assert unload(server, "fox").status_code == 200
        assert server.post("/v1/completions", {"model": "fox", "prompt": PROMPT}).status_code == 404
        assert "cannot be found" in refusal(unload(server, "fox"), 404)
        assert names(server) == ["base"]
        whole = stream.result()
        conftest.wait_until(lambda: load(server, "fox", "hen").status_code == 200, server)
        assert answers(server, "fox")[:2] == expected["hen"][:2]
        assert unload(server, "fox").status_code == 200
        conftest.wait_until(lambda: load(server, "fox").status_code == 200, server)
        assert Stream(server, body).result() == whole and answers(server, "fox") == expected["fox"]


def test_one_from_the_start_may_leave(folder, expected):
    with barn_of(folder, *modules(fox=folder / "fox", hen=folder / "hen"), "--max-loras", "2") as server:
        assert unload(server, "fox").status_code == 200
        conftest.wait_until(lambda: load(server, "cow").status_code == 200, server)
        assert names(server) == ["base", "cow", "hen"]
        assert answers(server, "cow") == expected["cow"] and answers(server, "hen") == expected["hen"]


def test_answers_while_they_come_and_go(barn, expected):
    """Whoever finds one gets its answer."""
    ended, there = threading.Event(), threading.Event()

    def come_and_go():
        while not ended.is_set():
            assert load(barn, "cow").status_code == 200
            there.set()
            assert unload(barn, "cow").status_code == 200
            there.clear()

    def ask(_):
        there.wait(60)
        answer = barn.post("/v1/completions", {"model": "cow", "prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True})
        if answer.status_code == 404:
            return False
        assert answer.json()["choices"][0]["text"] == expected["cow"][0][0]
        return True

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        coming = pool.submit(come_and_go)
        found = list(pool.map(ask, range(60)))
        ended.set()
        coming.result()
    assert any(found)
    barn.wait_idle()


# ---- what is refused ----

def test_who_may(folder, start_server):
    with start_server("--lora-dir", str(folder), *KEYS) as server:
        for headers, status in (({}, 401), (GUEST, 403), (BOSS, 200)):
            assert load(server, "fox", headers=headers).status_code == status
        for headers, status in (({}, 401), (GUEST, 403), (BOSS, 200)):
            assert unload(server, "fox", headers=headers).status_code == status
    with start_server("--lora-dir", str(folder), "--host", "0.0.0.0") as server:
        assert refusal(load(server, "fox"), 403)
    with start_server() as server:
        assert "--lora-dir" in refusal(load(server, "fox"), 403) and "--lora-dir" in refusal(unload(server, "fox"), 403)


def test_folders_that_are_none(folder, tmp_path):
    """Each is a sentence that tells nothing of where the folder is, and nothing changes."""
    root = tmp_path / "root"
    outside = lora.of_smollm2("fox").write(tmp_path / "outside")
    inside = lora.of_smollm2("fox").write(root / "deep" / "fox")
    (root / "link").symlink_to(outside)
    lora.of_smollm2("high", 17).write(root / "high")
    lora.of_smollm2("ia3").write(root / "ia3", peft_type="IA3")
    shutil.copytree(inside, root / "cut")
    os.truncate(root / "cut" / "adapter_model.safetensors", 100000)
    (root / "empty").mkdir()
    lora.Adapter("llama", "other").write(root / "other")
    with barn_of(root) as server:
        loaded(server, "deep/fox")
        before = text(server, "deep/fox")
        for path, words in ((outside, "is no folder in the one"), ("../outside", "is no folder in the one"), ("link", "is no folder in the one"),
                            ("/etc", "is no folder in the one"), (root, "is no folder in the one"), (".", "is no folder in the one"),
                            (str(root) + "-more", "is no folder in the one"), ("none", "is no folder in the one"), ("x" * 5000, "is no folder in the one"),
                            ("high", "high: its rank is 17, more than --max-lora-rank 16"), ("ia3", "ia3/adapter_config.json: peft_type is not LORA"),
                            ("cut", "adapter_model.safetensors"), ("empty", "empty: no adapter"), ("other", "does not fit the model")):
            said = refusal(load(server, "new", path))
            assert words in said and (str(tmp_path) not in said or str(tmp_path) in str(path)), said
            assert names(server) == ["base", "deep/fox"]
        for body, word in (({"lora_name": "a"}, "lora_path"), ({"lora_path": "deep/fox"}, "lora_name"), ({"lora_name": 1, "lora_path": "a"}, "lora_name"),
                           ([], "a JSON object"), ({"lora_name": "", "lora_path": "a"}, "1 to 127"), ({"lora_name": "a*", "lora_path": "a"}, "end in *"),
                           ({"lora_name": "a=b", "lora_path": "a"}, "="), ({"lora_name": "a\nb", "lora_path": "a"}, "control character"),
                           ({"lora_name": "n" * 128, "lora_path": "a"}, "1 to 127"), ({"lora_name": "a", "lora_path": "a\x00b"}, "is no folder"),
                           ({"lora_name": "base", "lora_path": "deep/fox"}, "the model's own name"),
                           ({"lora_name": "deep/fox", "lora_path": "deep/fox"}, "has already been loaded")):
            assert word in refusal(server.post("/v1/load_lora_adapter", body)), body
        assert "lora_name" in refusal(server.post("/v1/unload_lora_adapter", {}))
        assert refusal(unload(server, "base"), 404)
        assert text(server, "deep/fox") == before and load(server, "again", inside).status_code == 200


@pytest.mark.parametrize("options, words", [(("--max-loras", "1"), "2 adapters are more than --max-loras 1"), (("--lora-dir", "/nowhere"), "/nowhere: No such")])
def test_options_that_cannot_be(folder, options, words):
    with pytest.raises(AssertionError, match=words):
        conftest.Server("--lora-dir", str(folder), *modules(fox=folder / "fox", hen=folder / "hen"), *options)


# ---- what ends under it ----

def test_the_next_engine_has_it(barn, expected):
    """Streams go on; what has left stays away."""
    loaded(barn, "fox", "hen", "cow")
    assert unload(barn, "fox").status_code == 200
    stream = Stream(barn, {**BODY, "model": "hen"})
    stream.begun.wait()
    kill_engine(barn)
    assert stream.result() == expected["hen"][-1]
    wait_ready(barn)
    assert names(barn) == ["base", "hen", "cow"]
    for name in ("cow", "hen", "base"):
        assert answers(barn, name) == expected[name]
    loaded(barn, "fox")
    assert answers(barn, "fox") == expected["fox"]


def test_an_engine_that_dies_as_it_reads_one(barn, expected):
    os.kill(engine_pid(barn), signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(load, barn, "fox") for _ in range(2)]
        refused, = concurrent.futures.wait(loads, return_when=concurrent.futures.FIRST_COMPLETED).done
        assert "already been loaded" in refusal(refused.result())  # the other one waits for the engine
        kill_engine(barn)
        loads.remove(refused)
        assert "not loaded: the engine died" in refusal(loads[0].result(), 503)
    wait_ready(barn)
    assert names(barn) == ["base"]
    loaded(barn, "fox")
    assert answers(barn, "fox") == expected["fox"]


@pytest.mark.parametrize("change", ["other", "gone"])
def test_one_whose_files_are_others_by_then(folder, tmp_path, expected, change):
    """An engine that is started again would compute something else: its requests fail, all others go on."""
    shutil.copytree(folder, tmp_path / "all")
    with barn_of(tmp_path / "all") as server:
        loaded(server, "fox", "hen")
        lost, kept = [Stream(server, {**LONG, "max_tokens": n, "model": name}) for n, name in ((1500, "fox"), (40, "hen"))]
        lost.begun.wait()
        if change == "other":
            lora.of_smollm2("other").write(tmp_path / "all" / "fox")
        else:
            shutil.rmtree(tmp_path / "all" / "fox")
        kill_engine(server)
        assert kept.result() == expected["hen"][-1]
        assert lost.result()[2] is None  # no finish reason: an error has ended it
        wait_ready(server)
        assert names(server) == ["base", "hen"] and answers(server, "hen") == expected["hen"]
        assert "the files of adapter fox are others by now" in server.log()
        if change == "other":
            conftest.wait_until(lambda: load(server, "fox").status_code == 200, server)
            assert text(server, "fox") not in (expected["fox"][0][0], expected["base"][0][0])


@pytest.fixture
def plain_user():
    """A folder, and what makes a server one whose user may be kept from reading it."""
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        yield pathlib.Path(root).resolve(), {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.mark.parametrize("unreadable", ["fox", "fox/adapter_model.safetensors"])
def test_one_that_cannot_be_read_by_then(folder, plain_user, expected, unreadable):
    """It ends alone: the next engine does without."""
    root, popen = plain_user
    shutil.copytree(folder, root / "all")
    os.chmod(root / "all", 0o755)
    with barn_of(root / "all", **popen) as server:
        loaded(server, "fox", "hen")
        lost, kept = [Stream(server, {**LONG, "max_tokens": n, "model": name}) for n, name in ((1500, "fox"), (40, "hen"))]
        lost.begun.wait()
        os.chmod(root / "all" / unreadable, 0)
        kill_engine(server)
        assert kept.result() == expected["hen"][-1]
        assert lost.result()[2] is None
        wait_ready(server)
        assert names(server) == ["base", "hen"] and answers(server, "hen") == expected["hen"]
        os.chmod(root / "all" / unreadable, 0o755)
        conftest.wait_until(lambda: load(server, "fox").status_code == 200, server)
        assert answers(server, "fox") == expected["fox"]


def test_another_process_has_it(folder, expected):
    """Streams of adapters that are there go on in it, one of an adapter that has left ends where it began."""
    from test_handover import begin, meaning, moved, resting_engine
    from test_upgrade import upgradable
    requests = {name: ("/v1/completions", {**LONG, "model": name}) for name in ("cow", "hen", "fox")}
    with upgradable("--lora-dir", str(folder), "--served-model-name", "base", *modules(cow=folder / "cow"), "--threads", "1", "--step-timeout", "3600",
                    "--drain-delay", "0") as server:
        loaded(server, "fox", "hen")
        alone = {name: meaning(r.result()) for name, r in begin(server, requests).items()}
        readers = begin(server, requests)
        assert unload(server, "fox").status_code == 200
        with resting_engine(server.pid):
            os.kill(server.pid, signal.SIGUSR2)  # what came or left from now on would be lost
            conftest.wait_until(lambda: "starts to take over" in server.log(), server)
            assert "another process" in refusal(load(server, "fox"), 503) and refusal(unload(server, "hen"), 503)
            conftest.wait_until(lambda: "has taken over" in server.log(), server)
            server.pid = int(server.log().split("has taken over")[0].rsplit("process ", 1)[1])
            server.pids.append(server.pid)
            conftest.wait_until(lambda: moved(server) == 2, server)
        assert {name: meaning(r.result()) for name, r in readers.items()} == alone
        assert names(server) == ["base", "cow", "hen"]
        server.upgrade()
        assert names(server) == ["base", "cow", "hen"] and answers(server, "hen") == expected["hen"]
        loaded(server, "fox")


def test_a_receipt_is_of_the_adapter(folder):
    body = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "seed": 1}
    made = []
    for options in (modules(fox=folder / "fox"), ("--lora-dir", str(folder))):
        with conftest.running(*options, "--receipts", "--served-model-name", "base") as server:
            if len(made):
                loaded(server, "fox")
            made.append([server.post("/v1/completions", {**body, "model": name}).json()["receipt"] for name in ("base", "fox")])
    assert [[r["model"], json.dumps(r["tokens"])] for r in made[0]] == [[r["model"], json.dumps(r["tokens"])] for r in made[1]]
    assert made[0][0]["model"] != made[0][1]["model"]
