"""Scripts' words that Keras 3 refuses: some of Keras 2, which Horovod's examples have, and a compile() that leaves it to Keras
whether XLA compiles the steps, where it cannot compile ours. And arguments that stood elsewhere in older releases of Horovod."""

import functools
import inspect
import sys
import warnings
from typing import Any, Callable, List

from horovod.common import _auto_jit


class CallableList(list):
    """A list of variables that old scripts may call: `optimizer.variables()`."""

    def __call__(self) -> List[Any]:
        return list(self)


def _owner(kind: type, name: str) -> type:
    """The class that has this attribute itself. Only there may it be replaced: Keras looks whether a class has another
    compile() than the one of that class, and does not compile its models when they are loaded."""
    return next(base for base in kind.__mro__ if name in vars(base))


def accept(keras: Any, why_not_compiled: Callable[[], str]) -> None:
    """`optimizer.variables()` is the list that `optimizer.variables` is, and `compile(experimental_run_tf_function=...)` is as
    without it: it chose between two ways of Keras 2 to run a step. `optimizer.lr` is its learning rate, also for
    tf.keras.backend.set_value(). `compile` with a hvd.DistributedOptimizer asks `why_not_compiled` (_auto_jit), and has what
    scales the loss of a mixed_float16 model reduce the gradients. Harmless when it is called again."""
    optimizer, trainer = _owner(keras.optimizers.Optimizer, "variables"), _owner(keras.Model, "compile")
    variables, compile_model = vars(optimizer)["variables"], vars(trainer)["compile"]
    if isinstance(variables, property) and not hasattr(variables.fget, "_hvd_inner"):

        @functools.wraps(variables.fget)
        def callable_variables(self: Any) -> CallableList:
            return CallableList(variables.fget(self))

        callable_variables._hvd_inner = variables.fget
        optimizer.variables = property(callable_variables)
    if not hasattr(compile_model, "_hvd_inner"):

        @functools.wraps(compile_model)
        def tolerant_compile(self: Any, *args: Any, experimental_run_tf_function: Any = None, **kwargs: Any) -> Any:
            args, kwargs = _auto_jit.decide(self, inspect.signature(compile_model), args, kwargs, why_not_compiled)
            compile_model(self, *args, **kwargs)
            inner = getattr(getattr(self, "optimizer", None), "inner_optimizer", None)
            if hasattr(inner, "_hvd_scaled_by"):  # for mixed_float16 Keras puts a LossScaleOptimizer around it
                inner._hvd_scaled_by(self.optimizer)

        tolerant_compile._hvd_inner = compile_model
        trainer.compile = tolerant_compile
    if not hasattr(optimizer, "lr"):
        optimizer.lr = property(lambda self: self.learning_rate, lambda self, rate: setattr(self, "learning_rate", rate))
    backend = sys.modules.get("keras._tf_keras.keras.backend")  # what tf.keras.backend is
    if backend is not None and not hasattr(backend.set_value, "_hvd_inner"):
        set_value = backend.set_value

        @functools.wraps(set_value)
        def set_value_of_any(x: Any, value: Any) -> Any:
            return x.assign(value) if isinstance(x, keras.Variable) else set_value(x, value)

        set_value_of_any._hvd_inner = set_value
        backend.set_value = set_value_of_any


def check_rate(callback: str, initial_lr: Any, first: str) -> None:
    """Tells a script that gives a callback the argument that came first before Horovod 0.20, when initial_lr was the last or was
    not there. A number may be meant as a rate, and is only warned of.

    Raises:
        ValueError: it is a function.
    """
    is_count = isinstance(initial_lr, int) and not isinstance(initial_lr, bool) and initial_lr > 1
    if not is_count and not callable(initial_lr):
        return
    given = "FUNCTION" if callable(initial_lr) else initial_lr
    text = f"{callback}({given}): since Horovod 0.20 the first argument is initial_lr; write {callback}({first}={given})"
    if callable(initial_lr):
        raise ValueError(text)
    warnings.warn(f"{text}, or initial_lr={float(initial_lr)} if it is the learning rate", stacklevel=3)
