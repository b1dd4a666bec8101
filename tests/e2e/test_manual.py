"""The manual inside the program, and the short help: what a new user reads first."""

import os
import pty
import re
import subprocess

import pytest

from hvdrun import HVDRUN, ROOT, hvdrun
from patience import PATIENCE

PAGES = {path.stem: path for folder in ("launcher/docs", "runtime/docs") for path in (ROOT / folder).glob("*.md")}
LONGEST = 150


def topics():
    return re.findall(r"^  (\S+)  +\S", hvdrun("help").stdout, re.M)


def test_help_lists_every_page_and_shows_it():
    assert sorted(topics()) == sorted(PAGES)
    for topic, path in PAGES.items():
        done = hvdrun("help", topic)
        assert (done.returncode, done.stdout, done.stderr) == (0, path.read_text(), ""), topic


def test_the_readme_and_the_manual_page_name_every_page():
    readme = (ROOT / "README.md").read_text()
    man = hvdrun("--document", "man").stdout.replace("\\-", "-")
    for topic, path in PAGES.items():
        assert f"({path.relative_to(ROOT)})" in readme, topic
        assert re.search(rf"\b{topic}\b", man), topic


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES.values()], ids=lambda path: path.stem)
def test_a_page_can_be_read_to_its_end(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ") and len(lines) <= LONGEST
    inside = False
    for number, line in enumerate(lines, 1):
        inside ^= line.startswith("```")
        assert inside or line.startswith("|") or len(line) <= 100, f"{path}:{number} is {len(line)} columns wide"
        if not inside and line.startswith("|") and not lines[number - 2].startswith("|"):
            assert lines[number].startswith("|---") or lines[number].startswith("|:"), f"{path}:{number} is no head of a table"


def test_the_first_elastic_script_gives_each_epoch_its_samples():
    script = re.search(r"```python\n(.*?)```", PAGES["elastic"].read_text(), re.S)[1]
    lines = [line.strip() for line in script.splitlines()]
    assert lines.index("sampler.record_batch(number, batch_size)") < lines.index("state.commit()") < lines.index("sampler.set_epoch(state.epoch + 1)")


def test_every_default_that_a_cluster_may_have_is_on_its_page():
    fields = re.search(r"kDefaultFields = \{(.*?)\};", (ROOT / "launcher/service/cluster.cpp").read_text(), re.S)[1]
    names = re.findall(r'Field\{"(\w+)"', fields)
    assert "sshPort" in names and len(names) == 8
    for text in (PAGES["clusters"], ROOT / "configs/cluster.yaml"):
        assert [name for name in names if name not in text.read_text()] == []


def test_links_between_pages_lead_somewhere():
    for path in [ROOT / "README.md", *PAGES.values()]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), (path, target)
        for topic in re.findall(r"`hvdrun help ([a-z][\w-]*)`", path.read_text()):
            assert topic in PAGES, (path, topic)


def test_the_beginning_of_a_topic_is_enough_and_a_wrong_one_names_the_nearest():
    assert hvdrun("help", "fail").stdout == PAGES["failures"].read_text()
    assert hvdrun("help", "HorovodRunner").stdout == PAGES["spark"].read_text()
    done = hvdrun("help", "failurs")
    assert done.returncode == 240 and "did you mean 'failures'?" in done.stderr and done.stderr.count("\n") == 1
    assert hvdrun("help", "hosts", "more").returncode == 240


def test_a_command_is_a_word_for_the_page_about_it():
    for command in re.search(r"one of: (.*) \(", hvdrun("--help").stdout)[1].split(", ") + ["run", "plan", "check", "bench", "submit",
                                                                                           "manifest", "join", "stacks", "timeline", "top"]:
        done = hvdrun("help", command)
        assert done.returncode == 0 and re.search(rf"\b{command}\b", done.stdout), command


def test_on_a_terminal_a_page_comes_through_the_pager():
    parent, child = pty.openpty()
    process = subprocess.Popen([HVDRUN, "help", "words"], stdin=child, stdout=child, stderr=child,
                               env={**os.environ, "PAGER": "sed s/^/paged:/"})
    os.close(child)
    text = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the last process has closed the terminal
            break
        if not piece:
            break
        text += piece
    os.close(parent)
    assert process.wait(PATIENCE) == 0
    assert text.decode().replace("\r\n", "\n") == re.sub(r"^", "paged:", PAGES["words"].read_text().rstrip("\n"), flags=re.M) + "\n"


@pytest.mark.parametrize("words", [[], ["run"], ["plan"], ["check"], ["bench"], ["submit"], ["manifest"]])
def test_the_help_of_a_first_week_fits_a_screen(words):
    done = hvdrun(*words, "--help")
    assert done.returncode == 0 and len(done.stdout.splitlines()) <= 60
    assert all(len(line) <= 120 for line in done.stdout.splitlines())
    everything = hvdrun(*words, "--help-all").stdout
    for flag in re.findall(r"(?<![\w-])--?[a-z][a-z-]+", done.stdout):
        assert flag in everything or flag in ("-np", "--np"), flag
    assert "--help-all" in done.stdout and "hvdrun help" in done.stdout


def test_each_option_of_the_short_help_exists():
    shown = re.findall(r'\{"(-[^"]+)", "', (ROOT / "cli/options/short_help.cpp").read_text())
    assert len(shown) > 20
    text = hvdrun("--help").stdout
    everything = hvdrun("--help-all").stdout
    for name in shown:
        assert name in everything, name
    assert len(re.findall(r"^  -", text, re.M)) == len(shown)


def help_of(name, *words):
    """What --help-all says of an option, on one line."""
    text = hvdrun(*words, "--help-all").stdout
    found = re.search(rf"^  (?:-\w,)?(?:--[\w-]+,)?{re.escape(name)}(?![\w-]).*(?:\n {{20,}}.*)*", text, re.M)
    assert found, name
    return " ".join(found[0].split())


def test_an_option_that_has_a_default_says_so():
    text = (ROOT / "cli/options/flags.h").read_text()
    for name, field, words in [("--grace", "grace_s", []), ("--reconnect-timeout", "reconnect_timeout_s", []), ("--fanout", "fanout", []),
                               ("--agent-port", "agent_port", []), ("--min", "bench_min", ["bench"]), ("--max", "bench_max", ["bench"]),
                               ("--factor", "bench_factor", ["bench"]), ("--warmup", "bench_warmup", ["bench"])]:
        value = re.search(rf" {field} = \"?(\w+)\"?;", text)[1]
        assert f"default: {value}" in help_of(name, *words), name
    assert "HOROVOD_START_TIMEOUT, else 60" in help_of("--start-timeout")


def test_a_setting_that_does_nothing_says_so():
    """Those of the manual's table, as far as hvdrun has a flag for them."""
    idle = re.findall(r"`(HOROVOD_\w+)`", "".join(re.findall(r"^\|([^|]*)\|", PAGES["variables"].read_text().split("These change nothing")[1], re.M)))
    flags = re.findall(r'(?:number|real|text|on_off|off_on)\("(--[\w-]+)",(?: "--[\w-]+",)? "[\w.]+",\s+"(HOROVOD_\w+)"',
                       (ROOT / "launcher/job/tunable.cpp").read_text())
    assert len(flags) > 20
    for flag, variable in flags:
        assert ("without effect" in help_of(flag)) == (variable in idle), flag


def test_the_help_of_bench_says_what_can_be_measured():
    text = hvdrun("bench", "--help").stdout
    for word in ("allreduce", "pairs", "gradients", "latency", "bfloat16", "prod"):
        assert re.search(rf"\b{word}\b", text), word
    assert "-np 4 -H node1:2,node2:2" in text
    assert "jobset" in hvdrun("manifest", "--help").stdout
    assert "--engine slurm" in hvdrun("submit", "--help").stdout


@pytest.mark.parametrize("folder", ["cli", "launcher", "runtime", "scripts"])
def test_a_readme_names_files_that_are_there(folder):
    here = ROOT / folder
    named = re.findall(r"`([\w./-]+)`", (here / "README.md").read_text())
    for name in named:
        if "/" in name.rstrip("/") and not name.startswith("build/") and (here / name.split("/")[0]).is_dir():
            assert (here / name).exists() or list((here / name).parent.glob(f"{(here / name).name}.*")), name
        elif re.fullmatch(r"\w+\.(cpp|py)", name):
            assert list(here.rglob(name)), name


@pytest.mark.parametrize("word,near", [("--hostz", "--hosts"), ("--outputfilename=x", "--output-filename"), ("--gathr", "--gather")])
def test_an_unknown_option_names_the_nearest(word, near):
    done = hvdrun("-np", "1", word, "true")
    assert done.returncode == 240
    assert done.stderr == f"hvdrun: there is no option {word.split('=')[0]}; did you mean {near}? See hvdrun --help, or --help-all\n"


@pytest.mark.parametrize("words,here", [
    (["job", "create", "-c", "lab", "-f", "job.json"], "'job create' is a command of az batchai; here it is: hvdrun submit -c lab -f job.json --json; see"),
    (["job", "file", "stream", "-j", "x", "-g", "r"], "here it is: hvdrun logs -f x;"),
    (["job", "list", "-o", "table"], "here it is: hvdrun ps --all;"),
    (["workspace", "create"], "'workspace' is a command of az batchai, which has no use here"),
    (["list-usages", "-l", "eastus"], "'list-usages' is a command of az batchai, for which hvdrun has none; see hvdrun help"),
    (["cluster", "create", "-n", "lab"], "'cluster create' is a command of az batchai; here one writes hvdrun cluster add"),
    (["az", "batchai", "cluster", "create", "-n", "lab"], "here one writes hvdrun cluster add NAME -H node1,node2; see"),
    (["az", "batchai", "cluster", "node", "exec", "-c", "lab"], "here one writes hvdrun -H node1,node2 COMMAND; see"),
    (["az", "batchai", "job", "crate"], "az batchai job crate: there is no such command; there are job create, job list-files, "),
    (["az", "batchai", "job", "-n", "x"], "az batchai job: say which command; there are job create, "),
    (["az", "batchai", "jobs"], "az batchai: no command is named, as in job create"),
    (["batchai", "job", "show", "-g", "r"], "az batchai job show: its name is missing"),
    (["az", "batchai", "job", "show", "-n"], "az batchai job show -n: its value is missing"),
    (["az", "batchai", "cluster", "resize", "-n", "lab"], "its target is missing, as in -t 0"),
])
def test_a_command_of_az_batchai_names_the_one_that_takes_its_place(words, here):
    done = hvdrun(*words)
    assert done.returncode == 240 and here in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words, said", [
    ([], "cluster: say what to do; there are add, show, list, drain, resume, remove; hvdrun cluster --help says more"),
    (["ad", "x", "-H", "y"], "cluster ad: there is no such command; did you mean hvdrun cluster add? There are add, show, "),
    (["shwo"], "cluster shwo: there is no such command; did you mean hvdrun cluster show? There are "),
    (["burn", "x"], "cluster burn: there is no such command; there are add, "),
])
def test_a_misspelt_command_of_clusters_names_those_that_there_are(words, said):
    done = hvdrun("cluster", *words)
    assert done.returncode == 240 and done.stderr.startswith(f"hvdrun: {said}") and done.stderr.count("\n") == 1, done.stderr


def test_options_that_a_submission_refuses_are_not_in_its_help():
    text = hvdrun("submit", "--help").stdout
    assert "--cluster" in text and "--hosts" not in text and "--hostfile" not in text
    assert "--hosts" in hvdrun("--help").stdout


def test_a_misspelt_command_is_not_looked_for_on_every_host():
    done = hvdrun("chek", "-H", "node1")
    assert done.returncode == 240 and "did you mean 'hvdrun check'?" in done.stderr
    assert hvdrun("run", "chek").returncode == 127
