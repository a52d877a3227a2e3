"""Answers that grow beyond the K/V cache: some are preempted and come back, to their saved blocks or to compute again."""

import concurrent.futures
import re

NUM_REQUESTS, LENGTH, BLOCK_BYTES = 6, 120, 16 * 23040
SMALL = ["--max-model-len", "160", "--max-num-seqs", str(NUM_REQUESTS), "--kv-cache-memory-bytes", str(20 * BLOCK_BYTES)]


def ask(server, number):
    body = {"prompt": f"{number} sheep and one more", "max_tokens": LENGTH, "seed": number, "temperature": 0.8, "ignore_eos": True,
            "logprobs": 1}
    return server.post("/v1/completions", body).json()["choices"]


def ask_together(server):
    with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as pool:
        return list(pool.map(lambda number: ask(server, number), range(NUM_REQUESTS)))


def test_answers_that_outgrow_the_cache(server, start_server):
    alone = [ask(server, number) for number in range(NUM_REQUESTS)]
    for host_bytes in (0, 20 * BLOCK_BYTES):
        with start_server(*SMALL, "--kv-offload-bytes", str(host_bytes)) as small:
            assert ask_together(small) == alone
            metrics = small.wait_idle()
            preempted, saved = metrics["vllm:num_preemptions_total"], metrics["flashd_preemptions_saved_total"]
            assert preempted > 0 and metrics["flashd_kv_host_blocks"] == 0
            assert saved == (0 if host_bytes == 0 else preempted)
            lines = re.findall(r"no K/V block is free: .* what it has computed (is saved|will be computed again)", small.log())
            assert len(lines) == preempted and lines.count("is saved") == saved
