"""A rank is killed in the middle of each operation: what all others are told, and how soon.

HVD_KILL_ROUNDS: how often each of them (1), at moments of their own. HVD_KILL_SEED: of an earlier run. The time is
printed (pytest -s), and judged by nobody here: a slow machine is no defect.
"""

import os
import pathlib
import random
import re

import pytest
from ranks import run_ranks

SCRIPT = pathlib.Path(__file__).parent / "rank_killed.py"
ROUNDS = int(os.environ.get("HVD_KILL_ROUNDS", "1"))
SEED = int(os.environ.get("HVD_KILL_SEED", random.randrange(10**6)))
OPERATIONS = re.findall(r'^    "(\w+)": ', SCRIPT.read_text(), re.M)


@pytest.mark.parametrize("nodes", [(3,), (1, 2)], ids=["one_node", "two_nodes"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_when_a_rank_is_killed_in_an_operation_all_others_errors_name_it(operation, nodes):
    slowest = 0.0
    for number in range(ROUNDS):
        delay = random.Random(f"{SEED} {operation} {nodes} {number}").uniform(0.0, 0.1)
        outcome = run_ranks(3, SCRIPT, operation, delay, by_agent=True, nodes=nodes)
        for rank in (0, 2):
            told = outcome.reports[rank]
            assert told is not None, f"seed {SEED}, round {number}: rank {rank} said nothing\n{outcome.output}"
            for text in (told["error"], told["after"]):
                assert re.search(r"\brank 1\b", text), f"seed {SEED}, round {number}: the text names the rank: {text}"
            slowest = max(slowest, told["seconds"])
    print(f"{operation}, {len(nodes)} nodes, {ROUNDS} kills: at most {slowest:.3f} s to the last error")
