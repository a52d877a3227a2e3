#!/usr/bin/env python3
"""Encoders on a GPU: small models of every kind (tests/golden/encoder*.py, heads of 64), the vectors of lists of ids beside those of the CPU device, and each list
alone and with the others. Written where there is numpy, run with nothing but Python.

    tests/gpu/encoders.py write FOLDER
    tests/gpu/encoders.py FLASHD FOLDER
"""
import json
import pathlib
import sys

from servers import serving, vectors


def write(folder):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
    import encoder
    size = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 192}
    encoder.HIDDEN, encoder.HEADS, encoder.INNER = size.values()
    encoder.CONFIG.update(size)
    encoder.ROBERTA.update(size)
    import encoder_flash
    import encoder_jina
    import encoder_llama
    import encoder_mixture
    import encoder_named
    import encoder_rotating as rotating
    encoder_llama.HEADS, encoder_llama.KV_HEADS, encoder_llama.DIM = 2, 1, 64
    rotating.HEADS = encoder_mixture.HEADS = rotating.NOMIC_CONFIG["num_attention_heads"] = 2
    kinds = {
        "bert": (lambda path: encoder.write_directory(path, "mean"), encoder.LISTS),
        "modernbert": (lambda path: rotating.write_modern(path, "mean"), rotating.MODERN_LISTS),
        "nomic": (lambda path: rotating.write_nomic(path, "mean"), rotating.LISTS),
        "gte": (lambda path: rotating.write_gte(path, "mean"), rotating.LISTS),
        "nomic with experts": (lambda path: encoder_mixture.write(path, "mean", has_bias=False), encoder_mixture.LISTS),
        "jina": (lambda path: encoder_jina.write(path, "mean", "jina"), encoder_jina.LISTS),
        "jina code": (lambda path: encoder_jina.write(path, "mean", "jina_code"), encoder_jina.LISTS),
        **{kind: (lambda path, kind=kind: encoder_named.write(path, kind, pooling="mean"), own["lists"]) for kind, own in encoder_named.KINDS.items()},
        "flash roberta": (lambda path: encoder_flash.write(path, "tasks"), encoder_flash.LISTS),
        "eurobert": (lambda path: encoder_llama.write(path, "eurobert"), encoder_llama.LISTS),
        "llama": (lambda path: encoder_llama.write(path, "llama"), encoder_llama.LISTS),
        "qwen2": (lambda path: encoder_llama.write(path, "qwen2"), encoder_llama.LISTS),
    }
    for name, (write_model, lists) in kinds.items():
        path = folder / name.replace(" ", "-")
        path.mkdir(parents=True, exist_ok=True)
        write_model(path)
        (path / "lists.json").write_text(json.dumps(lists))


def compare_lists(name, lists, **fields):
    expected, found = (vectors(device, lists, normalize=False, **fields) for device in ("cpu", "cuda"))
    largest = max(abs(a - b) / max(map(abs, x)) for x, y in zip(expected, found) for a, b in zip(x, y))
    same = all(vectors("cuda", [ids], normalize=False, **fields)[0] == row for ids, row in zip(lists, found))
    same = same and vectors("cuda", lists[::-1], normalize=False, **fields)[::-1] == found
    print("%-35s %.4f of the largest value from the CPU's, %s bits alone and among others" % (name, largest, "the same" if same else "OTHER"))
    return same and largest < 0.1


def compare(flashd, path):
    lists = json.loads((path / "lists.json").read_text())
    tasks = json.loads((path / "config.json").read_text()).get("lora_adaptations", [])
    with serving([flashd, "serve", str(path)]):
        return all([compare_lists(path.name, lists)] + [compare_lists(f"{path.name}, {task}", lists, task=task) for task in tasks])


if sys.argv[1] == "write":
    write(pathlib.Path(sys.argv[2]))
else:
    sys.exit(0 if all([compare(sys.argv[1], path) for path in sorted(pathlib.Path(sys.argv[2]).iterdir())]) else 1)
