"""table.py PROGRAMS MODEL LLAMA_PYTHON RUNS - runs flashd and llama.cpp in turn and prints one table of medians.

PROGRAMS is the folder of bench_model and bench_ceilings. Beside each figure stands what this machine would allow at best
(bench_ceilings.c) and how much of it flashd reaches. A dash in llama.cpp's column: LLAMA_PYTHON has no llama-cpp-python.
"""
import json
import os
import statistics
import subprocess
import sys

NAMES = {
    "prefill_512": "prefill of 512 tokens",
    "decode_1_at_16": "decode, 1 sequence at 16",
    "decode_1_at_512": "decode, 1 sequence at 512",
    "decode_8": "decode, 8 sequences in all",
    "decode_32": "decode, 32 sequences in all",
}


def run(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def better(runs):
    """llama.cpp's best settings for each figure: with or without flash attention, whichever median is higher."""
    return {name: max(statistics.median(r[name] for r in kind) for kind in runs) for name in NAMES}


def main():
    programs, model, python, runs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    here = os.path.dirname(os.path.abspath(__file__))
    threads = str(os.cpu_count())
    have_llama = subprocess.run([python, "-c", "import llama_cpp"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    limits, ours, theirs = run([programs + "/bench_ceilings", model, threads]), [], ([], [])
    for _ in range(runs):
        ours.append(run([programs + "/bench_model", model, "--threads", threads]))
        for flash in (0, 1) if have_llama else ():
            theirs[flash].append(run([python, os.path.join(here, "bench_llama.py"), model, threads, str(flash)]))
    llama = better(theirs) if have_llama else None
    print("%s threads, tokens/s, medians of %d; ceilings: %.1f GB/s, %.0f and %.0f G multiply-adds/s in int8 and f32" % (
        threads, runs, limits["read_gb_s"], limits["int8_gmac_s"], limits["f32_gmac_s"]))
    print(f"{'':28s} {'flashd':>9s} {'llama.cpp':>10s} {'ratio':>7s} {'ceiling':>9s} {'reached':>8s}")
    for name, text in NAMES.items():
        mine = statistics.median(r[name] for r in ours)
        peer = f"{llama[name]:10.1f} {mine / llama[name]:7.2f}" if llama else f"{'-':>10s} {'-':>7s}"
        print(f"{text:28s} {mine:9.1f} {peer} {limits[name]:9.1f} {100 * mine / limits[name]:7.0f}%")


if __name__ == "__main__":
    main()
