"""A Slurm of several nodes on this machine, as root, in a folder of its own: munged, slurmctld, and a slurmd for each
node. All nodes report one host name, so a node is known by SLURMD_NODENAME.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import time

from patience import PATIENCE
from ports import free_ports

SBIN = "/usr/sbin:/sbin"
MOUNT_CGROUP = ("mount -t cgroup2 none /sys/fs/cgroup" if not os.path.isdir("/sys/fs/cgroup/systemd") else
                "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/systemd && "
                "mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "sinfo", "scancel")


def missing():
    """Why no Slurm can run here; None: it can."""
    if os.geteuid() != 0:
        return "a Slurm for tests needs root"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=os.environ["PATH"] + ":" + SBIN)]
    return f"Slurm is not installed: no {', '.join(absent)}" if absent else None


class Slurm:
    """`folder`: below a short path, since sockets stand in it. `gpus`: so many on each node, which no program can use.
    `settings`: lines of its configuration that differ, by their names. `lab`: whose node1 and so on are n1 and so on, and whose
    launcher runs the rest; the folder is then one that all its hosts see."""

    def __init__(self, folder, nodes=4, cpus=4, gpus=0, settings=None, lab=None):
        self.lab = lab
        self.folder = pathlib.Path(folder)
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.environment = {**os.environ, "PATH": os.environ["PATH"] + ":" + SBIN,
                            "SLURM_CONF": str(self.folder / "slurm.conf")}
        for name in [name for name in self.environment if name.startswith("SLURM_") and name != "SLURM_CONF"]:
            del self.environment[name]
        self.daemons = []
        self.cpus = cpus
        self.gpus = gpus
        self.settings = settings or {}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chmod(self.folder, 0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        ports = free_ports(1 + len(self.names))
        (self.folder / "slurm.conf").write_text(self.configuration(ports))
        self.daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge",
                    f"--pid-file={self.folder}/munge.pid", f"--log-file={self.folder}/munge.log",
                    f"--seed-file={self.folder}/munge.seed")
        self.wait_for(lambda: (self.folder / "munge").exists(), "munged has no socket")
        self.daemon("slurmctld", "-D", "-c")
        for name in self.names:
            self.daemon("slurmd", "-D", "-N", name, host=self.host_of(name))
        self.wait_for(lambda: self.run("sinfo", "-h", "-o", "%D %t").stdout.split() == [str(len(self.names)), "idle"],
                      "its nodes are not idle")

    def configuration(self, ports):
        host, address = (socket.gethostname(), "127.0.0.1") if self.lab is None else ("launcher", self.lab.addr("launcher"))
        folder = self.folder
        lines = [
            "ClusterName=lab", f"SlurmctldHost={host}({address})", f"SlurmctldPort={ports[0]}", "SlurmUser=root",
            "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={folder}/munge", "CredType=cred/munge",
            f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool.%n", f"SlurmdPidFile={folder}/slurmd.%n.pid",
            f"SlurmctldPidFile={folder}/slurmctld.pid", f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd.%n.log", "SlurmdParameters=config_overrides", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "MpiDefault=none",
            "SwitchType=switch/none", "JobAcctGatherType=jobacct_gather/none", "AccountingStorageType=accounting_storage/none",
            "JobCompType=jobcomp/none", "ReturnToService=2", "SchedulerType=sched/builtin",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1", "SlurmctldTimeout=30", "PropagateResourceLimits=NONE",
            # On a busy machine a node that is slow is not down, and ranks that are told to end have time for it.
            f"SlurmdTimeout={PATIENCE}", f"BatchStartTimeout={PATIENCE}", "MessageTimeout=60", "KillWait=30",
        ]
        lines = [line for line in lines if line.split("=")[0] not in self.settings]
        lines += [f"{name}={value}" for name, value in self.settings.items()]
        more = "RealMemory=4000 " if self.settings else ""
        if self.gpus:
            self.make_gpus()
            lines.append("GresTypes=gpu")
            more += f"Gres=gpu:{self.gpus} "
        for name, port in zip(self.names, ports[1:]):
            host = self.host_of(name) or host
            address = address if self.lab is None else self.lab.addr(host)
            lines.append(f"NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs={self.cpus} "
                         f"{more}State=UNKNOWN")
        lines.append(f"PartitionName=all Nodes={','.join(self.names)} Default=YES State=UP")
        return "\n".join(lines) + "\n"

    def make_gpus(self):
        """Slurm wants device files, and these are /dev/null's."""
        for number in range(self.gpus):
            os.mknod(self.folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-{self.gpus - 1}]\n")

    def host_of(self, node):
        """The lab's host that is this node; None without a lab."""
        return self.lab and f"node{1 + self.names.index(node)}"

    def slurmd(self, node):
        """The process of a node's slurmd."""
        return self.daemons[2 + self.names.index(node)]

    def daemon(self, name, *arguments, host="launcher"):
        log = open(self.folder / f"{name}.{len(self.daemons)}.out", "wb")
        words = [shutil.which(name, path=self.environment["PATH"]), *arguments]
        if self.lab is not None:  # whose hosts have a /sys of their own, where slurmd wants control groups as the kernel has them
            begin = ["sh", "-c", MOUNT_CGROUP + '; exec "$@"', "sh"]
            words = self.lab.command("run", "--host", host, "--", *begin, *words)
        self.daemons.append(subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             start_new_session=True))
        log.close()

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            for each in reversed(self.daemons):
                if each.poll() is None:
                    each.send_signal(number)
            for each in self.daemons:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.wait(10)

    def wait_for(self, condition, why):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or any(each.poll() is not None for each in self.daemons):
                logs = "\n".join(path.read_text(errors="replace")[-500:] for path in self.folder.glob("*.log"))
                raise RuntimeError(f"no Slurm: {why}\n{logs}")
            time.sleep(0.05)

    def run(self, *words, environment=None, **options):
        """subprocess.run() of a client."""
        words = [str(word) for word in words] if self.lab is None else self.lab.command("run", "--", *words)
        return subprocess.run(words, env={**self.environment, **(environment or {})}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE, **options)
