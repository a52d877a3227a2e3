"""K/V of 8 bits: an answer has the same bytes alone, after a prefix hit, among others and after a preemption."""

import concurrent.futures

import pytest

NUM_REQUESTS, PROMPT, LENGTH, NUM_BLOCKS = 5, "The quick brown fox jumps over the lazy dog. " * 3, 100, 22
BLOCK_BYTES = 30 * 3 * 2 * (64 + 4) * 16  # layers, K/V heads, K and V, codes and their scale, tokens


def ask(server, number):
    body = {"prompt": PROMPT + str(number), "max_tokens": LENGTH, "seed": number, "temperature": 0.8, "ignore_eos": True, "logprobs": 1}
    answer = server.post("/v1/completions", body | {"receipt": True}).json()
    return answer["choices"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fp8", "int8"])
def test_one_answer_however_it_is_computed(start_server, name):
    options = ["--kv-cache-dtype", name, "--max-model-len", "160", "--max-num-seqs", str(NUM_REQUESTS)]
    with start_server(*options, "--kv-cache-memory-bytes", str(NUM_BLOCKS * BLOCK_BYTES)) as server:
        first = [ask(server, number) for number in range(NUM_REQUESTS)]
        assert first[0][1] == 0 and all(cached >= 16 for _, cached in first[1:])
        alone = [choices for choices, _ in first]
        again, cached = ask(server, 0)
        assert again == alone[0] and cached >= 16
        blocks = {s: server.metrics()[f'flashd_kv_blocks{{state="{s}"}}'] for s in ("free", "cached", "held")}
        assert sum(blocks.values()) == NUM_BLOCKS
        with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as pool:
            assert [choices for choices, _ in pool.map(lambda number: ask(server, number), range(NUM_REQUESTS))] == alone
        assert server.metrics()["vllm:num_preemptions_total"] > 0
