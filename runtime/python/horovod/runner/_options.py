"""What horovodrun's command line has, and the words by which hvdrun is told the same. It is one table: the parser, the
variables of the runtime, and hvdrun's command are made of it, and nothing is decided here.
"""

import argparse
import dataclasses
import os
import shlex
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

_MIB = 1024 * 1024


def _names(value: Any) -> str:
    """Returns names with commas between. Programs give them as a list or a set too, and an empty one means nothing."""
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    return value if isinstance(value, str) else ",".join(value)


class _AddNames(argparse.Action):
    """An option whose names add up where it is given several times."""

    def __call__(self, parser: Any, arguments: Any, value: Any, option: Any = None) -> None:
        earlier = getattr(arguments, self.dest)
        setattr(arguments, self.dest, f"{earlier},{value}" if earlier else value)


@dataclasses.dataclass(frozen=True)
class Option:
    """Option is one of horovodrun's options. Its first name is hvdrun's too."""

    names: Tuple[str, ...]
    dest: str
    kind: Callable[[str], Any] = str
    count: int = 1  # of its values; 0: it is true, and the names in `opposite` make it false
    opposite: Tuple[str, ...] = ()
    variable: str = ""  # of the runtime
    as_variable: Callable[[Any], Any] = lambda value: int(value) if isinstance(value, bool) else value
    needs: str = ""  # the variable is set only beside this other argument

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Adds it to a parser."""
        if self.count == 0:
            parser.add_argument(*self.names, dest=self.dest, action="store_const", const=True, default=None)
            if self.opposite:
                parser.add_argument(*self.opposite, dest=self.dest, action="store_const", const=False)
        elif self.count == 1:
            action = _AddNames if self.kind is _names else "store"
            parser.add_argument(*self.names, dest=self.dest, type=self.kind, action=action)
        else:
            parser.add_argument(*self.names, dest=self.dest, type=self.kind, nargs=self.count)

    def words(self, value: Any) -> List[str]:
        """Returns hvdrun's words for a value; none for None."""
        if value is None or (self.count == 0 and not value and not self.opposite):
            return []
        if self.count == 0:
            return [self.names[0] if value else self.opposite[0]]
        if self.kind is _names:
            value = _names(value)
            if not value:
                return []
        # With "=", so that a value may begin with "-".
        return [f"{self.names[0]}={value}"] if self.count == 1 else [self.names[0], *map(str, value)]


def _switch(name: str, dest: str, variable: str, **more: Any) -> Option:
    return Option((f"--{name}",), dest, count=0, opposite=(f"--no-{name}",), variable=variable, **more)


def _setting(name: str, kind: Callable[[str], Any], variable: str, **more: Any) -> Option:
    return Option((f"--{name}",), name.replace("-", "_"), kind, variable=variable, **more)


OPTIONS = (
    Option(("--num-proc", "-np"), "num_proc", int),
    Option(("--check-build", "-cb"), "check_build", count=0),
    Option(("--disable-cache",), "disable_cache", count=0),
    Option(("--start-timeout",), "start_timeout", float),
    Option(("--network-interfaces", "--network-interface"), "nics", _names),
    Option(("--output-filename",), "output_filename"),
    Option(("--verbose",), "verbose", count=0),
    Option(("--config-file",), "config_file"),
    Option(("--ssh-port", "-p"), "ssh_port", int),
    Option(("--ssh-identity-file", "-i"), "ssh_identity_file"),
    # settings of the runtime
    _setting("fusion-threshold-mb", int, "HOROVOD_FUSION_THRESHOLD", as_variable=lambda mib: mib * _MIB),
    _setting("cycle-time-ms", float, "HOROVOD_CYCLE_TIME"),
    _setting("cache-capacity", int, "HOROVOD_CACHE_CAPACITY"),
    _switch("hierarchical-allreduce", "hierarchical_allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE"),
    _switch("hierarchical-allgather", "hierarchical_allgather", "HOROVOD_HIERARCHICAL_ALLGATHER"),
    _switch("torus-allreduce", "torus_allreduce", "HOROVOD_TORUS_ALLREDUCE"),
    _switch("autotune", "autotune", "HOROVOD_AUTOTUNE", needs="autotune"),
    _setting("autotune-log-file", str, "HOROVOD_AUTOTUNE_LOG", needs="autotune"),
    _setting("autotune-warmup-samples", int, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", needs="autotune"),
    _setting("autotune-steps-per-sample", int, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", needs="autotune"),
    _setting("autotune-bayes-opt-max-samples", int, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", needs="autotune"),
    _setting("autotune-gaussian-process-noise", float, "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", needs="autotune"),
    _setting("timeline-filename", str, "HOROVOD_TIMELINE"),
    _switch("timeline-mark-cycles", "timeline_mark_cycles", "HOROVOD_TIMELINE_MARK_CYCLES", needs="timeline_filename"),
    Option(("--no-stall-check",), "no_stall_check", count=0, opposite=("--stall-check",),
           variable="HOROVOD_STALL_CHECK_DISABLE"),
    _setting("stall-check-warning-time-seconds", int, "HOROVOD_STALL_CHECK_TIME_SECONDS"),
    _setting("stall-check-shutdown-time-seconds", int, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
    _switch("mpi-threads-disable", "mpi_threads_disable", "HOROVOD_MPI_THREADS_DISABLE"),
    Option(("--mpi-args",), "mpi_args"),
    Option(("--tcp",), "tcp_flag", count=0, variable="NCCL_IB_DISABLE"),
    Option(("--binding-args",), "binding_args"),
    _setting("num-nccl-streams", int, "HOROVOD_NUM_NCCL_STREAMS"),
    _setting("thread-affinity", int, "HOROVOD_THREAD_AFFINITY"),
    _setting("gloo-timeout-seconds", int, "HOROVOD_GLOO_TIMEOUT_SECONDS"),
    _setting("log-level", str, "HOROVOD_LOG_LEVEL"),
    Option(("--log-with-timestamp", "--no-log-hide-timestamp"), "log_with_timestamp", count=0,
           opposite=("--log-without-timestamp", "--log-hide-timestamp"), variable="HOROVOD_LOG_HIDE_TIME",
           as_variable=lambda shows: int(not shows)),
    Option(("--prefix-output-with-timestamp", "-prefix-timestamp"), "prefix_output_with_timestamp", count=0),
    # hosts, and who starts the ranks
    Option(("--hosts", "-H"), "hosts"),
    Option(("--hostfile", "-hostfile"), "hostfile"),
    Option(("--host-discovery-script",), "host_discovery_script"),
    Option(("--gloo",), "use_gloo", count=0),
    Option(("--mpi",), "use_mpi", count=0),
    Option(("--jsrun",), "use_jsrun", count=0),
    # elastic jobs
    Option(("--min-num-proc", "--min-np"), "min_num_proc", int),
    Option(("--max-num-proc", "--max-np"), "max_num_proc", int),
    Option(("--slots-per-host",), "slots", int),
    Option(("--elastic-timeout",), "elastic_timeout", float),
    Option(("--reset-limit",), "reset_limit", int),
    Option(("--blacklist-cooldown-range",), "cooldown_range", int, count=2),
)  # fmt: skip


def _former_name(dest: str) -> property:
    return property(lambda arguments: getattr(arguments, dest), lambda arguments, value: setattr(arguments, dest, value))


class Arguments(argparse.Namespace):
    """Arguments is what horovodrun's command line can say: an attribute for each option, None unless it was given."""

    # Programs for Horovod before 0.27 set these.
    np = _former_name("num_proc")
    min_np = _former_name("min_num_proc")
    max_np = _former_name("max_num_proc")

    def __init__(self, **given: Any) -> None:
        super().__init__(**{option.dest: None for option in OPTIONS}, command=None, run_func=None, executable=None)
        for name, value in given.items():
            if not hasattr(self, name):
                raise AttributeError(f"horovodrun has no argument {name!r}")
            setattr(self, name, value)


class ProgramArguments(Arguments):
    """ProgramArguments are made by a program, which sets what it needs. They are of one rank unless it says more."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"num_proc": 1, **given})


def parse(argv: Optional[List[str]] = None) -> Arguments:
    """Reads horovodrun's command line, by default this process's."""
    # With abbreviations it would also refuse those options of the command that could be several of its own.
    parser = argparse.ArgumentParser(prog="horovodrun", allow_abbrev=False)
    # The package is loaded already, and importing it here would be a circle.
    parser.add_argument("-v", "--version", action="version", version=sys.modules["horovod"].__version__)
    for option in OPTIONS:
        option.add_to(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(argv, namespace=Arguments())


def set_variables(environment: Dict[str, str], arguments: Any) -> Dict[str, str]:
    """Adds the runtime's variables for those arguments that were given, and returns the environment."""
    for option in OPTIONS:
        value = getattr(arguments, option.dest, None)
        is_needed = not option.needs or getattr(arguments, option.needs, None)
        if option.variable and value is not None and is_needed:
            environment[option.variable] = str(option.as_variable(value))
    return environment


def is_elastic(arguments: Any) -> bool:
    """Returns whether horovodrun would start an elastic job."""
    return arguments.host_discovery_script is not None or arguments.min_num_proc is not None


def _as_elastic(arguments: Any) -> List[str]:
    """Returns the words for what horovodrun does in an elastic job without being told. A list of hosts is looked at again
    and again, as what a script prints is; all its slots are used; and a host on which a rank fails is left as a whole."""
    from horovod.runner.elastic import driver  # its numbers can be set there

    words = ["--exclude-failed-hosts", f"--discovery-interval={max(driver.DISCOVER_HOSTS_FREQUENCY_SECS, 0.1)}"]
    if arguments.min_num_proc is None:
        words.append(f"--min-num-proc={arguments.num_proc}")
    if arguments.elastic_timeout is None and "HOROVOD_ELASTIC_TIMEOUT" not in os.environ:
        words.append(f"--elastic-timeout={driver.ELASTIC_TIMEOUT_SECS}")
    if arguments.host_discovery_script is not None:
        return words
    if arguments.hostfile is not None:
        return [*words, f"--host-discovery-script=cat {shlex.quote(arguments.hostfile)}"]
    hosts = (arguments.hosts or f"localhost:{arguments.num_proc}").split(",")
    return [*words, f"--host-discovery-script=printf '%s\\n' {shlex.join(host.strip() for host in hosts)}"]


def hvdrun_words(arguments: Any, elastic: bool) -> List[str]:
    """Returns hvdrun's arguments, without the command, that mean the same as horovodrun's. `elastic`: in an elastic job."""
    words = _as_elastic(arguments) if elastic else []
    for option in OPTIONS:
        if not (elastic and option.dest in ("hosts", "hostfile")):
            words += option.words(getattr(arguments, option.dest, None))
    return words
