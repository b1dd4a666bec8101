#!/usr/bin/env python3
"""Checks what a wheel of scripts/wheel promises by its name: files, architecture, glibc, licences, size.

Usage: scripts/wheel_check.py WHEEL...      prints one line for each wheel, or what is wrong; needs pyelftools
"""

import io
import pathlib
import re
import sys
import zipfile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

MAX_BYTES = 12_000_000
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
# All that a program or library of ours may ask of a system: the parts of glibc, and the loader.
OF_GLIBC = re.compile(r"(lib(c|m|dl|rt|pthread|resolv|util)\.so\.\d|ld-linux-(x86-64|aarch64)\.so\.\d)$")
PROGRAMS = ("hvdrun", "hvdrun-agent")
LIBRARIES = ("libhvd.so", "libhvd_xla.so", "libhvd_tensorflow.so")
LICENCES = ("openssl", "sqlite3", "yaml-cpp", "libssh2", "spdlog", "fmtlib", "cli11", "nlohmann-json3", "libcxx", "musl", "glibc")
# With this, libssh2 names itself to a server. Older ones know no keys and ciphers that today's servers ask for.
LIBSSH2 = re.compile(rb"SSH-2\.0-libssh2_1\.1[1-9]")
# A block of device code begins so.
DEVICE_CODE = bytes.fromhex("50ed55ba")
# Where this checkout lies is nothing that a wheel should tell.
CHECKOUT = str(pathlib.Path(__file__).resolve().parents[1]).encode()


def version(text):
    return tuple(int(number) for number in text.split("."))


class Program:
    """What an ELF file says of itself."""

    def __init__(self, data):
        elf = ELFFile(io.BytesIO(data))
        self.machine = elf["e_machine"]
        self.is_static = not any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments())
        self.libraries, self.glibc = [], (0,)
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                self.libraries += [tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
            if isinstance(section, GNUVerNeedSection):
                for _, names in section.iter_versions():
                    found = [version(name.name[6:]) for name in names if re.match(r"GLIBC_\d", name.name)]
                    self.glibc = max([self.glibc, *found])


def faults(wheel):
    """Returns what is wrong with it, and the highest glibc version of any file in it."""
    found, highest = [], (0,)
    name = re.match(r"hvdrun-[\w.]+-py3-none-manylinux_(\d+)_(\d+)_(x86_64|aarch64)\.whl$", wheel.name)
    if not name:
        return ["its name must be hvdrun-VERSION-py3-none-manylinux_X_Y_ARCH.whl"], highest
    promised, arch = (int(name[1]), int(name[2])), name[3]
    if wheel.stat().st_size > MAX_BYTES:
        found.append(f"it has {wheel.stat().st_size:,} bytes; {MAX_BYTES:,} are the limit")
    with zipfile.ZipFile(wheel) as archive:
        files = {item.filename: archive.read(item) for item in archive.infolist()}
    # What is to be there, by the last part of its path, and for which architecture.
    expected = {f".data/scripts/{program}": arch for program in PROGRAMS}
    expected |= {f".data/scripts/hvdrun-agent-{other}": other for other in MACHINES if other != arch}
    expected |= {f"horovod/lib/{library}": arch for library in LIBRARIES}
    for ending, machine in expected.items():
        data = next((data for file, data in files.items() if file.endswith(ending)), None)
        if data is None:
            found.append(f"{ending} is missing")
            continue
        program = Program(data)
        if program.machine != MACHINES[machine]:
            found.append(f"{ending} is for {program.machine}, not {machine}")
        if "hvdrun-agent" in ending and (not program.is_static or program.libraries):
            found.append(f"{ending} is not static; a host may lack what it loads")
    if not any(file.endswith(".data/scripts/horovodrun") for file in files):
        found.append(".data/scripts/horovodrun is missing")
    if not any(LIBSSH2.search(data) for file, data in files.items() if file.endswith(".data/scripts/hvdrun")):
        found.append("hvdrun has no libssh2 of 1.11 or later in it, so it would need the system's ssh")
    if not any(DEVICE_CODE in data for file, data in files.items() if file.endswith("horovod/lib/libhvd.so")):
        found.append("libhvd.so has no device code in it, so it would copy what lies on a GPU to the host and back")
    for file, data in files.items():
        if data[:4] != b"\x7fELF":
            continue
        program = Program(data)
        highest = max(highest, program.glibc)
        if program.glibc > promised:
            found.append(f"{file} needs glibc {'.'.join(map(str, program.glibc))}, and the name says {name[1]}.{name[2]}")
        others = [library for library in program.libraries if not OF_GLIBC.match(library) and library not in LIBRARIES]
        if others:
            found.append(f"{file} needs {', '.join(others)}, which a system may lack")
        if CHECKOUT in data:
            found.append(f"{file} has a path of the machine that made it: {CHECKOUT.decode()}")
    for licence in LICENCES:
        if not any(file.endswith(f".dist-info/licenses/{licence}.txt") for file in files):
            found.append(f"the licence of {licence} is missing")
    return found, highest


def main():
    is_wrong = False
    for argument in sys.argv[1:] or sys.exit("usage: scripts/wheel_check.py WHEEL..."):
        wheel = pathlib.Path(argument)
        wrong, highest = faults(wheel)
        is_wrong = is_wrong or bool(wrong)
        for line in wrong:
            print(f"{wheel.name}: {line}")
        if not wrong:
            print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, needs glibc {'.'.join(map(str, highest))} or newer")
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
