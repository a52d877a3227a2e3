"""A model three of whose four layers have a state in the place of K and V: one answer, whoever runs beside it, and however often
it is computed again."""
import json
from concurrent.futures import ThreadPoolExecutor

import byte_tokenizer
from test_engine_process import kill_engine

NUM_TOKENS = 1024
CONFIG = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "num_hidden_layers": 4, "vocab_size": 258,
          "max_position_embeddings": NUM_TOKENS, "rms_norm_eps": 1e-6, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "linear_key_head_dim": 32, "linear_value_head_dim": 32, "rope_theta": 10000.0, "tie_word_embeddings": True,
          "eos_token_id": 0}
TOKEN_BYTES = 2 * 64 * 2  # of K and V in bf16: of one layer in four
PROMPTS = ["".join(chr(97 + (i * i + k) % 23) for i in range(20 + 45 * k)) for k in range(12)]


def write(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG))
    byte_tokenizer.write(folder, ("<s>", "<|im_end|>"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|im_end|>"}))


def answer(server, k, path="/v1/completions"):
    body = {"prompt": PROMPTS[k], "max_tokens": 90, "temperature": 0.8, "seed": k, "ignore_eos": True, "logprobs": 3}
    if k % 3 == 1:  # some of whose tokens have to wait for their masks, and are computed again
        body |= {"structured_outputs": {"regex": "([a-m]{3} ?)+"}, "ignore_eos": False}
    reply = server.post(path, body).json()
    return reply["choices"][0], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def all_together(server):
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(lambda k: answer(server, k), range(len(PROMPTS))))


def test_one_answer_however_it_is_computed(start_server, tmp_path):
    write(tmp_path)
    options = ("--load-format", "dummy", "--kv-cache-dtype", "bf16", "--max-model-len", str(NUM_TOKENS),
               "--max-num-batched-tokens", "64", "--kv-cache-memory-bytes")
    with start_server(*options, str(16 * NUM_TOKENS * TOKEN_BYTES), model=tmp_path) as server:
        alone = [answer(server, k) for k in range(len(PROMPTS))]
        assert [cached for _, cached in alone] == [0] * len(PROMPTS)
        assert all_together(server) == alone
    # little memory, so that some are preempted
    with start_server(*options, str(2 * NUM_TOKENS * TOKEN_BYTES), model=tmp_path) as server:
        assert all_together(server) == alone
        assert server.metrics()["vllm:num_preemptions_total"] > 0
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            begun = [pool.submit(answer, server, k) for k in range(len(PROMPTS))]
            kill_engine(server)
            assert [one.result() for one in begun] == alone
