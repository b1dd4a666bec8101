"""scripts/classes.py: what counts as a method, and which file is whose."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from patience import PATIENCE

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/classes.py"
_spec = importlib.util.spec_from_file_location("classes", SCRIPT)
_classes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_classes)


def tree(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return _classes.Tree(tmp_path)


def methods(tmp_path, body):
    return tree(tmp_path, {"runtime/base/a.h": "class A final : public B {\n" + body + "\n};\n"}).methods["runtime/base/a.h", "A"]


@pytest.mark.parametrize("body, count", [
    ("int one();", 1),
    (" public:\n  [[nodiscard]] const std::map<int, std::string>& one(std::pair<int, int> x = {}) const;", 1),
    ("int one() const { if (x()) { return f(1); } return 2; }\n  void two() override { g(); }", 2),
    ("template <typename T> void one(T x);", 1),
    ("static Result<std::unique_ptr<A>> one(int x, std::function<void(int)> f = [] {});", 1),
    ("A();\n  explicit A(int x);\n  ~A();\n  A(const A&) = delete;\n  bool operator==(const A&) const;", 0),
    ("bool one() const = default;\n  friend void f(A);\n  using F = std::function<void(int)>;", 0),
    ("int x_ = f(1);\n  int y_{g(2)};\n  std::function<void(int)> z_;\n  // int one();", 0),
    ("struct Inner {\n    int one();\n  };", 0),
])
def test_methods_that_a_class_declares_count(tmp_path, body, count):
    assert methods(tmp_path, body) == count


def test_a_class_in_a_class_counts_for_itself(tmp_path):
    found = tree(tmp_path, {"runtime/a.h": "class A {\n  class B;\n};\nclass A::B {\n  int one();\n};\nstruct C {\n  struct D {\n    int two();\n  };\n};\n"}).methods
    assert found == {("runtime/a.h", "A"): 0, ("runtime/a.h", "A::B"): 1, ("runtime/a.h", "C"): 0, ("runtime/a.h", "C::D"): 1}


def test_a_class_that_is_too_large_is_a_violation(tmp_path):
    many = "".join(f"  int f{i}();\n" for i in range(31))
    found = tree(tmp_path, {"runtime/a.h": f"class Many {{\n{many}}};\n"}).check()
    assert any("runtime/a.h: class Many has 31 methods; at most 30" in line for line in found)


def test_a_class_in_two_files_is_a_violation(tmp_path):
    found = tree(tmp_path, {"runtime/e/a.h": "class A {\n  int one();\n};\n", "runtime/e/a.cpp": "int A::one() {\n  return 1;\n}\n",
                            "runtime/e/b.cpp": "int A::two() {\n  return 2;\n}\n"}).check()
    assert any("runtime/e: class A is in 2 .cpp files" in line for line in found)


def test_a_replacement_for_a_missing_library_and_functions_of_a_namespace_are_none(tmp_path):
    found = tree(tmp_path, {"runtime/e/a.h": "class A {\n  int one();\n};\n", "runtime/e/a.cpp": "int A::one() {\n  return 1;\n}\n",
                            "runtime/e/no_a.cpp": "int A::one() {\n  return 2;\n}\n",
                            "runtime/e/b.cpp": "int f() {\n  return hvd::g(1);\n}\nint hvd::h() {\n  return 1;\n}\n",
                            "runtime/e/c.cpp": "int hvd::i() {\n  return 1;\n}\n"}).several()
    assert found == {}


def test_two_types_of_one_full_name_are_a_violation_and_local_ones_are_none(tmp_path):
    found = tree(tmp_path, {
        "runtime/a/a.h": "namespace hvd {\nstruct A {\n  struct In {};\n};\nenum class State { kOn };\n}\n",
        "runtime/b/b.h": "namespace hvd {\nclass A final : public B {\n};\nenum class State : int { kOff };\n}\n",
        "runtime/c/c.cpp": "namespace hvd::other {\nstruct A {};\n}\nnamespace hvd {\nnamespace {\nstruct A {};\n}\n"
                           "int f() {\n  struct A {};\n  struct State at{};\n  return 1;\n}\n}\n",
        "runtime/d/no_a.cpp": "namespace hvd {\nstruct A {};\n}\n"}).check()
    assert [line for line in found if "both define" in line] == [
        f"runtime/a/a.h and runtime/b/b.h: both define hvd::{name}; one needs another name" for name in ("A", "State")]



def test_the_tree_is_within_its_limits():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
