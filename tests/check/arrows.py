"""arrows.py - prints every #include that is outside the picture of who may include whom, and fails if there is one.

    server --> scheduler --> kvcache --> kernels --> base
       |           `-------> model ----> kernels
       `-------------------> model
    config: read by server; includes only base
"""
import re
import subprocess
import sys

ALLOWED = {
    "base": set(),
    "config": {"base"},
    "kernels": {"base"},
    "kvcache": {"kernels", "base"},
    "model": {"kernels", "base"},
    "scheduler": {"kvcache", "model", "kernels", "base"},
    "server": {"scheduler", "model", "config", "base", "kernels"},
}
# kernels: only load.c (opens the device) and inspect.c (dtype sizes), and the step's limits for the validator.
KERNELS_FROM_SERVER = re.compile(r"^server/(load|inspect)\.[ch]$|^server/api/.*\.[ch]$")

files = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cu", "*.cuh"], capture_output=True, text=True, check=True)
bad = 0
for path in files.stdout.split():
    folder = path.split("/")[0]
    if folder not in ALLOWED:
        continue
    with open(path, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match or "/" not in match.group(1):
                continue
            target = match.group(1).split("/")[0]
            if target not in ALLOWED or target == folder:
                continue
            if target not in ALLOWED[folder] or (
                folder == "server" and target == "kernels" and not KERNELS_FROM_SERVER.match(path)
            ):
                print(f"{path}:{number}: {folder} must not include {target} ({match.group(1)})")
                bad += 1
sys.exit(1 if bad else 0)
