"""Elastic jobs of RayExecutor on real Ray: ranks come and go with its nodes."""

import concurrent.futures
import os
import pathlib
import queue
import signal
import time

import pytest

from horovod.ray import ElasticRayExecutor, RayExecutor, _callbacks, _elastic
from horovod.ray.elastic import RayHostDiscovery
from horovod.runner.elastic.discovery import FixedHosts
from patience import PATIENCE
from ray_nodes import add_node


@pytest.fixture
def executor(cluster):
    """Makes executors, and shuts them down."""
    made = []

    def make(discovery=None, start=(), **arguments):
        settings = RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE)
        settings.discovery = discovery
        made.append(RayExecutor(settings, override_discovery=discovery is None, **arguments))
        made[-1].start(*start)
        return made[-1]

    yield make
    for each in made:
        each.shutdown()


def address():
    return next(iter(RayHostDiscovery().find_available_hosts_and_slots()))


def trains(sizes):
    """Trains until the job has had these sizes, one after the other; the rank, and how many steps there were."""
    import torch

    import horovod.torch as hvd
    from horovod.ray import ray_logger

    hvd.init()
    state = hvd.elastic.TorchState(step=0, left=list(sizes))

    @hvd.elastic.run
    def train(state):
        while True:
            assert float(hvd.allreduce(torch.ones(1), op=hvd.Sum)) == hvd.size()
            state.step += 1
            has_come = hvd.size() == state.left[0]
            if has_come:
                state.left = state.left[1:]
            if not state.left:
                return hvd.rank(), hvd.size()
            state.save()  # with the next line but two as commit(); what the driver does then does not take this step back
            if has_come:
                ray_logger.log({"size": hvd.size()}, chief_only=True)
            state.check_host_updates()
            time.sleep(0.05)

    return train(state)


def test_ranks_come_and_go_as_a_discovery_says(executor):
    hosts = FixedHosts({address(): 3, "unknown": 9})
    then, told = iter([2, 3]), []

    def change(info):
        told.append(info["size"])
        slots = next(then, None)
        if slots is not None:
            hosts.set({address(): slots})

    ranks = executor(hosts, min_workers=2, max_workers=3, cpus_per_worker=0.5)  # all in one actor
    assert ranks.run(trains, [[3, 2, 3]], callbacks=[change]) == [(0, 3), (1, 3), (2, 3)]
    assert told == [3, 2]


def test_a_node_of_ray_that_comes_gets_a_rank_and_one_that_is_lost_is_done_without(nodes, executor):
    ranks, told, node = executor(min_workers=2, cpus_per_worker=2), queue.Queue(), None
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ends = pool.submit(ranks.run, trains, [[2, 3, 2]], callbacks=[lambda info: told.put(info["size"])])
        ends.add_done_callback(lambda _: told.put("over"))
        try:
            import ray

            assert told.get() == 2
            node = add_node(nodes)  # Ray wants the main thread for it
            assert told.get() == 3
            nodes.remove_node(node)
            node = None
            assert ends.result() == [(0, 2), (1, 2)]
            assert sum(each["Alive"] for each in ray.nodes()) == 2
        finally:
            ranks.shutdown()
            if node is not None:
                nodes.remove_node(node)


def test_a_rank_whose_agent_is_killed_is_replaced_though_others_fill_its_node(executor, tmp_path):
    def trains_on(folder):
        import torch

        import horovod.torch as hvd

        hvd.init()
        state = hvd.elastic.TorchState(step=0)

        @hvd.elastic.run
        def train(state):
            while state.step < 3:
                killed = pathlib.Path(folder) / "killed"
                if state.step == 1 and hvd.rank() == 3 and not killed.exists():
                    killed.touch()
                    os.kill(os.getppid(), signal.SIGKILL)
                hvd.allreduce(torch.ones(1), name=f"step.{state.step}")
                state.step += 1
                state.commit()
            return hvd.rank(), state.step

        return train(state)

    ranks = executor(min_workers=4, max_workers=4, cooldown_range=[0, 0])  # of the cluster's four CPUs
    assert ranks.run(trains_on, [str(tmp_path)]) == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert (tmp_path / "killed").exists()


def test_an_actor_that_is_lost_before_the_job_begins_is_replaced(executor, monkeypatch, capsys):
    import ray

    start, killed = _elastic._Job._start, []

    def start_and_kill(job, seat, order, number):
        start(job, seat, order, number)
        if number == 1 and not killed:
            killed.append(seat)
            ray.kill(seat.actor)

    monkeypatch.setattr(_elastic._Job, "_start", start_and_kill)
    ranks = executor(min_workers=2, max_workers=2, cooldown_range=[0, 0])
    assert ranks.run(lambda: os.environ["HOROVOD_SIZE"]) == ["2", "2"]
    assert "the job has not begun; its ranks are started anew" in capsys.readouterr().err and killed
    killed.clear()
    monkeypatch.setattr(_elastic, "_MOST_STARTS", 1)
    with pytest.raises(RuntimeError, match="an actor was lost at each of 1 starts of the job, the last one on .*killed"):
        ranks.run(lambda: 0)


def test_how_long_nothing_is_started_where_ranks_are_lost():
    cooldown = _elastic._Cooldown(10, 60)
    assert cooldown.is_over("a", 0)
    assert cooldown.note_loss("a", 5, 100) == 10 and not cooldown.is_over("a", 109) and cooldown.is_over("a", 110)
    assert cooldown.note_loss("a", 5, 104) == 6  # with the first
    assert [cooldown.note_loss("a", 5, now) for now in (200, 300, 400)] == [20, 40, 60]
    assert cooldown.note_loss("a", 61, 500) == 10 and cooldown.is_over("b", 500)
    assert _elastic._Cooldown(0, 0).note_loss("a", 5, 100) == 0


def test_a_callback_that_raises_ends_the_call(executor):
    ranks = executor(min_workers=2, max_workers=2)
    with pytest.raises(ZeroDivisionError):
        ranks.run(trains, [[2, 9]], callbacks=[lambda _: 1 // 0])
    assert ranks.run(lambda: os.environ["HOROVOD_SIZE"]) == ["2", "2"]


def test_what_was_logged_before_a_failure_comes_and_the_next_call_is_undisturbed(executor, monkeypatch):
    monkeypatch.setattr(_elastic, "LOGS_S", PATIENCE)
    monkeypatch.setattr(_callbacks, "_LAST_S", PATIENCE)

    def fails():
        from horovod.ray import ray_logger

        for number in range(400):  # the rank is dead before its actor has passed on the last one
            ray_logger.log(number)
        raise ValueError("late")

    ranks, told = executor(min_workers=1, max_workers=1), []
    for _ in range(2):
        with pytest.raises(ValueError, match="late"):
            ranks.run(fails, callbacks=[told.append])
    assert told == [*range(400)] * 2 and ranks.run(lambda: 7) == [7]


def test_a_rank_that_dies_is_started_again_with_its_object_and_its_call(executor, tmp_path):
    class Made:
        def __init__(self, folder):
            self.path = pathlib.Path(folder) / os.environ["HOROVOD_RANK"]

    def dies_once(made):
        import torch

        import horovod.torch as hvd

        hvd.init()
        state = hvd.elastic.TorchState(step=0)

        @hvd.elastic.run
        def train(state):
            while state.step < 3:
                if state.step == 1 and hvd.rank() == 1 and not made.path.exists():
                    made.path.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                hvd.allreduce(torch.ones(1), name=f"step.{state.step}")
                state.step += 1
                state.commit()
            return hvd.rank(), state.step

        return train(state)

    ranks = executor(min_workers=2, max_workers=2, reset_limit=2, start=(Made, [str(tmp_path)]))
    assert ranks.execute(dies_once) == [(0, 3), (1, 3)]
    assert (tmp_path / "1").exists()


def test_what_a_function_raises_is_raised_and_the_next_call_is_a_job_of_its_own(executor):
    ranks = executor(min_workers=2, max_workers=2)
    with pytest.raises(ZeroDivisionError) as raised:
        ranks.run(lambda: 1 // int(os.environ["HOROVOD_RANK"]))
    assert "on rank 0" in str(raised.value.__cause__)
    with pytest.raises(RuntimeError, match="1 of 2 ranks left a result"):
        ranks.run(lambda: os._exit(0) if os.environ["HOROVOD_RANK"] == "1" else None)
    assert ranks.run(lambda: os.environ["HOROVOD_SIZE"]) == ["2", "2"]
    for method in (ranks.run_remote, ranks.execute_single):
        with pytest.raises(NotImplementedError, match=f"{method.__name__}: its ranks come and go; use"):
            method(print)


def test_too_few_nodes_are_told(executor):
    told = "the job needs 5 slots, and for 1 s .elastic_timeout. there have been 4 slots on 1 host of Ray; give the cluster"
    with pytest.raises(TimeoutError, match=told):
        executor(min_workers=5, elastic_timeout=1)
    with pytest.raises(TimeoutError, match="0 slots on 0 hosts of Ray, which does not know node1; give"):
        executor(FixedHosts({"node1": 2}), min_workers=2, elastic_timeout=1)


def test_the_former_name(cluster):
    settings = ElasticRayExecutor.create_settings(min_num_proc=1, max_num_proc=2, timeout_s=PATIENCE)
    executor = ElasticRayExecutor(settings, env_vars={"COLOUR": "red"})
    executor.start()
    assert executor.run(lambda: os.environ["COLOUR"]) == ["red", "red"]
    executor.shutdown()
