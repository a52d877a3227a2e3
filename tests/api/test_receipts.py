"""Receipts, the journal, `flashd verify` and `flashd replay`: what a receipt says, computed anew here; the same answer again
from it, whatever ran beside; sentences for what is another; a journal that is full, cut off, rotated, and holds no keys."""

import hashlib
import json
import os
import re
import signal
import stat
import struct
import subprocess
import threading

import httpx
import pytest

import conftest
from conftest import BINARY, MODEL, wait_until
from test_engine_process import engine_pid, wait_ready

KEYS = {"anna": "secret-of-anna", "bert": "secret-of-bert"}
CHAT = {"messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 12}
TEXT = {"prompt": "The sea is", "max_tokens": 12}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("receipts")


@pytest.fixture(scope="module")
def server(folder):
    keys = [word for name, key in KEYS.items() for word in ("--api-key", f"{key} name={name}")]
    with conftest.running(*keys, "--receipts", "--journal", str(folder / "journal"), "--max-engine-deaths", "0") as server:
        yield server


def headers(key):
    return {"Authorization": f"Bearer {KEYS[key]}"}


def ask(server, path, body, key="anna"):
    reply = server.post(path, body, headers=headers(key))
    assert reply.status_code == 200, reply.text
    return reply


def find(text):
    """The last receipt in an answer, a stream, or lines."""
    receipts = []
    for line in text.splitlines():
        line = line.removeprefix("data: ")
        if line.startswith("{"):
            event = json.loads(line)
            holder = event["response"] if isinstance(event.get("response"), dict) else event
            receipts += [holder["receipt"]] if "receipt" in holder else []
    assert len(receipts) == 1, text
    return receipts[0]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def digest(receipt):
    rest = {name: value for name, value in receipt.items() if name != "digest"}
    return sha(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())


def answer_digest(choices):
    """choices: finish reason, tokens and text of each."""
    def text(t):
        return struct.pack("<q", len(t)) + t.encode()
    return sha(b"".join(text(finish) + struct.pack("<q", len(ids)) + text(sha(struct.pack(f"<{len(ids)}i", *ids))) + text(sha(said.encode()))
                        for finish, ids, said in choices))


def run(*command, **options):
    done = subprocess.run([BINARY, *map(str, command)], capture_output=True, text=True, timeout=120, **options)
    return done.returncode, done.stdout + done.stderr


def verify(server, folder, answer, body, key="anna"):
    (folder / "answer").write_text(answer)
    (folder / "request").write_text(body if isinstance(body, str) else json.dumps(body))
    return run("verify", folder / "answer", "--request", folder / "request", "--url", server.url,
               env={**os.environ, "FLASHD_API_KEY": KEYS[key]})


def replay(server, *args, **options):
    return run("replay", *args, "--url", server.url, env={**os.environ, "FLASHD_API_KEY": KEYS["bert"]}, **options)


def entries(path):
    """{answer's id: (request line, answer line)}"""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    answers = {line["entry"]: line for line in lines if line["type"] == "answer"}
    return {line["id"]: (line, answers.get(line["entry"])) for line in lines if line["type"] == "request"}


def wait_for_entry(path, answer_id):
    return wait_until(lambda: (found := entries(path).get(answer_id)) and found[1] and found)


# ---- what a receipt says ----

def test_what_it_says_is_so(server):
    body = {**TEXT, "prompt": ["The sea is", "A city"], "n": 2, "temperature": 1, "return_token_ids": True}
    answer = ask(server, "/v1/completions", body).json()
    receipt = answer["receipt"]
    assert receipt["digest"] == digest(receipt) and receipt["version"] == 1
    assert (receipt["id"], receipt["created"], receipt["path"]) == (answer["id"], answer["created"], "/v1/completions")
    assert receipt["kernels"] == answer["system_fingerprint"]
    assert receipt["tokens"] == [c["token_ids"] for c in answer["choices"]]
    assert receipt["answer"] == answer_digest([(c["finish_reason"], c["token_ids"], c["text"]) for c in answer["choices"]])


def test_a_chain_for_each_key(server):
    chains = {key: [find(ask(server, "/v1/completions", TEXT, key).text) for _ in range(3)] for key in KEYS}
    for first, second, third in chains.values():
        assert second["previous"] == first["digest"] and third["previous"] == second["digest"]
        assert [second["number"], third["number"]] == [first["number"] + 1, first["number"] + 2]
    assert len({r["chain"] for chain in chains.values() for r in chain}) == 1
    others = {r["digest"] for r in chains["bert"]}
    assert not others & {r["previous"] for r in chains["anna"]}


def test_parallel_answers_are_one_chain(server):
    before = find(ask(server, "/v1/completions", TEXT, "bert").text)
    texts, threads = [], []
    for i in range(6):
        body = {**TEXT, "max_tokens": 20 - 3 * i, "ignore_eos": True}
        threads.append(threading.Thread(target=lambda b=body: texts.append(ask(server, "/v1/completions", b, "bert").text)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chain = sorted([before, *map(find, texts)], key=lambda r: r["number"])
    assert [r["number"] for r in chain] == list(range(before["number"], before["number"] + 7))
    assert all(b["previous"] == a["digest"] for a, b in zip(chain, chain[1:]))


@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", {**CHAT, "n": 2, "stream_options": {"include_usage": True}}), ("/v1/completions", {**TEXT, "n": 3, "best_of": 3}),
    ("/v1/messages", {**CHAT, "model": MODEL.name}), ("/v1/responses", {"input": "Name a river.", "max_output_tokens": 16}),
    ("/api/chat", {"messages": CHAT["messages"], "options": {"num_predict": 8}}), ("/api/generate", {"prompt": "A river", "options": {"num_predict": 8}})])
def test_every_protocol_streams_and_whole(server, path, body):
    """The same receipt but for id, time and place in the chain; a stream has one, with its end."""
    own = {"id", "created", "number", "previous", "digest"}
    seed = {"options": {**body["options"], "seed": 5}} if "options" in body else {"seed": 5}
    whole, stream = (find(ask(server, path, {**body, **seed, "stream": stream}).text) for stream in (False, True))
    assert whole["digest"] == digest(whole) and stream["digest"] == digest(stream)
    assert {n: v for n, v in whole.items() if n not in own} == {n: v for n, v in stream.items() if n not in own}


def test_what_is_asked_counts(server):
    """The request's digest is of what it means, not of how it is written."""
    def request(**more):
        return find(ask(server, "/v1/completions", {**TEXT, "max_tokens": 2, **more}).text)["request"]
    plain = request()
    assert plain == request(stream=False, user="x", logprobs=1) == request(prompt="The sea is")
    others = [request(prompt="The sky is"), request(temperature=0.5), request(stop=["x"]), request(logit_bias={"5": 1}), request(seed=1),
              request(guided_choice=["a", "b"]), request(guided_choice=["a", "c"]), request(bad_words=["sea"]), request(max_tokens=3),
              request(n=3), request(best_of=3), request(n=2, best_of=3)]
    assert len({plain, *others}) == 1 + len(others)


def test_no_receipts_where_none_are_asked_for(shared_server):
    for path, body in [("/v1/completions", TEXT), ("/v1/chat/completions", {**CHAT, "stream": True})]:
        assert "receipt" not in shared_server.post(path, body).text
    reply = shared_server.post("/v1/completions", TEXT, headers={"x-flashd-replay": "nonsense"})
    assert reply.status_code == 200


def test_embeddings_have_none(server, folder):
    reply = ask(server, "/v1/embeddings", {"input": "x"})
    assert "receipt" not in reply.text
    after = ask(server, "/v1/completions", TEXT).json()
    wait_for_entry(folder / "journal", after["id"])
    assert "/v1/embeddings" not in (folder / "journal").read_text()


# ---- again ----

@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", CHAT), ("/v1/chat/completions", {**CHAT, "n": 3, "stream": True}),
    ("/v1/completions", {"prompt": ["One", "Two"], "max_tokens": 9, "n": 2}), ("/v1/completions", {**TEXT, "max_tokens": 40, "stop": ["e", "zz"]}),
    ("/v1/completions", {**TEXT, "echo": True, "logprobs": 2}), ("/v1/completions", {**TEXT, "max_tokens": 0, "echo": True, "logprobs": 1}),
    ("/v1/chat/completions", {**CHAT, "tools": [TOOL], "tool_choice": "required", "max_tokens": 25}),
    ("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_object"}, "max_tokens": 30, "stream": True}),
    ("/v1/completions", {**TEXT, "prompt": "word " * 300, "max_tokens": 5})])
def test_the_same_again(server, folder, path, body):
    """From a prefix cache that has it, and a body that is written otherwise."""
    code, said = verify(server, folder, ask(server, path, body).text, json.dumps(body, indent=1))
    assert code == 0 and "is the same answer, byte for byte" in said, said


def test_an_engine_that_dies_changes_no_receipt(server):
    body = {**CHAT, "max_tokens": 60, "temperature": 1, "seed": 11, "stream": True, "ignore_eos": True}
    texts = []
    with httpx.stream("POST", server.url + "/v1/chat/completions", json=body, headers=headers("anna"), timeout=120) as reply:
        for line in reply.iter_lines():
            texts.append(line)
            if len(texts) == 12:
                os.kill(engine_pid(server), signal.SIGKILL)
    killed, alone = find("\n".join(texts)), find(ask(server, "/v1/chat/completions", body).text)
    assert server.metrics()["flashd_engine_deaths_total"] >= 1
    assert [killed[n] for n in ("answer", "tokens", "request")] == [alone[n] for n in ("answer", "tokens", "request")]
    wait_ready(server)


def forge(receipt, **changes):
    receipt = {**receipt, **changes}
    return json.dumps({**receipt, "digest": digest(receipt)})


def test_every_mismatch_has_its_sentence(server, folder):
    receipt = ask(server, "/v1/completions", TEXT).json()["receipt"]
    tokens = [*receipt["tokens"][0]]
    was, tokens[3] = tokens[3], 7
    for answer, body, sentence in [
            (json.dumps({**receipt, "seed": "1"}, indent=2), TEXT, "the receipt was changed"),
            (forge(receipt, model="0" * 64), TEXT, "another model: the receipt is of 0000000000000000, here is " + receipt["model"][:16]),
            (forge(receipt, tokenizer="0" * 64), TEXT, "another tokenizer"), (forge(receipt, template=None), TEXT, "another chat template"),
            (json.dumps(receipt), {**TEXT, "prompt": "The sky is"}, "another request"),
            (forge(receipt, answer="0" * 64, tokens=[tokens]), TEXT, f"another answer from token 3 of choice 0 on: it was 7, now it is {was}"),
            (forge(receipt, answer="0" * 64, tokens=[tokens[:2]], kernels="fp_x"), TEXT, "other kernels: fp_x"),
            (forge(receipt, answer="0" * 64, tokens=None), TEXT, "too long for a receipt to tell where"),
            (forge(receipt, answer="0" * 64), TEXT, "its tokens are the same, but not their text"),
            (forge(receipt, path="/v1/x\r\ny: z"), TEXT, "none of flashd's"), (forge(receipt, path="/nowhere"), TEXT, "the server answers 404"),
            (json.dumps(receipt), "{}", "the server answers 400"), ("[1]", TEXT, "there is no receipt in it"), ("", TEXT, "there is no receipt in it")]:
        code, said = verify(server, folder, answer, body)
        assert code != 0 and sentence in said, said
    code, said = verify(server, folder, forge(receipt, kernels="fp_x"), TEXT)
    assert code == 0 and "the kernels are others: fp_x then" in said
    code, said = verify(server, folder, json.dumps(receipt), TEXT, "bert")
    assert code == 0  # whoever asks


def test_a_server_without_receipts(shared_server, server, folder):
    receipt = ask(server, "/v1/completions", TEXT).json()["receipt"]
    code, said = verify(shared_server, folder, json.dumps(receipt), TEXT)
    assert code == 1 and "the server must run with --receipts" in said


@pytest.mark.parametrize("value", ["", "x", "x 1", "x 1 -1", "x 1 99999999999999999999999", "x 99999999999999999 1", "\" 1 1"])
def test_a_replay_that_is_none(server, value):
    reply = server.post("/v1/completions", TEXT, headers={**headers("anna"), "x-flashd-replay": value})
    assert reply.status_code == 400 and "x-flashd-replay" in reply.json()["error"]["message"]


def test_usage(folder):
    for command in [("verify",), ("verify", "x"), ("verify", "-", "--request", "x"), ("replay",), ("replay", "x"), ("replay", "x", "--all", "--request", "y")]:
        code, said = run(*command, stdin=subprocess.DEVNULL)
        assert code == 2 and said.count("\n") == 1, said
    code, said = run("replay", folder / "none", "--all", "--model", MODEL)
    assert code == 1 and "No such file" in said


@pytest.mark.parametrize("text", ["", "root:x:0:0\n", '{"entry": 1}\n'])
@pytest.mark.parametrize("of_which", [("--all",), ("--request", "x")])
def test_a_journal_that_is_none(folder, text, of_which):
    """Nothing was checked: as before an upgrade, that is no success."""
    (folder / "none of it").write_text(text)
    code, said = run("replay", folder / "none of it", *of_which, "--model", MODEL)
    assert code == 1 and said.count("\n") == 1 and "no line of it is a journal's" in said


@pytest.mark.parametrize("receipt", [5, None, [1], {}, {"digest": "0" * 64}])
def test_a_receipt_of_a_journal_that_is_none(folder, receipt):
    """Of a damaged file, say."""
    lines = [{"type": "request", "entry": "0-1", "id": "x", "body": TEXT}, {"type": "answer", "entry": "0-1", "receipt": receipt}]
    (folder / "damaged").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    code, said = run("replay", folder / "damaged", "--request", "x", "--url", "http://127.0.0.1:9")
    assert (code, said) == (1, "flashd: x: the receipt is none of flashd's, or was changed\n")


# ---- the journal ----

def test_what_it_keeps(server, folder):
    body = '{"prompt": "A \\"quoted\\"\\nline",\r\n "max_tokens":\n3, "seed": 17}'
    reply = httpx.post(server.url + "/v1/completions", content=body, headers={**headers("bert"), "x-request-id": "of-bert"})
    request, answer = wait_for_entry(folder / "journal", reply.json()["id"])
    assert (request["request_id"], request["key"], request["seed"], request["body"]) == ("of-bert", "bert", "17", json.loads(body))
    assert answer["outcome"] == "done" and answer["receipt"] == reply.json()["receipt"]
    assert stat.S_IMODE((folder / "journal").stat().st_mode) == 0o600
    assert not [key for key in KEYS.values() if key in (folder / "journal").read_text()]


def test_a_client_that_hangs_up(server, folder):
    body = {**CHAT, "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.url + "/v1/chat/completions", json=body, headers=headers("anna"), timeout=60) as reply:
        answer_id = json.loads(next(reply.iter_lines()).removeprefix("data: "))["id"]
    answer = wait_for_entry(folder / "journal", answer_id)[1]
    assert answer["outcome"] == "client_gone" and "receipt" not in answer
    code, said = replay(server, folder / "journal", "--request", answer_id)
    assert code == 1 and "it has no complete answer: client_gone" in said


def test_an_answer_of_the_past(server, folder):
    for path, body in [("/v1/chat/completions", {**CHAT, "tools": [TOOL], "tool_choice": "required", "max_tokens": 25}), ("/v1/completions", TEXT)]:
        reply = ask(server, path, body)
        wait_for_entry(folder / "journal", reply.json()["id"])
        for name in (reply.json()["id"], reply.headers["x-request-id"]):
            code, said = replay(server, folder / "journal", "--request", name)
            assert code == 0, said
            for again in (json.loads(said), reply.json()):
                assert {n: v for n, v in again.items() if n not in ("usage", "receipt")} == {
                    n: v for n, v in reply.json().items() if n not in ("usage", "receipt")}
    assert replay(server, folder / "journal", "--request", "none")[0] == 1


def test_all_of_it_by_a_model_of_its_own(server, folder):
    """Conversations that go on from stored responses, too; a line that is cut off; one that was changed; an answer missing."""
    journal = folder / "own"
    journal.write_text('{"type":"request","entry":"1-1","bo')
    with conftest.running("--journal", str(journal)) as own:
        first = own.post("/v1/responses", {"input": "Name a river.", "max_output_tokens": 16}).json()
        more = {"input": "And another?", "previous_response_id": first["id"], "max_output_tokens": 16}
        assert "receipt" not in first and own.post("/v1/responses", more).status_code == 200
        assert own.post("/v1/completions", {**TEXT, "n": 2}).status_code == 200
    environment = {**os.environ, "FLASHD_JOURNAL": str(folder / "untouched")}
    code, said = run("replay", journal, "--all", "--model", MODEL, env=environment)
    assert code == 0 and said.startswith("3 are the same, 0 are others, 0 could not be computed; 0 requests without a complete answer, 1 lines"), said
    assert not (folder / "untouched").exists()
    lines = journal.read_text().splitlines()
    changed = lines[-1].replace('"tokens":[[', '"tokens":[[1,')
    journal.write_text("\n".join([*lines[:-3], "no JSON", lines[-2], changed, re.sub('"entry":"[^"]*"', '"entry":"0-0"', lines[-2]), lines[-2][:-9]]))
    code, said = replay(server, journal, "--all")
    assert code == 1 and "the receipt was changed" in said
    assert "1 are the same, 1 are others, 0 could not be computed; 2 requests without a complete answer, 3 lines" in said, said


def test_it_turns_over(folder):
    """Two files of half the limit at most; and one that somebody moves away."""
    journal, older = folder / "turning", folder / "turning.1"
    with conftest.running("--journal", str(journal), "--journal-bytes", "64KiB") as server:
        wait_until(lambda: server.post("/v1/completions", {**TEXT, "max_tokens": 1, "user": "x" * 5000}).is_success and older.exists())
        server.wait_idle()
        last = server.post("/v1/completions", {**TEXT, "max_tokens": 1}).json()["id"]
        wait_for_entry(journal, last)
        assert journal.stat().st_size <= 32768 and older.stat().st_size <= 32768
        assert stat.S_IMODE(older.stat().st_mode) == stat.S_IMODE(journal.stat().st_mode) == 0o600
        too_long = {**TEXT, "max_tokens": 1, "user": "x" * 40000}
        assert server.post("/v1/completions", too_long).status_code == 200
        wait_until(lambda: server.metrics()["flashd_journal_lines_dropped_total"] == 1)
        journal.rename(folder / "moved")
        last = server.post("/v1/completions", {**TEXT, "max_tokens": 1}).json()["id"]
        wait_until(journal.exists)
        wait_for_entry(journal, last)


def test_a_full_disk_holds_nobody_up():
    with conftest.running("--journal", "/dev/full") as server:
        for _ in range(3):
            assert server.post("/v1/completions", TEXT).status_code == 200
        wait_until(lambda: server.metrics()["flashd_journal_lines_dropped_total"] == 6)
        assert server.log().count("the journal lacks requests") == 1 and "No space left on device" in server.log()
        assert server.metrics()["flashd_journal_lines_total"] == 0


def test_one_journal_is_one_servers(folder):
    """Records of two would mix: the second does not start as long as the first runs."""
    journal = folder / "one"
    with conftest.running("--journal", str(journal)) as server:
        code, said = run("serve", MODEL, "--port", "0", "--journal", journal)
        assert code == 1 and f"--journal {journal}: another server writes it" in said
        wait_for_entry(journal, server.post("/v1/completions", {**TEXT, "max_tokens": 1}).json()["id"])
    with conftest.running("--journal", str(journal)) as server:
        wait_for_entry(journal, server.post("/v1/completions", {**TEXT, "max_tokens": 1}).json()["id"])


def test_it_cannot_be_opened(folder):
    code, said = run("serve", MODEL, "--port", "0", "--journal", folder / "none" / "journal")
    assert code == 1 and f"--journal {folder}/none/journal: No such file or directory" in said
