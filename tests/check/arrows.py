"""arrows.py - who may include whom; prints every #include outside the picture and fails if there is one.

    server --> link  <-- engine --> scheduler --> kvcache
       |                   `-----> model --> kernels --> files
       `-----> text --> files
    all --> base; server, engine, cli --> config; lab --> kernels

What is reachable counts, not only what is named: a header that a folder includes brings its own includes along. Of link,
kernels and model see link/sampling.h: what crosses from the validator to the device; and model link/tasks.h: what its files
tell the front.
"""
import collections
import re
import subprocess
import sys

ALLOWED = {
    "base": set(),
    "config": {"base"},
    "files": {"base"},
    "link": {"base"},
    "text": {"files", "base"},
    "kernels": {"files", "link/sampling.h", "base"},
    "kvcache": {"kernels", "files", "link/sampling.h", "base"},
    "model": {"kernels", "files", "link/sampling.h", "link/tasks.h", "base"},
    "scheduler": {"kvcache", "kernels", "files", "link/sampling.h", "base"},
    "engine": {"link", "scheduler", "kvcache", "model", "kernels", "files", "config", "base"},
    "server": {"link", "text", "config", "base"},
    "lab": {"kernels", "files", "link/sampling.h", "base"},
    "cli": {"lab", "server", "engine", "text", "link", "model", "kernels", "files", "config", "base"},
}


def includes_of(path):
    with open(path, encoding="utf-8") as source:
        for line in source:
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if match and match.group(1).split("/")[0] in ALLOWED:
                yield match.group(1)


def may_include(folder, path):
    return path.split("/")[0] in ALLOWED[folder] | {folder} or path in ALLOWED[folder]


def main():
    listed = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cu", "*.cuh"], capture_output=True, text=True, check=True)
    files = [f for f in listed.stdout.split() if f.split("/")[0] in ALLOWED]
    graph = {f: list(includes_of(f)) for f in files}
    bad = 0
    for path in files:
        folder = path.split("/")[0]
        came_from = {path: None}
        queue = collections.deque([path])
        while queue:
            at = queue.popleft()
            for target in graph.get(at, []):
                if target in came_from:
                    continue
                came_from[target] = at
                if not may_include(folder, target):
                    way = [target]
                    while came_from[way[-1]]:
                        way.append(came_from[way[-1]])
                    print(f"{folder} must not reach {target.split('/')[0]}: " + " <- ".join(way))
                    bad += 1
                else:
                    queue.append(target)
    return 1 if bad else 0


sys.exit(main())
