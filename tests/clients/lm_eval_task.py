"""A task of lm-evaluation-harness whose documents are lines of a local file."""
import json
import os
import pathlib
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

CHOICE = {"output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_choice": "choices", "doc_to_target": 0,
          "metric_list": [{"metric": "acc"}]}
ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{q}}",
           "metric_list": [{"metric": "bits_per_byte"}]}


def likelihoods(task, documents, model, model_args):
    """-> for each document the log likelihoods that the model was asked for."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "data.jsonl")
        data.write_text("".join(json.dumps(d) + "\n" for d in documents), encoding="utf-8")
        name = f"local_{task['output_type']}"
        whole = {"task": name, "dataset_path": "json", "test_split": "test", "dataset_kwargs": {"data_files": {"test": str(data)}}, **task}
        pathlib.Path(folder, "task.yaml").write_text(json.dumps(whole))
        manager = TaskManager(include_path=folder, include_defaults=False)
        result = lm_eval.simple_evaluate(model=model, model_args=model_args, tasks=[name], task_manager=manager, bootstrap_iters=0)
    samples = sorted(result["samples"][name], key=lambda s: s["doc_id"])
    return [[first_number(responses) for responses in s["resps"]] for s in samples]


def first_number(responses):
    """Of a choice there is a pair of its log likelihood and whether it is the greedy one; of a rolling one the number alone."""
    while isinstance(responses, (list, tuple)):
        responses = responses[0]
    return float(responses)


def completions(url, model):
    """Arguments of local-completions; the server tokenizes."""
    return {"model": model, "base_url": url + "/v1/completions", "num_concurrent": 2, "max_length": 2048}
