"""scripts/test: its order, its table, and what it says of layers for which there was no time."""

import importlib.machinery
import importlib.util
import re
import sys

import pytest
from hvdrun import ROOT


@pytest.fixture
def script(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("suite_script", str(ROOT / "scripts/test"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("suite_script", loader))
    monkeypatch.setitem(sys.modules, "suite_script", module)  # dataclasses look there
    loader.exec_module(module)
    module.LOGS = tmp_path
    return module


def run_of(script, capsys, **layers):
    """The exit code and the lines of a whole run of these."""
    script.LAYERS = {name: ("a layer", run, True, None) for name, run in layers.items()}
    suite = script.Suite()
    suite.run_beside(list(layers))
    return suite.close(), capsys.readouterr().out.splitlines()


def test_the_last_line_is_the_count_and_a_table_of_seconds_stands_before_it(script, capsys):
    code, lines = run_of(
        script, capsys,
        unit=lambda layer: layer.command("true"),
        asan=lambda layer: layer.command("sh", "-c", "echo why; exit 3"),
        tsan=lambda layer: layer.skip("no compiler"),
    )  # fmt: skip
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")
    assert lines[-2] == "FAILED: asan: sh -c echo why; exit 3"
    table = [line.split() for line in lines[-6:-3]]
    assert sorted((name, *counts) for name, _, _, *counts in table) == [
        ("asan", "0", "1", "0"), ("tsan", "0", "0", "1"), ("unit", "1", "0", "0"),
    ]  # fmt: skip
    assert "   FAILED: sh -c echo why; exit 3" in lines and "   | why" in lines


def test_the_longest_layers_begin_and_each_that_ends_makes_room(script, capsys):
    began = []

    def layer_that_ends_after(other):
        def run(layer):
            began.append(layer.name)
            code, _ = layer.run("sh", "-c", f"until [ -e {script.LOGS}/{other} ]; do sleep 0.01; done" if other else "true", seconds=60)
            (script.LOGS / layer.name).touch()
            layer.count.passed += code == 0

        return run

    script.AT_ONCE = 2
    code, _ = run_of(script, capsys, unit=layer_that_ends_after(None), multi=layer_that_ends_after(None),
                     asan=layer_that_ends_after("python"), spark=layer_that_ends_after(None), python=layer_that_ends_after(None))  # fmt: skip
    assert code == 0 and sorted(began[:2]) == ["asan", "spark"] and began[2:] == ["unit", "multi", "python"]


def test_what_is_left_out_for_lack_of_time_is_a_failure_and_told_before_the_count(script, capsys):
    script.BUDGET_SECONDS = -1.0
    code, lines = run_of(
        script, capsys,
        layers=lambda layer: layer.pytest("tests/python/test_layers.py"),
        asan=lambda layer: layer.doctest(script.BUILD / "bin/hvd_unit_base"),
    )  # fmt: skip
    assert code == 1 and lines[-1].startswith("0 passed, 2 failed, ")
    assert lines[-2].startswith("NOT RUN, out of time (HVD_TEST_MINUTES=")
    assert "asan (hvd_unit_base)" in lines[-2] and "tests of tests/python/test_layers.py)" in lines[-2]


def test_a_run_that_takes_long_says_so(script, capsys):
    script.STARTED -= 60 * (script.AIM_MINUTES + 1)
    _, lines = run_of(script, capsys, unit=lambda layer: layer.command("true"))
    words = re.fullmatch(rf"in (\d+\.\d) min: longer than the {script.AIM_MINUTES} min that this should take", lines[-2])
    assert words and float(words[1]) >= script.AIM_MINUTES + 1


def test_a_failed_program_names_its_failed_cases(script, capsys, tmp_path):
    program = tmp_path / "hvd_unit_x"
    rule = "=" * 79
    program.write_text(f"""#!/bin/sh
cat <<'END'
{rule}
a_test.cpp:3:
TEST CASE:  this one only talks

a_test.cpp:4: MESSAGE: SKIPPED: no device here

{rule}
a_test.cpp:7:
TEST CASE:  two and two

a_test.cpp:8: ERROR: CHECK( 2 + 2 == 5 ) is NOT correct!

{rule}
[doctest] test cases: 2 | 1 passed | 1 failed | 0 skipped
END
exit 1
""")
    program.chmod(0o755)
    code, lines = run_of(script, capsys, unit=lambda layer: layer.doctest(program))
    assert (code, lines[-2:]) == (1, ["FAILED: unit: hvd_unit_x: two and two", "0 passed, 1 failed, 1 skipped"])


@pytest.mark.parametrize("words, ran", [
    (["--without", "unit", "ray"], ["setup", "format", "build", "asan"]),
    (["--without"], ["setup", "format", "build", "unit", "ray", "asan"]),
    (["asan"], ["setup", "build", "asan"]),
    (["--without", "units"], []),
])
def test_layers_are_named_or_left_out(script, capsys, monkeypatch, words, ran):
    taken = []
    monkeypatch.setattr(script.Suite, "step", lambda suite, name, text, run: taken.append(name) or True)
    monkeypatch.setattr(script, "LAYERS", {name: ("a layer", None, name != "format", None)
                                           for name in ("format", "unit", "ray", "tidy", "asan")})
    monkeypatch.setattr(sys, "argv", ["test", *words])
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    monkeypatch.setenv("PATH", "/usr/bin")
    code = script.main()
    assert sorted(taken) == sorted(ran) and (code == 2) == (ran == [])


@pytest.mark.parametrize("words, by_gcc", [([], False), (["--without", "asan"], True), (["unit"], True)])
def test_programs_that_asan_runs_are_left_to_it_in_a_whole_run(script, capsys, monkeypatch, tmp_path, words, by_gcc):
    (tmp_path / "bin").mkdir()
    for name in ("hvd_unit_base", "hvd_unit_launcher"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho '[doctest] test cases: 1 | 1 passed | 0 failed | 0 skipped'\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setattr(script, "programs", lambda pattern: sorted((tmp_path / "bin").glob(pattern)))
    assert "hvd_unit_launcher" in script.on_request() and "hvd_unit_base" not in script.on_request()
    commands = []

    def passes(layer, *command, **_):
        commands.append(command)
        layer.count.passed += 1
        return True

    monkeypatch.setattr(script.Layer, "command", passes)
    monkeypatch.setattr(script, "LAYERS", {name: ("a layer", run, True, None) for name, run in (
        ("unit", script.LAYERS["unit"][1]), ("asan", lambda layer: layer.skip("not here")))})
    monkeypatch.setattr(sys, "argv", ["test", *words])
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    script.main()
    (table,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("unit ")]
    assert table[3] == ("2" if by_gcc else "1")
    assert any("hvd_unit_launcher" in command for command in commands) == by_gcc


def test_a_layer_whose_code_fails_keeps_no_other_from_running(script, capsys):
    code, lines = run_of(script, capsys, unit=lambda layer: 1 / 0, multi=lambda layer: layer.command("true"))
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    assert any("ZeroDivisionError" in line for line in lines)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for tests that are run in parts."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/support"))
    made = tmp_path / "folder"
    made.mkdir()
    (made / "conftest.py").symlink_to(ROOT / "tests/conftest.py")
    return made


def test_a_folder_in_parts_runs_each_test_once(script, capsys, folder):
    for name in ("a", "b", "c"):
        (folder / f"test_{name}.py").write_text(
            f"def test_one():\n    with open({str(folder / 'ran')!r}, 'a') as ran:\n        ran.write({name!r})\n"
            f"def test_two():\n    assert {name!r} != 'b', 'exit codes\\n[1] why'\n")
    code, lines = run_of(script, capsys, e2e=lambda layer: layer.pytest_in_parts(folder, 2))
    assert (code, lines[-1]) == (1, "5 passed, 1 failed, 0 skipped")
    assert sorted((folder / "ran").read_text()) == ["a", "b", "c"]
    assert any("test_b.py" in line for line in lines)
    failed = "FAILED: e2e: test_b::'test_two': AssertionError: exit codes"
    assert lines[-4:-1] == [failed, "  |   [1] why", "  | assert 'b' != 'b'"]


def test_a_part_that_runs_nothing_is_a_failure(script, capsys, folder):
    (folder / "test_a.py").write_text("def test_one():\n    pass\n")
    code, lines = run_of(script, capsys, e2e=lambda layer: layer.pytest_in_parts(folder, 2))
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    assert f"   FAILED: part 2 of {folder} ran nothing" in lines
