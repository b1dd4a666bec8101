"""A Grid Engine of several nodes in a lab: the queue master on the host launcher, and an execution daemon on each node.
The programs are those of Debian's packages, installed or unpacked by scripts/setup in build/gridengine.
"""

import os
import pathlib
import re
import subprocess

import pytest
from hvdrun import ROOT
from lab import wait_until

INSTALLED, UNPACKED = pathlib.Path("/usr"), ROOT / "build/gridengine/usr"
PORTS = {"SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445"}  # each host of a lab has a network of its own
UNLIMITED = ["rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem"]


def programs():
    """The folder with lib/gridengine and share/gridengine; None: there is none."""
    return next((place for place in (INSTALLED, UNPACKED) if (place / "lib/gridengine/sge_qmaster").exists()), None)


def missing():
    """Why no Grid Engine can run here; None: it can."""
    if os.geteuid() != 0:
        return "a Grid Engine for tests needs root"
    return None if programs() else "Grid Engine is not installed (scripts/setup --test unpacks it)"


class Sge:
    """Its files are in the lab's shared folder. Slots: `slots` on each node; a job gets two on each of its nodes."""

    def __init__(self, lab, slots=4):
        self.lab = lab
        self.slots = slots
        self.names = [f"node{number}" for number in range(1, lab.nodes + 1)]
        self.folder = lab.shared / "sge"
        self.environment = {**os.environ, **PORTS, "SGE_ROOT": str(self.folder), "SGE_CELL": "default"}

    def start(self):
        place = programs()
        if place == UNPACKED:
            self.show_libraries(place / "lib")
        binaries, util = place / "lib/gridengine", place / "share/gridengine/util"
        arch = self.run("sh", util / "arch").stdout.strip()
        self.environment["PATH"] = f"{self.folder}/bin/{arch}:{os.environ['PATH']}"
        common, spool = self.folder / "default/common", self.folder / "spool"
        for each in (common, spool / "qmaster", spool / "execd", self.folder / "bin", self.folder / "utilbin"):
            each.mkdir(parents=True)
        for kind in ("bin", "utilbin"):
            (self.folder / kind / arch).symlink_to(binaries)
        (self.folder / "util").symlink_to(util)
        (common / "act_qmaster").write_text("launcher\n")
        (common / "bootstrap").write_text(table({
            "admin_user": "none", "default_domain": "none", "ignore_fqdn": "false", "spooling_method": "classic",
            "spooling_lib": "libspoolc", "spooling_params": f"{common};{spool}/qmaster", "binary_path": self.folder / "bin",
            "qmaster_spool_dir": spool / "qmaster", "security_mode": "none", "listener_threads": 2, "worker_threads": 2,
            "scheduler_threads": 1}))
        settings = (place / "share/gridengine/default-configuration").read_text()
        self.write("configuration", changed(settings, {"execd_spool_dir": spool / "execd", "min_uid": 0, "min_gid": 0}))
        self.run("spoolinit", "classic", "libspoolc", f"{common};{spool}/qmaster", "init")
        for words in (["configuration", self.folder / "configuration"], ["complexes", util / "resources/centry"],
                      ["usersets", util / "resources/usersets"], ["managers", "root"]):
            self.run("spooldefaults.bin", *words, LD_LIBRARY_PATH=str(binaries))
        self.daemon("launcher", "sge_qmaster")
        wait_until(lambda: self.client("qconf", "-sm").returncode == 0, "its queue master does not answer")
        self.configure()
        for name in self.names:
            self.daemon(name, "sge_execd")
        wait_until(lambda: self.client("qhost").stdout.count(arch) == len(self.names), "its nodes are not there")

    def show_libraries(self, folder):
        """Debian's programs look for their libraries below /usr/lib/gridengine and nowhere else."""
        for host in ("launcher", *self.names):
            done = self.client("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={folder}:/usr/lib", "/usr/lib", host=host)
            if done.returncode != 0:
                pytest.skip(f"no Grid Engine here, since a lab cannot have an overlay mount: {done.stderr.strip()}")

    def configure(self):
        for name in self.names:
            lists = ["user_lists", "xuser_lists", "projects", "xprojects"]
            self.run("qconf", "-Ae", self.write("host", table({
                "hostname": name, **dict.fromkeys(["load_scaling", "complex_values", *lists, "usage_scaling",
                                                   "report_variables"], "NONE")})))
        self.run("qconf", "-as", ",".join(["launcher", *self.names]))  # where qsub and qrsh may run
        self.run("qconf", "-Ap", self.write("pe", table({
            "pe_name": "mpi", "slots": 999, "user_lists": "NONE", "xuser_lists": "NONE", "start_proc_args": "NONE",
            "stop_proc_args": "NONE", "allocation_rule": 2, "control_slaves": "TRUE", "job_is_first_task": "FALSE",
            "urgency_slots": "min", "accounting_summary": "TRUE", "qsort_args": "NONE"})))
        none = ["load_thresholds", "suspend_thresholds", "ckpt_list", "prolog", "epilog", "starter_method", "suspend_method",
                "resume_method", "terminate_method", "owner_list", "user_lists", "xuser_lists", "subordinate_list",
                "complex_values", "projects", "xprojects", "calendar"]
        order = ",".join(f"[{name}={number}]" for number, name in enumerate(self.names))
        self.run("qconf", "-Aq", self.write("queue", table({
            "qname": "all.q", "hostlist": " ".join(self.names), "seq_no": f"0,{order}", "nsuspend": 1,
            "suspend_interval": "00:05:00", "priority": 0, "min_cpu_interval": "00:05:00", "processors": "UNDEFINED",
            "qtype": "BATCH INTERACTIVE", "pe_list": "mpi", "rerun": "FALSE", "slots": self.slots, "tmpdir": "/tmp",
            "shell": "/bin/sh", "shell_start_mode": "unix_behavior", "notify": "00:00:05", "initial_state": "default",
            **dict.fromkeys(none, "NONE"), **{f"{kind}_{name}": "INFINITY" for kind in "sh" for name in UNLIMITED}})))
        schedule = self.run("qconf", "-ssconf").stdout
        self.run("qconf", "-Msconf", self.write("schedule", changed(schedule, {
            "schedule_interval": "0:0:1", "flush_submit_sec": 1, "flush_finish_sec": 1, "queue_sort_method": "seqno"})))

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def daemon(self, host, name):
        with open(self.folder / f"{name}.{host}.out", "wb") as log:
            self.lab.popen(name, host=host, env={**self.environment, "SGE_ND": "1"}, stdout=log, stderr=subprocess.STDOUT)

    def client(self, *words, host="launcher", **variables):
        return self.lab.run(*words, host=host, env={**self.environment, **variables})

    def run(self, *words, **options):
        done = self.client(*words, **options)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.messages()}"
        return done

    def messages(self):
        return "".join(path.read_text(errors="replace")[-1000:] for path in self.folder.glob("spool/**/messages"))


def table(rows):
    """A file of Grid Engine's: a name and a value on each line."""
    return "".join(f"{name} {value}\n" for name, value in rows.items())


def changed(text, rows):
    for name, value in rows.items():
        text = re.sub(rf"^{name}\s.*$", f"{name} {value}", text, flags=re.M)
    return text
