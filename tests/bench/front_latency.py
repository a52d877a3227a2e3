#!/usr/bin/env python3
"""front_latency.py PORT [COUNT] - how soon the front answers /livez while 8 streams keep the engine at work: p50, p90, p99, most.

The client is on the same machine and would wait for a processor like everybody else: where it may (as root), it takes one at once, so that
what is seen is the front's time alone.
"""
import http.client
import json
import os
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


def go_first():
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    except PermissionError:
        print("not permitted to go first: the times contain the client's own waiting")


def measure(port, count):
    go_first()
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
