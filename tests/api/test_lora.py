"""Adapters of low rank (--lora-modules): the numbers of the model that each has been merged into, the same bits alone and beside others and the
model itself, names, prefixes that are not shared, an engine that dies, and what is refused."""

import concurrent.futures
import json
import re
import shutil
import subprocess
import sys

import httpx
import numpy as np
import pytest

import conftest
from test_embeddings import rows, same

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder  # noqa: E402
import lora  # noqa: E402

LISTS = encoder.LISTS
EXACT = ("--kv-cache-dtype", "f32", "--cpu-isa", "portable", "--pooling", "mean")


def vectors(server, model):
    return rows(server, LISTS, model=model, normalize=False)


def modules(**paths):
    return [text for name, path in paths.items() for text in ("--lora-modules", "%s=%s" % (name, path))]


def close(found, expected):
    for a, b in zip(found, expected):
        assert np.abs(a - b).max() < 3e-5 * np.abs(b).max()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "phi3", "gpt2"])
def test_it_is_the_merged_model(start_server, tmp_path, kind):
    """All matrices, and some, in ranks that fill no panel; scales by the rank, its root, and by module."""
    first = lora.Adapter(kind, "first", 5)
    some = {"phi3": ("qkv_proj", "down_proj"), "gpt2": ("c_attn",)}.get(kind, ("v_proj", "up_proj"))
    second = lora.Adapter(kind, "second", 16, some, use_rslora=True, alpha_pattern={some[0]: 3})
    lora.write_model(tmp_path / "base", kind)
    paths = modules(first=first.write(tmp_path / "first"), second=second.write(tmp_path / "second"))
    with start_server(*EXACT, *paths, model=tmp_path / "base") as server:
        plain, found = vectors(server, "base"), {name: vectors(server, name) for name in ("first", "second")}
        for name in found:  # what a batch mixes
            jobs = [(name, ids) for ids in LISTS] + [("base", ids) for ids in LISTS]
            with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
                together = list(pool.map(lambda job: rows(server, [job[1]], model=job[0], normalize=False)[0], jobs))
            assert same(together, found[name] + plain)
    with start_server(*EXACT, model=tmp_path / "base") as server:
        assert same(plain, vectors(server, "base"))
    for name, adapter in (("first", first), ("second", second)):
        lora.write_model(tmp_path / "merged" / name, kind, [adapter])
        with start_server(*EXACT, model=tmp_path / "merged" / name) as server:
            close(found[name], vectors(server, name))
        assert not same(found[name], plain)


def test_a_gguf_file_has_its_adapters(start_server, tmp_path):
    """Rows of q and k lie in the order that the file has them in."""
    adapter = lora.Adapter("llama", "first", 5)
    lora.write_model(tmp_path / "base", "llama")
    lora.write_gguf(tmp_path / "m.gguf")
    paths = modules(first=adapter.write(tmp_path / "first"))
    with start_server(*EXACT, *paths, model=tmp_path / "base") as server:
        expected = vectors(server, "first")
    with start_server(*EXACT, *paths, model=tmp_path / "m.gguf") as server:
        close(vectors(server, "first"), expected)


# ---- names, and what runs together: SmolLM2 with two adapters that mean nothing ----

PROMPT = "Once upon a time"
PATHS = {"completions": ("/v1/completions", {"prompt": PROMPT}), "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}),
         "messages": ("/v1/messages", {"messages": [{"role": "user", "content": PROMPT}]}),
         "responses": ("/v1/responses", {"input": PROMPT}), "generate": ("/api/generate", {"prompt": PROMPT, "stream": False})}
LONG = {"prompt": PROMPT, "max_tokens": 120, "seed": 3, "ignore_eos": True, "stream": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return {name: lora.of_smollm2(name, rank).write(folder / name) for name, rank in (("fox", 8), ("hen", 16))}


@pytest.fixture(scope="module")
def farm(paths):
    with conftest.running(*modules(**paths), "--max-engine-deaths", "0", "--log-format", "json", "--served-model-name", "base", "any-*") as server:
        yield server


def text(server, model, **fields):
    answer = server.post("/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def test_they_are_models(farm, paths):
    listed = {m["id"]: m for m in httpx.get(farm.url + "/v1/models").json()["data"]}
    assert list(listed) == ["base", "fox", "hen"]
    assert listed["fox"]["parent"] == "base" and listed["fox"]["root"] == str(paths["fox"]) and listed["base"]["parent"] is None
    assert httpx.get(farm.url + "/v1/models/hen").json()["id"] == "hen"
    assert [m["name"] for m in httpx.get(farm.url + "/api/tags").json()["models"]] == ["base", "fox", "hen"]
    assert [(a["id"], a["name"], a["path"]) for a in httpx.get(farm.url + "/lora-adapters").json()] == [
        (0, "fox", str(paths["fox"])), (1, "hen", str(paths["hen"]))]
    labels = next(key for key in farm.metrics() if key.startswith("vllm:lora_requests_info"))
    assert 'max_lora="2"' in labels and 'running_lora_adapters="fox,hen"' in labels
    assert farm.post("/v1/completions", {"model": "cat", "prompt": "a"}).status_code == 404
    assert farm.post("/tokenize", {"model": "fox", "prompt": "a b"}).status_code == 200


@pytest.mark.parametrize("kind", PATHS)
def test_every_protocol_says_whose_the_answer_is(farm, kind):
    path, body = PATHS[kind]
    limit = {"responses": {"max_output_tokens": 16}, "generate": {"options": {"num_predict": 16}}}.get(kind, {"max_tokens": 16})
    for model in ("base", "fox", "hen", "any-thing"):
        answer = farm.post(path, {**body, **limit, "model": model})
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == ("base" if model == "any-thing" else model)
        assert farm.log_line(answer)["model"] == ("base" if model == "any-thing" else model)


def test_answers_are_the_same_among_others(farm):
    """Adapters, the model and forms of answers, drafts and samplers mixed in every step."""
    fields = [{}, {"temperature": 1, "seed": 7}, {"structured_outputs": {"regex": "([a-z]{2,9} ){12}"}}, {"prompt": "one two three four " * 20}]
    jobs = [(model, f) for model in ("base", "fox", "hen", "fox:latest") for f in fields]
    alone = [text(farm, model, **f) for model, f in jobs]
    assert len({alone[i] for i in (0, 4, 8)}) == 3 and alone[4:8] == alone[12:]
    with concurrent.futures.ThreadPoolExecutor(3 * len(jobs)) as pool:
        assert list(pool.map(lambda job: text(farm, job[0], **job[1]), 3 * jobs)) == 3 * alone


def test_no_prefix_is_shared_with_others(farm):
    def cached(model):
        usage = farm.post("/v1/completions", {"model": model, "prompt": "A prefix of nobody else's. " * 30, "max_tokens": 1}).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [cached(model) for model in ("base", "fox", "hen")] == [0, 0, 0]
    assert all(cached(model) > 64 for model in ("base", "fox", "hen"))


def test_a_stream_outlives_the_engine(farm):
    from test_engine_process import Stream, kill_engine, wait_ready
    body = {**LONG, "model": "fox"}
    expected, plain = Stream(farm, body).result(), Stream(farm, {**body, "model": "base"}).result()
    stream = Stream(farm, body)
    stream.begun.wait()
    kill_engine(farm)
    assert stream.result() == expected != plain
    wait_ready(farm)


@pytest.mark.parametrize("change, goes_on", [(None, True), ("other", False), ("fewer", False)])
def test_a_stream_moves_to_a_process_with_the_same_adapters(paths, tmp_path, change, goes_on):
    """Where one is another, or all are not there, it ends where it began, with the same bytes."""
    from test_handover import begin, meaning, moved, resting_engine
    from test_upgrade import upgradable
    own = {name: shutil.copytree(path, tmp_path / name) for name, path in paths.items()}
    config = tmp_path / "flashd.yaml"
    config.write_text("lora-modules: [fox=%(fox)s, hen=%(hen)s]\n" % own)
    requests = {"hen": ("/v1/completions", {**LONG, "model": "hen"})}
    with upgradable("--config", str(config), "--threads", "1", "--step-timeout", "3600", "--drain-delay", "0") as server:
        expected = {name: meaning(r.result()) for name, r in begin(server, requests).items()}
        readers = begin(server, requests)
        if change == "other":
            lora.of_smollm2("another").write(own["fox"])
        if change == "fewer":
            config.write_text("lora-modules: [hen=%(hen)s]\n" % own)
        with resting_engine(server.pid):
            server.upgrade()
            conftest.wait_until(lambda: moved(server) == 1 if goes_on else "another" in server.log(), server)
        assert {name: meaning(r.result()) for name, r in readers.items()} == expected


def test_a_receipt_is_of_the_adapter_too(paths, tmp_path):
    """flashd verify finds the same answer again; another adapter is another model."""
    body = {"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True}
    with conftest.running(*modules(**paths), "--receipts", "--served-model-name", "base") as server:
        receipts = {m: server.post("/v1/completions", {**body, "model": m}).json()["receipt"] for m in ("base", "fox", "hen")}
        assert len({r["model"] for r in receipts.values()}) == len({json.dumps(r["tokens"]) for r in receipts.values()}) == 3
        for asked, wanted in (("fox", 0), ("hen", 1)):
            (tmp_path / "request").write_text(json.dumps({**body, "model": asked}))
            run = subprocess.run([conftest.BINARY, "verify", "-", "--request", tmp_path / "request", "--url", server.url], capture_output=True, text=True,
                                 timeout=60, input=json.dumps(receipts["fox"]))
            assert run.returncode == wanted, run.stdout + run.stderr


# ---- what is refused ----

def refused(tmp_path, *options, model="base"):
    if model == "base":
        lora.write_model(tmp_path / "base", "llama")
        model = tmp_path / "base"
    run = subprocess.run([conftest.BINARY, "serve", str(model), "--port", "0", *options], capture_output=True, text=True, timeout=60)
    assert run.returncode not in (0, -11, -6), run.stderr
    return run.stderr


@pytest.mark.parametrize("changes, words", [
    ({"peft_type": "IA3"}, "peft_type is not LORA"), ({"use_dora": True}, "use_dora is true"), ({"bias": "all"}, "bias is not"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save is there"), ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights names a way"),
    ({"alpha_pattern": {"^model.*q_proj$": 3}}, "a name that is a pattern"), ({"alpha_pattern": {"q_proj": "3"}}, "no number"),
    ({"lora_alpha": 1e30}, "lora_alpha"), ({"use_rslora": "yes"}, "use_rslora")])
def test_a_config_that_means_something_else(tmp_path, changes, words):
    path = lora.Adapter("llama", "a").write(tmp_path / "a", **changes)
    assert words in refused(tmp_path, *modules(a=path))


def tensors_with(change):
    tensors = dict(lora.Adapter("llama", "a", 4).tensors())
    change(tensors)
    return tensors


Q = "base_model.model.model.layers.1.self_attn.q_proj.lora_%s.weight"


@pytest.mark.parametrize("change, words", [
    (lambda t: t.update({"base_model.model.lm_head.lora_A.weight": np.zeros((4, 72), np.float32)}), "lm_head.lora_A.weight is not of a matrix"),
    (lambda t: t.update({"base_model.model.model.layers.1.mlp.experts.3.up_proj.lora_A.weight": np.zeros((4, 72), np.float32)}), "is not of a matrix"),
    (lambda t: t.update({"base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight": np.zeros((4, 72), np.float32)}), "is not of a matrix"),
    (lambda t: t.update({"base_model.model.model.layers.1.self_attn.q_proj.lora_magnitude_vector": np.zeros(72, np.float32)}), "is not of a matrix"),
    (lambda t: t.pop(Q % "B"), "has no other half"), (lambda t: t.update({Q % "A": np.zeros((4, 64), np.float32)}), "does not fit the model"),
    (lambda t: t.update({Q % "B": np.zeros((80, 4), np.float32)}), "does not fit the model"),
    (lambda t: t.update({Q % "B": np.zeros((72, 5), np.float32)}), "another rank"),
    (lambda t: t.update({Q % "A": np.zeros((600, 72), np.float32), Q % "B": np.zeros((72, 600), np.float32)}), "rank of 1 to 512"),
    (lambda t: t.update({Q % "A": np.zeros((4, 72, 1), np.float32)}), "does not fit the model"), (lambda t: t.clear(), "has no tensor")])
def test_tensors_of_something_else(tmp_path, change, words):
    path = lora.Adapter("llama", "a").write(tmp_path / "a")
    encoder.write_safetensors(path / "adapter_model.safetensors", tensors_with(change))
    assert words in refused(tmp_path, *modules(a=path))


def test_names_and_files_that_are_none(tmp_path):
    path = lora.Adapter("llama", "a").write(tmp_path / "a")
    for options, words in ((["a"], "NAME=PATH is expected"), (["a="], "NAME=PATH is expected"), (["=%s" % path], "NAME=PATH is expected"),
                           (["a*=%s" % path], "does not end in *"), (["%s=%s" % ("n" * 200, path)], "NAME=PATH is expected"),
                           (["a=%s" % path, "a=%s" % path], 'two adapters have the name "a"'), (["base=%s" % path], "is the model's own name"),
                           (["a=%s" % (tmp_path / "none")], "no adapter: it has no adapter_config.json")):
        assert words in refused(tmp_path, *[part for item in options for part in ("--lora-modules", item)]), options
    (path / "adapter_model.safetensors").write_bytes(b"\xff" * 100)
    assert "adapter_model.safetensors" in refused(tmp_path, *modules(a=path))
    (path / "adapter_model.safetensors").unlink()
    assert "adapter_model.safetensors" in refused(tmp_path, *modules(a=path))
    encoder.write_directory(tmp_path / "encoder", "mean")
    assert "an encoder has no adapters" in refused(tmp_path, *modules(a=path), model=tmp_path / "encoder")


def test_inspect_and_the_plan_count_them(start_server, tmp_path):
    lora.write_model(tmp_path / "base", "llama")
    paths = modules(**{name: lora.Adapter("llama", name, 5).write(tmp_path / name) for name in ("first", "second")})
    size = sum((tmp_path / name / "adapter_model.safetensors").stat().st_size for name in ("first", "second"))
    said = subprocess.run([conftest.BINARY, "inspect", tmp_path / "base", *paths], capture_output=True, text=True, timeout=60)
    count, megabytes = re.search(r"adapters +(\d+), ([0-9.]+) MB as stored", said.stdout).groups()
    assert int(count) == 2 and 0.8 * size < 1e6 * float(megabytes) < 1.1 * size + 1e5
    gone = subprocess.run([conftest.BINARY, "inspect", tmp_path / "base", "--lora-modules", f"x={tmp_path}"], capture_output=True, text=True, timeout=60)
    assert gone.returncode == 1 and "adapter_config.json" in gone.stderr
    with start_server(*EXACT, *paths, model=tmp_path / "base") as server:
        assert "2 adapters beside the weights" in server.log()
