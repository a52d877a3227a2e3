"""PyTorch's FlashAttention-2 backward on the shapes of `flashd bench attention --device cuda`: causal, 64 heads of 128.

Prints N, milliseconds and GFLOP/s (five products of the pairs below the diagonal), as the lab's table does.
"""
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, DIM, REPEATS = int(sys.argv[1]) if len(sys.argv) > 1 else 64, 128, 11


def milliseconds(length):
    q, k, v = (torch.randn(1, HEADS, length, DIM, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    d_out = torch.randn_like(out)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for i in range(REPEATS + 3):
        begin.record()
        torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main():
    print("PyTorch's FlashAttention-2 backward")
    for length in 512, 1024, 2048, 4096, *([8192, 16384] if HEADS <= 8 else []):
        ms = milliseconds(length)
        print(f"{length:7d} {ms:10.3f} {5 * HEADS * DIM * length * (length + 1) / ms * 1e-6:9.1f}", flush=True)


if __name__ == "__main__":
    main()
