"""What a model's files mean once it is served."""
import json
import shutil
import subprocess
import sys

import byte_tokenizer
import numpy as np
import pytest

from conftest import BINARY, MODEL, ROOT
from test_tools import TEMPLATE

sys.path.insert(0, str(ROOT / "tests/golden"))
import encoder  # noqa: E402

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "num_hidden_layers": 2, "vocab_size": 258,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "eos_token_id": 0}


@pytest.fixture
def directory(tmp_path):
    """A Hugging Face directory whose tokens are bytes, and two special ones; its weights are left to chance."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    byte_tokenizer.write(tmp_path, ("<s>", "<|im_end|>"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|im_end|>"}))
    return tmp_path


def test_the_tokenizers_end_of_turn_ends_an_answer(start_server, directory):
    with start_server("--load-format", "dummy", model=directory) as server:
        for token, reason, num_tokens in ((257, "stop", 1), (0, "stop", 1), (65, "length", 4)):
            answer = server.post("/v1/completions", {"prompt": "abc", "max_tokens": 4, "logit_bias": {str(token): 100}}).json()
            assert answer["choices"][0]["finish_reason"] == reason
            assert answer["usage"]["completion_tokens"] == num_tokens


def test_tools_without_a_tokenizer(start_server, tmp_path):
    """Random weights need none; their template says how tools are called, all the same."""
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 2048}))
    (tmp_path / "template").write_text(TEMPLATE)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "additionalProperties": False}}}
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
        "name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "y"}]
    with start_server("--load-format", "dummy", "--chat-template", str(tmp_path / "template"), model=tmp_path) as server:
        for choice in ("required", "auto"):
            body = {"messages": turns, "tools": [tool], "tool_choice": choice, "max_tokens": 8}
            reply = server.post("/v1/chat/completions", body)
            assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("shape", [(), (192,), (64 * 192,), (64, 192, 1), (64, 191), (192, 64)])
def test_matrices_that_lie_transposed_have_two_dimensions(tmp_path, shape):
    """GPT-2's; of other shapes than [64][192]."""
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 1, "n_positions": 16, "vocab_size": 258}
    shapes = {"wte.weight": (258, 64), "wpe.weight": (16, 64), "h.0.attn.c_attn.weight": shape}
    shapes.update((name + part, (64,)) for name in ("ln_f", "h.0.ln_1") for part in (".weight", ".bias"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    byte_tokenizer.write(tmp_path, ("<s>", "<|im_end|>"))
    encoder.write_safetensors(tmp_path / "model.safetensors", {name: np.zeros(own, np.float32) for name, own in shapes.items()})
    done = subprocess.run([BINARY, "serve", tmp_path, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "tensor h.0.attn.c_attn.weight" in done.stderr, done.stderr


def test_a_file_that_is_cut_once_it_is_loaded(start_server, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copyfile(MODEL, path)
    body = {"messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 12, "temperature": 0}
    with start_server(model=path) as server:
        before = server.post("/v1/chat/completions", body).json()
        with open(path, "r+b") as file:
            file.truncate(0)
        after = server.post("/v1/chat/completions", body).json()
        assert after["choices"] == before["choices"]
