"""A rank of horovod.run executes this module: hvdrun starts `python -m horovod.runner.run_task`."""

import os
import pickle
import sys
import time
import traceback
from typing import Any

import cloudpickle

from horovod.common import _failure
from horovod.runner._called import call as call_function
from horovod.runner._called import present_rank
from horovod.runner._exchange import Reply, receive


def _pickled(result: Any) -> bytes:
    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        from horovod.runner._culprit import find_in_result

        raise TypeError(
            f"what the function returns cannot be sent back: {find_in_result(result)}: {error}. Return what can be pickled, "
            "such as numbers, arrays, or a model's weights"
        ) from error


def main() -> int:
    _failure.watch()
    payload = receive()
    reply = Reply()
    rank = int(os.environ["HVD_RANK"])
    try:
        paths, call = pickle.loads(payload)
        sys.path += [path for path in paths if path not in sys.path]
        func, args, kwargs = pickle.loads(call)
        result = _pickled(call_function(func, args, kwargs))
        reply.check_size(result)
    except Exception as error:
        # It brings what only the side that starts jobs needs, which would cost each rank's start a sixth of its time.
        from horovod.runner._job import describe_failure

        _failure.tell(error, error.__traceback__)
        text = traceback.format_exc()
        print(text, file=sys.stderr, end="", flush=True)
        reply.send(describe_failure(error, rank, time.time(), text))
        return 1
    reply.send({"result": result, "rank": present_rank()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
