"""The checkpoints of a run in its store: one file each, and a marker that says which is the latest and which the best.

A run that has ended also has its model in a file `checkpoint`, for programs that look there, as Horovod's do.

A fit of a run that had ended begins a new round: it trains the run's model further. The marker also says with which epoch
the round began, and whether its fit has succeeded. Otherwise the next fit continues the round.

Object stores have no rename, so a checkpoint is written under a name of its own first, and the marker after it. Whoever
reads the marker finds a whole file, also when the writer was killed.
"""

import json
import math
import posixpath
import re
from typing import Any, Dict, List, Optional


def _number(score: Optional[float]) -> Optional[float]:
    """The score; None where it is not a number, than which nothing is better."""
    return None if score is None or math.isnan(score) else score


def _epoch_of(name: str) -> int:
    """The epochs that were trained before the checkpoint of this name."""
    return int(re.findall(r"\.e(\d+)\.s\d+$", name)[0])


class Checkpoints:
    """Written by rank 0, read by the driver."""

    def __init__(self, store: Any, run_id: str, keep: int = 3) -> None:
        self._store = store
        self._folder = store.get_run_path(run_id)
        self._name = store.get_checkpoint_filename()
        self._keep = max(keep, 1)

    def _path(self, name: str) -> str:
        return posixpath.join(self._folder, name)

    def _marker_path(self) -> str:
        return self._path(f"{self._name}.json")

    def _marker(self) -> Dict[str, Any]:
        path = self._marker_path()
        if not self._store.exists(path):
            return self._old_marker()
        try:
            return dict(json.loads(self._store.read(path)))
        except ValueError as error:
            # Not all file systems replace a file in one step, and the writer may have been killed.
            names = self._store.names_in(self._folder)
            kept = sorted(name for name in names if re.fullmatch(re.escape(self._name) + r"\.e\d+\.s\d+", name))
            if kept:
                return {"latest": kept[-1], "kept": kept}
            raise ValueError(
                f"{path} is no marker of checkpoints: {error}; remove it, or choose another run_id"
            ) from error

    def _old_marker(self) -> Dict[str, Any]:
        """Runs of earlier releases have it where the model of a run that has ended is now."""
        path = self._path(self._name)
        try:
            marker = json.loads(self._store.read(path)) if self._store.exists(path) else {}
        except ValueError:
            return {}
        return marker if isinstance(marker, dict) and "latest" in marker else {}

    def exists(self) -> bool:
        return bool(self._marker())

    def begin(self, epochs: int) -> int:
        """Opens a round of so many epochs, or goes on with one that was interrupted; returns the epoch with which it began."""
        marker = self._marker()
        if not marker:
            return 0
        begin, epoch = marker.get("begin", 0), _epoch_of(marker["latest"])
        # Markers of earlier releases do not say whether the run had ended.
        if not marker.get("finished", epoch >= begin + epochs):
            return begin
        # The new round may have other data, so its scores are not compared with those before.
        self._write_marker({**marker, "best": None, "score": None, "begin": epoch, "finished": False})
        return epoch

    def finish(self) -> None:
        """Says that the fit has succeeded."""
        self._write_marker({**self._marker(), "finished": True})

    def _write_marker(self, marker: Dict[str, Any]) -> None:
        self._store.write(self._marker_path(), json.dumps(marker).encode())

    def save(self, content: bytes, epoch: int, step: int, score: Optional[float] = None) -> None:
        """`score`: the lower, the better; None: it cannot be the best."""
        marker = self._marker()
        name = f"{self._name}.e{epoch:05}.s{step:07}"
        self._store.write(self._path(name), content)
        kept: List[str] = [*(other for other in marker.get("kept", []) if other != name), name]
        best, best_score = marker.get("best"), _number(marker.get("score"))
        if _number(score) is not None and (best_score is None or score < best_score):
            best, best_score = name, score
        gone = [other for other in kept[: -self._keep] if other != best]
        kept = [other for other in kept if other not in gone]
        round_of_fit = {"begin": marker.get("begin", 0), "finished": False}
        self._write_marker({"latest": name, "best": best, "score": best_score, "kept": kept, **round_of_fit})
        for other in gone:
            self._store.discard(self._path(other))

    def publish(self, content: bytes, ending: str) -> None:
        """Leaves the model of the run, as a file that its framework reads."""
        self._store.write(self._path(self._name + ending), content)

    def load(self, which: str = "latest") -> Optional[bytes]:
        """`which`: "latest", or "best", which is the latest where none has a score. None: there is none."""
        marker = self._marker()
        name = marker.get(which) or marker.get("latest")
        return self._store.read(self._path(name)) if name else None
