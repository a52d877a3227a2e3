# /// script
# dependencies = ["vllm"]
# ///
"""vLLM's `bench serve`: what it counts is what the server counts. And the fields of vLLM's protocol, by its source."""
import ast
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import byte_tokenizer

from checks import MODEL, REAL_URL, check, counted, equal, run

PROGRAM = pathlib.Path(sys.executable).with_name("vllm")
REQUESTS, OUTPUT = 12, 8


def measure(folder, backend, endpoint):
    """-> the report. The prompts are made with a tokenizer of bytes, which the server's own differs from."""
    byte_tokenizer.write(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    options = {"backend": backend, "endpoint": endpoint, "base-url": REAL_URL, "model": MODEL, "tokenizer": folder,
               "dataset-name": "random", "random-input-len": 60, "random-output-len": OUTPUT, "num-prompts": REQUESTS,
               "max-concurrency": 4, "result-dir": folder, "result-filename": "report.json"}
    command = [PROGRAM, "bench", "serve", "--ignore-eos", "--save-result"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    subprocess.run(command, check=True, timeout=250, env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    return json.loads((folder / "report.json").read_text())


for backend, endpoint in (("openai-chat", "/v1/chat/completions"), ("openai", "/v1/completions")):
    @check(f"bench serve, {backend}: requests, prompt and output tokens equal to the server's")
    def counts(backend=backend, endpoint=endpoint):
        before = counted()
        with tempfile.TemporaryDirectory() as folder:
            report = measure(pathlib.Path(folder), backend, endpoint)
        got = [report[name] for name in ("completed", "total_input_tokens", "total_output_tokens")]
        equal((got, report["failed"]), ([now - then for now, then in zip(counted(), before)], 0))
        equal((got[0], got[2]), (REQUESTS, REQUESTS * OUTPUT))


def vllm_fields(file, name):
    """Of a class of its protocol, read rather than imported: that would take a minute."""
    tree = ast.parse((pathlib.Path(importlib.util.find_spec("vllm").origin).parent / "entrypoints" / file).read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return {node.target.id for node in body if isinstance(node, ast.AnnAssign) and not node.target.id.startswith("_")}


for file, name in (("openai/chat_completion/protocol.py", "ChatCompletionRequest"), ("openai/completion/protocol.py", "CompletionRequest")):
    @check(f"each field of its {name} stands in the table of server/api")
    def fields(file=file, name=name):
        table = (pathlib.Path(__file__).resolve().parents[2] / "server/api/README.md").read_text().split("## Fields")[1]
        wanted = vllm_fields(file, name)
        assert len(wanted) > 50
        equal(wanted - set(re.findall(r"\w+", table)), set())


run("vllm")
