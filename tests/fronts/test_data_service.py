"""The tf.data service: where its processes meet, and datasets that its workers make."""

import ast
import functools
import pathlib
import select
import socket
import threading

import pytest
from patience import PATIENCE
from ranks import run_ranks

from horovod.runner.common.service import _calls
from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.common.util.secret import make_secret_key
from horovod.runner.common.util.timeout import TimeoutException

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def service():
    key = make_secret_key()
    service = ComputeService(2, 2, key, nics=["lo"])
    yield service, ComputeClient(service.addresses(), key)
    service.shutdown()


def in_thread(function, *arguments):
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)), daemon=True)
    thread.start()
    return thread, found


def test_those_who_wait_are_told_of_dispatchers_and_workers(service):
    _, client = service
    waits = [in_thread(client.wait_for_dispatcher_registration, number, PATIENCE) for number in (0, 1)]
    ready = in_thread(client.wait_for_dispatcher_worker_registration, 1, PATIENCE)
    for number in (0, 1):
        client.register_dispatcher(number, f"grpc://localhost:{number}")
        client.register_dispatcher(number, f"grpc://localhost:{number}")  # a second time does no harm
    for number, (thread, found) in enumerate(waits):
        thread.join(PATIENCE)
        assert found == [f"grpc://localhost:{number}"]
    client.register_worker_for_dispatcher(1, 2)
    client.register_worker_for_dispatcher(1, 2)
    with pytest.raises(TimeoutException, match="Timed out waiting for workers for dispatcher 1 .*Timeout after 0.1 seconds"):
        client.wait_for_dispatcher_worker_registration(1, 0.1)
    client.register_worker_for_dispatcher(1, 3)
    ready[0].join(PATIENCE)
    assert ready[1] == [None]
    with pytest.raises(ValueError, match="already been registered under different address grpc://localhost:0: grpc://b"):
        client.register_dispatcher(0, "grpc://b")


@pytest.mark.parametrize("number", [-1, 2])
def test_a_dispatcher_that_is_none_is_refused(service, number):
    _, client = service
    for call in (
        lambda: client.register_dispatcher(number, "a"),
        lambda: client.wait_for_dispatcher_registration(number, 0.1),
        lambda: client.register_worker_for_dispatcher(number, 0),
        lambda: client.wait_for_dispatcher_worker_registration(number, 0.1),
    ):
        with pytest.raises(IndexError, match="is none of 0 to 1"):
            call()


def test_the_end_is_told_to_all_who_wait(service):
    _, client = service
    over = in_thread(client.wait_for_shutdown)
    waits = in_thread(lambda: pytest.raises(RuntimeError, client.wait_for_dispatcher_registration, 0, PATIENCE))
    assert client.is_running()
    client.shutdown()
    for thread, found in (over, waits):
        thread.join(PATIENCE)
        assert len(found) == 1
    client._wait_for_shutdown_thread.join(PATIENCE)
    assert not client.is_running()
    assert "was shut down before dispatcher 0" in str(waits[1][0].value)


def test_without_the_key_nobody_calls_or_answers(service):
    there, client = service
    stranger = ComputeClient(there.addresses(), make_secret_key())
    with pytest.raises(ConnectionError, match="is this its key"):
        stranger.shutdown()
    # One that has heard a call can neither repeat it, nor answer one with what was answered before.
    (address, port), = there.addresses()["lo"]
    with socket.create_connection((address, port), PATIENCE) as replaying:
        replaying.recv(64)
        replaying.sendall(b"\0\0\0\2" + bytes(32) + b"{}")
        assert replaying.recv(1) == b""
    assert client.is_running()


def test_those_who_prove_nothing_have_few_threads_and_little_time(service, monkeypatch):
    there, client = service
    (address, port), = there.addresses()["lo"]
    monkeypatch.setattr(_calls, "_MOST_UNPROVEN", 4)
    monkeypatch.setattr(_calls, "_PATIENCE_S", PATIENCE)
    strangers = [socket.create_connection((address, port), PATIENCE) for _ in range(12)]
    for stranger in strangers[:8]:
        stranger.recv(64)
        assert stranger.recv(1) == b""  # the server has hung up
    assert client.is_running()
    assert len(strangers[-1].recv(64)) == 32 and select.select([strangers[-1]], [], [], 0) == ([], [], [])  # not yet
    # One who says a byte now and then is hung up on as one who says nothing.
    monkeypatch.setattr(_calls, "_PATIENCE_S", 1.0)
    with socket.create_connection((address, port), PATIENCE) as slow:
        slow.settimeout(0.1)
        for _ in range(10 * PATIENCE):
            try:
                slow.sendall(b"\0")
                if not slow.recv(64):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            raise AssertionError("it is still heard")
    for stranger in strangers:
        stranger.close()
    monkeypatch.setattr(_calls, "_PATIENCE_S", PATIENCE)
    assert client.is_running()


def test_a_network_interface_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="none of the interfaces.*there are: .*lo"):
        ComputeService(1, 1, make_secret_key(), nics=["nowhere0"])


def test_rank_and_size_come_from_the_launcher(monkeypatch):
    for name in ("HVD_RANK", "HVD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    assert get_env_rank_and_size() == (1, 3)
    monkeypatch.setenv("HVD_RANK", "2")
    monkeypatch.setenv("HVD_SIZE", "4")
    assert get_env_rank_and_size() == (2, 4)


CASES = [
    node.name
    for node in ast.parse((HERE / "rank_tf_data.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
]


@functools.lru_cache(maxsize=None)
def outcome():
    return run_ranks(2, HERE / "rank_tf_data.py", env={"TF_CPP_MIN_LOG_LEVEL": "3"}, by_agent=True, framework="tensorflow")


@pytest.mark.parametrize("case", CASES)
def test_ranks(case):
    pytest.importorskip("tensorflow")
    for rank, reported in enumerate(outcome().reports):
        said = (reported or {}).get(case, f"the case did not end\n{outcome().output[-6000:]}")
        assert said == "ok", f"rank {rank}: {said}"


def test_ranks_end_in_order():
    pytest.importorskip("tensorflow")
    outcome().check()
