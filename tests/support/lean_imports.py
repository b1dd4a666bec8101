"""Imported before TensorFlow: what that imports where it is there, without need, is not there. Its import then takes two thirds of
the time, and starts no thread (pyarrow's), so that ranks can be forks of a process that has imported it."""

import sys

for _name in ("jax", "pandas", "pyarrow", "scipy", "sklearn"):
    sys.modules[_name] = None
