"""measure.py - whole distributions over the golden texts: reference, llama.cpp and flashd side by side (run by hand).

    python measure.py reference ref.npy    needs torch and transformers (requirements-make.txt)
    python measure.py llama llama.npy      needs llama-cpp-python
    python measure.py compare ref.npy llama.npy    needs numpy; prints the table
    python measure.py kv           needs numpy; types of the K/V cache against one of f32

Each .npy holds the float32 logits of every position of every text.
"""
import pathlib
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
PROGRAM = ROOT / "build" / "tests" / "golden" / "logits"


def texts():
    stored = np.load(HERE / "goldens.npz")
    ends = np.cumsum(stored["lengths"])
    return [stored["ids"][e - n : e] for n, e in zip(stored["lengths"], ends)]


def reference(path):
    import torch

    from reference import load_model

    model = load_model()
    with torch.no_grad():
        rows = [model(torch.tensor([list(map(int, t))])).logits[0].numpy() for t in texts()]
    np.save(path, np.concatenate(rows))


def llama(path):
    from llama_cpp import Llama

    model = Llama(str(MODEL), n_ctx=1024, n_batch=512, n_threads=2, n_threads_batch=2, logits_all=True, verbose=False)
    rows = []
    for ids in texts():
        model.reset()
        model.eval(list(map(int, ids)))
        rows.append(np.array(model.scores[: len(ids)], np.float32))
    np.save(path, np.concatenate(rows))


def flashd(*options):
    lines = "".join(" ".join(map(str, t)) + "\n" for t in texts())
    out = subprocess.run([PROGRAM, MODEL, *options], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(out, np.float32).reshape(sum(map(len, texts())), -1)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def figures(name, logits, ref, ref_log):
    """Largest logit difference, mean KL divergence from the reference, and perplexity of the texts."""
    kl, nll, at = 0.0, [], 0
    for begin in range(0, len(ref), 256):
        p, q = ref_log[begin : begin + 256], log_softmax(logits[begin : begin + 256])
        kl += (np.exp(p) * (p - q)).sum()
    for ids in texts():
        q = log_softmax(logits[at : at + len(ids) - 1])
        nll.append(-q[np.arange(len(ids) - 1), ids[1:]])
        at += len(ids)
    same = (logits.argmax(axis=1) == ref.argmax(axis=1)).mean()
    print(f"{name:28s} {np.abs(logits - ref).max():12.3e} {kl / len(ref):12.3e} {np.exp(np.concatenate(nll).mean()):11.4f} "
          f"{same:9.4f}", flush=True)


def compare(ref_path, llama_path):
    ref = np.load(ref_path, mmap_mode="r")
    ref_log = np.concatenate([log_softmax(ref[i : i + 256]) for i in range(0, len(ref), 256)])
    print(f"{len(ref)} positions\n{'':28s} {'max diff':>12s} {'mean KL':>12s} {'perplexity':>11s} {'same top':>9s}")
    figures("transformers float32", ref, ref, ref_log)
    figures("llama.cpp", np.load(llama_path), ref, ref_log)
    figures("flashd portable, K/V f32", flashd("--isa", "portable", "--kv", "f32"), ref, ref_log)
    figures("flashd default", flashd(), ref, ref_log)
    figures("flashd default, K/V f32", flashd("--kv", "f32"), ref, ref_log)
    figures("flashd avx2", flashd("--isa", "avx2"), ref, ref_log)


def kv():
    ref = flashd("--kv", "f32")
    ref_log = log_softmax(ref)
    print(f"{len(ref)} positions\n{'':28s} {'max diff':>12s} {'mean KL':>12s} {'perplexity':>11s} {'same top':>9s}")
    for name in "f32", "bf16", "int8", "fp8":
        figures(f"K/V {name}", flashd("--kv", name), ref, ref_log)


if __name__ == "__main__":
    {"reference": reference, "llama": llama, "compare": compare, "kv": kv}[sys.argv[1]](*sys.argv[2:])
