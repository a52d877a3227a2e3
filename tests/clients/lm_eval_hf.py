# /// script
# dependencies = ["lm-eval[api,hf]", "httpx", "openai", "pytest"]
# ///
"""lm-evaluation-harness: the same scores over completions as from transformers itself, of a random Llama in float32."""
import contextlib
import pathlib
import random
import tempfile

import byte_tokenizer
import conftest
import torch
import transformers

from checks import check, run
from lm_eval_task import CHOICE, ROLLING, completions, likelihoods

WORDS = "stone river Zürich 日本語 quick seven blue — 🦜 forty-two (or) not".split()
SPECIAL = ["<|begin|>", "<|end|>"]


def make_model(folder):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    config = transformers.LlamaConfig(vocab_size=256 + len(SPECIAL), hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                                      num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=2048,
                                      bos_token_id=256, eos_token_id=257, initializer_range=0.06)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer.write(folder, SPECIAL)
    names = dict(zip(("bos_token", "eos_token"), SPECIAL))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **names)
    tokenizer.save_pretrained(folder)


def make_documents(count):
    draw = random.Random(3)
    text = lambda n: " ".join(draw.choices(WORDS, k=n))  # noqa: E731
    return [{"q": text(draw.randint(2, 60)), "choices": [text(draw.randint(1, 6)) for _ in range(4)]} for _ in range(count)]


@contextlib.contextmanager
def served_model():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_model(folder)
        with conftest.running("--kv-cache-dtype", "f32", "--served-model-name", "random", model=folder) as server:
            yield folder, server.url


for task, count in ((CHOICE, 12), (ROLLING, 12)):
    @check(f"{task['output_type']}: {count} documents, equal to transformers' within 1e-5 of their size")
    def equal_scores(task=task, count=count):
        documents = make_documents(count)
        with served_model() as (folder, url):
            got = likelihoods(task, documents, "local-completions", completions(url, "random"))
            wanted = likelihoods(task, documents, "hf", {"pretrained": str(folder), "dtype": "float32", "device": "cpu"})
        pairs = [(a, b) for own, their in zip(got, wanted, strict=True) for a, b in zip(own, their, strict=True)]
        worst = max(abs(a - b) / abs(b) for a, b in pairs)
        print(f"{len(pairs)} scores, {worst:.1e} of their size apart")
        assert worst < 1e-5, worst


run("lm-eval")
