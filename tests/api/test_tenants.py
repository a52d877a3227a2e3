"""Who shares a server: quotas of keys, turns of tenants, priorities, deadlines."""

import concurrent.futures
import json
import os
import signal
import subprocess
import threading
import time

import httpx
import pytest

import conftest
from test_engine_process import engine_pid

KEYS = ("--api-key", "big weight=3 name=acme", "--api-key", "small", "--api-key", "tight max-seqs=2 max-tokens=60")


def ask(server, key, num_prompt=8, max_tokens=4, **body):
    body = {"prompt": [100 + i for i in range(num_prompt)], "max_tokens": max_tokens, "ignore_eos": True, **body}
    return server.post("/v1/completions", body, headers={"Authorization": f"Bearer {key}"})


def test_a_key_keeps_to_its_quota(start_server):
    with start_server(*KEYS, "--max-model-len", "2048") as server:
        assert ask(server, "tight", n=3, temperature=1).status_code == 400  # never
        assert ask(server, "tight", num_prompt=61).status_code == 400
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = pool.submit(ask, server, "tight", 20, 600, n=2, temperature=1)
            while server.metrics().get("vllm:num_requests_running", 0) < 2:
                time.sleep(0.01)
            refused = ask(server, "tight")
            assert refused.status_code == 429 and refused.json()["error"]["code"] == "rate_limit_exceeded"
            assert "max-seqs" in refused.json()["error"]["message"] and 1 <= int(refused.headers["retry-after"]) <= 60
            assert ask(server, "small").status_code == 200  # others do not notice
            assert running.result().status_code == 200
        server.wait_idle()
        assert ask(server, "tight", num_prompt=60).status_code == 200


def test_a_flood_of_one_key_keeps_no_other_out(start_server):
    """Two sequences at once and long prompts of one key waiting for them: another key is next."""
    with start_server(*KEYS, "--max-num-seqs", "2", "--max-model-len", "2048") as server:
        order, lock = [], threading.Lock()

        def one(key, num_prompt):
            assert ask(server, key, num_prompt, 8).status_code == 200
            with lock:
                order.append(key)

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            flood = [pool.submit(one, "big", 300 + i) for i in range(10)]
            while server.metrics().get("vllm:num_requests_waiting", 0) < 7:
                time.sleep(0.01)
            guest = pool.submit(one, "small", 20)
            for future in [*flood, guest]:
                future.result()
        assert order.index("small") < 6, order
        server.wait_idle()


@pytest.mark.slow
def test_a_place_is_left_for_other_keys(start_server):
    """More long answers of one key than there are places: another key's short one waits for none of them."""
    with start_server(*KEYS, "--max-num-seqs", "8", "--max-model-len", "2048") as server:
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            flood = [pool.submit(ask, server, "big", 20 + i, 250) for i in range(12)]
            while server.metrics().get("vllm:num_requests_running", 0) < 7:
                time.sleep(0.01)
            assert ask(server, "small").status_code == 200
            assert not any(answer.done() for answer in flood)
            assert all(answer.result().status_code == 200 for answer in flood)
        server.wait_idle()


@pytest.mark.slow
def test_what_a_key_holds_beyond_its_part_is_taken_from_it(start_server):
    """All places, then all K/V blocks, are one key's long answers': another key's short one waits for none of them, and they say
    what they say alone."""
    alone = None
    for places, num_blocks, num_held in (2, 4096, 12), (7, 44, 36):
        few = ("--max-num-seqs", str(places), "--kv-cache-memory-bytes", str(num_blocks * 16 * 23040))
        options = (*KEYS, *few, "--max-model-len", "512", "--num-speculative-tokens", "0")
        with start_server(*options) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:
            alone = alone or [ask(server, "big", 20 + i, 300, temperature=0).json()["choices"][0]["text"] for i in range(3)]
            flood = [pool.submit(ask, server, "big", 20 + i, 300, temperature=0) for i in range(3)]
            while server.metrics()['flashd_kv_blocks{state="held"}'] < num_held:
                time.sleep(0.01)
            assert ask(server, "small", 150).status_code == 200
            assert not any(answer.done() for answer in flood)
            assert [answer.result().json()["choices"][0]["text"] for answer in flood] == alone
            assert "another client or key has less than its part" in server.log()
            server.wait_idle()


def test_a_key_alone_does_not_fill_the_server(start_server):
    with start_server(*KEYS, "--max-num-seqs", "1", "--max-queued-requests", "7", "--max-model-len", "2048") as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(ask, server, "big", 30, 100) for _ in range(8)]
            while sum(a.done() for a in answers) < 2:
                time.sleep(0.01)  # six are in flight, two were refused
            assert ask(server, "small").status_code == 200
            statuses = sorted(a.result().status_code for a in answers)
        assert statuses == [200] * 6 + [429] * 2
        server.wait_idle()


def test_a_key_alone_does_not_fill_what_may_wait(start_server):
    with start_server(*KEYS, "--max-num-seqs", "1", "--max-queued-tokens", "2000", "--max-model-len", "2000") as server:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = pool.submit(ask, server, "big", 10, 400)
            while server.metrics().get("vllm:num_requests_running", 0) < 1:
                time.sleep(0.01)
            answers = [pool.submit(ask, server, "big", 900 + i) for i in range(2)]
            while not any(a.done() for a in answers):
                time.sleep(0.01)  # one waits, one was refused
            assert ask(server, "small", 600).status_code == 200
            refused = next(a.result() for a in answers if a.result().status_code == 429)
            assert "max-queued-tokens" in refused.json()["error"]["message"]
            assert sorted(a.result().status_code for a in answers) == [200, 429]
            assert running.result().status_code == 200
        server.wait_idle()


def test_many_texts_of_one_request_are_one_long_prompt(start_server):
    """They have waited for longer than each alone may be passed, and who asks for less is next all the same."""
    with start_server("--max-num-seqs", "8", "--max-model-len", "2048") as server:
        texts = [[1000 + 100 * t + i for i in range(40)] for t in range(100)]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            many = pool.submit(server.post, "/v1/embeddings", {"input": texts})
            while not 0 < server.metrics().get("vllm:num_requests_waiting", 0) < 70:
                assert not many.done()
                time.sleep(0.01)
            body = {"prompt": [100 + i for i in range(8)], "max_tokens": 1}
            assert server.post("/v1/completions", body).status_code == 200
            assert not many.done() and server.metrics()["vllm:num_requests_waiting"] > 20
            assert len(many.result().json()["data"]) == 100


def begin_in_the_background(server, num_tokens=200, **fields):
    body = {"input": "Once", "background": True, "max_output_tokens": num_tokens, "ignore_eos": True, **fields}
    return server.post("/v1/responses", body).status_code


def ask_from(server, address, num_prompt=8, max_tokens=4, headers=None, **body):
    """From one of this machine's loopback addresses, each of which is a client."""
    body = {"prompt": [100 + i for i in range(num_prompt)], "max_tokens": max_tokens, "ignore_eos": True, **body}
    with httpx.Client(transport=httpx.HTTPTransport(verify=False, local_address=address)) as client:
        return client.post(server.url + "/v1/completions", json=body, headers=headers, timeout=300)


def place_of_guest(server, flood, guest):
    """flood, guest: keywords of ask_from. A long answer has the only place, six more of the flood's wait, then comes a guest's that asks
    for as much as each of them: how many of these end before it."""
    order = []

    def one(name, **asked):
        assert ask_from(server, **asked).status_code == 200
        order.append(name)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(one, "long", max_tokens=200, **flood)]
        conftest.wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1)
        futures += [pool.submit(one, "flood", num_prompt=50, **flood) for _ in range(6)]
        conftest.wait_until(lambda: server.metrics()["vllm:num_requests_waiting"] == 6, seconds=30)
        futures.append(pool.submit(one, "guest", num_prompt=50, **guest))
        for future in futures:
            future.result()
    return order.index("guest") - 1


def test_addresses_take_turns(start_server):
    """Without keys, and with one, where x-tenant may be sent and is not."""
    key = {"Authorization": "Bearer one"}
    for options, headers in ((), None), (("--api-key", "one", "--tenant-header"), key):
        with start_server(*options, "--max-num-seqs", "1") as server:
            flood = {"address": "127.0.0.2", "headers": headers}
            assert place_of_guest(server, flood, {"address": "127.0.0.3", "headers": headers}) <= 1, options
            assert place_of_guest(server, flood, flood) == 6, options
            server.wait_idle()
            assert "127.0.0.2" not in httpx.get(server.url + "/metrics").text


def form_from(server, address, form, max_tokens=2):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": max_tokens, "stream": True, "structured_outputs": form}
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address), timeout=300) as client:
        return client.post(server.url + "/v1/chat/completions", json=body)


def test_large_forms_of_an_address_keep_no_other_out(start_server):
    """While the engine stands answers hold more large grammars than there may be: another address finds room for its own."""
    def large(number):
        return {"choice": [f"{number} {i} {i * i % 49999}" for i in range(50000)]}

    with start_server("--max-model-len", "1024", "--step-timeout", "600") as server, concurrent.futures.ThreadPoolExecutor(40) as pool:
        engine = engine_pid(server)
        os.kill(engine, signal.SIGSTOP)
        flood = [pool.submit(form_from, server, "127.0.0.2", large(i)) for i in range(34)]
        num_held = lambda: server.metrics()["flashd_requests_in_flight"]
        conftest.wait_until(lambda: num_held() + sum(f.done() for f in flood) == 34, server)
        before = num_held()
        guests = [pool.submit(form_from, server, "127.0.0.3", form) for form in ({"regex": "[a-z]+"}, {"json": {"type": "object"}})]
        conftest.wait_until(lambda: num_held() == before + 2 or any(f.done() for f in guests), server)
        os.kill(engine, signal.SIGCONT)
        assert [f.result().status_code for f in guests] == [200, 200]
        refused = [f.result() for f in flood if f.result().status_code != 200]
        assert refused and {(r.status_code, r.headers["retry-after"]) for r in refused} == {(429, "1")}
        server.wait_idle()


def slow_form(name):
    return {"grammar": 'root ::= s\ns ::= [a-z ] | [a-z ] s | [a-z ] s s | "(" s "%s)"' % name}


@pytest.mark.parametrize("form,num_tokens", [({"regex": "[a-z ]{100}"}, 20), (slow_form("guest"), 10)], ids=["quick", "slow"])
def test_forms_that_take_long_keep_no_other_waiting(start_server, form, num_tokens):
    """Answers of a token each, whose only mask takes a tenth of a second, one after another from sixteen clients of an address: another's
    answer waits for few of them, whose masks take no time, and whose take as long."""
    with start_server() as server, concurrent.futures.ThreadPoolExecutor(16) as pool:
        done, is_over = [], threading.Event()

        def flood(client):
            for i in range(1000):
                if is_over.is_set():
                    return
                done.append(form_from(server, "127.0.0.2", slow_form(f"{client} {i}"), 1).status_code)

        clients = [pool.submit(flood, i) for i in range(16)]
        conftest.wait_until(lambda: len(done) > 8, server)
        before = len(done)
        guest = form_from(server, "127.0.0.3", form, num_tokens)
        num_done = len(done) - before
        is_over.set()
        for client in clients:
            client.result()
        assert guest.status_code == 200 and set(done) == {200}
        assert num_done <= 40, num_done
        server.wait_idle()


@pytest.mark.parametrize("address", ["127.0.0.2", "127.0.0.1"])
def test_texts_of_addresses_take_turns(start_server, address):
    """Long texts that are made tokens of beside the loop: another address' waits for those that have begun, one's own for all."""
    with start_server() as server, concurrent.futures.ThreadPoolExecutor(25) as pool:
        order = []

        def tokenize(address, num_words, name):
            transport = httpx.HTTPTransport(local_address=address)
            with httpx.Client(transport=transport, timeout=300) as client:
                assert client.post(server.url + "/tokenize", json={"prompt": "word " * num_words}).status_code == 200
            order.append(name)

        flood = [pool.submit(tokenize, "127.0.0.2", 300000, "flood") for _ in range(24)]
        conftest.wait_until(lambda: server.metrics()["flashd_http_buffered_bytes"] > 12e6)  # eight of them are there
        before = len(order)
        guest = pool.submit(tokenize, address, 300000, "guest")
        for future in [*flood, guest]:
            future.result()
        assert (order.index("guest") < before + 12) == (address == "127.0.0.1"), order  # of 24


def test_what_an_address_holds_beyond_its_part_is_taken_from_it(start_server):
    """All places are one address' long answers: another's short one waits for none of them, and they say what they say alone."""
    with start_server("--max-num-seqs", "2", "--max-model-len", "512") as server, concurrent.futures.ThreadPoolExecutor(3) as pool:
        alone = [ask(server, "any", 20 + i, 300, temperature=0).json()["choices"][0]["text"] for i in range(3)]
        flood = [pool.submit(ask_from, server, "127.0.0.2", 20 + i, 300, temperature=0) for i in range(3)]
        while server.metrics()["vllm:num_requests_running"] < 2:
            time.sleep(0.01)
        assert ask_from(server, "127.0.0.3").status_code == 200
        assert not any(answer.done() for answer in flood)
        assert [answer.result().json()["choices"][0]["text"] for answer in flood] == alone
        assert "another client or key has less than its part" in server.log()
        server.wait_idle()


def test_who_found_no_room_finds_some(start_server):
    """One address fills the server, as long as it is alone; when another one was refused it keeps to three quarters of the places."""
    with start_server("--max-num-seqs", "1", "--max-queued-requests", "7", "--max-model-len", "1024") as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            flood = [pool.submit(ask_from, server, "127.0.0.2", max_tokens=120) for _ in range(8)]
            conftest.wait_until(lambda: server.metrics()["vllm:num_requests_waiting"] == 7)
            assert ask_from(server, "127.0.0.2").status_code == 429  # nobody else has come
            assert ask_from(server, "127.0.0.3").json()["error"]["message"].startswith("The server is full")
            conftest.wait_until(lambda: any(answer.done() for answer in flood))
            refused = ask_from(server, "127.0.0.2")
            assert refused.status_code == 429 and "while others find none" in refused.json()["error"]["message"]
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert ask_from(server, "127.0.0.3").status_code == 200
            assert all(answer.result().status_code == 200 for answer in flood)
        assert ask_from(server, "127.0.0.2").status_code == 200
        server.wait_idle()


def test_a_trusted_proxy_says_who_asks(start_server):
    """All come from one address: what the trusted proxy adds to the end of X-Forwarded-For tells them apart, and nothing else."""
    def said(value):
        return {"X-Forwarded-For": value}

    with start_server("--max-num-seqs", "1", "--trusted-proxies", "127.0.0.8/30,10.0.0.0/8") as server:
        flood = {"address": "127.0.0.9", "headers": said("6.6.6.6, 203.0.113.6")}
        for is_next, guest in ((True, said("203.0.113.7")), (True, said("6.6.6.6, [2001:db8:1::1]:80 , 10.1.1.1")), (True, None),
                               (False, said("203.0.113.7, 203.0.113.6"))):
            place = place_of_guest(server, flood, {"address": "127.0.0.9", "headers": guest})
            assert place <= 1 if is_next else place == 6, guest
        strangers = [{"address": "127.0.0.13", "headers": said(f"203.0.113.{i}")} for i in range(2)]
        assert place_of_guest(server, *strangers) == 6
        server.wait_idle()


@pytest.mark.parametrize("trusted", [True, False])
def test_the_log_says_who_asked(start_server, trusted):
    """Of what is answered, refused, and in flight; a header that no trusted proxy has written counts for nothing."""
    options = ["--trusted-proxies", "127.0.0.9" if trusted else "127.0.0.10", "--log-format", "json"]
    headers = {"X-Forwarded-For": "6.6.6.6, 2001:db8::7"}
    with start_server(*options) as server:
        answered = server.log_line(ask_from(server, "127.0.0.9", headers=headers))
        assert answered["client"] == ("2001:db8::7" if trusted else "127.0.0.9")
        assert server.log_line(ask_from(server, "127.0.0.8"))["client"] == "127.0.0.8"
        assert ask_from(server, "127.0.0.9", headers=headers, max_tokens=-2).status_code == 400
        refused = conftest.wait_until(lambda: [e for e in map(json.loads, server.log().splitlines()) if e.get("status") == 400], server)
        assert refused[0]["client"] == answered["client"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask_from, server, "127.0.0.9", headers=headers, max_tokens=400)
            shown = conftest.wait_until(lambda: httpx.get(server.url + "/debug/requests").json()["data"], server)
            assert [r["client"] for r in shown] == [answered["client"]]
            assert answer.result().status_code == 200


def test_what_is_no_network_is_a_sentence():
    for text in ("localhost", "10.0.0.1/8", "10.0.0.0/33", "::/129", "1.2.3.4:80"):
        command = [str(conftest.BINARY), "serve", str(conftest.MODEL), "--port", "0", "--trusted-proxies", text]
        ended = subprocess.run(command, capture_output=True, timeout=60)
        assert ended.returncode == 1 and f"--trusted-proxies {text}: an IP address" in ended.stderr.decode(), text


def num_finished(server):
    return sum(value for name, value in server.metrics().items() if name.startswith("flashd_requests_finished_total"))


def test_what_nobody_waits_for_leaves_a_place(start_server):
    """More answers in the background than there are places, of a server without keys: one that a client waits for waits for none."""
    with start_server("--max-num-seqs", "8", "--max-model-len", "2048") as server:
        assert [begin_in_the_background(server) for _ in range(20)] == [200] * 20
        while server.metrics()["vllm:num_requests_running"] < 7:
            time.sleep(0.01)
        assert server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2}).status_code == 200
        assert num_finished(server) == 1
        server.wait_idle(120)


def test_many_answers_of_one_request_leave_a_place(start_server):
    with start_server("--max-num-seqs", "8", "--max-model-len", "2048") as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"prompt": "Once", "n": 16, "max_tokens": 200, "ignore_eos": True}
        many = pool.submit(server.post, "/v1/completions", body)
        while server.metrics()["vllm:num_requests_running"] < 7:
            time.sleep(0.01)
        assert server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2}).status_code == 200
        assert not many.done() and num_finished(server) == 1
        assert many.result().status_code == 200


def test_a_priority_is_compared_with_what_is_waited_for(start_server):
    """Behind an answer in the background chats are next, whatever waits in the background before them, but for what shall come
    before them."""
    with start_server("--max-num-seqs", "1", "--log-format", "json") as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        for priority, order in (0, "ccbb"), (-100, "bbcc"):
            assert begin_in_the_background(server, 300) == 200
            conftest.wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1)
            assert [begin_in_the_background(server, 4, priority=priority) for _ in range(2)] == [200, 200]
            chats = [pool.submit(ask, server, "none", 50) for _ in range(2)]
            conftest.wait_until(lambda: server.metrics()["vllm:num_requests_waiting"] == 4, seconds=30)
            assert [chat.result().status_code for chat in chats] == [200, 200]
            server.wait_idle()
            paths = [json.loads(line)["path"] for line in server.log().splitlines() if '"duration_ms"' in line]
            assert "".join("b" if path == "/v1/responses" else "c" for path in paths[-4:]) == order


def test_what_nobody_waits_for_does_not_fill_the_server(start_server):
    """Of 8 places, to run and to wait, 6; and who waits for an answer is next."""
    with start_server("--max-num-seqs", "1", "--max-queued-requests", "7", "--max-model-len", "2048") as server:
        assert [begin_in_the_background(server) for _ in range(8)] == [200] * 6 + [429] * 2
        assert server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2}).status_code == 200
        assert num_finished(server) <= 3
        server.wait_idle(120)


def test_deadlines(start_server):
    with start_server("--max-num-seqs", "1", "--max-model-len", "4096") as server:

        def late(timeout, **body):
            body = {"prompt": [100] * 8, "ignore_eos": True, "temperature": 0, **body}
            return server.post("/v1/completions", body, headers={"x-request-timeout": timeout})

        endless = {"max_tokens": 3000, "ignore_eos": False, "logit_bias": {"0": -100, "2": -100}}
        assert late("30", max_tokens=4).status_code == 200
        for timeout in ("0", "-1", "soon", "", "1e3", "nan", "1.2.3"):
            refused = late(timeout, max_tokens=4)
            assert refused.status_code == 400 and "x-request-timeout" in refused.json()["error"]["message"]
        impossible = late("0.5", max_tokens=4000)  # known from what steps take
        assert impossible.status_code == 504 and impossible.json()["error"]["code"] == "deadline_exceeded"
        assert "at least" in impossible.json()["error"]["message"]
        passed = late("1.5", **endless)
        assert passed.status_code == 504 and "not complete" in passed.json()["error"]["message"]
        server.wait_idle()  # dropped: nobody computes for it any more
        stream = late("1.5", stream=True, **endless)
        assert stream.status_code == 200 and '"deadline_exceeded"' in stream.text
        server.wait_idle()


def test_priority_is_read(server):
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "priority": -3}).status_code == 200
    refused = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "priority": 1000})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "priority"
