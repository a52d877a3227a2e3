"""What a model's files mean once it is served."""
import json
import shutil

import pytest

from conftest import MODEL

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "num_hidden_layers": 2, "vocab_size": 258,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "eos_token_id": 0}


def byte_characters():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


@pytest.fixture
def directory(tmp_path):
    """A Hugging Face directory whose tokens are bytes, and two special ones; its weights are left to chance."""
    added = [{"id": 256 + i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, text in enumerate(("<s>", "<|im_end|>"))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level,
                 "post_processor": None, "decoder": byte_level,
                 "model": {"type": "BPE", "vocab": {c: b for b, c in byte_characters().items()}, "merges": []}}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|im_end|>"}))
    return tmp_path


def test_the_tokenizers_end_of_turn_ends_an_answer(start_server, directory):
    with start_server("--load-format", "dummy", model=directory) as server:
        for token, reason, num_tokens in ((257, "stop", 1), (0, "stop", 1), (65, "length", 4)):
            answer = server.post("/v1/completions", {"prompt": "abc", "max_tokens": 4, "logit_bias": {str(token): 100}}).json()
            assert answer["choices"][0]["finish_reason"] == reason
            assert answer["usage"]["completion_tokens"] == num_tokens


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
