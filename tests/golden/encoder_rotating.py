"""Small encoders that rotate, ModernBERT's, Nomic BERT's and GTE's kind, as directories and as a GGUF file: encoder.py has the way of it."""
import json
import struct

import encoder
from encoder import HIDDEN, INNER, LISTS, POSITIONS, WORDS, make_values, write_safetensors

HEADS, LOCAL = 3, 128
MODERN_LAYERS, NOMIC_LAYERS, GTE_LAYERS = 5, 3, 3  # ModernBERT's: full, local, local, full, local
NTK = 8.0
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
NUM_BYTES = 256
SPACES = [" " * n for n in range(24, 1, -1)]
MERGES = ["h e", "Ġ t", "Ġt he", "i s", "Ġ is", "s k", "sk y", "Ġ sky", "b l", "bl u", "blu e", "Ġ blue", "e r"]


def byte_letters():
    """A letter for each byte, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in plain}
    letters.update((b, chr(256 + n)) for n, b in enumerate(b for b in range(256) if b not in letters))
    return [letters[b] for b in range(256)]


def modern_tokenizer():
    """Bytes' pairs, some runs of blanks that are tokens, control tokens behind them."""
    words = ["|||IP_ADDRESS|||", "<|padding|>"] + byte_letters() + [m.replace(" ", "") for m in MERGES]
    vocab = {w: i for i, w in enumerate(words)}
    added = [(0, words[0], False), (1, words[1], True)]
    added += [(len(words) + i, w, False) for i, w in enumerate(SPACES)]
    added += [(len(words) + len(SPACES) + i, w, True) for i, w in enumerate(SPECIAL)]
    ids = {w: i for i, w, _ in added}
    tokens = [dict(id=i, content=w, single_word=False, lstrip=w == "[MASK]", rstrip=False, normalized=not special, special=special)
              for i, w, special in added]

    def part(name, kind):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def sequence(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}

    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [part("[CLS]", 0), sequence("A", 0), part("[SEP]", 0)],
            "pair": [part("[CLS]", 0), sequence("A", 0), part("[SEP]", 0), sequence("B", 0), part("[SEP]", 0)],
            "special_tokens": {w: {"id": w, "ids": [ids[w]], "tokens": [w]} for w in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": MERGES}}


def num_modern_tokens():
    return max(t["id"] for t in modern_tokenizer()["added_tokens"]) + 1


def modern_config():
    """As transformers takes it; written down so by those before the fifth, too."""
    ids = {t["content"]: t["id"] for t in modern_tokenizer()["added_tokens"]}
    return {"vocab_size": num_modern_tokens() + 3, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": MODERN_LAYERS,
            "num_attention_heads": HEADS, "hidden_activation": "gelu", "max_position_embeddings": POSITIONS, "norm_eps": 1e-5,
            "norm_bias": False, "attention_bias": False, "mlp_bias": False, "local_attention": LOCAL, "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "classifier_pooling": "mean", "classifier_bias": False,
            "classifier_activation": "gelu", "pad_token_id": ids["[PAD]"], "cls_token_id": ids["[CLS]"], "sep_token_id": ids["[SEP]"],
            "bos_token_id": ids["[CLS]"], "eos_token_id": ids["[SEP]"]}


NOMIC_CONFIG = {"vocab_size": len(WORDS), "hidden_size": HIDDEN, "num_hidden_layers": NOMIC_LAYERS, "num_attention_heads": HEADS,
                "intermediate_size": INNER, "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "hidden_act": "silu",
                "layer_norm_eps": 1e-12, "pad_token_id": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}


def modern_tensors():
    yield "embeddings.tok_embeddings.weight", (modern_config()["vocab_size"], HIDDEN)
    yield "embeddings.norm.weight", (HIDDEN,)
    for i in range(MODERN_LAYERS):
        layer = "layers.%d." % i
        if i > 0:
            yield layer + "attn_norm.weight", (HIDDEN,)
        yield layer + "attn.Wqkv.weight", (3 * HIDDEN, HIDDEN)
        yield layer + "attn.Wo.weight", (HIDDEN, HIDDEN)
        yield layer + "mlp_norm.weight", (HIDDEN,)
        yield layer + "mlp.Wi.weight", (2 * INNER, HIDDEN)
        yield layer + "mlp.Wo.weight", (HIDDEN, INNER)
    yield "final_norm.weight", (HIDDEN,)


def modern_head_tensors():
    yield "head.dense.weight", (HIDDEN, HIDDEN)
    yield "head.norm.weight", (HIDDEN,)
    yield "classifier.weight", (1, HIDDEN)
    yield "classifier.bias", (1,)


def nomic_tensors():
    """As published: of these transformers makes names of its own, and these again when it saves."""
    def norm(name):
        return [(name + ".weight", (HIDDEN,)), (name + ".bias", (HIDDEN,))]

    yield "embeddings.word_embeddings.weight", (len(WORDS), HIDDEN)
    yield "embeddings.token_type_embeddings.weight", (2, HIDDEN)
    yield from norm("emb_ln")
    for i in range(NOMIC_LAYERS):
        layer = "encoder.layers.%d." % i
        yield layer + "attn.Wqkv.weight", (3 * HIDDEN, HIDDEN)
        yield layer + "attn.out_proj.weight", (HIDDEN, HIDDEN)
        yield layer + "mlp.fc11.weight", (INNER, HIDDEN)
        yield layer + "mlp.fc12.weight", (INNER, HIDDEN)
        yield layer + "mlp.fc2.weight", (HIDDEN, INNER)
        yield from norm(layer + "norm1")
        yield from norm(layer + "norm2")


def gte_tensors():
    """As published, too."""
    def both(name, rows, cols=None):
        return [(name + ".weight", (rows, cols) if cols else (rows,)), (name + ".bias", (rows,))]

    yield "embeddings.word_embeddings.weight", (len(WORDS), HIDDEN)
    yield "embeddings.token_type_embeddings.weight", (1, HIDDEN)
    yield from both("embeddings.LayerNorm", HIDDEN)
    for i in range(GTE_LAYERS):
        layer = "encoder.layer.%d." % i
        yield from both(layer + "attention.qkv_proj", 3 * HIDDEN, HIDDEN)
        yield from both(layer + "attention.o_proj", HIDDEN, HIDDEN)
        yield from both(layer + "attn_ln", HIDDEN)
        yield layer + "mlp.up_gate_proj.weight", (2 * INNER, HIDDEN)
        yield from both(layer + "mlp.down_proj", HIDDEN, INNER)
        yield from both(layer + "mlp_ln", HIDDEN)


def gte_head_tensors():
    for name, rows in (("new.pooler.dense", HIDDEN), ("classifier", 1)):
        yield name + ".weight", (rows, HIDDEN)
        yield name + ".bias", (rows,)


def gte_config(saved=False):
    config = {"vocab_size": len(WORDS), "hidden_size": HIDDEN, "num_hidden_layers": GTE_LAYERS, "num_attention_heads": HEADS,
              "intermediate_size": INNER, "max_position_embeddings": POSITIONS, "type_vocab_size": 1, "hidden_act": "gelu",
              "layer_norm_eps": 1e-12, "pad_token_id": 0}
    if saved:
        return dict(config, architectures=["GteModel"], model_type="gte", rope_parameters={"rope_type": "default", "rope_theta": 160000.0})
    return dict(config, architectures=["NewModel"], model_type="new", position_embedding_type="rope", rope_theta=20000,
                rope_scaling={"type": "ntk", "factor": NTK}, pack_qkv=True, layer_norm_type="layer_norm", logn_attention_scale=False,
                logn_attention_clip1=False, unpad_inputs=False, use_memory_efficient_attention=False)


def published_nomic_config():
    return {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu", "causal": False,
            "n_embd": HIDDEN, "n_head": HEADS, "n_inner": INNER, "n_layer": NOMIC_LAYERS, "n_positions": POSITIONS,
            "layer_norm_epsilon": 1e-12, "pad_vocab_size_multiple": 1, "parallel_block": False, "parallel_block_tied_norm": False,
            "prenorm": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "rotary_emb_base": 1000,
            "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
            "max_trained_positions": 200, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "type_vocab_size": 2,
            "use_rms_norm": False, "vocab_size": len(WORDS)}


def saved_nomic_config():
    return dict(NOMIC_CONFIG, architectures=["NomicBertModel"], model_type="nomic_bert", head_dim=HIDDEN // HEADS)


def saved_modern_config(config):
    """As the fifth transformers saves it."""
    types = ["sliding_attention" if i % 3 else "full_attention" for i in range(MODERN_LAYERS)]
    thetas = {"full_attention": config["global_rope_theta"], "sliding_attention": config["local_rope_theta"]}
    kept = {k: v for k, v in config.items() if "rope" not in k and k != "global_attn_every_n_layers"}
    return dict(kept, layer_types=types, rope_parameters={k: {"rope_theta": v, "rope_type": "default"} for k, v in thetas.items()})


def write(path, config, tensors, tokenizer, pooling=None):
    """pooling: as encoder.write_directory has it; None: no embeddings are made."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    write_safetensors(path / "model.safetensors", {p + name: make_values(name, shape) for p, name, shape in tensors})
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]", "sep_token": "[SEP]"}))
    if pooling:
        encoder.write_pooling(path, pooling)


def write_modern(path, pooling, saved=False, **changes):
    config = {**modern_config(), "architectures": ["ModernBertModel"], "model_type": "modernbert", **changes}
    write(path, saved_modern_config(config) if saved else config, [("", *t) for t in modern_tensors()], modern_tokenizer(), pooling)


def write_modern_scorer(path, **changes):
    config = dict(modern_config(), architectures=["ModernBertForSequenceClassification"], model_type="modernbert",
                  id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
    tensors = [("model.", *t) for t in modern_tensors()] + [("", *t) for t in modern_head_tensors()]
    write(path, dict(config, **changes), tensors, modern_tokenizer())


def write_nomic(path, pooling, saved=False, **changes):
    config = dict(saved_nomic_config() if saved else published_nomic_config(), **changes)
    write(path, config, [("", *t) for t in nomic_tensors()], encoder.tokenizer(), pooling)


def write_gte(path, pooling, saved=False, **changes):
    write(path, {**gte_config(saved), **changes}, [("", *t) for t in gte_tensors()], encoder.tokenizer(), pooling)


def write_gte_scorer(path, saved=False, **changes):
    config = dict(gte_config(saved), architectures=["GteForSequenceClassification" if saved else "NewForSequenceClassification"],
                  id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
    tensors = [("new.", *t) for t in gte_tensors()] + [("", *t) for t in gte_head_tensors()]
    write(path, {**config, **changes}, tensors, encoder.tokenizer())


GGUF_NAMES = (
    ("embeddings.word_embeddings", "token_embd"), ("embeddings.token_type_embeddings", "token_types"), ("emb_ln", "token_embd_norm"),
    ("encoder.layers.", "blk."), ("attn.Wqkv", "attn_qkv"), ("attn.out_proj", "attn_output"), ("norm1", "attn_output_norm"),
    ("norm2", "layer_output_norm"), ("mlp.fc11", "ffn_up"), ("mlp.fc12", "ffn_gate"), ("mlp.fc2", "ffn_down"))


def write_nomic_gguf(path, pooling_type):
    """As llama.cpp's converter leaves it, all in f32."""
    numbers = {"block_count": NOMIC_LAYERS, "context_length": POSITIONS, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "pooling_type": pooling_type}
    keys = {"nomic-bert." + name: struct.pack("<II", 4, number) for name, number in numbers.items()}
    keys["nomic-bert.attention.layer_norm_epsilon"] = struct.pack("<If", 6, 1e-12)
    keys["nomic-bert.rope.freq_base"] = struct.pack("<If", 6, 1000.0)
    keys["nomic-bert.attention.causal"] = struct.pack("<I?", 7, False)
    keys.update(encoder.gguf_words("nomic-bert"))

    encoder.write_gguf_file(path, keys, [(encoder.gguf_name(name, GGUF_NAMES), make_values(name, shape)) for name, shape in nomic_tensors()])


MODERN_GGUF_NAMES = (
    ("embeddings.tok_embeddings", "token_embd"), ("embeddings.norm", "token_embd_norm"), ("final_norm", "output_norm"), ("layers.", "blk."),
    ("attn.Wqkv", "attn_qkv"), ("attn.Wo", "attn_output"), ("mlp_norm", "ffn_norm"), ("mlp.Wi", "ffn_up"), ("mlp.Wo", "ffn_down"),
    ("head.dense", "cls"), ("head.norm", "cls.norm"), ("classifier", "cls.output"))


def write_modern_gguf(path, pooling_type, period=3, head=False, activation="gelu"):
    """As llama.cpp's converter leaves it, all in f32. period: of layers that see all; None: what the family has. head: of one that ranks."""
    def number(value):
        return struct.pack("<II", 4, value)

    def real(value):
        return struct.pack("<If", 6, value)

    numbers = {"block_count": MODERN_LAYERS, "context_length": POSITIONS, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "pooling_type": pooling_type, "attention.sliding_window": LOCAL,
               "attention.sliding_window_pattern": period}
    keys = {"modern-bert." + name: number(value) for name, value in numbers.items() if value is not None}
    keys["modern-bert.attention.layer_norm_epsilon"] = real(1e-5)
    keys["modern-bert.rope.freq_base"] = real(160000.0)
    keys["modern-bert.rope.freq_base_swa"] = real(10000.0)
    keys["modern-bert.hidden_activation"] = struct.pack("<I", 8) + encoder.gguf_text(activation)
    keys["modern-bert.rope.scaling.type"] = struct.pack("<I", 8) + encoder.gguf_text("none")
    keys["modern-bert.attention.causal"] = struct.pack("<I?", 7, False)
    keys.update(modern_gguf_tokenizer())
    named = list(modern_tensors()) + (list(modern_head_tensors()) if head else [])
    tensors = [(encoder.gguf_name(name, MODERN_GGUF_NAMES), make_values(name, shape)) for name, shape in named]
    encoder.write_gguf_file(path, keys, tensors)


def modern_gguf_tokenizer():
    """What a control token is has type 3, what is added and text type 4, and what fills the rows behind type 5."""
    tokenizer, config = modern_tokenizer(), modern_config()
    words = {**{i: (w, 1) for w, i in tokenizer["model"]["vocab"].items()},
             **{t["id"]: (t["content"], 3 if t["special"] else 4) for t in tokenizer["added_tokens"]}}
    tokens = [words.get(i, ("[PAD%d]" % i, 5)) for i in range(config["vocab_size"])]
    keys = {"tokenizer.ggml." + name: struct.pack("<II", 4, config[own]) for name, own in (
        ("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id"), ("cls_token_id", "cls_token_id"),
        ("seperator_token_id", "sep_token_id"), ("padding_token_id", "pad_token_id"))}
    keys |= {"tokenizer.ggml." + name: struct.pack("<I?", 7, True) for name in ("add_bos_token", "add_eos_token", "add_sep_token")}
    keys["general.architecture"] = struct.pack("<I", 8) + encoder.gguf_text("modern-bert")
    keys["tokenizer.ggml.model"] = struct.pack("<I", 8) + encoder.gguf_text("gpt2")
    keys["tokenizer.ggml.pre"] = struct.pack("<I", 8) + encoder.gguf_text("modern-bert")
    keys["tokenizer.ggml.tokens"] = encoder.gguf_array(8, [encoder.gguf_text(w) for w, _ in tokens])
    keys["tokenizer.ggml.token_type"] = encoder.gguf_array(5, [struct.pack("<i", kind) for _, kind in tokens])
    keys["tokenizer.ggml.merges"] = encoder.gguf_array(8, [encoder.gguf_text(m) for m in MERGES])
    return keys


MODERN_LISTS = [[i + 2 for i in ids] for ids in LISTS]
