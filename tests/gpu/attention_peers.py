"""PyTorch's FlashAttention-2 and cuDNN on the shapes of bench_attention: causal prefill, contiguous, 16k tokens in all.

Prints TFLOP/s (medians of graph replays, pairs below the diagonal counted), FA2 / cuDNN; 0 where one does not support a shape.
With a head size: its shapes alone.
"""
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, REPEATS = 16384, 11


def tflops(backend, q_heads, kv_heads, head_dim, length):
    batch = TOKENS // length
    q = torch.randn(batch, q_heads, length, head_dim, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, length, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def run():
        with sdpa_kernel(backend):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q_heads != kv_heads)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
        run()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for i in range(REPEATS + 3):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) / 2)
    return 2 * TOKENS * length * head_dim * q_heads / statistics.median(times) * 1e-9


def tflops_or_0(*shape):
    try:
        return tflops(*shape)
    except RuntimeError:
        return 0


def main():
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    for q_heads, kv_heads, head_dim in (32, 32, 128), (32, 8, 128), (32, 8, 64), (9, 3, 64), (16, 8, 256), (8, 4, 256):
        if wanted and head_dim != wanted:
            continue
        row = f"{q_heads}/{kv_heads} d{head_dim}".ljust(12)
        for length in 512, 1024, 2048, 4096, 8192, 16384:
            values = [tflops_or_0(b, q_heads, kv_heads, head_dim, length)
                      for b in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)]
            row += "%6.0f /%4.0f" % tuple(values)
        print(row, flush=True)


if __name__ == "__main__":
    main()
