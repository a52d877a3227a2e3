"""maskbench.py - MaskBench's schemas through text/grammar and, where they are installed, llguidance and xgrammar.

    python3 tests/bench/maskbench.py DATA TOKENIZER [--peers PYTHON] [--timeout 20] [--list N]

DATA: a folder of MaskBench's files, or an archive of them (.tar.xz). TOKENIZER: a folder with tokenizer.json (may be
.xz). PYTHON: an interpreter that has llguidance, xgrammar, tokenizers and numpy. Each engine runs on one thread, its
times are that thread's processor time. A schema passes when it compiles and each of its instances is accepted or
rejected as it should be, its end included; an instance is followed token by token: mask, look-up, commit.
"""
import argparse
import collections
import glob
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def load(data):
    if os.path.isdir(data):
        for path in sorted(glob.glob(os.path.join(data, "*.json"))):
            with open(path, encoding="utf-8") as f:
                yield os.path.basename(path)[:-5], json.load(f)
    else:
        with tarfile.open(data) as archive:
            for member in sorted(archive.getmembers(), key=lambda m: m.name):
                if member.name.endswith(".json"):
                    yield os.path.basename(member.name)[:-5], json.load(archive.extractfile(member))


def write_work(data, path):
    with open(path, "w", encoding="utf-8") as out:
        for name, item in load(data):
            tests = [{"valid": t["valid"], "text": json.dumps(t["data"], ensure_ascii=False)} for t in item["tests"]]
            line = {"id": name, "schema": json.dumps(item["schema"], ensure_ascii=False), "tests": tests}
            out.write(json.dumps(line) + "\n")


def copy_tokenizer(source, target):
    for name in os.listdir(source):
        path = os.path.join(source, name)
        with (lzma.open(path) if name.endswith(".xz") else open(path, "rb")) as f:
            with open(os.path.join(target, name.removesuffix(".xz")), "wb") as out:
                out.write(f.read())


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(len(values) * q))] if values else float("nan")


def run_peer(engine, python, work, tokenizer, timeout):
    """The peer in processes of its own: one that takes longer than timeout for a schema is ended and begun anew."""
    results, first = [], 0
    with open(work, encoding="utf-8") as f:
        count = sum(1 for _ in f)
    while first < count:
        script = os.path.join(HERE, "maskbench_peer.py")
        command = [python, script, engine, work, tokenizer, str(first), str(timeout)]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines = [json.loads(line) for line in process.stdout.splitlines() if line.endswith("}")]
        results += lines
        first += len(lines)
        if first < count and process.returncode != 0:
            results.append({"status": -1, "error": "timeout" if process.returncode == -14 else "crash"})
            first += 1
        elif not lines:
            break
    return results


def summarize(name, lines, work, num_listed):
    masks, compiles, passing = [], [], 0
    refused, errors, accepts, rejects = 0, collections.Counter(), [], []
    for item, result in zip(work, lines):
        if "compile_us" in result:
            compiles.append(result["compile_us"])
        if result["status"]:
            refused += 1
            errors[result["error"][:60]] += 1
            continue
        ok = True
        for i, (test, got) in enumerate(zip(item["tests"], result["tests"])):
            masks += got["us"]
            if got["accepted"] != test["valid"]:
                ok = False
                (rejects if test["valid"] else accepts).append(f"{item['id']}#{i}")
        passing += ok
    row = [name, len(lines), f"{passing} ({100 * passing / len(lines):.1f} %)", refused, len(accepts), len(rejects)]
    row += [f"{quantile(compiles, q):.0f}" for q in (0.5, 0.99, 1)]
    row += [f"{sum(masks) / max(1, len(masks)):.1f}"] + [f"{quantile(masks, q):.1f}" for q in (0.5, 0.99, 0.999, 1)]
    print("| " + " | ".join(str(x) for x in row) + " |", flush=True)
    if num_listed:
        for text, n in errors.most_common(num_listed):
            print(f"    {n} x {text}")
        print("    accepted though invalid:", *accepts[:num_listed])
        print("    rejected though valid:", *rejects[:num_listed])
    return accepts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("tokenizer")
    parser.add_argument("--peers", help="an interpreter that has them")
    parser.add_argument("--engines", default="llguidance,xgrammar")
    parser.add_argument("--timeout", type=int, default=20)
    parser.add_argument("--list", type=int, default=0)
    args = parser.parse_args()
    if not os.path.exists(args.data):
        print(f"maskbench: {args.data} is not there; nothing was measured")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    program = os.path.join(ROOT, "build/tests/bench/bench_grammar")
    subprocess.run(["make", "-s", program[len(ROOT) + 1:]], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        work = os.path.join(folder, "work")
        write_work(args.data, work)
        tokenizer = os.path.join(folder, "tokenizer")
        os.mkdir(tokenizer)
        copy_tokenizer(args.tokenizer, tokenizer)
        with open(work, encoding="utf-8") as f:
            items = [json.loads(line) for line in f]
        print("| engine | schemas | passing | refused | false accepts | false rejects | compile p50 | p99 | max "
              "| mask avg | p50 | p99 | p99.9 | max |")
        print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
        out = subprocess.run([program, work, tokenizer], stdout=subprocess.PIPE, text=True, check=True).stdout
        accepts = summarize("flashd", [json.loads(line) for line in out.splitlines()], items, args.list)
        for engine in args.engines.split(",") if args.peers else []:
            summarize(engine, run_peer(engine, args.peers, work, tokenizer, args.timeout), items, args.list)
    return 1 if accepts else 0


if __name__ == "__main__":
    sys.exit(main())
