"""flashd inspect: its table is the model's arithmetic, counted here again; its predictions follow from the table and what it has measured."""

import json
import re
import subprocess

import pytest

from conftest import BINARY, MODEL

H, LAYERS, VOCAB, HEADS, KV_HEADS, DIM, WIDE = 256, 3, 1024, 4, 2, 64, 512
BASE = {"hidden_size": H, "num_hidden_layers": LAYERS, "vocab_size": VOCAB, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": DIM, "intermediate_size": WIDE, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "eos_token_id": 1,
        "tie_word_embeddings": False}
DENSE = {**BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
FP8 = {**DENSE, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}
MIXTURE = {**BASE, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
           "moe_intermediate_size": 128, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
QKV, OUT = LAYERS * H * DIM * (HEADS + 2 * KV_HEADS), LAYERS * H * DIM * HEADS
HEAD = VOCAB * H
KV_BYTES = 2 * 2 * LAYERS * KV_HEADS * DIM
COLUMNS = ["parameters", "active", "flop", "bytes", "active_bytes"]
LINE = re.compile(r"(?P<what>.{40}) +(?P<ms>[\d.]+) ms +(?P<rate>[\d.]+) tokens/s, bound by (?P<bound>products|memory)")


def inspect(model, *options):
    done = subprocess.run([BINARY, "inspect", str(model), "--device", "cpu", "--threads", "1", *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = {line[:18].strip(): dict(zip(COLUMNS, [float(n) * 1e6 for n in line[18:].split()]))
            for line in done.stdout.splitlines() if re.fullmatch(r"[A-Za-z, ]{18}( +[\d.]+){5}", line)}
    return rows, done.stdout


def dummy(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return inspect(folder, "--load-format", "dummy")


def about(value):
    return pytest.approx(value, abs=6000)  # two places of a million


def expect(rows, name, parameters, active, bytes_each=2.0):
    assert rows[name] == {"parameters": about(parameters), "active": about(active), "flop": about(2 * active),
                          "bytes": about(parameters * bytes_each), "active_bytes": about(active * bytes_each)}, name


def test_dense(tmp_path):
    rows, text = dummy(tmp_path, DENSE)
    wide = LAYERS * H * WIDE
    for name, parameters in (("q, k, v", QKV), ("attention output", OUT), ("gate, up", 2 * wide), ("down", wide), ("LM head", HEAD)):
        expect(rows, name, parameters, parameters)
    expect(rows, "all products", QKV + OUT + 3 * wide + HEAD, QKV + OUT + 3 * wide + HEAD)
    assert "router" not in rows and "for one token" not in text
    stored = 2 * (QKV + OUT + 3 * wide + 2 * HEAD)
    assert float(re.search(r"([\d.]+) MB as stored", text)[1]) == pytest.approx(stored / 1e6, abs=0.1)


def test_quantised(tmp_path):
    """A scale of f32 for 128 x 128 codes of a byte; the LM head stays in bf16."""
    rows, text = dummy(tmp_path, FP8)
    wide = LAYERS * H * WIDE
    for name, parameters in (("gate, up", 2 * wide), ("down", wide)):
        expect(rows, name, parameters, parameters, 1 + 4 / 128**2)
    expect(rows, "LM head", HEAD, HEAD)
    assert float(re.search(r"([\d.]+) MB as stored", text)[1]) == pytest.approx((QKV + OUT + 3 * wide + 4 * HEAD) / 1e6, abs=0.1)


def test_a_first_layer_without_matrices(tmp_path):
    """DeciLM's may have neither attention nor an MLP: the next layer's are measured."""
    full = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 3.0}}
    config = {**DENSE, "architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas",
              "block_configs": [{"attention": {"no_op": True}, "ffn": {"no_op": True}}, full, full]}
    assert "GFLOP/s in products with these weights" in dummy(tmp_path, config)[1]


def test_mixture(tmp_path):
    rows, text = dummy(tmp_path, MIXTURE)
    expert = LAYERS * H * 128
    expect(rows, "gate, up", 8 * 2 * expert, 2 * 2 * expert)
    expect(rows, "down", 8 * expert, 2 * expert)
    expect(rows, "router", LAYERS * 8 * H, LAYERS * 8 * H)
    active = QKV + OUT + LAYERS * 8 * H + 2 * 3 * expert + 2 * HEAD
    assert float(re.search(r"([\d.]+) million for one token", text)[1]) == pytest.approx(active / 1e6, abs=0.1)


def test_predictions(tmp_path):
    """Time is what computing or reading takes at the rates that were measured; of eight experts 32 tokens choose nearly all."""
    for config in (DENSE, MIXTURE):
        rows, text = dummy(tmp_path, config)
        flops, rate = (float(n) * 1e9 for n in re.search(r"([\d.]+) GFLOP/s.* ([\d.]+) GB/s read", text).groups())
        rounded = 0.02 + 0.05e9 / min(flops, rate)  # they have one place, which counts on a slow machine
        found = {m["what"].strip(): m for m in LINE.finditer(text)}
        all_, head = rows["all products"], rows["LM head"]
        experts = rows["gate, up"]["bytes"] + rows["down"]["bytes"] if config is MIXTURE else 0
        pairs = 2048 * 2049 / 2
        attention = 4 * HEADS * DIM * LAYERS
        for what, tokens, work, read in (
                ("decode, 1 stream behind 1024 tokens", 1, all_["flop"] + 1025 * attention, all_["active_bytes"] + 1025 * KV_BYTES),
                ("decode, 32 streams behind 1024 tokens", 32, 32 * (all_["flop"] + 1025 * attention),
                 all_["bytes"] - experts * 0.75**32 + 32 * 1025 * KV_BYTES),
                ("a prompt of 2048 tokens", 2048, 2048 * (all_["flop"] - head["flop"]) + head["flop"] + pairs * attention,
                 all_["bytes"] + 2048 * KV_BYTES)):
            seconds = max(work / flops, read / rate)
            assert float(found[what]["ms"]) == pytest.approx(seconds * 1e3, rel=rounded, abs=0.002), what
            assert float(found[what]["rate"]) == pytest.approx(tokens / seconds, rel=rounded), what
            assert found[what]["bound"] == ("products" if work / flops > read / rate else "memory")


def test_state_spaces(tmp_path):
    """A first layer without attention and without an MLP of its own: what is measured is what it has."""
    config = BASE | {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "layer_types": ["mamba", "mamba", "attention"],
                     "mamba_n_heads": 8, "mamba_d_state": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 64}
    rows, text = dummy(tmp_path, config)
    width, projected = 2 * H, 2 * 2 * H + 2 * 32 + 8
    expect(rows, "q, k, v", 2 * projected * H + QKV / LAYERS, 2 * projected * H + QKV / LAYERS)
    expect(rows, "attention output", 2 * width * H + OUT / LAYERS, 2 * width * H + OUT / LAYERS)
    assert float(re.search(r"states +([\d.]+) MiB", text)[1]) == pytest.approx(2 * 2 * 4 * (width * 32 + 3 * (width + 64)) / 2**20, abs=0.1)
    assert len(LINE.findall(text)) == 3


def test_a_file():
    rows, text = inspect(MODEL)
    assert rows["all products"]["parameters"] == about(134_479_872) and rows["LM head"]["parameters"] == about(49152 * 576)
    assert len(LINE.findall(text)) == 3
