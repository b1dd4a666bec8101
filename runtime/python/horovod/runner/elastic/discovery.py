"""Which hosts an elastic job may use, for programs that ask for themselves. A job's own looks are hvdrun's
(--host-discovery-script)."""

import subprocess
from typing import Dict, Optional

from horovod.runner.common._absent import absent_class

HostManager = absent_class("horovod.runner.elastic.discovery.HostManager")


class HostDiscovery:
    """HostDiscovery says which hosts there are now; other classes derive from it."""

    def find_available_hosts_and_slots(self) -> Dict[str, Optional[int]]:
        """Returns the slots of each host."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """HostDiscoveryScript runs a command that prints a host a line, as "host:slots", or as "host" with `slots` slots."""

    def __init__(self, discovery_script: str, slots: Optional[int] = None) -> None:
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self) -> Dict[str, Optional[int]]:
        """Returns the slots of each host. RuntimeError when the command fails, ValueError for a line that is no host."""
        found: Dict[str, Optional[int]] = {}
        for line in self._execute_discovery_script().split("\n"):
            host, colon, slots = line.strip().partition(":")
            if host and host not in found:  # as for hvdrun, the first line counts
                found[host] = int(slots) if colon else self._default_slots
        return found

    def _execute_discovery_script(self) -> str:
        done = subprocess.run(
            self._discovery_script, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the host discovery script {self._discovery_script} exited with code {done.returncode}")
        return done.stdout


class FixedHosts(HostDiscovery):
    """FixedHosts are hosts that only the program changes."""

    def __init__(self, host_slots: Dict[str, int]) -> None:
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> Dict[str, Optional[int]]:
        return dict(self._host_slots)

    def set(self, host_slots: Dict[str, int]) -> None:
        self._host_slots = host_slots
