"""A model three of whose four layers, or all, have a state in the place of K and V: one answer, whoever runs beside it, however often
it is computed again, whatever of it was kept of an earlier one, and with drafts as without."""
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import byte_tokenizer
from test_engine_process import kill_engine

NUM_TOKENS = 1024
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
         "num_hidden_layers": 4, "vocab_size": 258, "max_position_embeddings": NUM_TOKENS, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "tie_word_embeddings": True, "eos_token_id": 0}
CONFIGS = {
    "delta rule": SHAPE | {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "linear_num_key_heads": 2,
                           "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32},
    "state space": SHAPE | {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "mamba_n_heads": 4,
                            "mamba_d_state": 32, "layer_types": ["mamba", "mamba", "mamba", "attention"], "num_local_experts": 4,
                            "num_experts_per_tok": 2, "shared_intermediate_size": 48},
    "decays of rows": SHAPE | {"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "num_key_value_heads": 2,
                               "kv_lora_rank": 48, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "q_lora_rank": None,
                               "linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 32, "num_heads": 2},
                               "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1, "moe_intermediate_size": 48},
    "beside attention": SHAPE | {"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "num_hidden_layers": 1, "mamba_d_ssm": 128,
                                 "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 32},
    "a list of attention's layers": SHAPE | {"architectures": ["BambaForCausalLM"], "model_type": "bamba", "attn_layer_indices": [3],
                                             "mamba_n_heads": 4, "mamba_d_state": 32},
    "states of channels": SHAPE | {"architectures": ["JambaForCausalLM"], "model_type": "jamba", "attn_layer_period": 4, "attn_layer_offset": 3,
                                   "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 16},
    "without attention": SHAPE | {"architectures": ["MambaForCausalLM"], "model_type": "mamba", "intermediate_size": 128, "state_size": 32},
    "Mamba 2 without attention": SHAPE | {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "num_heads": 4, "head_dim": 32, "n_groups": 2,
                                          "state_size": 32},
    "beside windows": SHAPE | {"architectures": ["Lfm3ForCausalLM"], "model_type": "lfm3", "head_dim": 32, "sliding_window": 48,
                               "layer_types": ["conv", "full_attention", "conv", "sliding_attention"],
                               "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
                                                   "sliding_attention": {"rope_theta": 10000.0}}},
}
TOKEN_BYTES = 2 * 64 * 2  # of K and V in bf16: of one layer in four, or of two with heads of half the size
PLACE_BYTES = 2 * 16 * 2  # of one of which no layer has K and V
TWO_LETTERS = {str(ord(letter)): 100 for letter in "ab"}
PROMPTS = ["".join(chr(97 + (i * i + k) % 23) for i in range(20 + 45 * k)) for k in range(12)]


def write(folder, kind):
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind]))
    byte_tokenizer.write(folder, ("<s>", "<|im_end|>"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|im_end|>"}))


def ask(server, prompt, **fields):
    body = {"prompt": prompt, "temperature": 0.8, "ignore_eos": True, "logprobs": 3} | fields
    reply = server.post("/v1/completions", body).json()
    return reply["choices"][0], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def answer(server, k):
    fields = {"max_tokens": 200, "seed": k}
    if k % 3 == 1:  # some of whose tokens have to wait for their masks, and are computed again
        fields |= {"structured_outputs": {"regex": "([a-m]{3} ?)+"}, "ignore_eos": False}
    if k % 3 == 2:  # of two letters, so that it has said each three in a row soon
        fields |= {"temperature": k % 2 * 0.3, "logit_bias": TWO_LETTERS, "frequency_penalty": k % 2 * 0.01}
    return ask(server, PROMPTS[k], **fields)


def all_together(server):
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return [choice for choice, _ in pool.map(lambda k: answer(server, k), range(len(PROMPTS)))]


def num_drafted(server, result):
    return server.metrics()[f'flashd_draft_tokens_total{{result="{result}"}}']


def start(start_server, folder, num_tokens, *options):
    """A server whose K/V cache has room for so many, and whose steps are as large as they may be, however slow the machine is, and on one thread:
    a busy one would have drafts wait for another thread, and then cost more than they save."""
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    token_bytes = PLACE_BYTES if "mamba" in model_type else TOKEN_BYTES
    return start_server("--load-format", "dummy", "--kv-cache-dtype", "bf16", "--max-model-len", str(NUM_TOKENS),
                        "--max-num-batched-tokens", "64", "--target-itl", "10000", "--threads", "1", "--kv-cache-memory-bytes", str(num_tokens * token_bytes), *options,
                        model=folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
def test_one_answer_however_it_is_computed(start_server, tmp_path, kind):
    write(tmp_path, kind)
    with start(start_server, tmp_path, 16 * NUM_TOKENS, "--no-enable-prefix-caching", "--num-speculative-tokens", "0") as server:
        found = [answer(server, k) for k in range(len(PROMPTS))]
        alone = [choice for choice, _ in found]
        assert [cached for _, cached in found] == [0] * len(PROMPTS)
        assert all_together(server) == alone
    with start(start_server, tmp_path, 16 * NUM_TOKENS) as server:
        assert [answer(server, k) for k in range(len(PROMPTS))] == found  # nothing was kept yet
        for _ in range(20):  # a server whose warm-up met a bad moment drafts later
            if num_drafted(server, "accepted") > 20 and num_drafted(server, "rejected") > 20:
                break
            assert [answer(server, k)[0] for k in range(len(PROMPTS))] == alone
        assert num_drafted(server, "accepted") > 20 and num_drafted(server, "rejected") > 20
        assert all_together(server) == alone
        again = [answer(server, k) for k in range(len(PROMPTS))]
        assert [choice for choice, _ in again] == alone
        assert [cached for _, cached in again] == [(len(PROMPTS[k]) - 1) // 64 * 64 for k in range(len(PROMPTS))]
    # little memory, so that some are preempted: with what they have computed in host memory, or not
    for options in (), ("--kv-offload-bytes", "0"):
        with start(start_server, tmp_path, NUM_TOKENS + 96, *options) as server:
            for _ in range(20):  # who comes when is not ours to say
                assert all_together(server) == alone
                if server.metrics()["vllm:num_preemptions_total"] > 0:
                    break
            assert server.metrics()["vllm:num_preemptions_total"] > 0
            with ThreadPoolExecutor(len(PROMPTS)) as pool:
                begun = [pool.submit(answer, server, k) for k in range(len(PROMPTS))]
                kill_engine(server)
                assert [one.result()[0] for one in begun] == alone


def test_what_is_kept(start_server, tmp_path):
    """A conversation goes on behind its newest answer, and a beginning that many have is computed twice."""
    write(tmp_path, "delta rule")
    prompt, system = PROMPTS[3], PROMPTS[6]
    first = {"max_tokens": 200, "seed": 1, "structured_outputs": {"regex": "[a-m]{200}"}}

    def branches(server):
        return [ask(server, system + letter * 100, max_tokens=20, seed=3) for letter in "xyz"]

    with start(start_server, tmp_path, 16 * NUM_TOKENS, "--no-enable-prefix-caching") as server:
        turn, _ = ask(server, prompt, **first)
        longer = prompt + turn["text"] + "and more"
        next_turn, _ = ask(server, longer, max_tokens=20, seed=2)
        parted = [choice for choice, _ in branches(server)]
    with start(start_server, tmp_path, 16 * NUM_TOKENS) as server:
        assert ask(server, prompt, **first) == (turn, 0)
        assert ask(server, longer, max_tokens=20, seed=2) == (next_turn, (len(prompt) + 199) // 64 * 64)
        assert branches(server) == list(zip(parted, [0, 0, len(system) // 64 * 64]))
