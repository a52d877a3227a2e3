# /// script
# dependencies = ["aiperf"]
# ///
"""aiperf: what it counts is what the server counts."""
import json
import pathlib
import subprocess
import sys
import tempfile

import byte_tokenizer

from checks import MODEL, REAL_URL, check, counted, equal, run

PROGRAM = pathlib.Path(sys.executable).with_name("aiperf")
REQUESTS, OUTPUT = 12, 8


def measure(folder, endpoint):
    """-> the report. The prompts have been written; it counts with the server's own numbers."""
    tokenizer, prompts = folder / "tokenizer", folder / "prompts.jsonl"
    tokenizer.mkdir()
    byte_tokenizer.write(tokenizer)
    (tokenizer / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    prompts.write_text("".join(json.dumps({"text": f"Count from {i}."}) + "\n" for i in range(REQUESTS)))
    options = {"model": MODEL, "url": REAL_URL, "endpoint-type": endpoint, "tokenizer": tokenizer, "input-file": prompts,
               "custom-dataset-type": "single_turn", "request-count": REQUESTS, "concurrency": 4, "artifact-dir": folder / "report",
               "ui-type": "none", "extra-inputs": f"max_tokens:{OUTPUT}"}
    command = [PROGRAM, "profile", "--streaming", "--use-server-token-count", "--extra-inputs", "ignore_eos:true"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    subprocess.run(command, check=True, timeout=280, cwd=folder)
    [report] = (folder / "report").rglob("profile_export_aiperf.json")
    return json.loads(report.read_text())


for endpoint in ("chat", "completions"):
    @check(f"profile, {endpoint}: requests, prompt and output tokens equal to the server's")
    def counts(endpoint=endpoint):
        before = counted()
        with tempfile.TemporaryDirectory() as folder:
            report = measure(pathlib.Path(folder), endpoint)
        got = [round(report[name]["avg"]) for name in ("request_count", "total_isl", "total_osl")]
        equal(got, [now - then for now, then in zip(counted(), before)])
        equal((got[0], got[2]), (REQUESTS, REQUESTS * OUTPUT))


run("aiperf")
