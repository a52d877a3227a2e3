"""The solo oracle: what a client gets does not depend on its neighbours.

    oracle.py PORT NUM_REQUESTS [NUM_SOLO]

Mixed requests (sampling parameters, penalties, logprobs, n, lengths) are sent 64 at a time in one order, 64 at a time in another,
and the first NUM_SOLO of them one by one; answers must be equal. Exit code 1 when any is not.
"""
import http.client
import json
import random
import sys
import threading
import time

WORDS = ("the a cat dog sky blue why how what is of in on under model server token cache stream paris france river mountain "
         "code python list number seven prime music").split()
CONNECTIONS = 64


def body_of(i):
    r = random.Random(i)
    body = {"prompt": " ".join(r.choice(WORDS) for _ in range(r.choice([1, 5, 20, 60, 200, 500]))),
            "max_tokens": r.choice([1, 4, 16, 40]), "temperature": r.choice([0, 0.7, 1.0, 1.3]), "seed": i,
            "logprobs": r.choice([None, 0, 3])}
    if r.random() < 0.3:
        body["top_k"] = r.choice([1, 5, 50])
    if r.random() < 0.3:
        body["top_p"] = r.choice([0.5, 0.9])
    if r.random() < 0.3:
        body["min_p"] = 0.05
    if r.random() < 0.3:
        body["repetition_penalty"] = 1.2
    if r.random() < 0.3:
        body["frequency_penalty"], body["presence_penalty"] = 0.5, 0.3
    if r.random() < 0.2:
        body["n"] = 2
    return body


def send_all(port, order, num_connections):
    answers, order, lock = {}, list(order), threading.Lock()

    def work():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        while True:
            with lock:
                if not order:
                    return
                i = order.pop()
            while True:
                connection.request("POST", "/v1/completions", json.dumps(body_of(i)), {"Content-Type": "application/json"})
                response = connection.getresponse()
                text = response.read()
                if response.status != 429:
                    break
                time.sleep(0.2)
            assert response.status == 200, text
            answers[i] = json.dumps(json.loads(text)["choices"], sort_keys=True)

    threads = [threading.Thread(target=work) for _ in range(num_connections)]
    begin = time.time()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print("%d requests over %d connections: %.1f s" % (len(answers), num_connections, time.time() - begin), flush=True)
    return answers


def main(port, num_requests, num_solo=None):
    num_solo = min(num_solo or num_requests, num_requests)
    order = list(range(num_requests))
    first = send_all(port, order, CONNECTIONS)
    random.Random(1).shuffle(order)
    second = send_all(port, order, CONNECTIONS)
    solo = send_all(port, range(num_solo), 1)
    different = [i for i in range(num_requests) if first.get(i) != second.get(i) or (i in solo and solo[i] != first.get(i))]
    if len(first) != num_requests or len(second) != num_requests or len(solo) != num_solo:
        print("not every request was answered")
        return 1
    print("%d requests in two orders, %d of them alone: %d answers differ" % (num_requests, num_solo, len(different)))
    for i in different[:3]:
        print(body_of(i), first.get(i), second.get(i), solo.get(i), sep="\n")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
