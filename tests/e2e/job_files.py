"""Job files for the end-to-end tests: a place with mounts, a home and stubs of programs, which record what they get."""

import json
import os
import pathlib
import re
import sys

from hvdrun import ROOT, hvdrun
from patience import PATIENCE

JOBS = ROOT / "configs/jobs"
GOLDEN = ROOT / "tests/golden/jobs"
# The Azure tutorial's own file where it is here.
TUTORIAL = pathlib.Path(os.environ.get("HVD_BATCHAI_JOBS", ROOT.parent / "shared/data/batchai-jobs")) / "tutorial-cifar.json"
ACCOUNT = ["--storage-account-name", "account"]
NODES = "localhost,127.0.0.1,127.0.0.2,127.0.0.3"  # each a node of its own, and all this machine

STUB = """#!{python} -S
import json, os, sys, time
names = ("RANK", "WORLD_SIZE", "TF_CONFIG", "CHECKPOINTS", "GREETING", "API_TOKEN", "NCCL_DEBUG")
env = {{k: v for k, v in os.environ.items() if k.startswith("AZ_") or k in names}}
record = {{"argv": [os.path.basename(sys.argv[0])] + sys.argv[1:], "cwd": os.getcwd(), "env": env}}
name = os.environ.get("RANK", "0")
with open(os.path.join(os.environ["STUB_RECORDS"], name + ".json"), "w") as file:
    json.dump(record, file)
# A parameter server is ended with the workers, and they are to give it the time to record.
late = time.monotonic() + {patience}
while "TF_CONFIG" in env and len(os.listdir(os.environ["STUB_RECORDS"])) < int(env["WORLD_SIZE"]):
    if time.monotonic() > late:
        sys.exit("not all ranks have recorded")
    time.sleep(0.01)
print("stdout of", name)
print("stderr of", name, file=sys.stderr)
"""


def make_share(folder, train):
    """A file share with stubs of what the tutorial's job calls; `train` is its python."""
    (folder / "myshare/cifar").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name, text in (("python", train), ("apt", "#!/bin/sh\necho apt \"$@\"\n"),
                       ("pip", "#!/bin/sh\necho pip \"$@\"\necho note >&2\n")):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder


class Place:
    """Mounts, a home, a PATH with stubs, and what these record."""

    def __init__(self, path):
        self.path = path
        self.records = path / "records"
        self.bin = path / "bin"
        for folder in (self.records, self.bin, path / "home", *(path / "data" / n for n in ("work", "data", "external"))):
            folder.mkdir(parents=True)
        for name in ("python", "python3", "caffe", "mpirun"):
            self.program(name, STUB.format(python=sys.executable, patience=PATIENCE))
        self.program("pip", "#!/bin/sh\necho pip \"$@\"\necho pip err >&2\n")

    def program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def program_at(self, name, text):
        self.program(name, text)
        return self.bin / name

    @property
    def env(self):
        return {**os.environ, "HOME": str(self.path / "home"), "PATH": f"{self.bin}:/usr/bin:/bin",
                "STUB_RECORDS": str(self.records)}

    def arguments(self, file, *more, hosts=NODES, mounts=True):
        where = ["--mount-root", self.path / "data"] if mounts else []
        return ["-f", file, "-H", hosts, *where, "--container", "none", "--launcher", "ssh", *ACCOUNT, *more]

    def run(self, file, *more, **options):
        return hvdrun(*self.arguments(file, *more, **options), env=self.env)

    def write(self, text, name="job.yaml"):
        (self.path / name).write_text(text)
        return self.path / name

    def kept(self):
        """{name: text} of the files of the one run that there was."""
        folders = list((self.path / "data").rglob("stdouterr")) + list((self.path / "home").rglob("hvdrun/jobs/*/*"))
        folders = [f for f in folders if list(f.glob("*"))]
        assert len(folders) == 1, folders
        return {f.name: f.read_text() for f in folders[0].iterdir()}

    def recorded(self):
        """What each rank got, without what differs from run to run."""
        def plain(text):
            text = re.sub(rf"{re.escape(str(ROOT))}\b", "CHECKOUT", text.replace(str(self.path), "TEST"))
            text = re.sub(r"hvdrun-job-[0-9a-f]{16}", "hvdrun-job-ID", text)
            text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}", "UUID", text)
            return re.sub(r"(?<![\d.])(\d+\.){3}\d+(:\d+)?", lambda m: "ADDRESS" + (":PORT" if m[2] else ""), text)

        return json.loads(plain(json.dumps([json.loads(f.read_text()) for f in sorted(self.records.iterdir())])))


def raises_with_token(folder):
    """A program that fails after hvd.init() with an exception that names $TOKEN."""
    path = folder / "raises.py"
    path.write_text(f"import os, sys\nsys.path.insert(0, {str(ROOT / 'runtime/python')!r})\n"
                    "from horovod.common import basics\nbasics.init()\n"
                    "raise RuntimeError('401 for token ' + os.environ['TOKEN'])\n")
    return path


def left_folders():
    return set(pathlib.Path("/tmp").glob("hvdrun-job-*"))


SAMPLES = sorted(p.name for p in JOBS.iterdir() if p.name != "local.yaml")
