"""What scripts/wheel asks of the machine and of its result. The wheels themselves take too long to be made here."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / "build/bin"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = script("wheel_check")
sources = script("wheel_sources")


def wheel(folder, name, files):
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in files.items():
            archive.writestr(file, data)
    return path


def test_an_architecture_that_is_not_made_is_refused():
    done = subprocess.run([ROOT / "scripts/wheel", "pdp11"], text=True, capture_output=True)
    assert done.returncode == 1
    assert done.stderr == "wheel: unknown architecture 'pdp11'; usage: scripts/wheel [x86_64 aarch64]\n"


def test_a_wheel_of_another_platform_is_told_by_its_name(tmp_path):
    found, _ = check.faults(wheel(tmp_path, "hvdrun-0.1.0-py3-none-linux_x86_64.whl", {}))
    assert found == ["its name must be hvdrun-VERSION-py3-none-manylinux_X_Y_ARCH.whl"]


def test_each_file_and_licence_that_is_missing_is_named(tmp_path):
    found, _ = check.faults(wheel(tmp_path, "hvdrun-0.1.0-py3-none-manylinux_2_28_x86_64.whl", {}))
    for name in ("scripts/hvdrun", "scripts/hvdrun-agent-aarch64", "lib/libhvd.so"):
        assert any(line.endswith(f"{name} is missing") for line in found)
    assert [line for line in found if "licence" in line] == [f"the licence of {name} is missing" for name in check.LICENCES]


@pytest.mark.parametrize("has_device_code", [True, False])
def test_a_library_without_device_code_is_refused(tmp_path, has_device_code):
    data = (OURS / "hvdrun-agent").read_bytes() + (check.DEVICE_CODE if has_device_code else b"")
    found, _ = check.faults(wheel(tmp_path, "hvdrun-0.1.0-py3-none-manylinux_2_28_x86_64.whl", {"horovod/lib/libhvd.so": data}))
    assert any("no device code" in line for line in found) != has_device_code


def test_a_program_that_was_built_for_this_machine_alone_is_refused(tmp_path):
    data = "hvdrun-0.1.0.data/scripts"
    files = {f"{data}/{name}": (OURS / name).read_bytes() for name in ("hvdrun", "hvdrun-agent")}
    files[f"{data}/hvdrun-agent-aarch64"] = files[f"{data}/hvdrun-agent"]
    files[f"{data}/horovodrun"] = (ROOT / "cli/horovodrun.sh").read_bytes()
    found, highest = check.faults(wheel(tmp_path, "hvdrun-0.1.0-py3-none-manylinux_2_5_x86_64.whl", files))
    assert highest > (2, 5)
    assert f"{data}/hvdrun needs glibc {'.'.join(map(str, highest))}, and the name says 2.5" in found
    assert any(re.match(rf"{data}/hvdrun needs .*libstdc\+\+\.so\.6", line) for line in found)
    assert ".data/scripts/hvdrun-agent-aarch64 is for EM_X86_64, not aarch64" in found


def test_horovodrun_is_hvdrun_also_through_a_link(tmp_path):
    installed = pathlib.Path(sys.executable).with_name("horovodrun")
    if not installed.exists():
        pytest.skip("the package is not installed here")
    (tmp_path / "link").symlink_to(installed)
    for program in (installed, tmp_path / "link"):
        said = subprocess.run([program, "--help"], text=True, capture_output=True, check=True).stdout
        assert "hvdrun" in said.splitlines()[0], said


def test_a_wheel_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "MAX_BYTES", 10)
    found, _ = check.faults(wheel(tmp_path, "hvdrun-0.1.0-py3-none-manylinux_2_28_aarch64.whl", {}))
    assert re.match(r"it has \d+ bytes; 10 are the limit", found[0])


@pytest.mark.parametrize("name", [path.name for path in sorted((ROOT / "build/wheels").glob("*.whl"))])
def test_a_wheel_that_was_made_here_keeps_its_promises(name):
    assert check.faults(ROOT / "build/wheels" / name)[0] == []


def test_source_entries_are_made_of_the_entries_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "APT", tmp_path)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.invalid bookworm main\n"
        "deb [signed-by=/key] http://mirror.invalid/debian bookworm-updates main contrib\n"
        "deb http://vendor.invalid stable main\n"
    )
    (tmp_path / "sources.list.d/debian.sources").write_text(
        "Types: deb\n# said by somebody\nURIs: http://mirror.invalid/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "\nTypes: deb\nURIs: http://vendor.invalid\nSuites: nodistro\nComponents: main\n"
    )
    stanzas, lines = sources.source_entries("bookworm", "trixie")
    assert stanzas == "Types: deb-src\nURIs: http://mirror.invalid/debian\nSuites: trixie trixie-updates\nComponents: main"
    assert lines == "deb-src [signed-by=/key] http://mirror.invalid/debian trixie-updates main contrib"
