# /// script
# dependencies = ["vllm"]
# ///
"""vLLM's `bench serve`: what it counts is what the server counts."""
import json
import os
import pathlib
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


run("vllm")
