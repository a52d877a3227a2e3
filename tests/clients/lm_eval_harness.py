# /// script
# dependencies = ["lm-eval[api]"]
# ///
"""lm-evaluation-harness over completions; this server tokenizes for it."""
import json
import os
import pathlib
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
import lm_eval  # noqa: E402
import requests  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from checks import MODEL, REAL_URL, check, equal, run  # noqa: E402

DOCUMENTS = [{"q": "The capital of France is", "choices": ["Paris", "Rome", "日本語 🦜"]},
             {"q": "One, two, three,", "choices": ["four", "seven seven", "blue"]}]
TASK = {"task": "choice", "dataset_path": "json", "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{q}}",
        "doc_to_choice": "choices", "doc_to_target": 0, "metric_list": [{"metric": "acc"}]}


def post(path, **body):
    return requests.post(REAL_URL + path, json=body, timeout=60).json()


def log_likelihood(context, continuation):
    """The same by hand: the tokens of the whole, less those of the context."""
    before, whole = (post("/tokenize", prompt=text, add_special_tokens=False)["tokens"] for text in (context, context + continuation))
    answer = post("/v1/completions", model=MODEL, prompt=whole, max_tokens=0, echo=True, logprobs=1)
    return sum(answer["choices"][0]["logprobs"]["token_logprobs"][len(before):])


def samples(folder):
    data, task = folder / "data.jsonl", folder / "choice.yaml"
    data.write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS), encoding="utf-8")
    task.write_text(json.dumps({**TASK, "dataset_kwargs": {"data_files": {"test": str(data)}}}))
    result = lm_eval.simple_evaluate(
        model="local-completions", model_args=f"model={MODEL},base_url={REAL_URL}/v1/completions,num_concurrent=2,max_length=2048",
        tasks=["choice"], task_manager=TaskManager(include_path=str(folder), include_defaults=False), bootstrap_iters=0)
    return sorted(result["samples"]["choice"], key=lambda s: s["doc_id"])


@check("local-completions: log likelihoods, tokens by /tokenizer_info")
def likelihoods():
    with tempfile.TemporaryDirectory() as folder:
        for document, sample in zip(DOCUMENTS, samples(pathlib.Path(folder))):
            got = [round(response[0][0], 4) for response in sample["resps"]]
            equal(got, [round(log_likelihood(document["q"], " " + c), 4) for c in document["choices"]])


run("lm-eval")
