"""Running a Python function on several ranks: `horovod.run`.

    def train(lr):
        import horovod.torch as hvd
        hvd.init()
        ...
        return loss

    losses = horovod.run(train, args=(0.1,), num_proc=4)

The ranks are started by hvdrun, here or on other hosts, and the function comes to them and its results come back on the
ways that hvdrun has for its own purposes (_exchange.py): no port is opened, and nothing is unpickled that does not come
from this job's processes.
"""

import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

__all__ = ["run"]


def __getattr__(name: str) -> object:
    if name == "_HorovodArgs":  # all that horovodrun's command line can say
        from horovod.runner._options import ProgramArguments

        return ProgramArguments
    raise AttributeError(f"module 'horovod.runner' has no attribute {name!r}")


def run(
    func: Callable[..., Any],
    args: Tuple = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Tuple[int, int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[float] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Union[bool, int, None] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[str] = None,
    network_interfaces: Union[str, Sequence[str], None] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> List[Any]:
    """Calls `func(*args, **kwargs)` on each of `num_proc` ranks, and returns their results in rank order.

    What ranks print comes out of this process's sys.stdout and sys.stderr, tagged as hvdrun tags it. Ctrl-C stops them.

    Args:
        func: anything that cloudpickle can carry, as can `args` and `kwargs`. With ranks on other hosts all that travels
            in their environment: about 1 MiB when compressed; larger data belongs into files.
        num_proc: number of ranks; `np` is its former name.
        hosts: as hvdrun's -H, "a:2,b:2"; or hostfile: as its --hostfile. Default: this machine.
        start_timeout, ssh_port, ssh_identity_file, output_filename, network_interfaces, mpi_args: as hvdrun's options.
            `network_interface` is the former name of `network_interfaces`.
        verbose: hvdrun tells each step.
        use_mpi: mpirun starts the ranks. `use_gloo`: it does not, as is the default.
        executable: the Python on all hosts; default: this one.
        disable_cache: accepted; there is no cache.
        min_num_proc: the job is elastic, and goes on without ranks and hosts that are lost while so many are left. Results
            are then of so many ranks, the first ones of those that there are at the end. `min_np` is its former name.
        host_discovery_script: prints a host a line, as "host:slots"; the job is elastic, and hosts join and leave it.
        max_num_proc, slots, reset_limit, cooldown_range: as hvdrun's --max-num-proc, --slots-per-host, --reset-limit and
            --blacklist-cooldown-range. `max_np` is the former name of the first.

    Raises:
        ValueError: an argument is wrong; nothing was started.
        Whatever `func` raised first on a rank, with that rank's traceback as its cause. The others are stopped then.
        RuntimeError: a rank was killed or ended by itself, a host could not be reached, ...; with hvdrun's report.
    """
    from horovod.runner import _job, _options
    from horovod.runner._numbers import whole_number

    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    for former, name, value in (("np", "num_proc", np), ("min_np", "min_num_proc", min_np), ("max_np", "max_num_proc", max_np)):
        if value is not None:
            warnings.warn(f"{former} has been renamed to {name}", DeprecationWarning, stacklevel=2)
    ranks = whole_number(np if np is not None and num_proc == 1 else num_proc)
    if ranks is None or ranks < 1:
        raise ValueError(f"num_proc must be a number of ranks, 1 or more, not {np if num_proc == 1 else num_proc!r}")
    interfaces = network_interfaces if network_interfaces is not None else network_interface
    if interfaces is not None and not isinstance(interfaces, str):
        interfaces = ",".join(interfaces)
    is_here = hosts is None and hostfile is None and host_discovery_script is None
    arguments = _options.Arguments(
        num_proc=ranks,
        min_num_proc=min_num_proc if min_num_proc is not None else min_np,
        max_num_proc=max_num_proc if max_num_proc is not None else max_np,
        slots=slots,
        reset_limit=reset_limit,
        cooldown_range=cooldown_range,
        hosts=f"localhost:{ranks}" if is_here else hosts,
        hostfile=hostfile,
        host_discovery_script=host_discovery_script,
        start_timeout=start_timeout,
        ssh_port=ssh_port,
        ssh_identity_file=ssh_identity_file,
        output_filename=output_filename,
        verbose=verbose,
        use_mpi=use_mpi,
        mpi_args=mpi_args,
        nics=interfaces,
        executable=executable,
        run_func=_job.make_payload(func, args, kwargs),
    )
    return _job.run_arguments(arguments, _options.is_elastic(arguments)) or []
