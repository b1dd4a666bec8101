"""What RayExecutor was asked for, checked."""

from typing import NamedTuple, Optional, Tuple


class Params(NamedTuple):
    """Params are of ranks that stay."""

    ranks: int
    num_hosts: int  # 0: any number of hosts
    num_workers_per_host: int
    cpus_per_worker: float
    gpus_per_worker: int  # 0: none
    use_current_placement_group: bool
    group_name: str = ""  # of the placement group that is made for them


class ElasticParams(NamedTuple):
    """ElasticParams are of ranks that come and go."""

    least: int
    most: int  # 0: any number
    cpus_per_worker: float
    gpus_per_worker: int  # 0: none
    reset_limit: Optional[int]
    cooldown_range: Optional[Tuple[float, float]]  # seconds
    elastic_timeout: float  # seconds
