"""Answers that grow beyond the K/V cache: some are preempted and come back, to their saved blocks or to compute again."""

import concurrent.futures
import re

NUM_REQUESTS, LENGTH, BLOCK_BYTES = 6, 120, 16 * 23040
SMALL = ["--max-model-len", "160", "--max-num-seqs", str(NUM_REQUESTS), "--kv-cache-memory-bytes", str(20 * BLOCK_BYTES)]
WHAT_BECAME_OF_IT = (r"no K/V block is free: .* what it has computed (is saved|will be computed again); "
                     r"expected ([\d.]+) ms to copy, ([\d.]+) ms to compute again")


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
            lines = re.findall(WHAT_BECAME_OF_IT, small.log())
            assert len(lines) == preempted and [line[0] for line in lines].count("is saved") == saved
            for what, copy, compute in lines:  # what is cheaper, by prices that a busy machine may have measured wrongly
                is_cheaper = host_bytes > 0 and float(copy) <= float(compute)
                assert what == ("is saved" if is_cheaper else "will be computed again"), (copy, compute)
