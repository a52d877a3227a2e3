"""How long a server takes from its start to ready with a real file of weights in the page cache.

    loading.py PROGRAM SHAPE [--device cuda] [--port 8971] [--runs 3]

SHAPE is a folder with a config.json. Its model is written as safetensors with random values and a tokenizer of 256 bytes, and the
server answers one request each time.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

from reference import make_model

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import byte_tokenizer  # noqa: E402


def wait_until_ready(log, server, patience=120):
    """Seconds, as the server says itself; None if it ends before or loses our patience."""
    end = time.monotonic() + patience
    while server.poll() is None and time.monotonic() < end:
        ready = re.search(r"ready after ([0-9.]+)", log.read_text())
        if ready:
            return float(ready[1])
        time.sleep(0.05)
    return None


def start_and_ask(program, folder, device, port):
    """Seconds until ready; None if it does not come up."""
    log = folder / "log"
    with log.open("w") as out:
        server = subprocess.Popen([program, "serve", folder, "--device", device, "--port", str(port)], stderr=out)
    try:
        ready = wait_until_ready(log, server)
        if ready is None:
            print(log.read_text())
            return None
        body = json.dumps({"prompt": "a", "max_tokens": 4, "ignore_eos": True}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        assert answer["usage"]["completion_tokens"] == 4, answer
        return ready
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("shape")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--port", type=int, default=8971)
    parser.add_argument("--runs", type=int, default=3)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        layers = json.loads((pathlib.Path(o.shape) / "config.json").read_text())["num_hidden_layers"]
        make_model(o.shape, layers, o.device, folder)
        byte_tokenizer.write(folder)
        size = sum(f.stat().st_size for f in folder.glob("*.safetensors")) / 1e9
        for _ in range(o.runs):
            ready = start_and_ask(o.program, folder, o.device, o.port)
            if ready is None:
                return 1
            print(f"{size:.1f} GB of safetensors: ready after {ready:.2f} s, {size / ready:.1f} GB/s all in all", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
