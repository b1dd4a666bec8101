"""TensorBoard's scalars of a run. Needs no Spark."""

import contextlib
import importlib.util
import os
import socket
import time
import uuid
from typing import Any, Callable, Dict, Iterator

import horovod.torch as hvd
from horovod.spark.common.run_folder import RunFolder

_PARTS = {"train": "train", "validation": "val"}  # of an entry of the history, and how their scalars' names begin


@contextlib.contextmanager
def board(store: Any, run_id: str) -> Iterator[Callable[[Dict[str, Any]], None]]:
    """Gives a function that writes an epoch's entry of the history into the logs of the run in the store.

    It does nothing on other ranks than 0, where the store keeps no runs, and where TensorBoard is not installed."""
    if not (hvd.rank() == 0 and store.saving_runs() and importlib.util.find_spec("tensorboard")):
        yield lambda entry: None
        return
    # torch's SummaryWriter would load TensorFlow where it is installed, for seconds and hundreds of MiB.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with RunFolder(store, run_id, store.get_logs_subdir()) as folder:
        os.makedirs(folder.path)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{uuid.uuid4().hex[:8]}"
        with open(os.path.join(folder.path, name), "wb") as file:
            records = RecordWriter(file)
            records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

            def write(entry: Dict[str, Any]) -> None:
                values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _scalars(entry).items()]
                event = Event(wall_time=time.time(), step=entry["epoch"], summary=Summary(value=values))
                records.write(event.SerializeToString())
                records.flush()
                folder.send()

            yield write


def _scalars(entry: Dict[str, Any]) -> Dict[str, float]:
    scalars = {}
    for part in _PARTS.keys() & entry.keys():
        for group in ({"loss": entry[part]["loss"]}, *entry[part]["all_metrics"]):
            scalars.update({f"{_PARTS[part]}/{name}": value for name, value in group.items()})
    return scalars
