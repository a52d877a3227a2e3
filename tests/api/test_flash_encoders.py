"""Jina's own XLM-RoBERTa (jina-embeddings-v3, jina-reranker-v2): embeddings and scores against transformers, as directories under all their names and as
GGUF files, alone and beside others, and what is refused."""

import concurrent.futures
import json
import math
import subprocess
import sys

import numpy as np
import pytest

import conftest
from test_cross_encoders import scores, sigmoid
from test_embeddings import rows, same
from test_encoders import check

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder  # noqa: E402
import encoder_flash as flash  # noqa: E402

GOLDENS = json.loads((conftest.ROOT / "tests/golden/encoder_goldens.json").read_text())
TEXTS = ["the sky is blue", "the sky", "", "sky (is) [blue] \u5929\u0439 "]


def refused(path):
    done = subprocess.run([conftest.BINARY, "serve", path, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("kind, prefix, changes", [
    ("tasks", "roberta.", {}), ("tasks", "", {"architectures": ["XLMRobertaLoRA"]}), ("plain", "", {}), ("saved", "", {}),
    ("saved", "roberta.", {"architectures": ["JinaEmbeddingsV3ForMaskedLM"]})])
def test_means_are_transformers(start_server, tmp_path, kind, prefix, changes):
    flash.write(tmp_path / "m", kind, prefix, **changes)
    with start_server(model=tmp_path / "m") as server:
        check(rows(server, flash.LISTS, normalize=False), GOLDENS["flash_mean"])


def test_a_gguf_file_is_the_directory(start_server, tmp_path):
    flash.write(tmp_path / "m", "plain")
    flash.write_gguf(tmp_path / "m.gguf")
    with start_server("--cpu-isa", "portable", model=tmp_path / "m") as server, start_server("--cpu-isa", "portable", model=tmp_path / "m.gguf") as file:
        got = rows(server, flash.LISTS, normalize=False)
        check(got, GOLDENS["flash_mean"])
        assert same(got, rows(file, flash.LISTS, normalize=False)) and same(rows(server, TEXTS), rows(file, TEXTS))


def test_the_same_bits_beside_others(start_server, tmp_path):
    flash.write(tmp_path / "m", "tasks")
    with start_server("--max-num-batched-tokens", "320", model=tmp_path / "m") as server:
        alone = [rows(server, [ids])[0] for ids in flash.LISTS]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda n: rows(server, flash.LISTS[n % 3:] + flash.LISTS[: n % 3]), range(12)))
        for n, answer in enumerate(answers):
            assert same(alone[n % 3:] + alone[: n % 3], answer)


def test_scores_are_transformers(start_server, tmp_path):
    flash.write(tmp_path / "m", "scores", "roberta.")
    flash.write_gguf(tmp_path / "m.gguf", scores=True)
    with start_server(model=tmp_path / "m") as server, start_server(model=tmp_path / "m.gguf") as file:
        got, num_tokens = scores(server, encoder.QUERY, encoder.DOCUMENTS)
        assert num_tokens == sum(n for n, _ in GOLDENS["flash_scores"])
        assert all(math.isclose(mine, sigmoid(theirs), abs_tol=1e-5) for mine, (_, theirs) in zip(got, GOLDENS["flash_scores"]))
        assert [scores(server, encoder.QUERY, text)[0][0] for text in encoder.DOCUMENTS] == got
        assert scores(file, encoder.QUERY, encoder.DOCUMENTS) == (got, num_tokens)


def normalized(lists):
    return [[v / math.sqrt(sum(x * x for x in row)) for v in row] for row in lists]


def cut(values, name, axis):
    """Without the last along an axis."""
    values[name] = np.delete(values[name], -1, axis)


def of_task(server, task, texts, **fields):
    return rows(server, texts, task=task, **fields)


def test_means_of_tasks_are_transformers(start_server, tmp_path):
    """What a request's task adds, and what its texts begin with; lists of ids have no more than they have."""
    flash.write(tmp_path / "m", "tasks", "roberta.")
    with start_server(model=tmp_path / "m") as server:
        for task in flash.TASKS:
            check(of_task(server, task, flash.LISTS, normalize=False), GOLDENS["flash_" + task])
            assert same(of_task(server, task, TEXTS),
                        of_task(server, task, [server.post("/tokenize", {"prompt": flash.INSTRUCTIONS[task] + t}).json()["tokens"] for t in TEXTS]))
        check(rows(server, flash.LISTS, normalize=False, task=None), GOLDENS["flash_mean"])
        refusal = server.post("/v1/embeddings", {"input": "x", "task": "retrieval"})
        assert refusal.status_code == 400 and 'task \\"retrieval\\" is none of this model\'s: ' + ", ".join(flash.TASKS) in refusal.text
        assert server.post("/v1/embeddings", {"input": "x", "task": 1}).status_code == 400
    flash.write(tmp_path / "plain", "plain")
    with start_server(model=tmp_path / "plain") as server:
        assert same(rows(server, ["the sky"]), rows(server, ["the sky"], task="retrieval.query"))


def test_tasks_among_others(start_server, tmp_path):
    """The same bits alone, and in steps that have sequences of all tasks and of none."""
    flash.write(tmp_path / "m", "tasks")
    asked = [(task, ids) for task in [*flash.TASKS, None] for ids in flash.LISTS[:5]]
    with start_server("--cpu-isa", "portable", model=tmp_path / "m") as server:
        alone = [of_task(server, task, [ids])[0] for task, ids in asked]
        check([alone[i] for i in range(5)], normalized(GOLDENS["flash_" + flash.TASKS[0]][:5]))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for _ in range(3):
                assert same(alone, list(pool.map(lambda pair: of_task(server, pair[0], [pair[1]])[0], asked)))


LAYER = "encoder.layers.1."


@pytest.mark.parametrize("kind, change, changes, why", [
    ("plain", None, {"use_reg_tokens": True}, "use_reg_tokens is set"),
    ("plain", None, {"hidden_act": "relu"}, 'hidden_act "relu" is not supported'),
    ("scores", None, {"position_embedding_type": "rotary"}, 'position_embedding_type "rotary" is not supported; "absolute" is'),
    ("plain", lambda v: v.pop(LAYER + "mlp.fc1.bias"), {}, LAYER + "mlp.fc1.bias is missing"),
    ("plain", lambda v: v.pop("emb_ln.bias"), {}, "emb_ln.bias is missing"),
    ("plain", lambda v: v.update({LAYER + "mixer.Wqkv.weight": v[LAYER + "mixer.Wqkv.weight"][1:]}), {}, "mixer.Wqkv.weight is 215 x 72"),
    ("tasks", lambda v: v.pop(LAYER + "mlp.fc1" + flash.PARAMETRIZED + "0.lora_A"), {}, "fc1.parametrizations.weight.0.lora_B has no other half"),
    ("tasks", lambda v: v.pop(LAYER + "mlp.fc1" + flash.PARAMETRIZED + "original"), {}, "fc1.parametrizations.weight.original is missing"),
    ("tasks", lambda v: cut(v, LAYER + "mixer.Wqkv" + flash.PARAMETRIZED + "0.lora_B", 1), {}, "0.lora_B does not fit the model: 5 tasks, 216 values"),
    ("tasks", lambda v: cut(v, LAYER + "mixer.Wqkv" + flash.PARAMETRIZED + "0.lora_B", 2), {}, "0.lora_B has another rank than its other half"),
    ("tasks", lambda v: cut(v, "embeddings.word_embeddings" + flash.PARAMETRIZED + "0.lora_A", 1), {}, "0.lora_A does not fit the model"),
    ("tasks", None, {"lora_adaptations": flash.TASKS[1:]}, "0.lora_A does not fit the model: 4 tasks"),
    ("tasks", None, {"lora_adaptations": ["x" * 32]}, "lora_adaptations is supported as a list of 8 names at most"),
    ("tasks", None, {"task_instructions": {"separation": 1}}, "lora_adaptations is supported as a list of 8 names at most"),
    ("scores", lambda v: v.pop("classifier.dense.weight"), {}, "classifier.dense.weight is missing"),
])
def test_what_does_not_start(tmp_path, kind, change, changes, why):
    flash.write(tmp_path / "m", kind, **({"change": change} if change else {}), **changes)
    assert why in refused(tmp_path / "m")
