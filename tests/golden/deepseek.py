"""deepseek.py - latent attention's tensors as newer GGUF files have them, and back to what transformers takes: for make_model.py.

kv_b_proj lies in two tensors: of each head the rows of K transposed (attn_k_b), and those of V (attn_v_b).
"""
import torch


def sizes(config):
    return config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"], config["kv_lora_rank"]


def gguf_entries(name, rows, cols, config, gguf_name):
    """(GGUF's name, rows, cols)"""
    heads, plain, values, rank = sizes(config)
    if not name.endswith("kv_b_proj.weight"):
        return [(gguf_name, rows, cols)]
    return [(gguf_name.replace("kv_b", "k_b"), heads * rank, plain), (gguf_name.replace("kv_b", "v_b"), heads * values, rank)]


def join(parts, config):
    if len(parts) == 1:
        return parts[0]
    heads, plain, values, rank = sizes(config)
    k, v = parts[0].reshape(heads, rank, plain).swapaxes(1, 2), parts[1].reshape(heads, values, rank)
    return torch.cat((k, v), 1).reshape(-1, rank).contiguous()
