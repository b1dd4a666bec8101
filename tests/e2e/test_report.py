"""hvdrun --report: the page of a job, as its file is and as a browser shows it."""

import html.parser
import os
import re
import shutil
import subprocess
import sys

import pytest

from hvdrun import LIBHVD, PYTHON, hvdrun, program, read_until, start
from lab import wait_until
from patience import PATIENCE

# Rank 5 fails when all eight have begun: each makes a file in a folder.
FAILS = """
import os, sys, time
rank, folder = os.environ["HVD_RANK"], sys.argv[1]
open(f"{folder}/{rank}", "w").close()
while rank == "5" and len(os.listdir(folder)) < 8: time.sleep(0.01)
{}["x<y>"] if rank == "5" else time.sleep(1000)
"""
VOID = {"meta", "link"}


class Page(html.parser.HTMLParser):
    """The page's tags, which must be closed in order, and its text."""

    def __init__(self, path):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "job.html"
    done = hvdrun("-np", 8, "--report", path, sys.executable, "-c", FAILS, tmp_path_factory.mktemp("begun"))
    assert done.returncode == 1
    return path


def test_the_page_of_a_failed_job_names_its_first_failure_first(failed):
    page = Page(failed)
    assert failed.stat().st_size < 300_000
    assert "Failed with code 1" in page.text and "8 ranks on 1 host" in page.text
    assert "KeyError: 'x<y>'" in page.text.split("Ranks\n")[0]
    bars = [attrs["class"] for tag, attrs in page.tags if tag == "rect"]
    assert sorted(bars) == ["b-after"] * 7 + ["b-first"]
    # One file: it names no other, and runs nothing.
    assert not {"script", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert [attrs.get("href") for tag, attrs in page.tags if tag == "link"] == ["data:,"]


def test_a_browser_shows_the_failure_without_scrolling(failed, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here")
    picture = tmp_path / "page.png"
    done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
                           "--window-size=390,800", f"--screenshot={picture}", f"file://{failed}"],
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert picture.stat().st_size > 10_000, done.stderr
    assert "CONSOLE" not in done.stderr


def test_the_page_is_there_while_the_job_runs(tmp_path):
    path = tmp_path / "job.html"
    job = start("-np", 2, "--report", path, "sh", "-c", "echo up; read line; true", stdin=subprocess.PIPE)
    read_until(job.stdout, "up")
    wait_until(path.exists, "no page")
    assert "Running" in Page(path).text
    job.communicate("\n", timeout=PATIENCE)
    assert job.returncode == 0
    assert "Succeeded" in Page(path).text
    assert [file.name for file in tmp_path.iterdir()] == ["job.html"]


def test_the_page_of_a_running_job_draws_what_its_host_uses(tmp_path):
    path = tmp_path / "job.html"
    waits = f"""echo line; until grep -q 'class="curve"' {path}; do sleep 0.2; done"""
    done = hvdrun("-np", 2, "--report", path, "sh", "-c", waits)
    assert done.returncode == 0
    page = Page(path)
    for name in ("CPU", "Memory", "2 lines"):
        assert name in page.text.split("What was used")[1], page.text


def test_the_page_has_the_collectives_and_the_rank_that_the_others_waited_for(tmp_path):
    path = tmp_path / "job.html"
    # It runs until the page names a rank, however soon or late the first look at it comes.
    done = hvdrun("-np", 3, "--report", path, *PYTHON, program("waits_for_slow.py"), path, '<td class="number">1</td></tr>',
                  env={**os.environ, "HVD_LIBRARY": LIBHVD})
    assert done.returncode == 0, done.stderr
    row = re.search(r"<tr><td>allreduce</td>(.*?)</tr>", path.read_text())[1]
    cells = re.findall(r'<td class="number">([^<]*)</td>', row)
    assert int(cells[0]) > 0 and cells[1].endswith("B") and cells[4] == "1", cells
    waited = int(re.search(r", (\d+) %$", cells[3])[1])
    assert 10 <= waited <= 100, cells


def test_starts_of_a_job_that_begins_anew_are_on_one_page(tmp_path):
    path = tmp_path / "job.html"
    script = "test $TORCHELASTIC_RESTART_COUNT = 1 || exit 7"
    done = hvdrun("-np", 2, "--elastic", "restart", "--elastic-restarts", 2, "--report", path, "sh", "-c", script)
    assert done.returncode == 0
    page = Page(path)
    assert "Succeeded" in page.text and "all ranks are started anew (1 of 2)" in page.text
    assert len([1 for tag, attrs in page.tags if tag == "rect"]) == 4


@pytest.mark.parametrize("path, words", [("job.svg", "expected a name that ends in .html"),
                                         ("/nowhere/job.html", "cannot write into /nowhere/")])  # fmt: skip
def test_a_page_that_cannot_be_kept_is_refused_before_the_job(path, words):
    done = hvdrun("-np", 2, "--report", path, "echo", "ran")
    assert done.returncode == 240
    assert done.stdout == "" and words in done.stderr and done.stderr.count("\n") == 1


def test_a_page_that_is_taken_away_later_harms_no_job(tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    script = f"rm -r {folder}; exit 0"
    done = hvdrun("-np", 1, "--report", folder / "job.html", "sh", "-c", script)
    assert done.returncode == 0
    assert done.stderr.count("the job goes on without its page") == 1
