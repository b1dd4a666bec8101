"""hvdrun report --serve: jobs and clusters for a browser, which follows them."""

import http.client
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import urllib.parse

import pytest

from hvdrun import HVDRUN, hvdrun, processes_with
from patience import PATIENCE
from service import GATE, HOSTS

class Browser:
    """A browser's requests to `hvdrun report --serve`."""

    def __init__(self, service, *arguments):
        self.process = subprocess.Popen([HVDRUN, "report", "--serve", *arguments], env=service.env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        self.url = urllib.parse.urlparse(self.process.stdout.readline().strip())

    def open(self, path, method="GET", whole=None):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=PATIENCE)
        connection.request(method, whole or self.url.path + path)
        return connection.getresponse()

    def text(self, path):
        answer = self.open(path)
        assert answer.status == 200, answer.status
        return answer.read().decode()

    def follow(self, path):
        """The stream that the page at this path follows."""
        stream = re.search(r'EventSource\("([^"]+)"', self.open(path).read().decode())[1]
        answer = self.open(urllib.parse.urljoin("/" + path, stream)[1:])
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.fp.readline() == b"retry: 2000\n" and answer.fp.readline() == b"\n"
        return answer

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=PATIENCE) == 0


@pytest.fixture
def browser(service):
    browser = Browser(service)
    yield browser
    if browser.process.poll() is None:
        browser.end()


def test_the_list_and_a_jobs_page_follow_the_job_until_it_has_failed(service, browser):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}; echo all is lost >&2; exit 9\n", "--name", "paged")
    service.wait_for(lambda: service("report", "paged").returncode == 0, "it has a page")
    listed = browser.text("")
    assert '<a href="jobs/1">paged</a>' in listed and 'class="running">running' in listed and "<td>lab</td>" in listed
    of_list, of_job = browser.follow(""), browser.follow("jobs/1")
    assert "All jobs" in browser.text("jobs/1") and "<b>Job 1, paged</b>, on cluster lab, runs." in browser.text("jobs/1")
    (service.path / "gate").touch()
    assert of_list.fp.readline() == b"data: new\n"
    assert of_job.fp.readline() == b"data: new\n"
    assert service("wait", "paged").returncode == 9
    assert 'class="failed">failed' in browser.text("")
    service.wait_for(lambda: "all is lost" in browser.text("jobs/1"), "the page has the failure")


def test_a_job_that_waits_has_a_page_that_comes_when_it_begins(service, browser):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}\n", "--name", "first")
    service.submit("command: 'true'\n", "--name", "second")
    answer = browser.open("jobs/2")
    assert answer.status == 404 and "has no page before its ranks begin; it is queued" in answer.read().decode()
    service.submit("command: 'true'\n", "--name", "third")
    service.ok("stop", "third")
    told = browser.open("jobs/3").read().decode()
    assert "on cluster lab, was stopped." in told and "has no page: it ended while it waited for its nodes" in told
    stream = browser.follow("jobs/2")
    (service.path / "gate").touch()
    assert stream.fp.readline() == b"data: new\n"
    service.wait_for(lambda: browser.open("jobs/2").status == 200, "it has a page")


@pytest.mark.parametrize("path", ["", "jobs/1"])
def test_a_real_browser_has_nothing_to_complain_of(service, browser, path, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here")
    service.cluster(hosts=HOSTS[:1])
    service.submit("command: echo lost >&2; exit 9\n", "--name", "paged")
    assert service("wait", "paged").returncode == 9
    picture = tmp_path / "page.png"
    done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
                           f"--screenshot={picture}", browser.url.geturl() + path],
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert picture.stat().st_size > 10_000, done.stderr
    assert "CONSOLE" not in done.stderr


def test_nobody_without_the_token_learns_anything_and_nothing_can_be_changed(service, browser):
    for path in ("/", "/jobs/1", browser.url.path[:-2] + "/", browser.url.path + "../x"):
        answer = browser.open("", whole=path)
        assert (answer.status, answer.read()) == (404, b"404 Not Found\n"), path
    assert browser.open("", method="POST").status == 405
    assert "default-src 'none'" in browser.open("").headers["Content-Security-Policy"]
    assert browser.open("").headers["Referrer-Policy"] == "no-referrer"


def test_it_listens_where_it_is_told_and_a_signal_ends_it(service, browser):
    again = subprocess.run([HVDRUN, "report", "--serve", f"127.0.0.1:{browser.url.port}"], env=service.env, text=True,
                           capture_output=True, timeout=PATIENCE)  # fmt: skip
    assert again.returncode != 0 and again.stderr.count("\n") == 1 and str(browser.url.port) in again.stderr
    browser.follow("")  # which does not keep it
    browser.end()
    other = Browser(service, f"[::1]:{browser.url.port}")
    assert other.url.netloc == f"[::1]:{browser.url.port}"
    assert "No job has been submitted" in other.text("")
    other.end()


@pytest.mark.parametrize("arguments, why", [
    (["--serve", "0.0.0.0:80"], "only a loopback address"),
    (["--serve", "10.1.2.3:80"], "ssh -L"),
    (["--serve", "nonsense"], "expected ADDRESS:PORT"),
    (["--serve", "99999"], "expected ADDRESS:PORT"),
    (["job", "--serve"], "JOB or --serve"),
    ([], "which job?"),
])  # fmt: skip
def test_what_cannot_be_served_is_one_line(arguments, why):
    done = hvdrun("report", *arguments)
    assert done.returncode == 240 and why in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_page_is_given_out_while_another_process_holds_the_records(service, browser):
    """A dead supervisor is looked after beside that, by a process that waits for the records."""
    service.cluster(hosts=HOSTS[:1])
    number = service.submit(f"command: touch {service.path}/begun; sleep 1000\n", "--name", "doomed")["id"]
    service.wait_for((service.path / "begun").exists, "it runs")  # before that, another supervisor would go on with the job
    held = service.records()
    held.execute("BEGIN IMMEDIATE")
    service.kill_supervisors(number)

    def recoveries():
        return [pid for pid, args in processes_with(service.marker).items() if args.endswith("hvdrun recover")]

    (waiting,) = service.wait_for(recoveries, "nobody looks after the job")
    assert 'class="running">running' in browser.text("")
    assert recoveries() == [waiting]  # it waits still
    held.rollback()
    held.close()
    service.wait_for(lambda: 'class="failed">failed' in browser.text(""), "the job is not known to have failed")
    told = browser.text("jobs/1")  # nobody goes on with the page itself
    assert "has failed. The supervisor of the job was killed while its ranks ran. What stands below was written" in told
    assert "its page was last written before that" in service("report", "doomed").stderr
    for page in (told, service.ok("report", "doomed", "-o", "-")):
        assert "Lost while it ran</span>" in page and "Running</span>" not in page


def test_who_ends_the_request_by_closing_its_half_gets_the_whole_answer(service, browser):
    service.cluster(hosts=HOSTS[:1])
    service.submit("command: 'true'\n", "--name", "paged")
    assert service("wait", "paged").returncode == 0
    size = 40_000_000  # more than sockets hold
    pathlib.Path(service.ok("report", "paged").strip()).write_text("x" * size)
    for path, least in (("", 1000), ("jobs/1", size)):
        with socket.create_connection((browser.url.hostname, browser.url.port), timeout=PATIENCE) as connection:
            connection.sendall(f"GET {browser.url.path}{path} HTTP/1.1\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            browser.text("")  # by then the server knows
            answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and len(answer) > least
    # A stream has no end to wait for, and ends with its reader's half.
    with socket.create_connection((browser.url.hostname, browser.url.port), timeout=PATIENCE) as connection:
        connection.sendall(f"GET {browser.url.path}events HTTP/1.1\r\n\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert b"retry: 2000" in answer


def test_idle_connections_and_a_page_that_cannot_be_read_end_nothing(service, browser):
    service.cluster(hosts=HOSTS[:1])
    service.submit("command: 'true'\n", "--name", "paged")
    assert service("wait", "paged").returncode == 0
    stream = browser.follow("")
    idle = [socket.create_connection((browser.url.hostname, browser.url.port)) for _ in range(60)]
    page = pathlib.Path(service.ok("report", "paged").strip())
    page.unlink()
    page.mkdir()
    assert browser.open("jobs/1").status == 404
    service.submit("command: 'true'\n", "--name", "second")
    assert stream.fp.readline() == b"data: new\n"
    for connection in idle:
        connection.close()
