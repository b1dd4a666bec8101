"""Broadcasts of more than one tensor: parameters, an optimizer's state, any object."""

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import torch

from horovod.common._arrays import allgather_object as allgather_object
from horovod.common._arrays import broadcast_object
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _sparse, mpi_ops
from horovod.torch._broadcast import broadcast_into


def broadcast_parameters(
    params: Union[Mapping[str, torch.Tensor], Sequence], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrites all ranks' tensors with the root's; typically `model.state_dict()` before training.

    Args:
        params: a dict by name, or a list of tensors or of (name, tensor) pairs; the same names and shapes on every
            rank.
        root_rank: 0 ... size() - 1, the same on every rank.

    Raises:
        ValueError: `params` is something else, such as the generator that `model.named_parameters()` gives, or holds
            something that is no tensor.
        HorovodInternalError: ranks disagree on shape or type, or a rank is gone; on every rank.
    """
    if isinstance(params, Mapping):
        items = sorted(params.items())
    elif isinstance(params, list):
        items = [p if isinstance(p, tuple) else (None, p) for p in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}; give model.state_dict() or a list")
    for name, tensor in items:
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise ValueError(
                f"{name} is not a tensor but {kind}; leave it out and use broadcast_object. For a model that has get_extra_state: "
                "model.load_state_dict(hvd.broadcast_object(model.state_dict(), root_rank))"
            )
    starts = (broadcast_into(tensor, tensor, root_rank, name, process_set) for name, tensor in items)
    _synchronize_all(starts)


def _synchronize_all(starts: Iterable[int]) -> None:
    """Starts all that `starts` gives a handle of, and waits for all, even when one fails or cannot be started, so that none
    still works on memory; then raises the first failure."""
    failure: Optional[Exception] = None
    handles: List[int] = []
    try:
        handles.extend(starts)
    except Exception as error:
        failure = error
    for handle in handles:
        try:
            mpi_ops.synchronize(handle)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def check_optimizer(optimizer: Any) -> None:
    """ValueError where a model, or its parameters, stand in the place of an optimizer."""
    if not hasattr(optimizer, "param_groups"):
        raise ValueError(
            f"a torch optimizer is needed, not {type(optimizer).__name__}; as in torch.optim.SGD(model.parameters(), lr=0.1)"
        )


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Optional[torch.nn.Module] = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the root's optimizer state: options of the parameter groups, and each parameter's state.

    What a rank does not have yet is created as the root has it, what only it has is dropped; no step is made and no
    parameter changes. Typically called before training, after rank 0 loaded a checkpoint.

    Args:
        optimizer: any torch optimizer but LBFGS, with the same parameters in the same order on every rank. Those that it
            wraps (Lookahead, SAM) belong to it.
        root_rank: 0 ... size() - 1, the same on every rank.
        model: tells which parameters have sparse gradients (of torch.nn.Embedding(sparse=True)); needed for them only.

    An optimizer without state has never stepped; its parameters that need a gradient and have none get one of zeros, which
    scripts that look at `p.grad` before their first backward pass count on.

    Raises:
        ValueError: the optimizer is LBFGS, or has other parameter groups than the root's.
        HorovodInternalError: a rank or link is gone, or shapes differ; on every rank.
    """
    check_optimizer(optimizer)
    parts = _parts_of(optimizer)
    if any(isinstance(part, torch.optim.LBFGS) for part in parts):
        # Its state is a history of flat vectors whose number differs from rank to rank.
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = mpi_ops.rank() == root_rank
    is_new = not any(part.state for part in parts)
    # The root's structure goes first, without the tensors. Then each tensor is received in memory of the right shape.
    plans = [_plan_of(part) for part in parts] if is_root else None
    plans = broadcast_object(plans, root_rank, "optimizer_state", process_set)
    if len(plans) != len(parts):
        raise ValueError(
            f"rank {mpi_ops.rank()}'s optimizer consists of {len(parts)}, the root's of {len(plans)}; make the same optimizer on "
            "every rank"
        )

    def starts() -> Iterator[int]:
        for number, (part, plan) in enumerate(zip(parts, plans)):
            if not is_root:
                _adopt_plan(part, plan)
            name = f"optimizer.{number}" if number else "optimizer"
            for index, p in enumerate(_parameters(part)):
                for key, spec in plan["state"].get(index, {}).items():
                    if isinstance(spec, _TensorSpec):
                        tensor = part.state[p][key]
                        yield broadcast_into(tensor, tensor, root_rank, f"{name}.{index}.{key}", process_set)

    _synchronize_all(starts())
    if is_new:
        _add_zero_gradients(optimizer, model)


def _parts_of(optimizer: Any) -> List[Any]:
    """Returns the optimizer and those that it wraps: attributes that are optimizers, or lists or dicts of some. Lookahead and
    SAM have the state of the steps there. What shares its state with another is left out."""
    seen, parts, waiting = set(), [], [optimizer]
    while waiting:
        part = waiting.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        if id(part.state) not in seen:
            seen.add(id(part.state))
            parts.append(part)
        for value in getattr(part, "__dict__", {}).values():
            held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
            waiting += [inner for inner in held if isinstance(inner, torch.optim.Optimizer)]
    return parts


def _add_zero_gradients(optimizer: torch.optim.Optimizer, model: Optional[torch.nn.Module]) -> None:
    modules = model.modules() if model is not None else []
    with_sparse = {m.weight for m in modules if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and m.sparse}
    takes_sparse_only = isinstance(optimizer, torch.optim.SparseAdam)
    for p in _parameters(optimizer):
        if p.requires_grad and p.grad is None:
            is_sparse = takes_sparse_only or p in with_sparse
            p.grad = _sparse.zeros_like(p) if is_sparse else torch.zeros_like(p, requires_grad=False)


class _TensorSpec:
    """_TensorSpec stands for a tensor of the root's state, which is sent by itself."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.stride = tensor.stride() if tensor.layout is torch.strided else ()
        self.dtype = tensor.dtype
        self.is_on_host = tensor.device.type == "cpu"

    def like(self, current: Any, p: torch.Tensor) -> torch.Tensor:
        """Returns `current` if it fits, so that references to it stay good; otherwise a new tensor."""
        if isinstance(current, torch.Tensor) and (tuple(current.shape), current.dtype) == (self.shape, self.dtype):
            return current
        device = "cpu" if self.is_on_host else p.device
        if (self.shape, self.stride) == (tuple(p.shape), p.stride() if p.layout is torch.strided else None):
            # Fused steps walk through a parameter's memory and its state's alike, as with channels_last.
            return torch.zeros_like(p, dtype=self.dtype, device=device, requires_grad=False)
        return torch.zeros(self.shape, dtype=self.dtype, device=device)


class _DeviceTensor:
    """_DeviceTensor stands for a tensor that the root has on a device, such as the learning rate of a capturable
    optimizer. A plain pickle would put it on the device with the root's number, which is another rank's, or
    nobody's."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.on_host = tensor.detach().cpu()


def _packed(value: Any) -> Any:
    """Returns an option or value of a state, or a tuple or list of them, in the form that is pickled."""
    if isinstance(value, torch.Tensor):
        return value if value.device.type == "cpu" else _DeviceTensor(value)
    return type(value)(map(_packed, value)) if type(value) in (tuple, list) else value


def _unpacked(value: Any, device: torch.device) -> Any:
    """Returns the same on this rank, whose parameter is on `device`."""
    if isinstance(value, _DeviceTensor):
        return value.on_host.to(device)
    if type(value) in (tuple, list):
        return type(value)(_unpacked(part, device) for part in value)
    return value


def _parameters(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _plan_of(optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
    """Returns what the root sends to the others: group options and small values themselves, a _TensorSpec for each
    tensor."""
    groups = [
        (len(group["params"]), {key: _packed(value) for key, value in group.items() if key != "params"})
        for group in optimizer.param_groups
    ]
    state = {}
    for index, p in enumerate(_parameters(optimizer)):
        if p in optimizer.state:
            state[index] = {
                key: _TensorSpec(value) if _travels_alone(value) else _packed(value)
                for key, value in optimizer.state[p].items()
            }
    # Some optimizers keep what belongs to no parameter there too, such as a count of steps.
    shared = {key: _packed(value) for key, value in optimizer.state.items() if isinstance(key, (str, int))}
    return {"groups": groups, "state": state, "shared": shared}


def _travels_alone(value: Any) -> bool:
    # Step counters and the like are sent with the plan, and so is an optimizer's state of sparse gradients.
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return is_dense and (value.numel() > 1 or value.device.type != "cpu")


def _adopt_plan(optimizer: torch.optim.Optimizer, plan: Dict[str, Any]) -> None:
    counts = [count for count, _ in plan["groups"]]
    own = [len(group["params"]) for group in optimizer.param_groups]
    if own != counts:
        raise ValueError(
            f"rank {mpi_ops.rank()}'s optimizer has parameter groups of {own} parameters, the root's of {counts}; "
            "make the same optimizer on every rank"
        )
    for group, (_, options) in zip(optimizer.param_groups, plan["groups"]):
        device = group["params"][0].device if group["params"] else torch.device("cpu")
        group.update({key: _unpacked(value, device) for key, value in options.items()})
    for key in [key for key in optimizer.state if isinstance(key, (str, int))]:
        del optimizer.state[key]
    device = next((p.device for p in _parameters(optimizer)), torch.device("cpu"))
    optimizer.state.update({key: _unpacked(value, device) for key, value in plan["shared"].items()})
    for index, p in enumerate(_parameters(optimizer)):
        specs = plan["state"].get(index)
        if specs is None:
            optimizer.state.pop(p, None)
            continue
        current = optimizer.state.get(p, {})
        optimizer.state[p] = {
            key: spec.like(current.get(key), p) if isinstance(spec, _TensorSpec) else _unpacked(spec, p.device)
            for key, spec in specs.items()
        }
