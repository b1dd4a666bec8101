#!/usr/bin/env python3
"""Fetches the sources of the libraries that a wheel links, from Debian's source packages.

Usage: scripts/wheel_sources.py FOLDER      leaves FOLDER/NAME for each library, and FOLDER/versions.txt

The machine's own package sources are used, as source entries and for the suites below. So its mirror serves here too,
and apt checks Debian's signature on all that arrives. Nothing of the machine's own apt state is changed.
"""

import pathlib
import re
import shutil
import subprocess
import sys

# The newest suite comes first. A mirror may lack the newest version of a package: an older one, then the older suite serve.
SUITES = ("trixie", "bookworm")
# Name of a source package, and the oldest version that serves.
PACKAGES = {
    "openssl": "3.0",
    "sqlite3": "3.40",
    "yaml-cpp": "0.7",
    "libssh2": "1.11",
    "spdlog": "1.10",
    "fmtlib": "9.1",
    "cli11": "2.1",
    "nlohmann-json3": "3.11",
    "doctest": "2.4",
}
APT = pathlib.Path("/etc/apt")


def die(message):
    sys.exit(f"wheel_sources.py: {message}")


def codename():
    """The suite that the machine's own entries name, such as "bookworm"."""
    found = re.search(r"^VERSION_CODENAME=(\S+)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)
    return found[1] if found else die("/etc/os-release names no VERSION_CODENAME; wheels are made on Debian")


def source_entries(own, suite):
    """The machine's entries for its own suite, as entries of sources for `suite`: in deb822 and one-line form."""

    def renamed(names):
        return " ".join(re.sub(rf"^{own}\b", suite, name) for name in names.split())

    stanzas, lines = [], []
    for file in sorted(APT.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            kept = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
            names = re.search(r"^Suites:(.*)$", kept, re.MULTILINE)
            if names and all(name.startswith(own) for name in names[1].split()):
                kept = re.sub(r"^Types:.*$", "Types: deb-src", kept, flags=re.MULTILINE)
                stanzas.append(re.sub(r"^Suites:.*$", f"Suites: {renamed(names[1])}", kept, flags=re.MULTILINE))
    for file in [APT / "sources.list", *sorted(APT.glob("sources.list.d/*.list"))]:
        for line in file.read_text().splitlines() if file.is_file() else []:
            parts = re.match(rf"deb\s+(\[[^]]*\]\s+)?(\S+)\s+({own}\S*)\s+(.*)$", line.strip())
            if parts:
                lines.append(f"deb-src {parts[1] or ''}{parts[2]} {renamed(parts[3])} {parts[4]}")
    return "\n\n".join(stanzas), "\n".join(lines)


class Suite:
    """The sources of one suite, with apt lists of their own."""

    def __init__(self, folder, own, name):
        self.name = name
        state = folder / "apt" / name
        parts = state / "parts"
        for needed in (state / "lists/partial", state / "cache/archives/partial", parts):
            needed.mkdir(parents=True, exist_ok=True)
        stanzas, lines = source_entries(own, name)
        if not stanzas and not lines:
            die(f"no entry for '{own}' in {APT}/sources.list or {APT}/sources.list.d; source entries are made from these")
        (parts / "wheel.sources").write_text(stanzas + "\n")
        (parts / "wheel.list").write_text(lines + "\n")
        self.options = ["-oDir::Etc::sourcelist=-", f"-oDir::Etc::sourceparts={parts}", f"-oDir::State::lists={state}/lists",
                        f"-oDir::Cache={state}/cache", "-oAcquire::Retries=3"]
        self.apt("apt-get", "update", "-q")

    def apt(self, program, *arguments, folder=None):
        return subprocess.run([program, *self.options, *arguments], cwd=folder, text=True, capture_output=True)

    def versions(self, package):
        """Newest first."""
        shown = self.apt("apt-cache", "showsrc", "--only-source", package).stdout
        found = dict.fromkeys(re.findall(r"^Version: (\S+)", shown, re.MULTILINE))
        order = subprocess.run(["sort", "-rV"], input="\n".join(found), text=True, capture_output=True, check=True)
        return order.stdout.split()


def is_at_least(version, least):
    plain = re.sub(r"^\d+:", "", version)
    return subprocess.run(["dpkg", "--compare-versions", plain, "ge", least]).returncode == 0


def fetch(package, least, suites, folder):
    """Unpacks the newest version that a mirror has, with Debian's patches, into FOLDER/NAME. Returns the version."""
    work = folder / "unpacked" / package
    said = []
    for suite in suites:
        for version in suite.versions(package):
            if not is_at_least(version, least):
                continue
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            done = suite.apt("apt-get", "source", "--only-source", f"{package}={version}", folder=work)
            trees = [entry for entry in work.iterdir() if entry.is_dir()]
            if done.returncode == 0 and len(trees) == 1:
                shutil.rmtree(folder / package, ignore_errors=True)
                trees[0].rename(folder / package)
                return f"{version} ({suite.name})"
            said += [line for line in done.stderr.splitlines() if line.startswith("E:")][:1]
    return die(f"no source of {package} {least} or newer from {' or '.join(s.name for s in suites)}; apt said: "
               + ("; ".join(said) or "nothing of that name"))


def main():
    if len(sys.argv) != 2:
        die("usage: scripts/wheel_sources.py FOLDER")
    for program, package in (("apt-get", "apt"), ("dpkg-source", "dpkg-dev")):
        if not shutil.which(program):
            die(f"no {program} here; the package {package} has it, on Debian")
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    own = codename()
    suites = [Suite(folder, own, name) for name in SUITES]
    lines = [f"{package} {fetch(package, least, suites, folder)}" for package, least in PACKAGES.items()]
    (folder / "versions.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
