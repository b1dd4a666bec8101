"""A Keras callback that shows training's progress on the driver."""

import os
import time
from typing import Any, Dict, Optional

from sparkdl.horovod import log_to_driver

if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):  # as TensorFlow reads it
    from tensorflow import keras
else:
    import keras

__all__ = ["LogCallback"]


class LogCallback(keras.callbacks.Callback):
    """Sends a line to the driver at the beginning and end of each epoch, and with `per_batch_log` for each batch.

    Give it to the model of rank 0 alone, or each rank's lines come.
    """

    def __init__(self, per_batch_log: bool = False) -> None:
        super().__init__()
        self.per_batch_log = per_batch_log
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._began = time.monotonic()
        log_to_driver(f"Epoch {epoch} begins at {time.strftime('%Y-%m-%d %H:%M:%S')}")

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.per_batch_log:
            log_to_driver(f"Batch {batch}: {_told(logs)}")

    on_train_batch_end = on_batch_end

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        log_to_driver(f"Epoch {epoch} took {time.monotonic() - self._began:.1f} s: {_told(logs)}")


def _told(logs: Optional[Dict[str, Any]]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in (logs or {}).items())


def _text(value: Any) -> str:
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError):  # a metric with a value for each class
        return str(value)
