#!/usr/bin/env python3
"""front_latency.py PORT [COUNT] - how soon the front answers /livez while 8 streams keep the engine at work: p50, p90, p99, most.

The client is on the same machine and waits for a processor like everybody else: leave one free (flashd serve --threads N) unless it is
the system's own scheduling that is to be seen.
"""
import http.client
import json
import sys
import threading
import time

BODY = json.dumps({"prompt": "hello world " * 60, "max_tokens": 200, "ignore_eos": True})


def keep_busy(port, stopped):
    while not stopped.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("POST", "/v1/completions", BODY, {"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()


def measure(port, count):
    connection, times = http.client.HTTPConnection("127.0.0.1", port), []
    for _ in range(count):
        begin = time.perf_counter()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        times.append(1e3 * (time.perf_counter() - begin))
        time.sleep(0.002)
    return sorted(times)


def main():
    port, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    stopped = threading.Event()
    for _ in range(8):
        threading.Thread(target=keep_busy, args=(port, stopped), daemon=True).start()
    time.sleep(2)
    times = measure(port, count)
    stopped.set()
    print("p50 %.3f, p90 %.3f, p99 %.3f, most %.3f ms" % tuple(times[int(q * (count - 1))] for q in (0.5, 0.9, 0.99, 1)))


if __name__ == "__main__":
    main()
