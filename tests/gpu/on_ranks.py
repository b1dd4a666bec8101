"""The checks of scripts/gpu-check that run on ranks, by a Python whose torch has CUDA; each adds a row to the table."""

import os
import re
import statistics

import commands
from commands import OutOfTime, last_json, last_words
from table import MUST, say

CASES = "tests/python/rank_cuda_cases.py"
JAX_CASES = "tests/fronts/rank_jax_cases.py"
KILLED = "tests/gpu/killed_on_gpu.py"
LATENCY = "tests/gpu/latency_on_gpu.py"
DIGITS = "configs/examples/digits_torch.py"
STEPS = "tests/gpu/steps_on_gpu.py"
FAILURES = "tests/gpu/failures_on_gpu.py"
MOST_OF_DDP = 1.0
MOST_SECONDS = 5.0  # from a rank's death to the last error of the others
LEAST_ACCURACY = 0.9
BY_HOST = re.compile(r"tensors on GPUs go through the hosts' memory: (.*)|(tensors on cuda travel through host memory.*)")


def patience(limit):
    """Of the ranks, in seconds: less than what ends the command that runs them, which starts with an import of torch and
    ends with the ranks' stacks."""
    return max(int(limit - 25), int(limit / 2))


class Told:
    """What run_on_gpu.py has told of N ranks."""

    def __init__(self, ran, waited):
        told = last_json(ran.output) if ran.code == 0 else None
        self.codes, self.reports, self.outputs = [told[key] for key in ("codes", "reports", "outputs")] if told else ([], [], [])
        self.is_good = bool(self.codes) and not any(self.codes)
        self._ran, self._waited = ran, waited

    def notice(self):
        """That tensors go through the host, and why; None where nobody has said so."""
        found = BY_HOST.search("\n".join(self.outputs))
        return found and (found[1] or found[2])

    def failure(self):
        """One line of the ranks that did not end well; empty where all did."""
        if not self.codes:
            return self._ran.last_words()
        if "timeout" in self.codes:
            where = dict.fromkeys(last_words(output) for output in self.outputs)
            return f"no end within {self._waited} s; the ranks were at: {'; '.join(where)}"
        bad = sorted((code, rank) for rank, code in enumerate(self.codes) if code)  # who died by a signal comes first
        return "".join(f"rank {rank} has ended with code {code}: {last_words(self.outputs[rank])}" for code, rank in bad[:1])

    def say(self):
        say([(f"rank {rank}", output) for rank, output in enumerate(self.outputs)] or [("run_on_gpu.py", self._ran.output)])


class Ranks:
    """`nccl`: the version that libhvd finds, or 0. `library_environment`: with which a Python finds this libhvd."""

    def __init__(self, table, python, nccl, library_environment, with_fakes=False):
        self.table, self.python, self.nccl = table, python, nccl
        self.environment = library_environment
        self.with_fakes = with_fakes
        self.way = "fake" if with_fakes else "gpu"
        self.through_host = {}  # by the number of ranks: whether the operations were right, where they went by the host

    def run(self, size, script, *arguments, **environment):
        limit = commands.clock.limit()
        waited = patience(limit)
        every = {"HVD_TEST_PATIENCE": str(waited), "HOROVOD_LOG_LEVEL": "WARNING"}
        ran = commands.run([self.python, "tests/gpu/run_on_gpu.py", size, script, *arguments],
                           env={"NCCL_DEBUG": "WARN", **self.environment, **every, **environment})  # fmt: skip
        told = Told(ran, waited)
        if "timeout" in told.codes and limit < commands.clock.each:
            told.say()
            raise OutOfTime(f"out of time, {told.failure()}; see --minutes")
        return told

    def by(self, told, **environment):
        """By what the ranks' data went; empty where that is not known, since they failed."""
        notice = told.notice()
        if notice:
            return f"; through the host: {notice}"
        if not told.is_good and not any(told.reports):
            return ""
        if environment.get("HOROVOD_GPU_OPERATIONS") == "none":
            return "; through the host, as it was told to"
        return f"; by NCCL {version_text(self.nccl)}"

    def operations(self, size):
        name = f"operations, {ranks_text(size)}"
        if self.with_fakes and size != 2:
            return self.table.add(name, None, "tests/python/test_cuda.py runs it on the fakes")
        told = self._cases(name, size)
        if told.notice():
            self.through_host[size] = told.is_good
        return None

    def host(self):
        """As where there is no NCCL."""
        name = f"{MUST}without NCCL all goes through the host"
        if 2 in self.through_host:
            return self.table.add(name, self.through_host[2], "'operations, 2 ranks' went through the host anyway")
        return self._cases(name, 2, HOROVOD_GPU_OPERATIONS="none")

    def _cases(self, name, size, script=None, **environment):
        told = self.run(size, script or CASES, self.way, **environment)
        reports = [report or {} for report in told.reports]
        cases = list(dict.fromkeys(case for report in reports for case in report))
        good = [case for case in cases if all(report.get(case) == "ok" for report in reports)]
        bad = [case for case in cases if any(report.get(case, "ok") != "ok" for report in reports)]
        told.is_good = told.is_good and bool(cases) and good == cases
        if not told.is_good:
            told.say()
            say([(f"rank {rank}, {case}", report[case]) for rank, report in enumerate(reports) for case in bad
                 if report.get(case, "ok") != "ok"])  # fmt: skip
        text = f"{len(good)} of {len(cases)} cases" + (f", not {', '.join(bad)}" if bad else "")
        self.table.add(name, told.is_good, "; ".join(filter(None, [text, told.failure()])) + self.by(told, **environment))
        return told

    def killed(self):
        told = self.run(3, KILLED, self.way)
        others = [told.reports[rank] for rank in (0, 2) if told.codes and told.reports[rank]]
        slowest = max((other["seconds"] for other in others), default=0.0)
        is_good = len(others) == 2 and all(re.search(r"\brank 1\b", other["error"]) for other in others) and slowest <= MOST_SECONDS
        text = f"the last after {slowest:.2f} s (wanted: {MOST_SECONDS:.0f} s): {others[0]['error'][:200]}" if others else ""
        if not is_good:
            told.say()
            say([(f"rank {rank}", report["error"]) for rank, report in enumerate(told.reports) if report])
        if len(others) < 2:
            text = f"{len(others)} of the 2 others have said anything; {told.failure()}"
        self.table.add(f"{MUST}a killed rank ends the others' calls, by name", is_good, text + self.by(told))

    def digits(self, size):
        name = f"digits, {ranks_text(size)}"
        if self.with_fakes:
            return self.table.add(name, None, "nothing computes gradients on the fakes")
        ran = commands.run([self.python, "-c", "import sklearn, cloudpickle"])
        if ran.code:
            return self.table.add(name, None, ran.last_words())
        # One rank alone reduces its gradients too where others may join it later: a backward pass that NCCL has part in.
        told = self.run(size, DIGITS, "--device", "cuda", "--check", **({"HOROVOD_ELASTIC": "1"} if size == 1 else {}))
        accuracy = re.search(r"test accuracy ([\d.]+)", told.outputs[0] if told.outputs else "")
        is_good = told.is_good and accuracy is not None and float(accuracy[1]) > LEAST_ACCURACY
        if not is_good:
            told.say()
        text = f"test accuracy {accuracy[1]} (wanted: {LEAST_ACCURACY})" if accuracy else told.failure()
        return self.table.add(name, is_good, f"{text}{self.by(told)}")

    def latency(self):
        told = self.run(1, LATENCY, self.way)
        if not told.is_good:
            told.say()
            return self.table.add("latency, 1 rank", False, told.failure())
        text = ", ".join(f"{name} {statistics.median(times):.0f} us" for name, times in told.reports[0].items())
        return self.table.add("latency, 1 rank", True, f"an allreduce, until the device is done: {text}{self.by(told)}")

    def steps(self, size):
        """DistributedDataParallel takes part where its own NCCL lets ranks share the GPU."""
        name = f"{MUST}a step of ResNet-50 takes no longer than DDP's, {ranks_text(size)}"
        if self.with_fakes:
            return self.table.add(name, None, "nothing computes gradients on the fakes")
        ran = commands.run([self.python, "-c", "import torchvision"])
        if ran.code:
            return self.table.add(name, None, ran.last_words())
        told = self.run(size, STEPS, 30, **({"HOROVOD_ELASTIC": "1"} if size == 1 else {}))
        if not told.is_good:
            told.say()
            return self.table.add(name, False, told.failure())
        slowest = {way: max(report["ms"][way] for report in told.reports) for way in told.reports[0]["ms"]}
        weights = [report["weights"]["hvd"] for report in told.reports]
        text = ", ".join(f"{way} {ms:.1f} ms" for way, ms in slowest.items())
        is_good = len(set(weights)) == 1
        if "DDP" in slowest:
            share = slowest["hvd"] / slowest["DDP"]
            # The last digits of a sum of many ranks depend on its order.
            is_same = abs(weights[0] - told.reports[0]["weights"]["DDP"]) <= 1e-3 * max(1.0, abs(weights[0]))
            is_good = is_good and is_same and share <= MOST_OF_DDP
            text += f"; {share:.2f} of DDP's, " + ("with its weights" if is_same else "with other weights")
        else:
            text += f"; no DDP: {told.reports[0]['no DDP']}"
        return self.table.add(name, is_good if "DDP" in slowest or not is_good else None, text + self.by(told))

    def jax(self, library):
        """The cases of horovod.jax, whose programs run on the GPU."""
        name = "JAX, 2 ranks"
        if self.with_fakes:
            return self.table.add(name, None, "JAX has no GPU on the fakes")
        on_gpu = {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        ran = commands.run([self.python, "-c", "import jax, optax; jax.devices()"], env={**self.environment, **on_gpu})
        if ran.code or not library.exists():
            return self.table.add(name, None, ran.last_words() if ran.code else f"no {library.name}")
        return self._cases(name, 2, script=JAX_CASES, **on_gpu)

    def mistake(self, what, words):
        """Rank 1 makes a mistake on its GPU: both ranks end, with an error that says what it was or who made it."""
        name = f"{MUST}{words} on one rank's GPU ends the others' calls, by name"
        if self.with_fakes:
            return self.table.add(name, None, "the fakes make no such mistakes")
        told = self.run(2, FAILURES, what)
        reports = [report for report in told.reports if report]
        is_good = len(reports) == 2 and all(report["seconds"] <= MOST_SECONDS for report in reports)
        is_good = is_good and "rank 1" in reports[0]["error"] and "no error" not in reports[1]["error"]
        if not is_good:
            told.say()
        text = "; ".join(f"rank {rank} after {report['seconds']:.2f} s: {report['error'].splitlines()[0][:100]}"
                         for rank, report in enumerate(reports))  # fmt: skip
        return self.table.add(name, is_good, (text or told.failure()) + self.by(told))


def ranks_text(size):
    return f"{size} rank{'s' if size > 1 else ''}"


def version_text(version):
    """22809 is 2.28.9."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def library_environment(root, library):
    """With which any Python finds the package of this checkout, and this libhvd."""
    paths = [str(root / "runtime/python"), os.environ.get("PYTHONPATH")]
    # Its ranks share the GPU, which NCCL allows by its variable.
    return dict(os.environ, HVD_LIBRARY=str(library), NCCL_MULTI_RANK_GPU_ENABLE="1", PYTHONPATH=os.pathsep.join(filter(None, paths)))
