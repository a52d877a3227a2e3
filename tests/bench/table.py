"""table.py BENCH_PROGRAM MODEL LLAMA_PYTHON RUNS - runs flashd and llama.cpp in turn and prints one table of medians.

A dash in llama.cpp's column: LLAMA_PYTHON has no llama-cpp-python. The floors stand in kernels/README.md.
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
    program, model, python, runs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    here = os.path.dirname(os.path.abspath(__file__))
    threads = str(os.cpu_count())
    have_llama = subprocess.run([python, "-c", "import llama_cpp"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    ours, theirs = [], ([], [])
    for _ in range(runs):
        ours.append(run([program, model, "--threads", threads]))
        for flash in (0, 1) if have_llama else ():
            theirs[flash].append(run([python, os.path.join(here, "bench_llama.py"), model, threads, str(flash)]))
    llama = better(theirs) if have_llama else None
    print(f"{'tokens/s, ' + threads + ' threads, medians of ' + str(runs):34s} {'flashd':>9s} {'llama.cpp':>10s} {'ratio':>7s}")
    for name, text in NAMES.items():
        mine = statistics.median(r[name] for r in ours)
        peer = f"{llama[name]:10.1f} {mine / llama[name]:7.2f}" if llama else f"{'-':>10s} {'-':>7s}"
        print(f"{text:34s} {mine:9.1f} {peer}")


if __name__ == "__main__":
    main()
