"""RayExecutor on real Ray: what runs, what is raised, and what is refused."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from horovod.ray import RayExecutor
from horovod.ray.strategy import create_placement_group
from horovod.runner import _launch
from patience import PATIENCE, wait_until
from ports import free_ports
from rank_side import place
from spark_deaths import is_alive

TWO = {"num_workers": 2}
TWO_HOSTS = {"num_hosts": 2, "num_workers_per_host": 1}


def settings(**others):
    return RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE, **others)


@pytest.fixture
def executor(cluster):
    """Makes executors, and shuts them down."""
    made = []

    def make(start=None, **arguments):
        made.append(RayExecutor(settings(), **arguments))
        made[-1].start(**(start or {}))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()


class Counter:
    def __init__(self, begin, step=1):
        self.value = begin + step * int(os.environ["HOROVOD_RANK"])

    def add(self, what):
        self.value += what
        return self.value


@pytest.mark.parametrize("arguments", [TWO, TWO_HOSTS], ids=["workers", "hosts"])
def test_ranks_reduce_and_stay_between_calls(executor, arguments):
    def reduce(begin):
        import torch

        import horovod.torch as hvd

        hvd.init()
        return hvd.rank(), hvd.allreduce(torch.ones(3) * (hvd.rank() + begin), op=hvd.Sum).tolist(), os.getpid()

    def is_initialized():
        import horovod.torch as hvd

        return hvd.is_initialized(), os.getpid()

    ranks = executor(**arguments)
    first = ranks.run(reduce, args=[1])
    assert [answer[:2] for answer in first] == [(0, [3.0] * 3), (1, [3.0] * 3)]
    assert ranks.run(is_initialized) == [(True, answer[2]) for answer in first]
    assert ranks.run(place) == [(0, 2, 0, 2), (1, 2, 1, 2)]  # both nodes are on this machine


def test_an_object_lives_in_each_rank(executor, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    start = {"executable_cls": Counter, "executable_args": [10], "executable_kwargs": {"step": 5},
             "extra_env_vars": {"FROM_ENV": 3}}  # fmt: skip
    ranks = executor(start, num_workers=2)
    assert ranks.execute(lambda counter: counter.add(1)) == [11, 16]
    assert ranks.execute(lambda counter: counter.add(1)) == [12, 17]
    assert ranks.execute_single(lambda counter: counter.add(100)) == 112
    told = ranks.run(lambda: (os.environ["FROM_ENV"], os.environ["HOROVOD_TIMELINE_MARK_CYCLES"]))
    assert told == [("3", "1")] * 2


def test_calls_without_waiting_keep_their_order_and_large_values_travel(executor):
    import ray

    ranks = executor({"executable_cls": Counter, "executable_args": [0, 0]}, num_workers=2)
    calls = [ranks.run_remote(lambda number=number: (number, b"x" * 3_000_000)) for number in range(4)]
    assert [[value[0] for value in ray.get(call)] for call in calls] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    large = os.urandom(3_000_000)  # more than a job's environment could carry
    assert ranks.run(lambda given: given == large, args=[large]) == [True, True]


def test_what_ranks_log_reaches_the_callbacks_before_the_results(executor):
    def train(rounds):
        from horovod.ray import ray_logger

        for number in range(rounds):
            ray_logger.log({"round": number}, chief_only=True)
        ray_logger.log({"rank": os.environ["HOROVOD_RANK"]})
        return rounds

    def refuse(info):
        raise KeyError("refused")

    ranks, told, also_told = executor(**TWO), [], []
    assert ranks.run(train, [2], callbacks=[told.append, also_told.append]) == [2, 2]
    assert [info for info in told if "round" in info] == [{"round": 0}, {"round": 1}] and told == also_told
    assert sorted(info["rank"] for info in told if "rank" in info) == ["0", "1"]
    assert ranks.run(train, [1]) == [1, 1]  # nobody listens
    assert ranks.execute(lambda _: train(1), callbacks=[told.append]) == [1, 1] and len(told) == 7
    with pytest.raises(KeyError, match="refused"):
        ranks.run(lambda: (train(1), threading.Event().wait()), callbacks=[refuse])
    with pytest.raises(RuntimeError, match="there are no ranks; call start"):
        ranks.run(place)


def test_functions_use_ray_as_the_driver_does(executor):
    import ray

    class Progress:
        def __init__(self):
            self.seen = []

        def note(self, what):
            self.seen.append(what)
            return len(self.seen)

    progress = ray.remote(Progress).options(name="progress", num_cpus=0).remote()
    data = ray.put({"rows": 7})

    def with_references(given):
        rank = int(os.environ["HOROVOD_RANK"])
        ray.get(progress.note.remote(rank))
        return ray.get(given)["rows"] + ray.get(data)["rows"], ray.put(rank)

    def of_cluster():  # called first: its script's Ray is not there yet
        import ray

        return ray.get(ray.put(len(ray.nodes())))

    def by_name():
        import ray

        return ray.get(ray.get_actor("progress").note.remote("by name"))

    ranks = executor(**TWO)
    assert ranks.run(of_cluster) == [len(ray.nodes())] * 2
    ranks = executor(**TWO)
    answers = ranks.run(with_references, [data])
    assert [rows for rows, _ in answers] == [14, 14] and ray.get([left for _, left in answers]) == [0, 1]
    assert sorted(ranks.run(by_name)) == [3, 4]
    assert ray.get(progress.note.remote("end")) == 5
    ray.kill(progress)


def test_what_ranks_print_is_tagged(executor, capsys):
    ranks = executor(**TWO)
    ranks.run(lambda: print(f"printed by {os.environ['HOROVOD_RANK']}"))
    ranks.shutdown()  # all that was printed has come
    assert sorted(capsys.readouterr().out.splitlines()) == ["[0]<stdout>:printed by 0", "[1]<stdout>:printed by 1"]


def test_a_rank_that_raises_raises_here_and_start_makes_new_ranks(executor, monkeypatch):
    monkeypatch.setattr("horovod.ray._adapter.AGENTS_WORD_S", PATIENCE)

    def fails():
        if os.environ["HOROVOD_RANK"] == "1":
            raise ZeroDivisionError("of rank 1")
        threading.Event().wait()

    ranks = executor(**TWO)
    with pytest.raises(ZeroDivisionError, match="of rank 1") as raised:
        ranks.run(fails)
    told = str(raised.value.__cause__)
    assert f"on rank 1 ({os.uname().nodename})" in told and "in fails" in told
    assert "ZeroDivisionError: of rank 1" in told.partition("The last lines of the job:")[2]
    with pytest.raises(RuntimeError, match=r"the ranks have ended; call start\(\) again"):
        ranks.run(place)
    ranks.start()
    assert ranks.run(place) == [(0, 2, 0, 2), (1, 2, 1, 2)]


def test_the_reference_to_a_call_that_fails_raises_too(executor):
    import ray

    ranks = executor(num_workers=1)
    with pytest.raises(ZeroDivisionError, match="of a reference"):
        ray.get(ranks.run_remote(lambda: exec("raise ZeroDivisionError('of a reference')")))


def test_an_exit_code_of_a_rank_is_told(executor, monkeypatch):
    monkeypatch.setattr("horovod.ray._adapter.AGENTS_WORD_S", PATIENCE)
    ranks = executor(**TWO)
    with pytest.raises(RuntimeError, match=r"hvdrun ended with exit code 7\n(.|\n)*rank 1 on .* exited with code 7"):
        ranks.run(lambda: sys.exit(7) if os.environ["HOROVOD_RANK"] == "1" else threading.Event().wait())


@pytest.mark.parametrize("leave, told", [(os._exit, "rank 1 on .* ended in the middle of a call"),
                                         (sys.exit, r"the function called sys\.exit\(\)")])  # fmt: skip
def test_a_rank_that_ends_in_order_in_a_call_is_named_and_its_place_is_free(cluster, leave, told):
    ranks = RayExecutor(settings(), **TWO)
    ranks.start()
    with pytest.raises(RuntimeError, match=told):
        ranks.run(lambda: leave(0) if os.environ["HOROVOD_RANK"] == "1" else threading.Event().wait())
    everything_is_free()


def test_a_result_that_cannot_be_made_here_is_no_failure_of_the_ranks(executor):
    class OnlyThere:
        def __reduce__(self):
            return __import__("importlib").import_module, ("a_module_of_the_ranks",)

    ranks = executor(**TWO)
    with pytest.raises(RuntimeError, match="the results cannot be read here: .*No module named 'a_module_of_the_ranks'"):
        ranks.run(OnlyThere)
    assert ranks.run(place) == [(0, 2, 0, 2), (1, 2, 1, 2)]


def test_a_cancelled_task_of_ray_ends_its_ranks(cluster, tmp_path):
    import ray

    def waits(folder):
        (folder / os.environ["HOROVOD_RANK"]).write_text(str(os.getpid()))
        threading.Event().wait()

    @ray.remote(num_cpus=0)
    def trains(settings, folder):
        ranks = RayExecutor(settings, num_workers=2)
        ranks.start()
        ranks.run(waits, args=[folder])

    call = trains.remote(settings(), tmp_path)
    wait_until(lambda: len([file for file in tmp_path.iterdir() if file.read_text()]) == 2)
    ray.cancel(call)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(call, timeout=PATIENCE)
    wait_until(lambda: not any(is_alive(int(file.read_text())) for file in tmp_path.iterdir()))
    everything_is_free()


def test_a_class_that_raises_ends_the_start(executor, cluster):
    class Fails:
        def __init__(self):
            raise ZeroDivisionError("of the class")

    with pytest.raises(ZeroDivisionError, match="of the class"):
        executor({"executable_cls": Fails}, num_workers=2)
    everything_is_free()


def everything_is_free():
    """Waits until Ray has all of its CPUs back."""
    import ray

    group, _ = create_placement_group({"CPU": 2}, 2, PATIENCE, "STRICT_SPREAD")
    ray.util.remove_placement_group(group)


def test_shutdown_gives_everything_back_and_stops_a_call(executor, tmp_path):
    def waits(folder):
        (folder / os.environ["HOROVOD_RANK"]).write_text(str(os.getpid()))
        threading.Event().wait()

    ranks = executor(num_workers=4)
    assert ranks.run(place)[3] == (3, 4, 3, 4)
    ranks.run_remote(waits, args=[tmp_path])
    wait_until(lambda: sum(bool(file.read_text()) for file in tmp_path.iterdir()) == 4)
    ranks.shutdown()
    wait_until(lambda: not any(is_alive(int(file.read_text())) for file in tmp_path.iterdir()))
    everything_is_free()
    with pytest.raises(RuntimeError, match=r"there are no ranks; call start\(\) first, and again after shutdown\(\)"):
        ranks.run(place)


@pytest.mark.parametrize("kind", [{"num_workers": 2}, {"min_workers": 2, "max_workers": 2}])
def test_an_executor_that_nobody_has_any_more_ends_its_ranks(cluster, kind):
    ranks = RayExecutor(settings(), **kind)
    ranks.start()
    pids = ranks.run(os.getpid)
    del ranks
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    everything_is_free()


def test_shutdown_knows_of_calls_before_the_last(executor, tmp_path):
    def waits(folder):
        (folder / os.environ["HOROVOD_RANK"]).touch()
        if os.environ["HOROVOD_RANK"] == "1":
            threading.Event().wait()

    ranks = executor(num_workers=2)
    ranks.run_remote(waits, args=[tmp_path])
    assert ranks.execute_single(lambda _: "first") == "first"
    assert not ranks.adapter._is_idle()  # else it would wait for a minute until rank 1 ends


def test_a_placement_group_is_given_back_after_ctrl_c(cluster, monkeypatch):
    import ray

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ray, "wait", interrupted)
        create_placement_group({"CPU": 2}, 2, PATIENCE, "STRICT_SPREAD")
    everything_is_free()


SHUT_DOWN = """
import sys
import ray
from horovod.ray import RayExecutor

ray.init(sys.argv[1], log_to_driver=False)
kind = {"num_workers": 1} if sys.argv[2] == "static" else {"min_workers": 1, "max_workers": 1}
executor = RayExecutor(RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE), **kind)
executor.start()
print(executor.run(lambda: 7))
ray.shutdown()
try:
    executor.run(lambda: 7, callbacks=[print])
except RuntimeError as error:
    print(error)
print(ray.is_initialized())
ray.init(sys.argv[1], log_to_driver=False)
executor.start()
print(executor.run(lambda: 8))
executor.shutdown()
""".replace("PATIENCE", str(PATIENCE))


@pytest.mark.parametrize("kind", ["static", "elastic"])
def test_after_the_end_of_ray_no_other_one_is_started(cluster, kind):
    done = subprocess.run([sys.executable, "-c", SHUT_DOWN, cluster, kind], capture_output=True, text=True, timeout=PATIENCE)
    told = "RayExecutor: Ray was shut down, and with it the ranks; call ray.init() and start() again"
    assert done.stdout.splitlines() == ["[7]", told, "False", "[8]"], done.stdout + done.stderr


def test_gpus_are_those_that_ray_gives(executor):
    def gpus():
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    # Ray believes that the first node has four GPUs. A rank with several sees only its own.
    ranks = executor(num_hosts=1, num_workers_per_host=2, use_gpu=True, gpus_per_worker=2)
    assert sorted(ranks.run(gpus)) == ["0,1", "2,3"]
    ranks.shutdown()
    everything_is_free()
    wait_until(lambda: __import__("ray").available_resources().get("CPU") == 4)
    lacking = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=5), num_workers=5, use_gpu=True)
    with pytest.raises(TimeoutError, match="Ray has not reserved 5 times 1 CPU, 1 GPU .*PACK.* after 5 s; free now: 4 CPU"):
        lacking.start()


def test_older_names_of_arguments_mean_the_same():
    settings = RayExecutor.create_settings()
    with pytest.warns(DeprecationWarning, match="num_slots has been renamed to num_workers_per_host"):
        older = RayExecutor(settings, num_hosts=2, num_slots=3, cpus_per_slot=2, use_gpu=True, gpus_per_slot=2)
    newer = RayExecutor(settings, num_hosts=2, num_workers_per_host=3, cpus_per_worker=2, use_gpu=True, gpus_per_worker=2)
    assert older._params == newer._params
    assert RayExecutor(settings, num_hosts=2, gpus_per_slot=1)._params.gpus_per_worker == 0


def test_ranks_run_in_the_callers_placement_group(cluster):
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote
    class Caller:
        def run(self, settings):
            with pytest.raises(ValueError, match="room for 3 of 4 ranks, each with 1 CPU: its bundles are 1 CPU, 1 CPU, 1 CPU"):
                RayExecutor(settings, num_workers=4).start()
            ranks = RayExecutor(settings, num_workers=2)
            ranks.start()
            try:
                return ranks.run(lambda: os.environ["HOROVOD_SIZE"]), ranks.adapter.strategy._created_placement_group
            finally:
                ranks.shutdown()

    group, _ = create_placement_group({"CPU": 1}, 3, PATIENCE, "PACK")
    try:
        where = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
        caller = Caller.options(num_cpus=1, scheduling_strategy=where).remote()
        assert ray.get(caller.run.remote(settings())) == (["2", "2"], False)
    finally:
        ray.util.remove_placement_group(group)
    everything_is_free()


CLIENT = """
import os, signal, sys
import ray
from horovod.ray import RayExecutor

ray.init(sys.argv[1])
executor = RayExecutor(RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE), num_workers=2)
executor.start()
print(executor.run(lambda word: (word, os.environ["HOROVOD_RANK"]), args=["here"]))
print(ray.get(executor.run_remote(lambda: os.environ["HOROVOD_SIZE"])))
try:
    executor.execute(lambda made: 1 / 0)
except ZeroDivisionError as error:
    print("raised", error)
executor = RayExecutor(RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE), num_workers=4)
executor.start()
try:
    RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), num_workers=1).start()
except TimeoutError as error:
    print("raised", str(error).partition(" after")[0])
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.alarm(3)
try:
    RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=PATIENCE), num_workers=4).start()
except KeyboardInterrupt:
    print("interrupted")
del executor  # what it has reserved is free soon, and so is what the interrupted one waited for
executor = RayExecutor(RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE), num_workers=4)
executor.start()
print(executor.run(int))
executor.shutdown()
""".replace("PATIENCE", str(PATIENCE))


def listens(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def test_a_ray_client(cluster):
    (port,) = free_ports(1)
    server = subprocess.Popen([sys.executable, "-m", "ray.util.client.server", "--address", cluster, "--host", "127.0.0.1",
                               "--port", str(port), "--mode", "legacy"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        wait_until(lambda: server.poll() is not None or listens(port))  # a client waits for half a minute only
        done = subprocess.run([sys.executable, "-c", CLIENT, f"ray://127.0.0.1:{port}"], capture_output=True, text=True,
                              timeout=PATIENCE)  # fmt: skip
    finally:
        server.terminate()
        server.wait(PATIENCE)
    told = [line for line in done.stdout.splitlines() if not line.startswith("(")]
    assert told == ["[('here', '0'), ('here', '1')]", "['2', '2']", "raised division by zero",
                    "raised Ray has not reserved 1 times 1 CPU (PACK)", "interrupted", "[0, 0, 0, 0]"], done.stdout + done.stderr  # fmt: skip
    everything_is_free()


def test_nothing_is_imported_or_started_before_it_is_used(cluster):
    code = "import sys, horovod.ray as r; r.RayExecutor(r.RayExecutor.create_settings(), 2); sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE).returncode == 0
    code = "import horovod.ray as r; r.RayExecutor(r.RayExecutor.create_settings(), 2).start()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr.splitlines()[-1].startswith("ValueError: RayExecutor.start: Ray is not connected; call ray.init() first")


def test_counts_may_be_as_ray_counts():
    import numpy

    ranks = RayExecutor(settings(), num_workers=4.0, use_gpu=True, gpus_per_worker=numpy.int64(1))
    assert (ranks._params.ranks, ranks._params.gpus_per_worker) == (4, 1)


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ({"num_workers": 1.5}, ValueError, "num_workers must be a whole number, 1 or more, not 1.5"),
        ({}, ValueError, "num_workers must be a whole number, 1 or more, not None"),
        ({"num_workers": 0}, ValueError, "num_workers must be a whole number, 1 or more, not 0"),
        ({"num_workers": 2, "num_hosts": 1}, ValueError, "give num_workers, or num_hosts"),
        ({"num_hosts": 2, "num_workers_per_host": None}, ValueError, "num_workers_per_host must be a whole number"),
        ({"num_workers": 2, "gpus_per_worker": 1}, ValueError, "gpus_per_worker=1 needs use_gpu=True"),
        ({"num_workers": 2, "gpus_per_worker": 0, "use_gpu": True}, ValueError, "gpus_per_worker must be a whole number"),
        ({"num_workers": 2, "cpus_per_worker": -1}, ValueError, "cpus_per_worker must be a number"),
        ({"num_workers": 2, "min_workers": 1}, ValueError, "give min_workers for an elastic job"),
        ({"max_workers": 2}, ValueError, "max_workers is for elastic jobs"),
        ({"min_workers": 2, "max_workers": 1}, ValueError, "max_workers must be a whole number, 2 or more, not 1"),
        ({"min_workers": 1, "cooldown_range": [2, 1]}, ValueError, "cooldown_range must be two numbers of seconds"),
        ({"min_workers": 1, "override_discovery": False}, ValueError, "override_discovery=False needs settings.discovery"),
    ],
)
def test_wrong_words_are_refused_in_one_line(arguments, kind, told):
    with pytest.raises(kind, match=told) as raised:
        RayExecutor(RayExecutor.create_settings(), **arguments)
    assert "\n" not in str(raised.value)


def test_settings_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="settings must be what RayExecutor.create_settings returns, not dict"):
        RayExecutor({}, num_workers=2)


AT_EXIT = """
import os, sys
import horovod.ray
import ray

ray.init(address=sys.argv[1], log_to_driver=False)
settings = horovod.ray.RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE)
executor = horovod.ray.RayExecutor(settings, num_workers=2)
executor.start()
print(executor.run(os.getpid))
""".replace("PATIENCE", str(PATIENCE))


def test_a_program_that_forgets_to_shut_down_ends_without_a_complaint(cluster):
    done = subprocess.run([sys.executable, "-c", AT_EXIT, cluster], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "hvdrun" not in done.stderr, done.stderr
    wait_until(lambda: not any(is_alive(pid) for pid in json.loads(done.stdout)))
    everything_is_free()


def test_what_cannot_be_sent_is_named_and_the_ranks_stay(executor):
    lock = threading.Lock()
    ranks = executor(num_workers=1)
    with pytest.raises(TypeError, match=r"its variable 'lock' \(a _thread.lock\)"):
        ranks.run(lambda: lock)
    assert ranks.run(place) == [(0, 1, 0, 1)]


def test_another_release_on_a_node_is_told(cluster, monkeypatch):
    monkeypatch.setattr(_launch.Order, "__init__", order_of_another_release)
    with pytest.raises(RuntimeError, match="the driver has hvdrun 0.0.1, and .* has 0.1.0"):
        RayExecutor(settings(), num_workers=1).start()
    everything_is_free()


def order_of_another_release(order, key, tasks, place):
    order.key, order.tasks, order.place, order.version = key, tasks, place, "0.0.1"
