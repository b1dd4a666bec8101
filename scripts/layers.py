#!/usr/bin/env python3
"""The house rules that a compiler does not check. One table, below; printed by --explain.

Usage: scripts/layers.py [--explain] [--write] [--root FOLDER]
One line per violation, FILE:LINE: what is wrong; exit code 1 when there is one. --write fills the column "may use" in the
tables of rooms (launcher/README.md, runtime/README.md) from the table below.
"""

import argparse
import ast
import collections
import fnmatch
import io
import pathlib
import re
import sys
import tokenize

BASE = "runtime/base"
IO = "runtime/io"

# EDGES says which folder may include which others (its own and the C++ library are always allowed). The most specific
# key counts.
EDGES = {
    "cli": ["cli/options", "cli/foreign", "launcher/survey", "launcher/live", "launcher/samples", "launcher/status", "launcher/stacks", "launcher/timeline", "launcher/http", "launcher/portal", "launcher/wire", "launcher/jobfile", "launcher/job", "launcher/placement", "launcher/logs", "launcher/engines",
            "launcher/ssh", "launcher/transport", "launcher/offers", "launcher/joining", "launcher/sessions", "launcher/state", "launcher/run", "launcher/steps", "launcher/check", "launcher/report",
            "launcher/chart", "launcher/service", "launcher/process", IO, BASE, "runtime/bench"],
    # The commands that ask a running job.
    "cli/live": ["cli", "cli/options", "launcher/live", "launcher/process", "launcher/samples", "launcher/stacks", "launcher/status", "launcher/state", "launcher/service", "launcher/wire", BASE],
    "cli/agent_main.cpp": ["launcher/agent", "launcher/wire", "launcher/state", "launcher/process", "runtime/bench", "runtime/rendezvous", IO, BASE],
    # Words become settings.
    "cli/foreign": [BASE],
    "cli/options": ["cli/foreign", "launcher/live", "launcher/jobfile", "launcher/job", "launcher/allocations", "launcher/engines", "launcher/transport", "launcher/command", "launcher/run", "launcher/process", BASE,
                    "runtime/bench"],
    "launcher/job": [BASE],
    "launcher/placement": ["launcher/job", BASE],
    "launcher/jobfile": ["launcher/placement", "launcher/job", BASE],
    # The service holds records and supervisors, but no loop of a running job: commands that only look do not need one.
    "launcher/service": ["launcher/jobfile", "launcher/job", "launcher/process", BASE],
    # The service for a browser.
    "launcher/portal": ["launcher/http", "launcher/page", "launcher/service", BASE],
    # What tells a job that runs which nodes it has.
    "launcher/service/granted_nodes.h": ["launcher/offers", IO, BASE],
    "launcher/service/granted_nodes.cpp": ["launcher/offers", IO, BASE],
    # What a job that runs writes to its record.
    "launcher/service/loop_writes.h": [IO, BASE],
    "launcher/service/loop_writes.cpp": [IO, BASE],
    "launcher/service/job_store.cpp": ["launcher/state", BASE],
    "launcher/process": [IO, BASE],
    "launcher/post_mortem": ["launcher/process", BASE],
    "launcher/logs": ["launcher/job", IO, BASE],
    # What launcher, agent, relay and rank say to each other.
    "launcher/wire": ["launcher/process", BASE, "runtime/rendezvous"],
    # What a running job answers to other commands of its user.
    "launcher/live": ["launcher/wire", IO, BASE],
    # The folder that is brought to the nodes: both sides.
    "launcher/tree": ["launcher/wire", "launcher/process", IO, BASE, "runtime/rendezvous"],
    # Where the ranks of a job are, as one tree.
    "launcher/stacks": ["launcher/wire", BASE],
    # What an agent finds out about its node.
    "launcher/survey": ["launcher/wire", "launcher/process", IO, BASE, "runtime/rendezvous"],
    # What an agent measures of its node while somebody watches the job.
    "launcher/sampling": ["launcher/wire", "launcher/process", IO, BASE],
    "launcher/sampling/activity_reader.cpp": ["launcher/wire", "runtime/observe", "runtime/core", BASE],
    "launcher/agent": ["launcher/sampling", "launcher/survey", "launcher/tree", "launcher/wire", "launcher/post_mortem", "launcher/process", IO, BASE, "runtime/rendezvous"],
    # Ways to a node: the interface and what all share, then those that run a command, then libssh2's.
    "launcher/transport": ["launcher/wire", "launcher/placement", "launcher/job", "launcher/process", IO, BASE, "runtime/rendezvous"],
    "launcher/command": ["launcher/transport", "launcher/wire", "launcher/process", IO, BASE],
    "launcher/ssh": ["launcher/command", "launcher/transport", "launcher/process", IO, BASE],
    # What a batch system or a cloud says of the job in which hvdrun runs.
    "launcher/allocations": ["launcher/jobfile", "launcher/job", "launcher/process", IO, BASE],
    # Other launchers, which start our agents.
    "launcher/engines": ["launcher/command", "launcher/transport", "launcher/wire", "launcher/placement", "launcher/job",
                         "launcher/process", IO, BASE, "runtime/rendezvous"],
    # Who of an elastic job trains together.
    "launcher/membership": ["launcher/wire", "launcher/placement", IO, BASE, "runtime/rendezvous"],
    # Which hosts a running job may use.
    "launcher/offers": ["launcher/placement", "launcher/job", "launcher/process", IO, BASE],
    "launcher/joining": ["launcher/offers", "launcher/engines", "launcher/transport", "launcher/wire", "launcher/job", IO, BASE],
    # The conversations with the nodes, and which node is reached through which.
    "launcher/sessions": ["launcher/command", "launcher/transport", "launcher/wire", "launcher/placement", "launcher/job", IO, BASE],
    # A small server of HTTP.
    "launcher/http": [IO, BASE],
    # The picture of a running job.
    "launcher/samples": ["launcher/http", "launcher/live", "launcher/wire", "launcher/job", IO, BASE],
    # What a job does next.
    "launcher/state": ["launcher/offers", "launcher/transport", "launcher/placement", "launcher/job", "launcher/process", BASE, "runtime/rendezvous"],
    "launcher/run": ["launcher/live", "launcher/samples", "launcher/stacks", "launcher/tree", "launcher/state", "launcher/sessions", "launcher/joining", "launcher/membership", "launcher/offers", "launcher/engines", "launcher/command",
                     "launcher/transport", "launcher/logs",
                     "launcher/wire", "launcher/placement", "launcher/job", "launcher/process", IO, BASE, "runtime/rendezvous"],
    "launcher/check": ["launcher/sessions", "launcher/state", "launcher/run", "launcher/transport", "launcher/wire", "launcher/placement", "launcher/job", IO, BASE,
                       "runtime/rendezvous"],
    "launcher/chart": [BASE],
    "launcher/timeline": ["launcher/report", BASE],
    "launcher/status": ["launcher/report", "launcher/samples", BASE],
    "launcher/report": ["launcher/chart", "launcher/check", "launcher/state", "launcher/run", "launcher/transport", "launcher/placement", "launcher/job",
                        "runtime/bench", BASE],
    # A whole job: its steps one after the other, on the hosts that there are, with all ways to reach these.
    "launcher/steps": ["launcher/jobfile", "launcher/tree", "launcher/page", "launcher/report", "launcher/state", "launcher/run", "launcher/joining", "launcher/sessions", "launcher/offers", "launcher/engines", "launcher/ssh",
                       "launcher/command", "launcher/transport", "launcher/logs", "launcher/placement", "launcher/job", "launcher/process", IO, BASE],
    # A job's page is made of the events that programs are told.
    "launcher/page": ["launcher/report", "launcher/samples", "launcher/run", "launcher/placement", "launcher/job", BASE],
    "runtime/include": [],
    BASE: [],
    IO: [BASE],
    "runtime/rendezvous": [IO, BASE],
    "runtime/core": [BASE],
    "runtime/device": ["runtime/core", BASE],
    "runtime/observe": ["runtime/core", BASE],
    "runtime/link": ["runtime/core", "runtime/rendezvous", IO, BASE],
    "runtime/algo": ["runtime/link", "runtime/core", BASE],
    "runtime/backend": ["runtime/algo", "runtime/link", "runtime/core", BASE],
    "runtime/mpi": ["runtime/backend", "runtime/algo", "runtime/rendezvous", "runtime/core", IO, BASE],
    "runtime/nccl": ["runtime/device", "runtime/core", BASE],
    "runtime/controller": ["runtime/core", BASE],
    "runtime/execute": ["runtime/controller", "runtime/backend", "runtime/algo", "runtime/link", "runtime/observe",
                        "runtime/core", BASE],
    "runtime/execute_device": ["runtime/execute", "runtime/nccl", "runtime/controller", "runtime/backend", "runtime/device",
                               "runtime/observe", "runtime/core", BASE],
    # What the ranks do together, and in which order.
    "runtime/coordinate": ["runtime/execute", "runtime/controller", "runtime/backend", "runtime/link", "runtime/observe",
                           "runtime/rendezvous", "runtime/core", IO, BASE],
    "runtime/engine": ["runtime/coordinate", "runtime/execute_device", "runtime/execute", "runtime/controller", "runtime/backend", "runtime/link",
                       "runtime/observe", "runtime/rendezvous", "runtime/core", IO, BASE],
    "runtime/abi": ["runtime/engine", "runtime/coordinate", "runtime/execute", "runtime/mpi", "runtime/nccl", "runtime/controller", "runtime/device",
                    "runtime/observe",
                    "runtime/core", "runtime/rendezvous", "runtime/include", BASE],
    # Frameworks load this; like any other program it uses the public header alone.
    "runtime/front": ["runtime/include"],
    "runtime/bench": ["runtime/include", "runtime/core", BASE],
    "tests": ["cli", "launcher", "runtime", "tests"],
    "scripts": ["runtime", "launcher"],  # benchmarks
}

# SOLE_INCLUDERS says whose headers may be included where. No other code knows the library.
SOLE_INCLUDERS = {
    "CLI11": (r"CLI/", ["cli/options/*"]),
    "SQLite": (r"sqlite3", ["launcher/service/database.cpp"]),
    "yaml-cpp": (r"yaml-cpp/", ["launcher/job/yaml_*.cpp", "launcher/jobfile/yaml_*.cpp"]),
    "libssh2": (r"libssh2", ["launcher/ssh/*"]),
    "spdlog": (r"(spdlog|fmt)/", ["launcher/logs/spdlog_log.cpp"]),
    "OpenSSL": (r"openssl/", ["runtime/rendezvous/hmac.cpp", "runtime/rendezvous/crypto.cpp", "runtime/rendezvous/crypto_free.h", "runtime/rendezvous/gmac.cpp", "runtime/rendezvous/sha256.cpp", "launcher/ssh/*"]),
    "nlohmann-json": (r"nlohmann/", ["launcher/report/*", "launcher/status/*", "launcher/page/*", "launcher/job/*", "launcher/jobfile/*",
                                     "launcher/service/*", "launcher/stacks/*", "launcher/timeline/*", "cli/*"]),
    "Open MPI": (r"mpi\.h", ["runtime/mpi/*"]),
    "NCCL": (r"nccl", ["runtime/nccl/*"]),
    "CUDA": (r"cuda", ["runtime/device/cuda_*", "runtime/device/move_body.h"]),
    "doctest": (r"doctest/", []),
}

# These calls have one home. "::close" is matched with its colons: system calls are written so, and a method may have
# the same name.
BANNED_CALLS = {
    "getenv": (r"(?<![\w.>])(?:std::|::)?(?:secure_)?getenv\s*\(",
               ["cli/options/job_settings.cpp", "runtime/abi/config.cpp"], "take settings as arguments"),
    "system": (r"(?<![\w.>:])(?:std::|::)?system\s*\(", [], "no shell: launcher/process starts programs"),
    "popen": (r"(?<![\w.>:])(?:::)?popen\s*\(", [], "no shell: launcher/process starts programs"),
    "fork": (r"(?<![\w.>:])(?:::)?v?fork\s*\(", ["launcher/process/*", "launcher/agent/*", "launcher/survey/*"],
             "launcher/process starts programs"),
    "posix_spawn": (r"(?<![\w.>])(?:::)?posix_spawnp?\s*\(", [], "launcher/process/child.h runs programs"),
    "pidfd_open": (r"\bSYS_pidfd_open\b|(?<![\w.>])(?:::)?pidfd_open\s*\(", ["launcher/process/other_process.cpp"],
                   "launcher/process/child.h watches processes"),
    "environ": (r"(?<![\w.>])(?:::)?environ\b", ["cli/options/job_settings.cpp", "cli/agent_main.cpp"],
                "take the environment as an argument"),
    "close": (r"(?<![\w.>:])::close\s*\(", ["runtime/base/fd.cpp"], "Fd closes"),
}
IN_TESTS = {  # files of tests/ may use the calls above, but not these
    "sleep": (r"(?<![\w.>])(?:::)?u?sleep\s*\(|nanosleep\s*\(|\bsleep_(?:for|until)\s*\(",
              "wait on a condition with a deadline; where passing time is what is tested, say so: // sleeps: why"),
}
SLEEPS = "// sleeps:"  # on the line or the one above

# These parts are the specification: values in, values out; no I/O, no clock, no environment.
PURE = ["launcher/stacks/*", "launcher/timeline/*", "launcher/placement/*", "launcher/check/clock_offset.*", "launcher/check/link_plan.*", "launcher/check/*findings.*",
        "launcher/state/*", "launcher/samples/job_*s.*", "launcher/samples/job_picture.*", "launcher/samples/metrics_text.*", "launcher/tree/ignore_rules.*",
        "launcher/sampling/proc_texts.*", "launcher/service/scheduler.*", "runtime/controller/negotiator.*",
        "runtime/controller/fusion_plan.*", "runtime/engine/end_of_job.*", "runtime/algo/schedule.*"]
NOT_IN_PURE = r"<(unistd\.h|fcntl\.h|sys/.*|fstream|iostream|thread|mutex|ctime|poll\.h)>" \
              r"|\"runtime/(io/\w+|base/(fd|log))\.h\""

# All variables that can change and that no object owns: the file, how many, and why an object cannot own them.
GLOBALS = {
    "runtime/abi/default_context.cpp": (1, "hvd_init() and its like name no context"),
    "runtime/abi/fence.cpp": (2, "hvd_last_error() is per thread; a callback may not call back"),
    "runtime/abi/operation_table.cpp": (1, "a handle of an earlier job may not name an operation of a later one"),
    "runtime/mpi/mpi_process.cpp": (1, "MPI can be initialised once in a process"),
    "runtime/base/process_mark.h": (1, "pthread_atfork takes no argument"),
    "runtime/execute_device/device_plane.cpp": (2, "what a device still uses may not be destroyed"),
    "runtime/rendezvous/crypto.cpp": (2, "OpenSSL's objects outlive the static objects that use them"),
    "runtime/front/completion_pool.cpp": (1, "frameworks pass no context to what they call"),
    "runtime/front/watch_of_steps.cpp": (1, "as above"),
    "runtime/front/tensorflow/done_callback.cpp": (2, "as above"),
    "runtime/front/tensorflow/plugin.cpp": (1, "as above"),
    "runtime/front/tensorflow/tf_library.cpp": (1, "as above"),
    "runtime/front/xla/collective.cpp": (2, "as above"),
    "launcher/ssh/ssh_session.cpp": (2, "libssh2 can be initialised once in a process"),
}
GLOBAL = re.compile(
    r"\bthread_local\b(?!\s+const\b)"
    # of a function or a class
    r"|^\s+static\s+(?!const\b|constexpr\b|inline\b)[\w:<>, ]+?[ *&]+(?:const\s+)?[a-z]\w*\s*(?:=|;|\{\w*\};)"
    # of a namespace, whose lines are not indented
    r"|^(?:static |inline )?(?!(?:static |inline )?(?:using|return|namespace|const|typedef|struct|class|enum|union|else|template"
    r"|extern|static_assert|constexpr|concept|friend|thread_local)\b)[A-Za-z_][\w:<>, *]* [*&]?\w+(?:\[\w*\])?\s*(?:=[^=].*;|;|\{.*\};)$")

MAX_LINES = {"tests": 800, "": 600}
# A room that is fuller is divided.
MAX_FILES = 30
# No module of these packages may need one that needs it, imports within functions included: such modules can be understood,
# loaded and tested only together.
PYTHON = "runtime/python"
# A unit test stands in the folder that mirrors the folder of what it tests.
UNIT_TESTS = "tests/unit"
ROOTS = ["cli", "launcher", "runtime", "tests", "scripts"]
COMPILED = (".cpp", ".cu")
OF_PROJECT = "${PROJECT_SOURCE_DIR}/"
NAMED_SOURCE = re.compile(r"(?:\$\{PROJECT_SOURCE_DIR\}/)?[\w./-]+\.(?:cpp|cu)\b")
SUFFIXES = {".h", ".cpp", ".c", ".cu", ".cuh"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
NOT_CODE = re.compile(
    r'R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.S)


# A comment may name a file from the project's root, or from one of these folders.
NAMED_FROM = ["", "launcher/", "runtime/", "cli/", "runtime/python/", "runtime/include/"]
NAMED_FILE = re.compile(r"(?<![\w./<~$-])((\w[\w-]*)/(?:\w[\w-]*/)*\w[\w-]*\.(?:h|cpp|py|md))(?![\w/*])")


def cpp_comments(text):
    """(line number, text) of each comment of a C or C++ file."""
    for found in NOT_CODE.finditer(text):
        if found[0].startswith(("//", "/*")):
            yield text.count("\n", 0, found.start()) + 1, found[0]


def python_comments(text):
    """(line number, text) of each comment and docstring of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, False):
            yield node.body[0].lineno, ast.get_docstring(node, False)


def code_only(text):
    """The text with comments and the insides of literals blanked; lines keep their numbers."""
    return NOT_CODE.sub(lambda m: '""' + "\n" * m[0].count("\n"), text)


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def folder_of(path):
    """The folder of EDGES that a file is in: two names for a room of cli, launcher or runtime, else one."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("cli", "launcher", "runtime") and len(parts) > 2 else parts[0]


def is_within(folder, allowed):
    return folder == allowed or folder.startswith(allowed + "/")


def closure(folder):
    """All folders that this one may reach, by the table."""
    found, rest = set(), list(EDGES.get(folder, []))
    while rest:
        other = rest.pop()
        if other not in found:
            found.add(other)
            rest += EDGES.get(other, [])
    return found


def may_use(folder):
    """The cell of a README's table: what this folder may include, without what comes with one of the others."""
    allowed = EDGES[folder]
    shown = [other for other in allowed if not any(other in closure(third) for third in allowed if third != other)]
    top = folder.split("/")[0] + "/"
    return ", ".join(f"`{other.removeprefix(top)}`" for other in shown) or "–"


ROOM_ROW = re.compile(r"^(\| `([\w/]+)/` \| .* \| )([^|]*)( \|)$")


def with_edges(top, text):
    """A README's text with the column "may use" as EDGES has it, and the rooms that have a row."""
    rooms = set()

    def fill(line):
        row = ROOM_ROW.match(line)
        if not row:
            return line
        folder = f"{top}/{row[2]}"
        rooms.add(folder)
        return row[1] + may_use(folder) + row[4] if folder in EDGES else line

    return "\n".join(fill(line) for line in text.split("\n")), rooms


def names_imported(package, text):
    """[(name, line)] of what a module of this package imports, wherever in it: a.b.c for `from a.b import c` too."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[:len(parents) + 1 - node.level] if node.level else []
            base += [node.module] if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            names = [str(node.args[0].value)] if called in ("import_module", "__import__") else []
        found += [(name, node.lineno) for name in names]
    return found


def modules_needed(module, package, text, modules):
    """{other: line} of the modules that this one needs. An import of a.b.c loads a and a.b too, but those that a module is
    in are loaded before it; they count where it takes something out of them."""
    needed = {}
    for name, line in names_imported(package, text):
        parts = name.split(".")
        known = [other for other in (".".join(parts[:end]) for end in range(1, len(parts) + 1)) if other in modules]
        for other in known:
            if other == known[-1] or not is_within(module.replace(".", "/"), other.replace(".", "/")):
                needed.setdefault(other, line)
    return needed


def shortest_cycle(module, needs):
    """The modules of the shortest way from this one back to it; [] when there is none."""
    came_from, rest = {}, collections.deque([module])
    while rest:
        current = rest.popleft()
        for other in needs[current]:
            if other == module:
                way = [current]
                while way[-1] != module:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if other not in came_from:
                came_from[other] = current
                rest.append(other)
    return []


class Checker:
    def __init__(self, root):
        self.root = root
        self.found = []

    def say(self, path, line, text):
        self.found.append(f"{path}:{line}: {text}")

    def resolve(self, name):
        """The file that #include "name" means, from the project's root; None: there is none."""
        for prefix in ("", "runtime/include/"):
            if (self.root / (prefix + name)).is_file():
                return prefix + name
        return None

    def check_include(self, path, number, quote, name, line):
        for library, (pattern, homes) in SOLE_INCLUDERS.items():
            if re.match(pattern, name) and not path.startswith(("tests/", "scripts/")) and not matches(path, homes):
                self.say(path, number, f"{library} may be included only in {', '.join(homes) or 'tests'}")
        if matches(path, PURE) and (found := re.search(NOT_IN_PURE, line)):
            self.say(path, number, f"{found[0]} in a part without I/O and clock (see --explain)")
        if quote == "<":
            return
        target = self.resolve(name)
        if target is None:
            self.say(path, number, f'"{name}" is no file of this project; includes are written from its root, '
                                   "others in <>")
            return
        own, other = folder_of(path), folder_of(target)
        allowed = EDGES.get(path, EDGES.get(own))
        if allowed is None:
            self.say(path, number, f"folder {own} is not in the table of scripts/layers.py")
        elif own != other and not any(is_within(other, folder) for folder in allowed):
            self.say(path, number, f"{own} may not include {other}; allowed: {', '.join(allowed) or 'nothing'}")

    def check_calls(self, path, lines, raw):
        table = {name: (p, [], why) for name, (p, why) in IN_TESTS.items()} if path.startswith("tests/") else BANNED_CALLS
        for name, (pattern, homes, why) in table.items():
            if matches(path, homes):
                continue
            for number, line in enumerate(lines, 1):
                if re.search(pattern, line) and not (name == "sleep" and SLEEPS in "".join(raw[max(0, number - 2):number])):
                    where = f"only in {', '.join(homes)}" if homes else "nowhere"
                    self.say(path, number, f"{name}() is called {where}: {why}")

    def check_globals(self, path, lines):
        found = [number for number, line in enumerate(lines, 1) if GLOBAL.search(line)]
        count, _ = GLOBALS.get(path, (0, ""))
        for number in found[count:]:
            self.say(path, number, "a variable that no object owns; own it, or add it to GLOBALS in scripts/layers.py with the reason")
        if len(found) < count:
            self.say(path, 1, f"{len(found)} variables that no object owns, not {count}: lower GLOBALS in scripts/layers.py")

    def check_comments(self, path, comments):
        """Files that a comment names by their path. A path whose first folder is none of ours is somebody else's."""
        for start, text in comments:
            for found in NAMED_FILE.finditer(text):
                is_ours = any((self.root / (top + found[2])).is_dir() for top in NAMED_FROM)
                if is_ours and not any((self.root / (top + found[1])).is_file() for top in NAMED_FROM):
                    number = start + text.count("\n", 0, found.start())
                    self.say(path, number, f"there is no file {found[1]}, which this comment names")

    def check_unit_test(self, path):
        source = path.rpartition("/")[0].removeprefix(UNIT_TESTS).strip("/")
        if source not in EDGES or not (self.root / source).is_dir():
            self.say(path, 1, f"mirrors no room: there is no folder {source or '.'}/ of source")

    def check_file(self, path):
        text = (self.root / path).read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        limit = MAX_LINES.get(path.split("/")[0], MAX_LINES[""])
        if len(lines) > limit:
            self.say(path, limit, f"{len(lines)} lines; at most {limit}")
        for number, line in enumerate(lines, 1):
            if found := INCLUDE.match(line):
                self.check_include(path, number, found[1], found[2], line)
        self.check_comments(path, cpp_comments(text))
        code = code_only(text).splitlines()
        if not path.startswith("scripts/"):
            self.check_calls(path, code, lines)
        if not path.startswith(("scripts/", "tests/")):
            self.check_globals(path, code)
        if path.startswith(UNIT_TESTS + "/") and path.endswith("_test.cpp"):
            self.check_unit_test(path)
        if path.endswith(".h"):
            if not any(line.strip() == "#pragma once" for line in lines) and path != "runtime/include/hvd/hvd.h":
                self.say(path, 1, "no #pragma once")
            for number, line in enumerate(code, 1):
                if re.search(r"\busing\s+namespace\b", line):
                    self.say(path, number, "using namespace in a header")

    def check_table(self, top):
        """The table of rooms in this folder's README."""
        readme = self.root / top / "README.md"
        if not readme.is_file():
            return
        text = readme.read_text(encoding="utf-8")
        wanted, rooms = with_edges(top, text)
        for number, (is_now, should) in enumerate(zip(text.split("\n"), wanted.split("\n")), 1):
            if is_now != should:
                self.say(f"{top}/README.md", number, f"should be: {should} (scripts/layers.py --write)")
        for folder in EDGES:
            if folder.startswith(top + "/") and "." not in folder and folder not in rooms and (self.root / folder).is_dir():
                if folder != "runtime/include":
                    self.say(f"{top}/README.md", 1, f"no row for {folder}/")

    def check_built(self, files):
        """A file that no CMakeLists.txt names is never compiled, and a test in it never run."""
        lists = [p for p in (self.root / "CMakeLists.txt", *(p for top in ROOTS for p in (self.root / top).rglob("CMakeLists.txt")))
                 if p.is_file()]
        named = set()
        for path in lists:
            for word in NAMED_SOURCE.findall(path.read_text(encoding="utf-8")):
                place = self.root if word.startswith(OF_PROJECT) else path.parent
                named.add((place / word.removeprefix(OF_PROJECT)).resolve())
        for path in files if lists else ():
            if path.endswith(COMPILED) and not path.startswith("scripts/") and (self.root / path).resolve() not in named:
                self.say(path, 1, "no CMakeLists.txt names it, so it is never compiled")

    def check_python(self):
        """Each cycle of imports, once."""
        root = self.root / PYTHON
        modules = {}
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        needs = {}
        for module, path in modules.items():
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            needs[module] = modules_needed(module, package, path.read_text(encoding="utf-8"), modules)
        told = set()
        for module, path in modules.items():
            cycle = shortest_cycle(module, needs)
            if cycle and not told.intersection(cycle):
                told.update(cycle)
                self.say(str(path.relative_to(self.root)), needs[module][cycle[1] if cycle[1:] else module],
                         f"imports go round: {' → '.join([*cycle, module])}; move what both ends need to where neither is")

    def run(self):
        """All violations, by file and line; and the number of files."""
        files = sorted(str(p.relative_to(self.root)) for folder in ROOTS for p in (self.root / folder).rglob("*")
                       if p.suffix in SUFFIXES and p.is_file())
        for path in files:
            self.check_file(path)
        for top in ("launcher", "runtime"):
            self.check_table(top)
        self.check_python()
        for file in sorted(p for top in ROOTS for p in (self.root / top).rglob("*.py")):
            self.check_comments(str(file.relative_to(self.root)), python_comments(file.read_text(encoding="utf-8")))
        self.check_built(files)
        for room, count in sorted(collections.Counter(path.rpartition("/")[0] for path in files).items()):
            if count > MAX_FILES and not room.startswith(("tests", "scripts")):
                self.say(room, 1, f"{count} files; at most {MAX_FILES}: divide the room")
        return self.found, len(files)


def explain():
    print("Folder → what it may include, besides itself and the C++ library")
    for folder, allowed in EDGES.items():
        print(f"  {folder:22} → {', '.join(allowed) or '(nothing)'}")
    print("\nLibrary → the only files that include it (and tests)")
    for library, (_, homes) in SOLE_INCLUDERS.items():
        print(f"  {library:22} → {', '.join(homes) or '(tests only)'}")
    print("\nCall → the only files that make it")
    for name, (_, homes, why) in BANNED_CALLS.items():
        print(f"  {name + '()':22} → {', '.join(homes) or '(none)'}: {why}")
    for name, (_, why) in IN_TESTS.items():
        print(f"  {name + '()':22} → not in tests: {why}")
    print("\nFile → the variables in it that no object owns")
    for path, (count, why) in GLOBALS.items():
        print(f"  {path:44} {count}: {why}")
    print(f"\nWithout I/O, clock and environment: {', '.join(PURE)}")
    print(f"Lines per file: at most {MAX_LINES['']}, in tests {MAX_LINES['tests']}")
    print(f"C++ files in a folder: at most {MAX_FILES}")
    print(f"{PYTHON}: no cycle between Python modules, imports within functions included")
    print(f"{UNIT_TESTS}/FOLDER/*_test.cpp: FOLDER is a room of the source")
    print("Sources and tests: each is named in a CMakeLists.txt")
    print("Comments: a file that one names by its path exists")
    print("Headers: #pragma once; no using namespace; included by their path from the project's root")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--explain", action="store_true", help="print the rules")
    parser.add_argument("--write", action="store_true", help="fill the tables of rooms")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    options = parser.parse_args()
    if options.explain:
        explain()
        return 0
    if options.write:
        for top in ("launcher", "runtime"):
            readme = options.root / top / "README.md"
            readme.write_text(with_edges(top, readme.read_text(encoding="utf-8"))[0], encoding="utf-8")
    found, files = Checker(options.root).run()
    for line in found:
        print(line)
    print(f"layers: {files} files, {len(found)} violations", file=sys.stderr)
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
