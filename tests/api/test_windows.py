"""A model most of whose layers see a window: what lies behind it takes no memory, and changes no answer."""
import json

import byte_tokenizer

NUM_TOKENS = 4096
CONFIG = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "num_hidden_layers": 4, "vocab_size": 258,
          "max_position_embeddings": NUM_TOKENS, "rms_norm_eps": 1e-6, "sliding_window": 32, "query_pre_attn_scalar": 64,
          "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "hidden_activation": "gelu_pytorch_tanh",
          "rope_theta": 10000.0, "rope_local_base_freq": 10000.0, "tie_word_embeddings": True, "eos_token_id": 0}
LAYER_TOKEN_BYTES = 2 * 64 * 2
PROMPT = "".join(chr(97 + i * i % 23) for i in range(3000))


def answer(server, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 100, "temperature": 0, "ignore_eos": True, "logprobs": 5} | fields
    reply = server.post("/v1/completions", body).json()
    return reply["choices"][0], reply["usage"]


def test_memory_is_for_one_layer_in_four(start_server, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    byte_tokenizer.write(tmp_path, ("<s>", "<|im_end|>"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|im_end|>"}))
    options = ("--load-format", "dummy", "--kv-cache-dtype", "bf16", "--max-model-len", str(NUM_TOKENS), "--max-num-batched-tokens",
               "64", "--max-num-seqs", "4", "--kv-cache-memory-bytes")
    whole = NUM_TOKENS * LAYER_TOKEN_BYTES
    with start_server(*options, str(16 * whole), "--enable-prefix-caching=false", model=tmp_path) as server:
        expected = [answer(server, PROMPT)[0], answer(server, PROMPT + "and more")[0]]
    with start_server(*options, str(whole + whole // 8), model=tmp_path) as server:
        assert answer(server, PROMPT)[0] == expected[0]
        choice, usage = answer(server, PROMPT + "and more")
        assert choice == expected[1]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 2900
