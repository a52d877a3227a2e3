"""SmolLM2 on the GPU against the stored results of transformers in float32 (tests/golden): logits at every position, greedy tokens.

    golden.py LOGITS_PROGRAM MODEL

The reference rounds nothing to bf16. transformers itself in bf16, same texts: mean KL 1.1e-3, another best token at 69 positions, at 26 of
them although the reference's leads by 0.1 or more, once by 0.397. What is asked for: less than half of each, and less than that lead.
"""
import pathlib
import subprocess
import sys

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
NEAR_TIE = 0.1
LARGEST_KL, MOST_OTHER, MOST_FAR, LARGEST_LEAD = 5e-4, 34, 13, 0.397


def run(program, model, texts, *options):
    lines = "".join(" ".join(map(str, t)) + "\n" for t in texts)
    return subprocess.run([program, model, "--device", "cuda", *options], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout


def split(values, lengths):
    return [values[e - n : e] for e, n in zip(np.cumsum(lengths), lengths)]


def logits_of(program, model, texts, *options):
    return np.frombuffer(run(program, model, texts, *options), np.float32).reshape(sum(map(len, texts)), -1)


def mean_kl(g, logits, best):
    """Over the reference's eight best: most of its mass."""
    x = logits.astype(np.float64)
    highest = x.max(axis=1, keepdims=True)
    lse = highest[:, 0] + np.log(np.exp(x - highest).sum(axis=1))
    log_p = g["best"].astype(np.float64) - g["lse"][:, None]
    return (np.exp(log_p) * (log_p - (best - lse[:, None]))).sum(axis=1).mean()


def positions_hold(program, model):
    g = dict(np.load(GOLDEN / "goldens.npz"))
    texts = split(g["ids"], g["lengths"])
    logits = logits_of(program, model, texts)
    again = logits_of(program, model, texts, "--chunk", "16")
    best_ids = g["best_ids"].astype(np.int64)
    best = np.take_along_axis(logits, best_ids, axis=1)
    difference = np.abs(best - g["best"]).max(axis=1)
    kl = mean_kl(g, logits, best)
    leads = (g["best"][:, 0] - g["best"][:, 1])[logits.argmax(axis=1) != best_ids[:, 0]]
    far = (leads >= NEAR_TIE).sum()
    bits = (logits.view(np.uint32) != again.view(np.uint32)).sum()
    print(f"{len(logits)} positions: KL over the best eight {kl:.2e}, their logits' difference at most {difference.max():.3f}, root mean "
          f"square {np.sqrt((difference**2).mean()):.3f}; other best token {len(leads)}, of them no near-ties {far}, largest lead "
          f"{leads.max(initial=0):.3f}; bits in chunks of 16 that differ {bits}")
    return bool(bits == 0 and abs(kl) <= LARGEST_KL and len(leads) <= MOST_OTHER and far <= MOST_FAR
                and leads.max(initial=0) < LARGEST_LEAD)


def greedy_holds(program, model):
    g = dict(np.load(GOLDEN / "greedy.npz"))
    out = run(program, model, split(g["prompts"], g["prompt_lengths"]), "--greedy", str(g["tokens"].shape[1]))
    gaps = []  # of the reference, where a text parts from it
    for tokens, expected, gap in zip(out.decode().splitlines(), g["tokens"], g["gaps"]):
        different = np.flatnonzero(np.array(tokens.split(), np.int32) != expected)
        gaps += [gap[different[0]]] if len(different) else []
    print(f"{len(g['tokens'])} greedy texts of {g['tokens'].shape[1]} tokens: {len(gaps)} part from the reference, at leads of "
          f"{' '.join(f'{gap:.3f}' for gap in sorted(gaps))}")
    return max(gaps, default=0) < NEAR_TIE


if __name__ == "__main__":
    held = [positions_hold(*sys.argv[1:]), greedy_holds(*sys.argv[1:])]
    sys.exit(not all(held))
