"""SIGHUP: keys, quotas, times and the log level are read again; requests in flight do not notice."""

import hashlib
import os
import signal
import threading

import pytest

from conftest import wait_until
from test_debug import begin

ASK = {"prompt": [100], "max_tokens": 2}


def ask(server, key, **body):
    return server.post("/v1/completions", {**ASK, **body}, headers={"Authorization": f"Bearer {key}"}).status_code


def reload(server, expected):
    """Sends SIGHUP; returns the log's lines since, of which one says expected."""
    before = len(server.log())
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: expected in server.log()[before:], server)
    return server.log()[before:]


def sha256(key):
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def test_keys_come_and_go(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first name=one\nsecond\n")
    with start_server("--api-key-file", str(keys)) as server:
        assert [ask(server, k) for k in ("first", "second", "third")] == [200, 200, 401]
        stream, lines = begin(server, "goes-on", {"Authorization": "Bearer first"})
        keys.write_text(f"third\nsecond max-seqs=1\n{sha256('fourth')} admin\n")
        reload(server, "read again: --api-key")
        assert [ask(server, k) for k in ("first", "second", "third", "fourth", sha256("fourth"))] == [401, 200, 200, 200, 401]
        assert ask(server, "second", n=2, temperature=1) == 400, "its quota is new"
        assert next(line for line in lines if line.startswith("data: ")), "what was in flight goes on"
        stream.__exit__(None, None, None)
        keys.write_text("first weight=2\n")
        reload(server, "read again: --api-key")
        assert [ask(server, k) for k in ("first", "second", "third")] == [200, 401, 401]
        reload(server, "read again: nothing is new")
        server.wait_idle()


def test_a_key_may_be_given_as_its_digest_later(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    with start_server("--api-key-file", str(keys)) as server:
        keys.write_text(f"{sha256('first')} name=one\n")
        reload(server, "read again: --api-key")
        assert ask(server, "first") == 200


@pytest.mark.parametrize("text", ["", "first\nsecond name=a\nthird name=a\n", "second\nfirst\nsecond\n", "bad,key\n", "key weight=0\n", "sha256:12\n", None])
def test_what_cannot_be_read_changes_nothing(start_server, tmp_path, text):
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    with start_server("--api-key-file", str(keys)) as server:
        if text is None:
            keys.unlink()
        else:
            keys.write_text(text)
        reload(server, "the configuration was not read again: ")
        assert ask(server, "first") == 200 and ask(server, "second") == 401


@pytest.mark.parametrize("which", ["--config", "--api-key-file"])
def test_a_pipe_is_not_waited_for(start_server, tmp_path, which):
    """A file that is a pipe, as of `--config <(program)`, was read when the server started."""
    file = tmp_path / "file"
    os.mkfifo(file)
    writer = threading.Thread(target=file.write_text, args=["first\n" if which == "--api-key-file" else "api-key: first\n"])
    writer.start()
    with start_server(which, str(file)) as server:
        writer.join()
        reload(server, "the configuration was not read again: ")
        assert f"{which} {file}: " in server.log()
        assert ask(server, "first") == 200


def test_a_server_neither_gets_its_first_key_nor_loses_its_last(start_server, tmp_path):
    config = tmp_path / "flashd.yaml"
    config.write_text("log-level: info\n")
    with start_server("--config", str(config)) as server:
        config.write_text("api-key: [a]\n")
        reload(server, "is decided when it starts")
        assert server.post("/v1/completions", ASK).status_code == 200
    with start_server("--config", str(config)) as server:
        config.write_text("log-level: info\n")
        reload(server, "is decided when it starts")
        assert server.post("/v1/completions", ASK).status_code == 401


def test_options(start_server, tmp_path):
    config = tmp_path / "flashd.yaml"
    config.write_text("log-level: info\nwrite-timeout: 30\nmax-num-seqs: 8\n")
    with start_server("--config", str(config)) as server:
        config.write_text("log-level: debug\nwrite-timeout: 20\nmax-num-seqs: 4\n")
        told = reload(server, "take effect at the next start: --max-num-seqs\n")
        assert "read again: --write-timeout --log-level\n" in told
        config.write_text("log-level: warning\n")
        reload(server, "take effect at the next start: --max-num-seqs\n")
        lines = server.log().count("\n")
        assert server.post("/v1/completions", ASK).status_code == 200
        assert server.log().count("\n") == lines, "an info line came through"


def test_what_would_not_start_is_not_read(start_server, tmp_path):
    """Nor what goes with a limit that waits for the next start alone."""
    config = tmp_path / "flashd.yaml"
    config.write_text("max-buffered-bytes: 64MiB\n")
    with start_server("--config", str(config)) as server:
        for text in ("max-buffered-bytes: 1MiB\n", "max-buffered-bytes: 4MiB\nmax-body-bytes: 2MiB\n"):
            config.write_text(text)
            told = reload(server, "the configuration was not read again: ")
            assert "--max-buffered-bytes" in told and "--max-body-bytes 8388608 would fit" in told
        config.write_text("max-buffered-bytes: 8MiB\n")
        reload(server, "read again: --max-buffered-bytes\n")
