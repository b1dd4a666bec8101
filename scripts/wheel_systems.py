#!/usr/bin/env python3
"""Tries a wheel of scripts/wheel on other systems: Debian from 2021 to the newest, each with its own glibc and Python.

Usage: scripts/wheel_systems.py WHEEL [SUITE...]      default: all of SUITES; prints one line for each

Makes a root of each suite in build/wheel-systems, with Python, numpy and nothing to compile with. There it installs the
wheel in a new environment without a network, and runs tests/support/try_wheel.py in it. Needs root, and the packages
mmdebstrap, debian-archive-keyring and util-linux. The machine's own package sources are used. Not a part of test and
CI: it loads some hundred megabytes.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import zipfile

import wheel_sources

SUITES = ("bullseye", "bookworm", "trixie", "sid")
ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/wheel-systems"
SECONDS = 600


def die(message):
    sys.exit(f"wheel_systems.py: {message}")


def mirror():
    """The address and components of the machine's own package source."""
    stanzas, lines = wheel_sources.source_entries(wheel_sources.codename(), "SUITE")
    fields = dict(line.split(": ", 1) for line in stanzas.split("\n\n")[0].splitlines() if ": " in line)
    if fields:
        return f"{fields['URIs'].split()[0]} SUITE {fields['Components']}"
    found = [line.split("]")[-1].removeprefix("deb-src").strip() for line in lines.splitlines() if " SUITE " in line]
    return found[0] if found else die(f"no entry of this system in {wheel_sources.APT}/sources.list or sources.list.d")


def make_root(suite):
    """Makes the root of a suite, unless an earlier run did, and returns it."""
    root = FOLDER / suite
    if (root / ".complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    # A mirror may be a copy of some day: its signature is checked, and its age is not.
    made = subprocess.run(["mmdebstrap", "--aptopt=Acquire::Check-Valid-Until \"false\"", "--variant=minbase", "--include=python3,python3-venv,python3-numpy", suite, root,
                           f"deb {mirror().replace('SUITE', suite)}"], text=True, capture_output=True)
    if made.returncode != 0:
        errors = [line for line in made.stderr.splitlines() if line.startswith("E: ")]
        die(f"no root of {suite}; mmdebstrap said: " + (errors[0] if errors else made.stderr.strip()[-200:]))
    (root / ".complete").touch()
    return root


def bring(wheel, root):
    """Puts what the trial needs into the root, also cloudpickle, which is pure Python and the same for every version."""
    to = root / "trial"
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    shutil.copy(wheel, to)
    shutil.copy(ROOT / "tests/support/try_wheel.py", to)
    subprocess.run([sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps", "-d", to,
                    "cloudpickle"], check=True)


def run_in(root, command):
    """Runs it in the root, with mounts and processes of its own; none of them is left."""
    mounts = f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && mount -t tmpfs tmpfs {root}/dev/shm"
    enter = f"{mounts} && exec chroot {root} env -i HOME=/root PATH=/usr/bin:/bin sh -c {shlex.quote(command)}"
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--net", "sh", "-c",
                           "ip link set lo up && " + enter], text=True, capture_output=True, timeout=SECONDS)


def main():
    if len(sys.argv) < 2 or not zipfile.is_zipfile(sys.argv[1]):
        die("usage: scripts/wheel_systems.py WHEEL [SUITE...]")
    if os.geteuid() != 0:
        die("a root of another system can be made and entered by root only")
    for program in ("mmdebstrap", "unshare"):
        shutil.which(program) or die(f"no {program} here; apt-get install mmdebstrap debian-archive-keyring util-linux")
    FOLDER.mkdir(parents=True, exist_ok=True)
    has_failed = False
    for suite in sys.argv[2:] or SUITES:
        root = make_root(suite)
        bring(pathlib.Path(sys.argv[1]), root)
        tried = run_in(root, "python3 /trial/try_wheel.py")
        has_failed = has_failed or tried.returncode != 0
        said = tried.stdout.strip() if tried.returncode == 0 else "FAILED\n" + tried.stdout + tried.stderr
        print(f"{suite}: {said}", flush=True)
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
