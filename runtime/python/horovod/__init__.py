"""Distributed training with the names that Horovod scripts import; start the ranks with `hvdrun`.

`import horovod.torch as hvd` is the front for PyTorch. This package was never compiled against a framework: it calls
libhvd through its C interface.
"""

__version__ = "0.1.0"
