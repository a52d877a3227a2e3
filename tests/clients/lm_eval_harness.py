# /// script
# dependencies = ["lm-eval[api]"]
# ///
"""lm-evaluation-harness over completions; this server tokenizes for it."""
import requests

from checks import MODEL, REAL_URL, check, equal, run
from lm_eval_task import CHOICE, completions, likelihoods

DOCUMENTS = [{"q": "The capital of France is", "choices": ["Paris", "Rome", "日本語 🦜"]},
             {"q": "One, two, three,", "choices": ["four", "seven seven", "blue"]}]


def post(path, **body):
    return requests.post(REAL_URL + path, json=body, timeout=60).json()


def log_likelihood(context, continuation):
    """The same by hand: the tokens of the whole, less those of the context."""
    before, whole = (post("/tokenize", prompt=text, add_special_tokens=False)["tokens"] for text in (context, context + continuation))
    answer = post("/v1/completions", model=MODEL, prompt=whole, max_tokens=0, echo=True, logprobs=1)
    return sum(answer["choices"][0]["logprobs"]["token_logprobs"][len(before):])


@check("local-completions: log likelihoods, tokens by /tokenizer_info")
def by_hand():
    got = likelihoods(CHOICE, DOCUMENTS, "local-completions", completions(REAL_URL, MODEL))
    for document, own in zip(DOCUMENTS, got):
        equal([round(x, 4) for x in own], [round(log_likelihood(document["q"], " " + c), 4) for c in document["choices"]])


run("lm-eval")
