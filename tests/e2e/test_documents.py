"""The manual page and the completions: made from the command line's definition, and readable by what reads them."""

import re
import shutil
import subprocess

import pytest

from hvdrun import HVDRUN, ROOT, hvdrun
from patience import PATIENCE


def document(kind):
    done = hvdrun("--document", kind)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def flags_in_help():
    of_submit = re.findall(r"^  (?:-\w,)?(--[a-z][a-z-]+)", hvdrun("submit", "--help-all").stdout, re.M)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", hvdrun("--help-all").stdout)) | {*of_submit, "--cluster", "-H", "-x", "-i", "-c", "-n"}


@pytest.mark.parametrize("kind", ["man", "bash", "zsh", "fish"])
def test_every_flag_is_in_every_document(kind):
    text = document(kind).replace("\\-", "-")
    for flag in flags_in_help():
        written = flag if kind != "fish" else f"-l {flag[2:]} " if flag.startswith("--") else f"-s {flag[1:]} "
        assert written in text, flag


def commands():
    usage = hvdrun("--help").stdout.split("\n\n")[0]
    first = re.findall(r"^(?:usage:|      ) hvdrun \[?([a-z|]+)", usage.rsplit("\n", 1)[0], re.M)
    last = re.findall(r"[a-z]+", usage.rsplit("one of:", 1)[1].split("(")[0])
    return {name for names in first for name in names.split("|")} | set(last)


@pytest.mark.parametrize("kind", ["man", "bash", "fish"])
def test_every_command_is_in_every_document(kind):
    assert {"run", "manifest", "join", "timeline", "report", "help"} <= commands()
    written = {name for names in re.findall(r"[a-z]+(?:(?:, |\||,? )[a-z]+){15,}", document(kind)) for name in re.findall("[a-z]+", names)}
    assert commands() <= written


def test_the_synopsis_has_each_form_that_runs_or_submits_a_job():
    text = re.sub(r"\\f[BIR]|\\(?=-)", "", document("man").split(".SH SYNOPSIS\n.B ")[1].split(".SH")[0])
    forms = {" ".join(form.split()) for form in text.split(".br\n.B ")}
    usage = [line for words in ((), ("submit",), ("manifest",)) for line in hvdrun(*words, "--help").stdout.split("\n\n")[0].split("\n")]
    wanted = {re.sub(r"\[-n NAME\] ", "", line[len("usage: "):]).lower() for line in usage
              if re.search("run|submit|manifest|check", line[len("usage: hvdrun"):]) and "one of:" not in line}
    assert len(wanted) > 5 and wanted <= forms


def test_the_tables_of_exit_codes_are_those_of_the_source():
    own = re.findall(r"int k\w+ = (\d+);", (ROOT / "launcher/state/exit_codes.h").read_text())
    page = re.findall(r"^\| ([^|]+) \| [^|]", (ROOT / "launcher/docs/failures.md").read_text().split("## Exit codes")[1].split("## ")[0], re.M)
    man = re.findall(r"^\.B (.*)", document("man").split(".SH EXIT STATUS")[1].split(".SH")[0], re.M)
    assert sorted(own + ["code", "the rank's", "128 + N"]) == sorted(page) and sorted(page) == sorted(man + ["code"])


def test_the_manual_page_has_its_sections_and_no_request_by_accident():
    text = document("man")
    assert re.findall(r"^\.SH (.*)", text, re.M) == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES",
                                                     "MANUAL", "SEE ALSO"]
    assert set(re.findall(r"^[.'](\w+)", text, re.M)) <= {"TH", "SH", "SS", "TP", "B", "BR", "br"}
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=text, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0 and done.stderr == ""


def completions(*words):
    line = " ".join(words)
    script = (f"{document('bash')}\nCOMP_WORDS=({' '.join(repr(w) for w in words)})\nCOMP_CWORD={len(words) - 1}\n"
              f"_hvdrun\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == "", (line, done.stderr)
    return done.stdout.split()


def test_bash_completes_flags_values_and_the_command():
    assert "--fusion-threshold-mb" in completions("hvdrun", "--fu")
    assert completions("hvdrun", "-np", "2", "--color", "a") == ["auto", "always"]
    assert "/etc/passwd" in completions("hvdrun", "--hostfile", "/etc/pass")
    assert "env" in completions("hvdrun", "-np", "2", "en")
    assert "manifest" in completions("hvdrun", "mani") and "manifest" not in completions("hvdrun", "-np", "2", "mani")
    assert completions("hvdrun", "manifest", "--im") == ["--image"]
    assert completions("hvdrun", "-np", "2", "cat", "--fusion") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_theirs(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    file = tmp_path / "completion"
    file.write_text(document(shell))
    assert subprocess.run([shell, "-n", file], timeout=PATIENCE).returncode == 0


def test_an_unknown_document_is_refused():
    done = subprocess.run([HVDRUN, "--document", "html"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 240 and done.stderr.count("\n") == 1
