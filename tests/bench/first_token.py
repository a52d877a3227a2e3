"""first_token.py FLASHD MODEL RUNS - time to the first text of a streamed chat of 128 prompt tokens over HTTP.

flashd against llama_cpp.server (of the Python that runs this), both with as many threads as there are cores, in turn, each
prompt new so that nothing comes from a cache; medians and their ratio.
"""
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time

WORDS = "river copper garden window silver harbour winter letter station bread violin thunder mountain seven music paris".split()


def prompt(number):
    """About 128 tokens with the template, different from its first word on."""
    return "%d: " % (number * 7919) + " ".join(WORDS[(number * 31 + i * 7) % len(WORDS)] for i in range(86))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, command):
        self.port = free_port()
        self.process = subprocess.Popen(command(str(self.port)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while True:
            try:
                self.first_token(0)
                return
            except (OSError, AssertionError):
                assert time.monotonic() < deadline and self.process.poll() is None, "the server does not answer"
                time.sleep(0.2)

    def first_token(self, number):
        """(seconds, prompt tokens or None)"""
        body = {"messages": [{"role": "user", "content": prompt(number)}], "stream": True, "max_tokens": 4, "temperature": 0}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        begin = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200
        try:
            for line in response:
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                    return time.monotonic() - begin
            raise AssertionError("no text")
        finally:
            response.read()
            connection.close()


def main():
    flashd, model, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    threads = str(os.cpu_count())
    servers = {
        "flashd": Server(lambda port: [flashd, "serve", model, "--port", port, "--no-log-requests"]),
        "llama_cpp.server": Server(lambda port: [sys.executable, "-m", "llama_cpp.server", "--model", model, "--port", port,
                                                 "--n_threads", threads, "--n_threads_batch", threads, "--n_ctx", "2048"]),
    }
    times = {name: [] for name in servers}
    for i in range(1, 4 * runs + 1):
        for name, server in servers.items():
            times[name].append(server.first_token(i))
    for server in servers.values():
        server.process.terminate()
    ours, theirs = (statistics.median(t) * 1e3 for t in times.values())
    print("first token of a chat of 128 tokens over HTTP, median of %d: flashd %.1f ms, llama_cpp.server %.1f ms, %.2f times as fast" % (
        4 * runs, ours, theirs, theirs / ours))


if __name__ == "__main__":
    main()
