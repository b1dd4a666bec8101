#!/usr/bin/env python3
"""Compiles each header by itself: whoever includes it needs to include nothing first. hvd.h also as C99.

Usage: scripts/headers_alone.py        Results are kept in build/headers-alone, by what went into them, and by the compiler cache.

Reading the standard library takes most of the time, so that clang, where it is there, has it precompiled. Whether a header includes
what it uses of that is then looked up in standard_names.py.

Headers are compiled in sequences: of two neighbours the second includes the first, directly or not. So before each header stands
nothing that it does not include itself, and one compilation shows it of all. What each uses of the standard library is looked up,
since the first one's would be there for the others as well.

A header that comes first in a file of the product, or in one of its units of several files (HVD_UNITY), is left to that file's
compiler, which has shown the same. Tests' files do not count, since build/main may have none.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import standard_names

ROOT = pathlib.Path(__file__).resolve().parents[1]
CACHE = ROOT / "build/headers-alone"
CLANG = "clang++-14"
CXX = os.environ.get("CXX") or (CLANG if shutil.which(CLANG) else "g++")
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", f"-I{ROOT}/runtime/include",
         '-DHVD_VERSION=""', '-DFAKE_CUDA_LIBRARY=""', '-DFAKE_NCCL_LIBRARY=""']
# Beside what scripts/common.sh says of the compiler cache.
CCACHE = shutil.which("ccache")
CCACHE_SETTINGS = {"CCACHE_NOHASHDIR": "1", "CCACHE_DEPEND": "1", "CCACHE_BASEDIR": str(ROOT),
                   "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}  # fmt: skip
# Where the build has found CUDA's headers.
CUDA = re.compile(r"^HVD_CUDA_INCLUDE:PATH=(/.*)$", re.M)
C_HEADERS = {"runtime/include/hvd/hvd.h"}
# The list of what the sanitizers' builds precompile.
STANDARD = re.compile(r"set\(HVD_STANDARD_HEADERS ([^)]*)\)")
INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def closure(path, seen):
    """The header's text and that of every header of ours that it reaches."""
    if path in seen:
        return
    text = path.read_bytes()
    seen[path] = text
    for name in INCLUDE.findall(text):
        for folder in (ROOT, ROOT / "runtime/include"):
            if (folder / os.fsdecode(name)).is_file():
                closure(folder / os.fsdecode(name), seen)


def not_included(header):
    """None, or what it uses of the standard library without including it."""
    seen = {}
    closure(ROOT / header, seen)
    included = {os.fsdecode(name) for text in seen.values() for name in INCLUDE.findall(text)}
    missing = standard_names.not_included((ROOT / header).read_text(), included)
    return f"{header} does not include what it uses: {', '.join(missing)}" if missing else None


def sequences(headers, closures):
    """The fewest sequences that have every header once, each of which is included by the next.

    That is the least cover of the inclusions by paths, found as a matching (D. R. Fulkerson, 1956: "Note on Dilworth's decomposition
    theorem for partially ordered sets").
    """
    includers = {header: [other for other in headers if other != header and ROOT / header in closures[other]] for header in headers}
    before = {}

    def is_placed(header, tried):
        for other in includers[header]:
            if other not in tried:
                tried.add(other)
                if other not in before or is_placed(before[other], tried):
                    before[other] = header
                    return True
        return False

    for header in headers:
        is_placed(header, set())
    after = {header: other for other, header in before.items()}
    found = []
    for header in headers:
        if header not in before:
            found.append([header])
            while found[-1][-1] in after:
                found[-1].append(after[found[-1][-1]])
    return found


def check(job):
    """None, or what the compiler says."""
    headers, language, compiler = job
    seen = {}
    closure(ROOT / headers[-1], seen)
    content = b"".join(str(p.relative_to(ROOT)).encode() + b"\0" + seen[p] for p in sorted(seen))
    key = CACHE / hashlib.sha256(repr((compiler, FLAGS, headers, language)).encode() + content).hexdigest()
    if key.exists():
        return None
    flags = [flag.replace("c++20", "c99") if language == "c" else flag for flag in FLAGS]
    before = compiler[2] if language == "c++" else []
    done = compiled(headers, [compiler[0], *before, *flags], language)
    if done.returncode:
        return f"{', '.join(headers)} ({language}): one of them does not compile alone:\n{done.stderr}"
    key.touch()
    return None


def compiled(headers, command, language):
    """What became of the compiler."""
    text = "".join(f'#include "{header}"\n' for header in headers)
    if not CCACHE:
        return subprocess.run([*command, "-fsyntax-only", "-x", language, "-"], input=text, text=True, capture_output=True, cwd=ROOT)
    # The compiler cache wants a file that becomes an object.
    source = CACHE / f"{headers[-1].replace('/', '.')}.{'c' if language == 'c' else 'cpp'}"
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    made = source.with_suffix(".o")
    done = subprocess.run([CCACHE, *command, "-MD", "-c", str(source), "-o", str(made)], text=True, capture_output=True, cwd=ROOT,
                          env={**os.environ, **CCACHE_SETTINGS})  # fmt: skip
    for left in (made, made.with_suffix(".d")):
        left.unlink(missing_ok=True)
    return done


def precompiled(version):
    """The flags by which clang takes the standard library as precompiled; none for another compiler."""
    if "clang" not in version:
        return []
    names = STANDARD.search((ROOT / "CMakeLists.txt").read_text())[1].split()
    # Else the file's time is in it, and the compiler cache takes each one for another. And the templates that it uses are compiled
    # once instead of in each file.
    flags = [*FLAGS, "-Xclang", "-fno-pch-timestamp", "-fpch-instantiate-templates"]
    key = hashlib.sha256(repr((version, flags, names)).encode()).hexdigest()
    made = CACHE / f"{key}.pch"
    if not made.exists():
        part = made.with_suffix(f".{os.getpid()}")
        header = made.with_suffix(".h")
        header.write_text("".join(f"#include {name}\n" for name in names))
        subprocess.run([CXX, *flags, "-x", "c++-header", str(header), "-o", str(part)], check=True, cwd=ROOT)
        part.replace(made)
    return ["-include-pch", str(made)]


def proven_by_build():
    """The headers that come first in what build/main compiles."""
    try:
        commands = json.loads((ROOT / "build/main/compile_commands.json").read_text())
    except OSError:
        return set()
    proven = set()
    for command in commands:
        file = pathlib.Path(command["file"])
        if "cmake_pch" in command["command"] or not file.is_file():
            continue
        first = first_in(file)
        if file.is_relative_to(ROOT / "build"):  # of several files
            file = pathlib.Path(first or file)
            first = first_in(file)
        if first and file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / "tests"):
            proven.add(first)
    return proven


def first_in(file):
    """What a file includes first; None: nothing."""
    first = INCLUDE.search(file.read_bytes())
    return os.fsdecode(first.group(1)) if first else None


def cuda_flags():
    """Empty: the build has no CUDA, and leaves out what needs it."""
    try:
        found = CUDA.search((ROOT / "build/main/CMakeCache.txt").read_text())
    except OSError:
        return []
    return ["-isystem", found.group(1)] if found else []


def needs_cuda(header):
    return b"<cuda.h>" in (ROOT / header).read_bytes()


def main():
    CACHE.mkdir(parents=True, exist_ok=True)
    FLAGS[:0] = cuda_flags()
    headers = [str(p.relative_to(ROOT)) for folder in ("cli", "launcher", "runtime", "tests")
               for p in sorted((ROOT / folder).rglob("*.h"))]
    version = subprocess.run([CXX, "--version"], capture_output=True, text=True, check=True).stdout
    proven = proven_by_build()
    before = precompiled(version)
    compilable = [header for header in headers if cuda_flags() or not needs_cuda(header)]
    missing = [text for header in compilable if header not in proven and (text := not_included(header))]
    closures = {header: {} for header in compilable}
    for header, seen in closures.items():
        closure(ROOT / header, seen)
    found = sequences([header for header in compilable if header not in proven], closures)
    jobs = [(part, "c++", (CXX, version, before)) for part in found]
    jobs += [([header], "c", (CXX.replace("clang++", "clang").replace("g++", "gcc"), version, [])) for header in headers if header in C_HEADERS]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("HVD_JOBS", os.cpu_count() or 1))) as pool:
        failures = missing + [text for text in pool.map(check, jobs) if text]
    for text in failures:
        print(text)
    print(f"headers_alone: {sum(map(len, found))} headers in {len(found)} compilations, {len(failures)} failures; "
          f"{len(proven & set(headers))} are first in a file of build/main", file=sys.stderr)  # fmt: skip
    return 1 if failures or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
