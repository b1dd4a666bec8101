"""Every command that README, manual and --help show is run as it stands there; a new one fails here until it is in COMMANDS."""

import ctypes
import json
import os
import re
import shlex
import subprocess

import pytest

from hvdrun import BIN, HVDRUN, PROGRAMS, ROOT, hvdrun
from patience import PATIENCE

VENV = ROOT / "build/venv/bin"
# As a user has it who has activated the environment, with what pip installed, and stands beside the training script.
USER = {"cwd": PROGRAMS / "user", "timeout": PATIENCE,
        "env": {**os.environ, "PATH": f"{VENV}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}}
IN_TREE = pytest.mark.skipif(BIN != ROOT / "build/bin" or not (VENV / "python").exists(),
                             reason="not the build that scripts/build makes")


def shown_in_readme():
    pages = [ROOT / "README.md", *ROOT.glob("launcher/docs/*.md"), *ROOT.glob("runtime/docs/*.md")]
    blocks = [block for page in pages for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.M | re.S)]
    return [plain(line) for block in blocks for line in block.splitlines() if re.match(r"(?!#)\S*(scripts|bin)/", line)]


def plain(command):
    """The same command, whether shown for a checkout or for an installation."""
    return command.removeprefix("build/bin/")


def shown_in_help():
    return [re.split(r"  +", line.strip())[0] for line in hvdrun("--help").stdout.splitlines()
            if line.startswith("  hvdrun ")]


def run(command, **options):
    return subprocess.run(shlex.split(command), capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def in_checkout(command):
    return re.sub(r"^hvdrun", HVDRUN, command)


def trains(command, lab):
    # The installed launcher finds the installed agent, and the installed package its library.
    done = run(command, **USER)
    assert done.returncode == 0, done.stderr
    assert "2 ranks on 1 node succeeded" in done.stderr
    check_losses(done.stdout, 2)


def trains_on_hosts(command, lab):
    done = lab.run(*shlex.split(in_checkout(command)), **USER)
    assert done.returncode == 0, done.stderr
    assert "4 ranks on 2 nodes succeeded" in done.stderr
    check_losses(done.stdout, 4)
    assert lab.wait_for_no_processes() == []


def check_losses(output, size):
    losses = [float(x) for x in re.findall(rf"^\[\d\]<stdout>:rank \d of {size}: loss (\S+)$", output, re.M)]
    assert len(losses) == size and max(losses) < 0.1, output


def learns_digits(command, lab):
    done = run(in_checkout(command), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"test accuracy (\d\.\d+)", done.stdout).group(1)) >= 0.95
    assert len(re.findall(r"epoch +\d+", done.stdout)) >= 3
    assert "2 ranks on 1 node succeeded" in done.stderr


def quickstarts(command, lab):
    done = run(f"{command} --epochs 1", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout and "2 ranks on 1 node succeeded" in done.stderr


def runs_a_layer(command, lab):
    done = run(f"{command} layers", cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"\d+ passed, 0 failed, 0 skipped", done.stdout.splitlines()[-1])


def runs_a_job_file(command, lab):
    done = lab.run(*shlex.split(in_checkout(command)), **USER)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:rank 0 of 2", "[1]<stdout>:rank 1 of 2"]
    assert lab.wait_for_no_processes() == []


SERVICE = [  # in their order
    "hvdrun cluster add lab -H node1,node2",
    "hvdrun submit -c lab -f job.json --mount-root /data",
    "hvdrun ps",
    "hvdrun logs -f job",
    "hvdrun wait job",
]


def serves(command, lab):
    """With those that go before it, on records of its own, which all hosts see and nobody else uses."""
    state = lab.shared / f"state-{SERVICE.index(command)}"
    options = {**USER, "env": {**USER["env"], "XDG_STATE_HOME": str(state)}}
    for one in SERVICE[:SERVICE.index(command) + 1]:
        done = lab.run(*shlex.split(in_checkout(one)), **options)
        assert done.returncode == 0, (one, done.stderr)
    expected = {"cluster": "lab     hvdrun", "submit": "what it prints: hvdrun logs -f job\n", "ps": "job     lab", "logs": "rank 0 of 2"}
    assert expected.get(command.split()[1], "") in done.stdout
    assert command.split()[1] in ("cluster",) or lab.run(HVDRUN, "wait", "job", **options).returncode == 0
    assert lab.wait_for_no_processes() == []


def plans(command, lab):
    done = run(in_checkout(command), **USER)
    assert done.returncode == 0, done.stderr
    assert re.search(r"node1\b.*\n(.*\n)*.*node2\b", done.stdout), done.stdout


def checks_hosts(command, lab):
    done = lab.run(*shlex.split(in_checkout(command)), **USER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 hosts checked" in done.stdout and "a job could start" in done.stdout
    assert lab.wait_for_no_processes() == []


def tells_what_is_built(command, lab):
    done = run(in_checkout(command), cwd=ROOT)
    assert done.returncode == 0 and "[X] local" in done.stdout and "NCCL" in done.stdout, done.stdout


def measures(command, lab):
    done = lab.run(*shlex.split(in_checkout(command)), "--max", "64K", "--iters", "3", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "4 ranks on 2 nodes" in done.stdout and "# Out of bounds values : 0 OK" in done.stdout


def checks_the_gpu(command, lab):
    done = run(command + " --help", cwd=ROOT)
    assert done.returncode == 0 and "scripts/gpu-check" in done.stdout
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        done = run(command, cwd=ROOT)
        assert done.returncode == 77 and "there is no GPU on this machine" in done.stderr


def brings_the_folder(command, lab):
    folder = lab.shared / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("import os, pathlib; pathlib.Path('model.pt').touch(); print(os.getcwd())\n")
    done = lab.run(*shlex.split(in_checkout(command)), **{**USER, "cwd": folder})
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\[\d\]<stdout>:/root/.cache/hvdrun/folders/folder-", done.stdout, re.M)) == 2, done.stdout
    assert "--sync-back" not in command or (folder / "synced-back/node2/model.pt").exists()
    assert lab.wait_for_no_processes() == []


COMMANDS = {
    "hvdrun --sync -np 2 -H node1,node2 python train.py": brings_the_folder,
    "hvdrun --sync --sync-back '*.pt' -np 2 -H node1,node2 python train.py": brings_the_folder,
    "./scripts/quickstart": quickstarts,
    "./scripts/test": runs_a_layer,
    "hvdrun -np 2 build/venv/bin/python configs/examples/digits_torch.py": learns_digits,
    "hvdrun -np 2 python train.py": trains,
    "hvdrun -np 4 -H node1:2,node2:2 python train.py": trains_on_hosts,
    "hvdrun plan -np 4 -H node1:2,node2:2 python train.py": plans,
    "hvdrun bench allreduce -np 4 -H node1:2,node2:2": measures,
    "hvdrun check -H node1:2,node2:2": checks_hosts,
    "hvdrun -f job.json -H node1,node2 --mount-root /data": runs_a_job_file,
    "hvdrun --check-build": tells_what_is_built,
    "scripts/gpu-check": checks_the_gpu,
    **dict.fromkeys(SERVICE, serves),
}
NEED_HOSTS = (brings_the_folder, trains_on_hosts, checks_hosts, measures, runs_a_job_file, serves)


def test_no_command_is_shown_that_is_not_run_here():
    assert set(shown_in_readme()) | set(shown_in_help()) == set(COMMANDS)


@IN_TREE
@pytest.mark.parametrize("command", [c for c, how in COMMANDS.items() if how not in NEED_HOSTS])
def test_command(command):
    COMMANDS[command](command, None)


@IN_TREE
@pytest.mark.parametrize("command", [c for c, how in COMMANDS.items() if how in NEED_HOSTS])
def test_command_on_hosts(command, lab2):
    COMMANDS[command](command, lab2)


def test_the_hostfile_that_we_show():
    done = hvdrun("plan", "--json", "--hostfile", ROOT / "configs/hostfile", "python", "train.py")
    assert done.returncode == 0, done.stderr
    nodes = [(node["host"], len(node["ranks"])) for node in json.loads(done.stdout)["nodes"]]
    assert nodes == [("node1", 2), ("node2", 2), ("node03", 2), ("node04", 2)]


@IN_TREE
@pytest.mark.parametrize("name", ["hvdrun", "horovodrun"])
def test_pip_installs_the_command(name):
    """horovodrun says which Horovod it stands for, since programs compare that number."""
    version = re.search(r'^__version__ = "(.*)"', (ROOT / "runtime/python/horovod/__init__.py").read_text(), re.M).group(1)
    versions = {"hvdrun": hvdrun("--version").stdout, "horovodrun": f"{version}\n"}
    done = subprocess.run([VENV / name, "--version"], capture_output=True, text=True, cwd="/", timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout == versions[name]
    done = subprocess.run([VENV / name, "--help"], capture_output=True, text=True, cwd="/", timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout == hvdrun("--help").stdout


@IN_TREE
def test_a_second_setup_finds_nothing_to_do():
    before = (ROOT / "build/venv/.made-from").stat().st_mtime_ns
    done = run("scripts/setup --test", cwd=ROOT, env=USER["env"])
    assert done.returncode == 0, done.stderr
    assert "making" not in done.stderr
    assert not re.search(r"installing with pip: (?!mpi4py)", done.stderr)  # optional: tried again when it failed
    assert (ROOT / "build/venv/.made-from").stat().st_mtime_ns == before
