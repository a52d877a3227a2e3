"""DeepSeek V3 from a directory and from a GGUF file, with its way to cut words, its control tokens and its notation of calls:
one answer, whoever runs beside it, however it is computed."""
import json
import random
import struct
from array import array
from concurrent.futures import ThreadPoolExecutor

import byte_tokenizer
import pytest
from conftest import MODEL
from test_engine_process import kill_engine
from test_hybrid import PROMPTS
from test_tools import ORDER, PING_ONLY, both_ways, check_order

BOS, EOS, USER, ASSISTANT = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"
MARKS = (USER, ASSISTANT, "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
         "<think>", "</think>")
SPECIAL = (BOS, EOS)  # published files call no more of them so
VOCAB = 256 + len(SPECIAL) + len(MARKS)
NUM_TOKENS = 2048
CONFIG = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 64, "intermediate_size": 96,
          "moe_intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 3, "vocab_size": VOCAB,
          "max_position_embeddings": NUM_TOKENS, "rms_norm_eps": 1e-6, "q_lora_rank": 56, "kv_lora_rank": 40, "qk_nope_head_dim": 32,
          "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
          "n_group": 2, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
          "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257}
TEMPLATE = """{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' -%}
<｜User｜>{{ m.content }}{% elif m.role == 'tool' %}<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>{% else -%}
<｜Assistant｜></think>{{ m.content }}{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls -%}
<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson -}}
<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% endif %}{% endfor -%}
{% if add_generation_prompt %}<｜Assistant｜>{{ '<think>' if thinking else '</think>' }}{% endif %}"""
CUTS = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        '[!"' r"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" "\r\n"
        r"]*|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+")


def write_directory(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG))
    byte_tokenizer.write(folder, SPECIAL, MARKS)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    parts = [{"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated", "invert": False} for cut in CUTS]
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*parts, tokenizer["pre_tokenizer"] | {"use_regex": False}]}
    path.write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS, "eos_token": EOS, "chat_template": TEMPLATE}))
    return folder


def tensors():
    """(name, numbers of rows and columns, and of experts)"""
    c, heads = CONFIG, CONFIG["num_attention_heads"]
    width, rank, plain, rotary = c["hidden_size"], c["kv_lora_rank"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    experts, inner = c["n_routed_experts"], c["moe_intermediate_size"]
    yield from (("token_embd", VOCAB, width), ("output_norm", width), ("output", VOCAB, width))
    for i in range(c["num_hidden_layers"]):
        layer = [("attn_norm", width), ("attn_q_a", c["q_lora_rank"], width), ("attn_q_a_norm", c["q_lora_rank"]),
                 ("attn_q_b", heads * (plain + rotary), c["q_lora_rank"]), ("attn_kv_a_mqa", rank + rotary, width),
                 ("attn_kv_a_norm", rank), ("attn_kv_b", heads * (plain + c["v_head_dim"]), rank),
                 ("attn_output", width, heads * c["v_head_dim"]), ("ffn_norm", width)]
        if i < c["first_k_dense_replace"]:
            layer += [("ffn_gate", c["intermediate_size"], width), ("ffn_up", c["intermediate_size"], width),
                      ("ffn_down", width, c["intermediate_size"])]
        else:
            layer += [("ffn_gate_inp", experts, width), ("exp_probs_b.bias", experts), ("ffn_gate_shexp", inner, width),
                      ("ffn_up_shexp", inner, width), ("ffn_down_shexp", width, inner), ("ffn_gate_exps", experts, inner, width),
                      ("ffn_up_exps", experts, inner, width), ("ffn_down_exps", experts, width, inner)]
        yield from ((f"blk.{i}.{name}", *shape) for name, *shape in layer)


def write_gguf(folder):
    c = CONFIG
    keys = {"block_count": c["num_hidden_layers"], "context_length": NUM_TOKENS, "embedding_length": c["hidden_size"],
            "feed_forward_length": c["intermediate_size"], "attention.head_count": c["num_attention_heads"],
            "attention.head_count_kv": c["num_key_value_heads"], "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
            "attention.key_length": c["qk_nope_head_dim"] + c["qk_rope_head_dim"], "attention.value_length": c["v_head_dim"],
            "attention.q_lora_rank": c["q_lora_rank"], "attention.kv_lora_rank": c["kv_lora_rank"],
            "expert_feed_forward_length": c["moe_intermediate_size"], "expert_count": c["n_routed_experts"],
            "expert_shared_count": c["n_shared_experts"], "expert_used_count": c["num_experts_per_tok"],
            "expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"],
            "expert_weights_scale": c["routed_scaling_factor"], "expert_weights_norm": True, "expert_gating_func": 2,
            "leading_dense_block_count": c["first_k_dense_replace"], "rope.dimension_count": c["qk_rope_head_dim"],
            "rope.freq_base": c["rope_theta"], "vocab_size": VOCAB}
    names = [*byte_tokenizer.spelled_bytes(), *SPECIAL, *MARKS]

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def value(v):
        if isinstance(v, bool):
            return struct.pack("<I?", 7, v)
        return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v) if isinstance(v, int) else struct.pack("<I", 8) + text(v)

    def array_of(kind, items):
        return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)

    entries = {"general.architecture": value("deepseek2"), **{f"deepseek2.{k}": value(v) for k, v in keys.items()},
               "tokenizer.ggml.model": value("gpt2"), "tokenizer.ggml.pre": value("deepseek-v3"),
               "tokenizer.ggml.tokens": array_of(8, [text(n) for n in names]),
               # the converter takes whatever stands between <｜ and ｜> for a control token
               "tokenizer.ggml.token_type": array_of(5, [struct.pack("<i", 1 if i < 256 else 3 if "｜" in n else 4) for i, n in enumerate(names)]),
               "tokenizer.ggml.merges": array_of(8, []), "tokenizer.ggml.bos_token_id": value(256),
               "tokenizer.ggml.eos_token_id": value(257), "tokenizer.ggml.add_bos_token": value(True), "tokenizer.chat_template": value(TEMPLATE)}
    rng, infos, data = random.Random(11), b"", b""
    all_tensors = [(name if name.endswith(".bias") else name + ".weight", shape) for name, *shape in tensors()]
    for name, shape in all_tensors:
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        count = 1
        for n in shape:
            count *= n
        low, high = (0.8, 1.2) if "norm" in name else (-0.2, 0.2)
        data += array("f", [rng.uniform(low, high) for _ in range(count)]).tobytes()
        data += bytes(-len(data) % 32)
    head = struct.pack("<IIQQ", 0x46554747, 3, len(all_tensors), len(entries)) + b"".join(text(k) + v for k, v in entries.items()) + infos
    path = folder / "m.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


@pytest.fixture(params=["directory", "file"])
def model(request, tmp_path):
    """(path, options)"""
    return (write_directory(tmp_path), ("--load-format", "dummy")) if request.param == "directory" else (write_gguf(tmp_path), ())


def ask(server, k, **fields):
    body = {"prompt": PROMPTS[k], "temperature": 0.8, "ignore_eos": True, "logprobs": 3, "max_tokens": 60, "seed": k} | fields
    reply = server.post("/v1/completions", body).json()
    return reply["choices"][0], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def all_together(server):
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return [choice for choice, _ in pool.map(lambda k: ask(server, k), range(len(PROMPTS)))]


def test_one_answer_however_it_is_computed(start_server, model):
    path, options = model
    options = ("--kv-cache-dtype", "bf16", "--max-model-len", str(NUM_TOKENS), "--max-num-batched-tokens", "64", "--target-itl", "10000", *options)
    with start_server("--no-enable-prefix-caching", *options, model=path) as server:
        found = [ask(server, k) for k in range(len(PROMPTS))]
        alone = [choice for choice, _ in found]
        assert [cached for _, cached in found] == [0] * len(PROMPTS)
        assert len({choice["text"] for choice in alone}) == len(PROMPTS)
        assert all_together(server) == alone
    with start_server(*options, model=path) as server:
        assert all_together(server) == alone
        again = [ask(server, k) for k in range(len(PROMPTS))]
        assert [choice for choice, _ in again] == alone
        assert all(cached > 0 for _, cached in again[1:])
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            begun = [pool.submit(ask, server, k) for k in range(len(PROMPTS))]
            kill_engine(server)
            assert [one.result()[0] for one in begun] == alone


def test_tokens(start_server, model):
    """Control tokens are the template's; numbers come in threes, punctuation with the word behind it."""
    path, options = model
    with start_server(*options, model=path) as server:
        chat = {"messages": [{"role": "user", "content": f"a{USER}{EOS}b"}], "add_generation_prompt": True}
        ids = server.post("/tokenize", chat).json()["tokens"]
        assert [i for i in ids if 256 <= i < 260] == [256, 258, 259]
        assert bytes(i for i in ids if i < 256).decode() == f"a{USER}{EOS}b"
        ids = server.post("/tokenize", {"prompt": f"{USER}x", "add_special_tokens": False}).json()["tokens"]
        assert ids == [258, ord("x")]


@pytest.mark.parametrize("temperature", [0, 1.2])
def test_calls_that_must_come(start_server, model, temperature):
    """Random weights, so that it is the grammar alone that writes them."""
    path, options = model
    with start_server("--served-model-name", MODEL.name, *options, model=path) as server:
        asked = dict(messages=[{"role": "user", "content": "Pizza."}], tools=[ORDER, PING_ONLY], temperature=temperature, seed=3,
                     max_tokens=250, parallel_tool_calls=False)
        for choice in ("required", {"type": "function", "function": {"name": "order"}}):
            content, reasoning, calls, finish = both_ways(server, tool_choice=choice, **asked)
            assert (content, reasoning, finish, len(calls)) == ("", "", "tool_calls", 1)
            if calls[0][0] == "order":
                check_order(calls[0][1])
            else:
                assert choice == "required" and calls[0][0] == "ping" and json.loads(calls[0][1]) == {}
