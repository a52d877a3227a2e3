"""reference.py - SmolLM2 in Hugging Face transformers, float32, over the dequantised weights of the GGUF file.

The reference computes with exactly the numbers that the GGUF file stands for: every packed tensor is dequantised by the
gguf package, and the q/k rows are put back from the file's interleaved order to the one that transformers rotates.
"""
import pathlib

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def field(reader, key):
    return reader.fields[key].contents()


def hf_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def unpermute(weight, heads):
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def load_model(path=MODEL):
    reader = gguf.GGUFReader(str(path))
    heads, kv_heads = field(reader, "llama.attention.head_count"), field(reader, "llama.attention.head_count_kv")
    config = LlamaConfig(
        hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=field(reader, "llama.vocab_size"),
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base")},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).float().eval()
    state = {}
    for tensor in reader.tensors:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name.endswith("attn_q.weight"):
            weight = unpermute(weight, heads)
        if tensor.name.endswith("attn_k.weight"):
            weight = unpermute(weight, kv_heads)
        state[hf_name(tensor.name)] = torch.from_numpy(np.ascontiguousarray(weight))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


def load_tokenizer(path=MODEL):
    reader = gguf.GGUFReader(str(path))
    tokens, types = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == 3])
    return tokenizer


def texts():
    return (HERE / "texts.txt").read_text(encoding="utf-8").split("\n%%\n")
