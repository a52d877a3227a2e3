"""random_gguf.py SHAPE OUT.gguf [--type Q4_K_M | Q4_K | ... | IQ2_XXS | ... | Q2_0] [--layers N] [--vocab N] - a GGUF file of a Llama's
shape, or of Qwen3's mixtures (a folder of tests/gpu/shapes), whose blocks are random codes and small scales, for bench_steps with FLASHD_CUDA_KEEP_PACKED=1.

Q4_K_M: v and down of every other layer, and the head, are Q6_K. Routers are random, so that tokens choose experts evenly. Needs nothing but Python; writes as fast as the disk does."""
import argparse
import array
import json
import math
import os
import random
import struct

TYPES = {  # id, values and bytes of a block, where f16 scales are
    "F32": (0, 1, 4, ()), "Q8_0": (8, 32, 34, (0,)), "Q4_K": (12, 256, 144, (0, 2)), "Q5_K": (13, 256, 176, (0, 2)), "Q6_K": (14, 256, 210, (208,)),
    "Q2_K": (10, 256, 84, (80, 82)), "IQ2_XXS": (16, 256, 66, (0,)), "IQ2_XS": (17, 256, 74, (0,)), "IQ2_S": (22, 256, 82, (0,)),
    "IQ3_XXS": (18, 256, 98, (0,)), "IQ3_S": (21, 256, 110, (0,)), "IQ1_S": (19, 256, 50, (0,)), "IQ1_M": (29, 256, 56, ()),
    "TQ1_0": (34, 256, 54, (52,)), "TQ2_0": (35, 256, 66, (64,)), "Q1_0": (41, 128, 18, (0,)), "Q2_0": (42, 64, 18, (0,)),
}
SCALES = {"Q4_K": (1e-4, 4e-4), "Q5_K": (1e-4, 4e-4), "Q2_K": (1e-4, 4e-4), "Q6_K": (-1e-5, 1e-5), "Q8_0": (-4e-4, 4e-4), "IQ1_S": (-2e-3, 2e-3), "TQ1_0": (-2e-2, 2e-2), "TQ2_0": (-2e-2, 2e-2), "Q1_0": (1e-2, 2e-2), "Q2_0": (1e-2, 2e-2)}
POOL_BLOCKS = 16384
ALIGNMENT = 32


def block(kind):
    """Random codes; a second scale is a minimum's."""
    _, _, size, places = TYPES[kind]
    data = bytearray(os.urandom(size))
    for i, place in enumerate(places):
        data[place:place + 2] = struct.pack("<e", random.uniform(*((8e-4, 3e-3) if i else SCALES.get(kind, (-2e-4, 2e-4)))))
    if kind == "IQ1_M":  # its scale's nibbles are the upper ones of four words
        scale, = struct.unpack("<H", struct.pack("<e", random.uniform(-2e-3, 2e-3)))
        for i in range(4):
            data[49 + 2 * i] = data[49 + 2 * i] & 15 | (scale >> 4 * i & 15) << 4
    return bytes(data)


def write_blocks(f, kind, count, pools):
    """Stretches of one pool of blocks, each from another block on."""
    size = TYPES[kind][2]
    if kind not in pools:
        pools[kind] = b"".join(block(kind) for _ in range(POOL_BLOCKS))
    while count > 0:
        first = random.randrange(POOL_BLOCKS)
        n = min(count, POOL_BLOCKS - first)
        f.write(memoryview(pools[kind])[first * size:(first + n) * size])
        count -= n


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(key, v):
    if isinstance(v, str):
        return text(key) + struct.pack("<I", 8) + text(v)
    return text(key) + (struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v))


def is_mixture(c):
    return "num_experts" in c


def head_dim_of(c):
    return c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])


def keys(c, layers, vocab):
    name = "qwen3moe" if is_mixture(c) else "llama"
    yield "general.architecture", name
    yield f"{name}.block_count", layers
    yield f"{name}.context_length", 8192
    yield f"{name}.embedding_length", c["hidden_size"]
    yield f"{name}.feed_forward_length", c["intermediate_size"]
    yield f"{name}.attention.head_count", c["num_attention_heads"]
    yield f"{name}.attention.head_count_kv", c["num_key_value_heads"]
    yield f"{name}.attention.layer_norm_rms_epsilon", float(c["rms_norm_eps"])
    yield f"{name}.rope.dimension_count", head_dim_of(c)
    yield f"{name}.rope.freq_base", float(c["rope_theta"])
    yield f"{name}.vocab_size", vocab
    yield "tokenizer.ggml.model", "no_vocab"
    if is_mixture(c):
        yield f"{name}.attention.key_length", head_dim_of(c)
        yield f"{name}.attention.value_length", head_dim_of(c)
        yield f"{name}.expert_count", c["num_experts"]
        yield f"{name}.expert_used_count", c["num_experts_per_tok"]
        yield f"{name}.expert_feed_forward_length", c["moe_intermediate_size"]


def mlp_tensors(c, prefix, plain, finer):
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    yield f"{prefix}.ffn_gate.weight", (inner, hidden), plain
    yield f"{prefix}.ffn_up.weight", (inner, hidden), plain
    yield f"{prefix}.ffn_down.weight", (hidden, inner), finer


def expert_tensors(c, prefix, plain, finer):
    hidden, inner, num = c["hidden_size"], c["moe_intermediate_size"], c["num_experts"]
    yield f"{prefix}.attn_q_norm.weight", (head_dim_of(c),), "F32"
    yield f"{prefix}.attn_k_norm.weight", (head_dim_of(c),), "F32"
    yield f"{prefix}.ffn_gate_inp.weight", (num, hidden), "F32"
    yield f"{prefix}.ffn_gate_exps.weight", (num, inner, hidden), plain
    yield f"{prefix}.ffn_up_exps.weight", (num, inner, hidden), plain
    yield f"{prefix}.ffn_down_exps.weight", (num, hidden, inner), finer


def tensors(c, layers, vocab, mix):
    """Names, sizes (columns last), types."""
    hidden = c["hidden_size"]
    q, kv = c["num_attention_heads"] * head_dim_of(c), c["num_key_value_heads"] * head_dim_of(c)
    plain = "Q4_K" if mix == "Q4_K_M" else mix
    yield "token_embd.weight", (vocab, hidden), plain
    yield "output_norm.weight", (hidden,), "F32"
    yield "output.weight", (vocab, hidden), "Q6_K" if mix == "Q4_K_M" else mix
    for i in range(layers):
        finer = "Q6_K" if mix == "Q4_K_M" and i % 2 == 0 else plain
        yield f"blk.{i}.attn_norm.weight", (hidden,), "F32"
        yield f"blk.{i}.ffn_norm.weight", (hidden,), "F32"
        yield f"blk.{i}.attn_q.weight", (q, hidden), plain
        yield f"blk.{i}.attn_k.weight", (kv, hidden), plain
        yield f"blk.{i}.attn_v.weight", (kv, hidden), finer
        yield f"blk.{i}.attn_output.weight", (hidden, q), plain
        yield from (expert_tensors if is_mixture(c) else mlp_tensors)(c, f"blk.{i}", plain, finer)


def floats(sizes):
    """Of a norm ones, of a router random ones."""
    if len(sizes) == 1:
        return struct.pack("<f", 1.0) * sizes[0]
    return array.array("f", (random.uniform(-0.05, 0.05) for _ in range(math.prod(sizes)))).tobytes()


def padding(n):
    return b"\0" * (-n % ALIGNMENT)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape")
    parser.add_argument("out")
    parser.add_argument("--type", default="Q4_K_M", choices=["Q4_K_M", *list(TYPES)[1:]])
    parser.add_argument("--layers", type=int)
    parser.add_argument("--vocab", type=int, default=32768)
    options = parser.parse_args()
    with open(os.path.join(options.shape, "config.json")) as f:
        config = json.load(f)
    layers = options.layers or config["num_hidden_layers"]
    values = [value(k, v) for k, v in keys(config, layers, options.vocab)]
    listed = list(tensors(config, layers, options.vocab, options.type))
    header, offset = b"", 0
    for name, sizes, kind in listed:
        number, of_block, size, _ = TYPES[kind]
        header += text(name) + struct.pack("<I%dQIQ" % len(sizes), len(sizes), *reversed(sizes), number, offset)
        offset += math.prod(sizes) // of_block * size
        offset += -offset % ALIGNMENT
    pools = {}
    with open(options.out, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(values)) + b"".join(values) + header)
        f.write(padding(f.tell()))
        for name, sizes, kind in listed:
            if kind == "F32":
                f.write(floats(sizes))
            else:
                write_blocks(f, kind, math.prod(sizes) // TYPES[kind][1], pools)
            f.write(padding(f.tell()))


main()
