"""What scripts here share that compare devices: a server on each device, a request to one of them. It needs nothing but Python."""
import contextlib
import json
import subprocess
import time
import urllib.request

PORTS = {"cpu": 8971, "cuda": 8972}


def url(device):
    return "http://127.0.0.1:%d" % PORTS[device]


def wait_until_ready(server, device):
    for _ in range(1200):
        assert server.poll() is None
        try:
            return urllib.request.urlopen(url(device) + "/health", timeout=5)
        except OSError:
            time.sleep(0.1)
    raise AssertionError("not ready")


@contextlib.contextmanager
def serving(command, devices=tuple(PORTS)):
    """`flashd serve ...` on each of the devices; gone at the end, whatever happened."""
    servers = [subprocess.Popen([*command, "--device", device, "--port", str(PORTS[device]), "--no-log-requests"]) for device in devices]
    try:
        for server, device in zip(servers, devices):
            wait_until_ready(server, device)
        yield
    finally:
        for server in servers:
            server.kill()
            server.wait()


def post(device, path, body):
    request = urllib.request.Request(url(device) + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def vectors(device, lists, **fields):
    return [item["embedding"] for item in post(device, "/v1/embeddings", {"input": lists, **fields})["data"]]
