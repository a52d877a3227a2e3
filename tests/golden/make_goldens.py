"""make_goldens.py - writes the stored references of the golden tests (run by hand: python tests/golden/make_goldens.py).

goldens.npz: token ids of the texts, and for every position 8 best ids with logits, the log-sum-exp, and the logits of 64
pseudo-random ids; greedy.npz: for 32 prompts, 64 greedy tokens with the gap between the best two logits.
"""
import platform

import numpy as np
import torch
import transformers

import reference

NUM_RANDOM_IDS, NUM_BEST, NUM_PROMPTS, NUM_NEW = 64, 8, 32, 64


def prompts(tokenizer):
    """The first tokens of each text, at two lengths each."""
    ids = [tokenizer.encode(t).ids for t in reference.texts()]
    cut = [sequence[:n] for n in (12, 40, 90) for sequence in ids if len(sequence) >= n]
    return cut[:NUM_PROMPTS]


@torch.no_grad()
def greedy(model, prompt):
    new, gaps, cache = [], [], None
    feed = list(prompt)
    for _ in range(NUM_NEW):
        result = model(torch.tensor([feed]), past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        best = torch.topk(result.logits[0, -1], 2)
        feed = [int(best.indices[0])]
        new += feed
        gaps.append(float(best.values[0] - best.values[1]))
    return new, gaps


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    model, tokenizer = reference.load_model(), reference.load_tokenizer()
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, python {platform.python_version()}"
    sampled = np.random.default_rng(1).choice(model.config.vocab_size, NUM_RANDOM_IDS, replace=False).astype(np.int32)
    ids, lengths, lse, best_ids, best, random_logits = [], [], [], [], [], []
    for text in reference.texts():
        sequence = tokenizer.encode(text).ids
        logits = model(torch.tensor([sequence])).logits[0]
        top = torch.topk(logits, NUM_BEST)
        ids += sequence
        lengths.append(len(sequence))
        lse.append(torch.logsumexp(logits.double(), -1).numpy())
        best_ids.append(top.indices.numpy().astype(np.int32))
        best.append(top.values.numpy())
        random_logits.append(logits[:, sampled.astype(np.int64)].numpy())
    np.savez_compressed(
        reference.HERE / "goldens.npz", versions=versions, ids=np.array(ids, np.int32), lengths=np.array(lengths, np.int32),
        lse=np.concatenate(lse), best_ids=np.concatenate(best_ids), best=np.concatenate(best),
        random_ids=sampled, random_logits=np.concatenate(random_logits))
    starts = prompts(tokenizer)
    runs = [greedy(model, p) for p in starts]
    np.savez_compressed(
        reference.HERE / "greedy.npz", versions=versions, prompt_lengths=np.array([len(p) for p in starts], np.int32),
        prompts=np.array([i for p in starts for i in p], np.int32), tokens=np.array([r[0] for r in runs], np.int32),
        gaps=np.array([r[1] for r in runs], np.float32))
    print(versions, "positions:", len(ids), "prompts:", len(starts))


if __name__ == "__main__":
    main()
