"""Horovod's older interface to elastic jobs on Ray."""

import dataclasses
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

from horovod.ray._nodes import RayHostDiscovery
from horovod.ray.runner import MiniSettings, RayExecutor

__all__ = ["ElasticRayExecutor", "ElasticSettings", "RayHostDiscovery"]


@dataclasses.dataclass
class ElasticSettings(MiniSettings):
    """What ElasticRayExecutor.create_settings returns."""

    min_num_proc: int = 1
    max_num_proc: Optional[int] = None
    reset_limit: Optional[int] = None
    elastic_timeout: float = 600
    cooldown_range: Optional[Sequence[float]] = None


class ElasticRayExecutor:
    """RayExecutor with min_workers, under its former name.

    Args:
        settings: of create_settings().
        use_gpu, cpus_per_slot, gpus_per_slot: as RayExecutor's use_gpu, cpus_per_worker and gpus_per_worker.
        env_vars: variables for the ranks.
        override_discovery: as RayExecutor's.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: Optional[int] = None,
        reset_limit: Optional[int] = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        nics: Any = None,
        min_np: Optional[int] = None,
        max_np: Optional[int] = None,
        **others: Any,
    ) -> ElasticSettings:
        """Settings for ElasticRayExecutor: as the arguments of RayExecutor and its create_settings(). `others`: verbose,
        discovery, cooldown_range. ValueError names one that there is not."""
        for name in others:
            if name not in ("verbose", "discovery", "cooldown_range"):
                raise ValueError(f"ElasticRayExecutor.create_settings: there is no {name}={others[name]!r}; leave it out")
        for name, value in (("min_np", min_np), ("max_np", max_np)):
            if value is not None:
                warnings.warn(f"{name} is the former name of {name[:3]}_num_proc", DeprecationWarning, stacklevel=2)
        return ElasticSettings(
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            timeout_s=timeout_s,
            ssh_identity_file=ssh_identity_file,
            nics=nics,
            **others,
        )

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: Optional[int] = None,
        env_vars: Optional[Dict[str, Any]] = None,
        override_discovery: bool = True,
    ) -> None:
        if not isinstance(settings, ElasticSettings):
            raise ValueError(
                f"settings must be what ElasticRayExecutor.create_settings returns, not {type(settings).__name__}"
            )
        self.settings = settings
        self._env_vars = env_vars
        self._executor = RayExecutor(
            settings,
            min_workers=settings.min_num_proc,
            max_workers=settings.max_num_proc,
            reset_limit=settings.reset_limit,
            elastic_timeout=settings.elastic_timeout,
            cooldown_range=settings.cooldown_range,
            cpus_per_worker=cpus_per_slot,
            use_gpu=use_gpu,
            gpus_per_worker=gpus_per_slot,
            override_discovery=override_discovery,
        )

    def start(self) -> None:
        """Waits until there are nodes enough."""
        self._executor.start(extra_env_vars=self._env_vars)

    def run(self, worker_fn: Callable[[], Any], callbacks: Optional[List[Callable[[Any], None]]] = None) -> List[Any]:
        """As RayExecutor.run()."""
        return self._executor.run(worker_fn, callbacks=callbacks)

    def shutdown(self) -> None:
        """As RayExecutor.shutdown()."""
        self._executor.shutdown()
