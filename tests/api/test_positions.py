"""A model that allows more positions than its K/V cache holds: what is made for them, and what follows from how many it allows."""
import json
import re
import sys

import pytest

import byte_tokenizer
import conftest
from test_engine_process import engine_pid, kill_engine, wait_ready

sys.path.insert(0, str(conftest.ROOT / "tests/golden"))
import encoder  # noqa: E402

HALF, NUM_LAYERS = 32, 2
TOKEN_BYTES = NUM_LAYERS * 2 * 2 * HALF * 2
LONGROPE = {"type": "longrope", "short_factor": [1.0] * HALF, "long_factor": [1.0 + 2 * i for i in range(HALF)]}
CONFIG = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 2 * HALF, "intermediate_size": 96,
          "num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": NUM_LAYERS, "vocab_size": 258,
          "max_position_embeddings": 1 << 22, "original_max_position_embeddings": 256, "rms_norm_eps": 1e-6,
          "rope_theta": 10000.0, "rope_scaling": LONGROPE, "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": 0}
KV_OPTIONS = ("--kv-cache-memory-bytes", str(128 * TOKEN_BYTES), "--kv-cache-dtype", "bf16", "--max-num-seqs", "2")
BODY = {"prompt": "a text whose letters stand far apart" * 2, "max_tokens": 20, "temperature": 0, "ignore_eos": True, "logprobs": 3}


@pytest.fixture(scope="module")
def long(serve_written):
    def write(folder):
        (folder / "config.json").write_text(json.dumps(CONFIG))
        byte_tokenizer.write(folder, ("<s>", "<|im_end|>"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<|im_end|>"}))
    yield from serve_written(write, "--load-format", "dummy", "--max-engine-deaths", "0", *KV_OPTIONS)


def answer(server, **fields):
    return server.post("/v1/completions", BODY | fields).json()["choices"][0]


def test_no_memory_is_for_positions_that_cannot_be(long):
    with open(f"/proc/{engine_pid(long)}/status") as file:
        peak_kib = int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])
    assert long.client().models.list().data[0].max_model_len == 128
    assert peak_kib < 512 << 10  # a row of 256 bytes for each position would be a GiB


def test_the_next_engine_chooses_the_same_rotation(long):
    """Factors follow from what the model allows, not from what fits: else an answer would go on with other numbers."""
    before = answer(long)
    kill_engine(long)
    wait_ready(long)
    assert answer(long) == before


def test_tokens_of_the_second_type_have_their_rows(start_server, tmp_path):
    """Where a shorter text fits than the model allows."""
    encoder.write_scorer(tmp_path)
    body = {"text_1": encoder.QUERY, "text_2": encoder.DOCUMENTS[:-1]}
    scores = []
    fewer = (encoder.POSITIONS - 80) * encoder.LAYERS * 2 * encoder.HIDDEN * 4
    for options in ((), ("--kv-cache-memory-bytes", str(fewer))):
        with start_server(*options, model=tmp_path) as server:
            reply = server.post("/v1/score", body)
            assert reply.status_code == 200, reply.text
            scores.append([item["score"] for item in reply.json()["data"]])
    assert scores[0] == scores[1]
