"""For scripts that run as ranks of a test: run cases, tell the test what came out."""

import json
import os
import pathlib
import time
import traceback


def report(value) -> None:
    """Leaves this rank's result for the test."""
    rank = os.environ.get("HVD_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or "0"
    path = pathlib.Path(os.environ["HVD_TEST_REPORTS"]) / (rank + ".json")
    path.with_suffix(".part").write_text(json.dumps(value))
    path.with_suffix(".part").rename(path)


def place() -> tuple:
    """As Horovod's variables say it."""
    return tuple(int(os.environ[f"HOROVOD_{name}"]) for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))


def is_torch(*version) -> bool:
    """Whether torch is this version or a later one. scripts/fronts-versions runs the cases with earlier ones too, which lack
    what a case uses; the one that scripts/test installs runs all."""
    import torch  # noqa: PLC0415  (other frameworks' cases do without)

    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= version


def meet(barrier) -> None:
    """A barrier that every rank has left when it returns: one who ends then does not end it for one who is slow."""
    barrier()
    folder = pathlib.Path(os.environ["HVD_TEST_REPORTS"])
    (folder / f"met.{os.environ['HVD_RANK']}").touch()
    while not all((folder / f"met.{rank}").exists() for rank in range(int(os.environ["HVD_SIZE"]))):
        time.sleep(0.01)


def all_have_ended(case) -> bool:
    """Whether every rank has reported this case within some seconds. If not, the others wait for one that has failed."""
    folder = pathlib.Path(os.environ["HVD_TEST_REPORTS"])
    reports = [folder / f"{rank}.json" for rank in range(int(os.environ.get("HVD_SIZE", "1")))]
    for _ in range(100):
        if all(path.exists() and case in json.loads(path.read_text()) for path in reports):
            return True
        time.sleep(0.1)
    return False


def run_cases(namespace, barrier) -> None:
    """Runs the functions case_... in order, on all ranks together; reports {name: "ok" or the traceback}.

    A rank that fails alone ends, so that the others are told and do not wait for it until the test's limit.
    """
    outcomes = {}
    for name, function in list(namespace.items()):
        if name.startswith("case_"):
            try:
                function()
                outcomes[name] = "ok"
            except Exception:
                outcomes[name] = traceback.format_exc()
            report(outcomes)  # also when a later case ends the process
            if outcomes[name] != "ok" and not all_have_ended(name):
                raise SystemExit(f"{name} failed on this rank, and not on all:\n{outcomes[name]}")
            barrier()


def raises(kind, function, *arguments, **options) -> str:
    """The text of the exception that must come."""
    try:
        function(*arguments, **options)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")
