# /// script
# dependencies = ["guidellm"]
# ///
"""guidellm: what it counts is what the server counts."""
import json
import pathlib
import subprocess
import sys
import tempfile

from checks import MODEL, REAL_URL, check, counted, equal, run

PROGRAM = pathlib.Path(sys.executable).with_name("guidellm")
DOCUMENTS = [{"prompt": f"Count from {i}.", "output_tokens_count": 3 + i} for i in range(12)]


def measure(endpoint):
    with tempfile.TemporaryDirectory() as folder:
        data, report = pathlib.Path(folder, "data.jsonl"), pathlib.Path(folder, "report.json")
        data.write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
        subprocess.run([PROGRAM, "run", "--disable-console", "--backend",
                        f"kind=openai_http,target={REAL_URL},model={MODEL},request_format={endpoint}", "--profile",
                        "kind=concurrent,streams=4", "--constraint", f"kind=max_requests,count={len(DOCUMENTS)}", "--data",
                        f"kind=json_file,path={data}", "--output", f"kind=json,path={report}"], check=True, timeout=200)
        metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]
    tokens = [int(metrics[name]["successful"]["total_sum"]) for name in ("prompt_token_count", "output_token_count")]
    return [metrics["request_totals"]["successful"], *tokens], metrics["request_totals"]["errored"]


for path in ("/v1/chat/completions", "/v1/completions"):
    @check(f"{path}: requests, prompt and output tokens equal to the server's")
    def counts(path=path):
        before = counted()
        got, errors = measure(path)
        equal((got, errors), ([now - then for now, then in zip(counted(), before)], 0))
        equal(got[2], sum(d["output_tokens_count"] for d in DOCUMENTS))


run("guidellm")
