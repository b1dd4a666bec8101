"""scripts/layers.py: each rule catches its violation, and lets through what only looks like one."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from patience import PATIENCE

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/layers.py"
_spec = importlib.util.spec_from_file_location("layers", SCRIPT)
_layers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_layers)
HEADER = "#pragma once\n"

CLEAN = {
    "runtime/base/fd.h": HEADER,
    "runtime/base/fd.cpp": '#include "runtime/base/fd.h"\nvoid f(int fd) { ::close(fd); }\n',
    "runtime/rendezvous/store.h": HEADER + '#include "runtime/base/fd.h"\n',
    "runtime/engine/engine.h": HEADER,
    "runtime/include/hvd/hvd.h": "#ifndef HVD_H\n#define HVD_H\n#endif\n",
    "launcher/job/spec.h": HEADER,
    "launcher/run/job_state.h": HEADER + '#include "launcher/job/spec.h"\n#include <string>\n',
    "cli/main.cpp": '#include "launcher/run/job_state.h"\n#include <hvd/hvd.h>\n',
    "tests/unit/runtime/engine/a_test.cpp": '#include <doctest/doctest.h>\n#include "runtime/engine/engine.h"\n',
}


def layers(tmp_path, files):
    """The violations in the clean tree with these files put over it."""
    for name, text in {**CLEAN, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return _layers.Checker(tmp_path).run()[0]


def test_a_clean_tree_has_no_violation(tmp_path):
    assert layers(tmp_path, {}) == []


def test_the_exit_code_says_whether_there_is_a_violation(tmp_path):
    for text, code in (("", 0), ('#include "launcher/job/spec.h"\n', 1)):
        layers(tmp_path, {"runtime/base/x.cpp": text})
        done = subprocess.run([sys.executable, SCRIPT, "--root", tmp_path], capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout.count("\n")) == (code, code)


def test_an_empty_tree_is_not_taken_for_a_clean_one(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "--root", tmp_path], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 1


@pytest.mark.parametrize("path, text, where, words", [
    ("runtime/base/x.cpp", '#include "launcher/job/spec.h"\n', 1, "runtime/base may not include launcher/job"),
    ("runtime/engine/x.cpp", '\n#include "launcher/job/spec.h"\n', 2, "runtime/engine may not include launcher/job"),
    ("launcher/job/x.cpp", '#include "runtime/engine/engine.h"\n', 1, "allowed: runtime/base"),
    ("launcher/run/x.cpp", '#include "runtime/engine/engine.h"\n', 1, "may not include runtime/engine"),
    ("launcher/job/x.cpp", '#include "launcher/run/job_state.h"\n', 1, "launcher/job may not include launcher/run"),
    ("cli/agent_main.cpp", '#include "launcher/job/spec.h"\n', 1, "may not include launcher/job"),
    ("launcher/new/x.cpp", '#include "runtime/base/fd.h"\n', 1, "launcher/new is not in the table"),
    ("launcher/job/x.cpp", '#include "spec.h"\n', 1, '"spec.h" is no file of this project'),
    ("cli/cmd_run.cpp", "#include <CLI/CLI.hpp>\n", 1, "CLI11 may be included only in cli/options/"),
    ("launcher/job/hostfile.cpp", "#include <yaml-cpp/yaml.h>\n", 1, "yaml-cpp"),
    ("launcher/transport/local.cpp", "#include <libssh2.h>\n", 1, "libssh2"),
    ("launcher/run/x.cpp", "#include <spdlog/spdlog.h>\n", 1, "spdlog"),
    ("runtime/base/x.cpp", "#include <openssl/evp.h>\n", 1, "OpenSSL"),
    ("runtime/base/x.cpp", "#include <nlohmann/json.hpp>\n", 1, "nlohmann-json"),
    ("runtime/engine/x.cpp", "#include <nccl.h>\n", 1, "NCCL"),
    ("cli/x.cpp", "#include <doctest/doctest.h>\n", 1, "doctest may be included only in tests"),
    ("launcher/state/job_state.cpp", "#include <unistd.h>\n", 1, "without I/O and clock"),
    ("launcher/placement/x.cpp", '#include "runtime/base/fd.h"\n', 1, "without I/O and clock"),
    ("launcher/job/x.cpp", 'const auto a = std::getenv("A");\n', 1, "getenv() is called only in"),
    ("launcher/process/x.cpp", 'const auto a = getenv("A");\n', 1, "getenv()"),
    ("cli/x.cpp", 'const int a = system("true");\n', 1, "system() is called nowhere"),
    ("launcher/process/x.cpp", 'const auto f = popen("true", "r");\n', 1, "popen()"),
    ("launcher/run/x.cpp", "const int a = ::fork();\n", 1, "fork()"),
    ("launcher/transport/x.cpp", "const int e = ::posix_spawnp(&pid, a, b, c, d, e);\n", 1, "posix_spawn() is called nowhere"),
    ("launcher/transport/x.cpp", "const int f = ::syscall(SYS_pidfd_open, pid, 0);\n", 1, "only in launcher/process/other_process.cpp"),
    ("launcher/transport/x.cpp", "const auto e = environ;\n", 1, "take the environment as an argument"),
    ("launcher/run/x.cpp", "void f() { ::close(1); }\n", 1, "close()"),
    ("tests/unit/launcher/job/b_test.cpp", "void f() { usleep(3); }\n", 1, "sleep() is called nowhere"),
    ("tests/unit/launcher/job/b_test.cpp", "void f() { std::this_thread::sleep_for(a); }\n", 1, "wait on a condition"),
    ("runtime/base/x.h", "int f();\n", 1, "no #pragma once"),
    ("runtime/base/x.h", HEADER + "using namespace std;\n", 2, "using namespace"),
    ("runtime/base/x.cpp", "\n" * 601, 600, "601 lines; at most 600"),
    ("tests/unit/launcher/job/b_test.cpp", "\n" * 801, 800, "801 lines; at most 800"),
    ("tests/unit/b_test.cpp", "", 1, "mirrors no room"),
    ("tests/unit/launcher/b_test.cpp", "", 1, "there is no folder launcher/ of source"),
    ("tests/unit/launcher/gone/b_test.cpp", "", 1, "there is no folder launcher/gone/ of source"),
    ("launcher/run/x.cpp", "// as\n// its spec (run/spec.h) says\n", 2, "there is no file run/spec.h, which this comment names"),
    ("launcher/run/x.cpp", "int a = 1;  // launcher/job/spec.md has it\n", 1, "there is no file launcher/job/spec.md"),
    ("launcher/run/x.cpp", "\n/* one,\n two: base/text.h\n*/\n", 3, "there is no file base/text.h"),
    ("scripts/x.py", "import sys\n\nsys.exit(0)  # see runtime/base/text.cpp\n", 3, "there is no file runtime/base/text.cpp"),
    ("scripts/x.py", 'def f():\n    \"\"\"F.\n\n    As cli/other.cpp.\"\"\"\n', 4, "there is no file cli/other.cpp"),
])
def test_a_violation_is_named_with_its_line(tmp_path, path, text, where, words):
    found = layers(tmp_path, {path: text})
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:{where}: ")
    assert words in found[0]


@pytest.mark.parametrize("path, text", [
    ("launcher/run/x.cpp", "// system(\"x\") and fork() are not for us\n/* popen(1)\n getenv(2) */\n"),
    ("launcher/run/x.cpp", 'const char* a = "system( fork( // ::close(";\nconst char* b = R"(getenv(1))";\n'),
    ("launcher/run/x.cpp", "void f(Q& q) { q.close(); q->fork(); Q::close(); }\n"),
    ("launcher/run/x.cpp", "int file_system(int); int prefork(int); int n = 1'000'000; char c = '\"';\n"),
    ("runtime/base/x.cpp", "using namespace std::literals;\n" + "\n" * 599),
    ("cli/options/options.cpp", "#include <CLI/CLI.hpp>\n"),
    ("cli/options/job_settings.cpp", 'const auto a = std::getenv("A");\n'),
    ("launcher/ssh/x.cpp", "#include <libssh2.h>\n#include <openssl/evp.h>\n"),
    ("launcher/process/spawn.cpp", "const int a = ::fork();\n"),
    ("launcher/process/other_process.cpp", "const int f = ::syscall(SYS_pidfd_open, pid, 0);\n"),
    ("cli/agent_main.cpp", "const auto e = environ;\n"),
    ("launcher/run/x.cpp", "const int environment = q.environ + my_environ;\n"),
    ("tests/unit/launcher/job/b_test.cpp", "\n" * 800),
    ("tests/unit/launcher/folder.h", HEADER),
    ("tests/unit/launcher/job/b_test.cpp", "// sleeps: idle is what is measured\nvoid f() { usleep(3); }\n"),
    ("tests/unit/launcher/job/b_test.cpp", "void f() { usleep(3); }  // sleeps: idle is what is measured\n"),
    ("tests/unit/launcher/job/b_test.cpp", "void f() { ::close(::fork()); system(\"true\"); }\n"),
    ("launcher/run/x.cpp", "// job/spec.h, runtime/base/fd.cpp, base/fd.h and (hvd/hvd.h).\n"),
    ("launcher/run/x.cpp", "// <sys/gone.h>, other/gone.h, /usr/base/gone.h, https://x.org/base/gone.h, base/gone, base/*_test.cpp\n"),
    ("launcher/run/x.cpp", 'const char* a = "base/gone.h";\n'),
    ("scripts/x.py", 'a = "base/gone.h"  # base/fd.h\n'),
])
def test_what_only_looks_like_a_violation_passes(tmp_path, path, text):
    assert layers(tmp_path, {path: text}) == []


def test_explain_prints_every_rule():
    done = subprocess.run([sys.executable, SCRIPT, "--explain"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0
    for words in ("launcher/run", "libssh2", "getenv()", "at most 600", "#pragma once", "sleep()", "no cycle between Python modules", "names by its path exists"):
        assert words in done.stdout


def test_a_room_with_too_many_files_is_named(tmp_path):
    files = {f"runtime/base/x{number}.h": HEADER for number in range(_layers.MAX_FILES + 1)}
    assert any(line.startswith("runtime/base:1: ") and "divide the room" in line for line in layers(tmp_path, files))


def test_a_file_that_is_never_compiled_is_named(tmp_path):
    named = ["runtime/base/a.cpp", "tests/unit/runtime/base/c_test.cpp"]
    forgotten = ["runtime/base/b.cpp", "tests/unit/runtime/base/d_test.cpp"]
    lists = {"runtime/base/CMakeLists.txt": f"x(a.cpp ${{PROJECT_SOURCE_DIR}}/{named[1]})\n"}
    found = layers(tmp_path, {**lists, **dict.fromkeys(named + forgotten, "")})
    told = [line.partition(":")[0] for line in found if "no CMakeLists.txt names it, so it is never compiled" in line]
    assert set(forgotten) <= set(told) and not set(named) & set(told)


def test_the_column_may_use_is_held_against_the_table(tmp_path):
    table = "| room | what | may use |\n|---|---|---|\n| `job/` | what is wanted | `run` |\n| `run/` | the job | {} |\n"
    found = layers(tmp_path, {"launcher/README.md": table.format(_layers.may_use("launcher/run"))})
    assert [line for line in found if "README" in line] == [
        "launcher/README.md:3: should be: | `job/` | what is wanted | `runtime/base` | (scripts/layers.py --write)"]


def test_a_room_without_a_row_is_named(tmp_path):
    found = layers(tmp_path, {"launcher/README.md": "| `job/` | what is wanted | `runtime/base` |\n"})
    assert found == ["launcher/README.md:1: no row for launcher/run/"]


@pytest.mark.parametrize("text", [
    "int count = 0;\n", "std::atomic<int> count;\n", "static Api api = {};\n", "thread_local std::string text;\n",
    "int next() {\n  static int last = 0;\n  return ++last;\n}\n", "int next() {\n  static auto* const own = new int;\n  return ++*own;\n}\n",
    "int next() {\n  static std::once_flag once;\n  return 1;\n}\n",
])
def test_a_variable_that_no_object_owns_is_in_the_table(tmp_path, text):
    found = layers(tmp_path, {"runtime/base/x.cpp": text})
    assert len(found) == 1 and "a variable that no object owns" in found[0], found


@pytest.mark.parametrize("text", [
    "constexpr int kMost = 1;\n", "const int most = f();\n", "using A = int;\n", "namespace fs = std::filesystem;\n", "int f(int a);\n",
    "int f() {\n  int count = 0;\n  static const int most = 1;\n  static constexpr int kLeast = 0;\n  return count;\n}\n",
    "struct A {\n  static int f(int a = 0);\n  static Result<A> make();\n  int count = 0;\n};\n", "thread_local const int own = f();\n",
    "template <typename T>\nconcept IsA = requires(T a) { f(a); };\n", "// int count = 0;\n",
])
def test_what_is_constant_or_owned_is_no_global(tmp_path, text):
    assert layers(tmp_path, {"runtime/base/x.cpp": text}) == []


def test_a_global_that_is_gone_is_taken_from_the_table(tmp_path):
    found = layers(tmp_path, {"runtime/abi/default_context.cpp": "int f() {\n  return 1;\n}\n"})
    assert found == ["runtime/abi/default_context.cpp:1: 0 variables that no object owns, not 1: lower GLOBALS in scripts/layers.py"]


def python(tmp_path, files):
    """What is said of the package `p` of these modules."""
    found = layers(tmp_path, {f"runtime/python/p/{name}.py": text for name, text in {"__init__": "", **files}.items()})
    return [line.removeprefix("runtime/python/p/") for line in found]


@pytest.mark.parametrize("files, said", [
    ({"a": "import p.b\n", "b": "import p.a\n"}, "a.py:1: imports go round: p.a → p.b → p.a;"),
    ({"a": "\nfrom p.b import f\n", "b": "from p.a import g\n"}, "a.py:2: imports go round: p.a → p.b → p.a;"),
    ({"a": "from . import b\n", "b": "from .a import g\n"}, "a.py:1: imports go round: p.a → p.b → p.a;"),
    ({"a": "from p import b\n", "b": "def f():\n    from p import a\n"}, "a.py:1: imports go round: p.a → p.b → p.a;"),
    ({"a": "import p.b\n", "b": "from importlib import import_module\nimport_module('p.a')\n"}, "a.py:1: imports go round"),
    ({"a": "import p.b\n", "b": "import p.c\n", "c": "import p.a\n"}, "a.py:1: imports go round: p.a → p.b → p.c → p.a;"),
    ({"__init__": "from p.a import f\n", "a": "from p import f\n"}, "__init__.py:1: imports go round: p → p.a → p;"),
    ({"__init__": "from p import f\n"}, "__init__.py:1: imports go round: p → p;"),
    # Whoever imports a module of a package loads the package.
    ({"a/__init__": "import p.c\n", "a/x": "", "c": "from p.a import x\n"}, "a/__init__.py:1: imports go round: p.a → p.c → p.a;"),
])
def test_modules_that_need_each_other_are_named(tmp_path, files, said):
    found = python(tmp_path, files)
    assert len(found) == 1 and found[0].startswith(said), found


@pytest.mark.parametrize("files", [
    {"a": "import p.b\n", "b": "import p.c\nimport os\n", "c": "# import p.a\nTEXT = 'import p.a'\n"},
    {"__init__": "from p import a\nfrom p.a import f\n", "a": "from p import b\nfrom . import c\nimport p.c\n", "b": "", "c": ""},
    {"__init__": "from p.a import f\n", "a": "from other.p import f\nimport pq\n"},
])
def test_modules_that_need_each_other_in_one_direction_pass(tmp_path, files):
    assert python(tmp_path, files) == []
