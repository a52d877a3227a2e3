"""bench_llama.py MODEL THREADS FLASH_ATTENTION [CLOCK] - the same measurements as bench_model.c, by llama.cpp in its Python package.

Prints one line of JSON. FLASH_ATTENTION is 0 or 1: the caller takes the better of the two for each figure.
CLOCK "process": processor time, as bench_model's --clock.
"""
import json
import sys
import time

import llama_cpp

now = time.process_time if sys.argv[4:] == ["process"] else time.perf_counter
PREFILL_TOKENS, SHORT_CONTEXT, DECODE_STEPS, BATCH_STEPS, SEQS_MAX = 512, 16, 48, 16, 32


def prompt(n):
    return [1000 + (i * 7919) % 40000 for i in range(n)]


class Session:
    def __init__(self, path, threads, flash_attention):
        llama_cpp.llama_backend_init()
        self.quiet = llama_cpp.llama_log_callback(lambda *_: None)  # kept: C holds a pointer to it
        llama_cpp.llama_log_set(self.quiet, None)
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = SEQS_MAX * 128 + PREFILL_TOKENS + 64
        context.n_batch = context.n_ubatch = PREFILL_TOKENS
        context.n_seq_max = SEQS_MAX
        context.n_threads = context.n_threads_batch = threads
        context.flash_attn_type = flash_attention
        context.kv_unified = True
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.batch = llama_cpp.llama_batch_init(PREFILL_TOKENS, 0, SEQS_MAX)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def step(self, tokens, positions, seqs, logits):
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, seq, wanted) in enumerate(zip(tokens, positions, seqs, logits)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = seq
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)

    def prefill(self, n, seq=0):
        begin = now()
        self.step(prompt(n), range(n), [seq] * n, [0] * (n - 1) + [1])
        return n / (now() - begin)

    def decode(self, num_seqs, context):
        """Feeds fixed tokens instead of sampling: a sampler in Python would be measured otherwise."""
        self.clear()
        for seq in range(num_seqs):
            self.prefill(context, seq)
        num_steps = DECODE_STEPS if num_seqs == 1 else BATCH_STEPS
        begin = now()
        for i in range(num_steps):
            self.step([1000 + i] * num_seqs, [context + i] * num_seqs, range(num_seqs), [1] * num_seqs)
        return num_steps * num_seqs / (now() - begin)


def main():
    session = Session(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    session.prefill(PREFILL_TOKENS)
    session.decode(1, SHORT_CONTEXT)
    session.clear()
    result = {"prefill_512": session.prefill(PREFILL_TOKENS)}
    result["decode_1_at_16"] = session.decode(1, SHORT_CONTEXT)
    result["decode_1_at_512"] = session.decode(1, PREFILL_TOKENS)
    result["decode_8"] = session.decode(8, SHORT_CONTEXT)
    result["decode_32"] = session.decode(SEQS_MAX, SHORT_CONTEXT)
    print(json.dumps({k: round(v, 1) for k, v in result.items()}))


if __name__ == "__main__":
    main()
