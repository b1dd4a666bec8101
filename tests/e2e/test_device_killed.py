"""A rank dies in the middle of an operation on GPUs, by hvdrun, with the fakes of CUDA and NCCL: every other rank's call ends
with an error that names it, and nothing is left.

HVD_KILL_ROUNDS: how often for each kind of operation (4), at moments of their own. HVD_KILL_SEED: of an earlier run. How long
the last rank's error took is printed (pytest -s), and judged by nobody here: a slow machine is no defect.
"""

import os
import random
import re

import pytest
from hvdrun import BIN, HVDRUN, program, wait_until_gone
from patience import PATIENCE
from ranks import run_ranks

FAKES = [BIN.parent / "lib/fake" / name for name in ("libcuda.so.1", "libnccl.so.2")]
ROUNDS = int(os.environ.get("HVD_KILL_ROUNDS", "4"))
SEED = int(os.environ.get("HVD_KILL_SEED", random.randrange(10**6)))
# By kind of operation (device_killed.py) what NCCL is called for it.
CALLS = {
    "allreduce": "ncclAllReduce",
    "group": "ncclAllReduce",
    "adasum": "ncclAllGather",
    "broadcast": "ncclBroadcast",
    "broadcast_to_it": "ncclBroadcast",
    "allgather": "ncclAllGather",
    "allgather_uneven": "ncclSend",
    "reducescatter": "ncclReduceScatter",
    "reducescatter_uneven": "ncclReduce",
    "alltoall": "ncclRecv",
    "process_set": "ncclAllReduce",
}

pytestmark = pytest.mark.skipif(
    not all(path.exists() for path in FAKES), reason="built without the CUDA toolkit's headers, so there are no fakes of CUDA"
)


def run(kind, number, marker):
    """By turns: half of what it sends in an operation is sent, at any moment, and while communicators are made."""
    chance = random.Random(f"{SEED} {kind} {number}")
    env = dict([marker.split("=")], FAKE_CUDA_DEVICES="3", HVD_TEST_FAKES=":".join(map(str, FAKES)),
               FAKE_NCCL_SILENT=str(chance.randrange(2)),
               HOROVOD_ENABLE_ASYNC_COMPLETION=str(chance.randrange(2)))  # fmt: skip
    delay = 0.0
    if number % 2 == 0:
        env["FAKE_NCCL_KILL"] = f"{CALLS[kind]}:{chance.randint(1, 30)}:1"
    elif number % 10 == 9:
        env["FAKE_NCCL_KILL"] = f"{chance.choice(['init', 'half init'])}:{2 if kind == 'process_set' else 1}:1"
    else:
        delay = chance.uniform(0.0, 0.1)
    launch = [HVDRUN, "-np", "3", "--grace", str(PATIENCE)]
    return run_ranks(3, program("device_killed.py"), kind, delay, launch=launch, env=env), env, delay


@pytest.mark.parametrize("kind", CALLS)
def test_when_a_rank_dies_in_an_operation_on_gpus_all_others_errors_name_it(kind, marker):
    slowest = 0.0
    for number in range(ROUNDS):
        outcome, env, delay = run(kind, number, marker)
        where = f"seed {SEED}, round {number}, {env.get('FAKE_NCCL_KILL', delay)}"
        assert outcome.codes == [137], f"{where}\n{outcome.output}"
        for rank in (0, 2):
            told = outcome.reports[rank]
            assert told is not None, f"{where}: rank {rank} said nothing\n{outcome.output}"
            for text in (told["error"], told["after"]):
                assert re.search(r"\brank 1\b", text), f"{where}: rank {rank} was told without its name: {text}"
            in_order = told["Destroy"] if kind == "process_set" else 0  # of those before
            assert told["Abort"] == told["InitRankConfig"] - in_order, f"{where}: rank {rank}: {told}"
            assert told["left"] == {}, f"{where}: rank {rank}"
            slowest = max(slowest, told["at"] - (outcome.reports[1] or told["at"]))
        assert wait_until_gone(marker) == {}, where
    print(f"{kind}, {ROUNDS} kills: at most {slowest:.3f} s to the last error")
