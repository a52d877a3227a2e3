"""Several devices that compute as one (--tensor-parallel-size): here a CPU's, which take turns. Everything that a client sees is what one device answers,
whatever runs beside it, over an engine's death, and where a stream moves to a process of another number of devices. SmolLM2 has 3 K/V heads: 3 devices
have one each, 2 compute all of its heads each."""

import os
import pathlib
import signal
import sys

import pytest

from conftest import ROOT, wait_until
from test_embeddings import rows, same
from test_handover import MOVING, OPTIONS, Reader, begin, meaning, moved, resting_engine
from test_upgrade import upgradable

sys.path.insert(0, str(ROOT / "tests/golden"))
import encoder  # noqa: E402
import lora  # noqa: E402

NAMES = ("text", "logprobs", "chat", "messages", "n", "schema", "calls")
REQUESTS = {name: MOVING[name] for name in NAMES}


def devices(num):
    return ("--device", "cpu", "--tensor-parallel-size", str(num))


def answers(server):
    return {name: meaning(reader.result()) for name, reader in begin(server, REQUESTS).items()}


@pytest.fixture(scope="module")
def of_one(start_server):
    with start_server(*OPTIONS) as server:
        return answers(server)


@pytest.mark.parametrize("num, is_shared_out", [(3, True), (2, False)])
def test_several_answer_as_one(start_server, of_one, num, is_shared_out):
    """Alone, and all at a time, which is how they were asked of one."""
    with start_server(*OPTIONS, *devices(num)) as server:
        assert answers(server) == of_one
        for name, request in REQUESTS.items():
            assert meaning(Reader(server, *request).result()) == of_one[name], name
        log = server.log()
        assert f"{num} devices of a CPU compute one after the other" in log and f"on {num} times cpu" in log
        assert ("attention is not shared out among 2 devices" in log) != is_shared_out


def test_a_dead_engine_comes_back_with_all_of_them(start_server, of_one):
    with start_server(*OPTIONS, *devices(3)) as server:
        readers = begin(server, REQUESTS)
        (pid,) = map(int, pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split())
        os.kill(pid, signal.SIGKILL)
        assert {name: meaning(reader.result()) for name, reader in readers.items()} == of_one
        assert server.metrics()["flashd_engine_deaths_total"] == 1


@pytest.mark.parametrize("before, after", [(1, 3), (3, 2)])
def test_streams_move_between_numbers_of_devices(before, after, of_one, tmp_path):
    config = tmp_path / "flashd.yaml"
    config.write_text(f"device: cpu\ntensor-parallel-size: {before}\n")
    with upgradable(*OPTIONS, "--config", str(config)) as server:
        readers = begin(server, REQUESTS)
        config.write_text(f"device: cpu\ntensor-parallel-size: {after}\n")
        with resting_engine(server.pid):
            server.upgrade()
            wait_until(lambda: moved(server) == len(readers), server)
        assert {name: meaning(reader.result()) for name, reader in readers.items()} == of_one


@pytest.mark.parametrize("kind", ["llama", "phi3"])
def test_adapters_and_vectors(start_server, tmp_path, kind):
    """Rows of an adapter go where the matrix's are."""
    lora.write_model(tmp_path / "base", kind)
    path = lora.Adapter(kind, "first", 5).write(tmp_path / "first")
    found = []
    for num in (1, 2):
        with start_server("--pooling", "mean", "--lora-modules", f"first={path}", *devices(num), model=tmp_path / "base") as server:
            found.append([rows(server, encoder.LISTS, model=name, normalize=False) for name in ("base", "first")])
    assert same(found[0][0], found[1][0]) and same(found[0][1], found[1][1]) and not same(found[0][0], found[0][1])


def test_more_than_there_may_be_are_refused(start_server):
    with pytest.raises(Exception) as failed, start_server("--tensor-parallel-size", "9"):
        pass
    assert "tensor-parallel-size must be a whole number of devices from 1 to 8" in str(failed.value)
