"""hvdrun --rsh COMMAND, and the switch to the system's ssh where libssh2 does not do."""

import os
import re
import signal
import subprocess
import sys

import pytest

from hvdrun import (HVDRUN, LIBHVD, check_paced, end_pacing, env_with, has_libssh2, hvdrun, kill, processes_with, program,
                    read_until, read_until_each, start, wait_until_gone, without_copies)
from patience import PATIENCE
from ways import EXECUTES

PYTHON = [sys.executable, "-S"]
# Hosts that are this machine: one command executes its words as kubectl exec does, the other joins them as ssh does.
JOINS = "sh -c 'shift; eval \"$*\"' join {host}"


@pytest.mark.parametrize("command", [EXECUTES, JOINS])
def test_ranks_run_where_the_command_leads(command, marker):
    done = hvdrun("--rsh", command, "-np", 4, "-H", "a:2,b:2", "sh", "-c", "echo $HVD_RANK $HVD_CROSS_RANK; echo e >&2",
                  env=env_with(marker))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:0 0", "[1]<stdout>:1 0", "[2]<stdout>:2 1",
                                                "[3]<stdout>:3 1"]
    assert "4 ranks on 2 nodes succeeded" in done.stderr
    assert wait_until_gone(marker) == {}


def test_the_command_may_come_from_the_environment_and_leaves_this_machine_local():
    plan = hvdrun("plan", "-np", 2, "-H", "a:1,localhost:1", "true", env={**os.environ, "HVD_RSH": EXECUTES})
    assert re.findall(r"^\d +\d +(\S+) +(\S+)", plan.stdout, re.M) == [("a", "rsh"), ("localhost", "local")]
    done = hvdrun("-q", "--no-tags", "-np", 2, "-H", "a:1,localhost:1", "sh", "-c", "echo $HVD_RANK",
                  env={**os.environ, "HVD_RSH": EXECUTES})
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["0", "1"]), done.stderr


def test_libhvd_joins_over_it_and_variables_travel_unharmed():
    odd = "a b'c\"d$(touch x)\n;|&"
    done = hvdrun("--rsh", JOINS, "-np", 2, "-H", "a:1,b:1", *PYTHON, program("idle.py"), LIBHVD, 0)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 2 joined", done.stdout)) == 2
    done = hvdrun("-q", "--no-tags", "--rsh", JOINS, "-np", 1, "-H", "a:1", *PYTHON, "-c",
                  "import os, sys; print(ascii((os.environ['ODD'], sys.argv[1])))", odd, env={**os.environ, "ODD": odd})
    assert done.stdout.strip() == ascii((odd, odd)), done.stderr


@pytest.mark.parametrize("hosts", [["-H", "localhost:1"], ["--rsh", EXECUTES, "-H", "a:1"], ["--sync", "--rsh", EXECUTES, "-H", "a:1"]])
def test_a_rank_s_pwd_is_the_folder_in_which_it_starts_by_the_user_s_name_for_it(hosts, tmp_path):
    (tmp_path / "disk7" / "project").mkdir(parents=True)
    (tmp_path / "home").symlink_to("disk7")
    named = str(tmp_path / "home" / "project")
    print_it = "import os; print(os.environ['PWD'], os.path.samefile(os.environ['PWD'], '.'))"

    def run(pwd, *words):
        return hvdrun("-q", "--no-tags", *words, *hosts, *PYTHON, "-c", print_it, cwd=named,
                      env={**os.environ, "PWD": pwd, "XDG_CACHE_HOME": str(tmp_path / "home" / "cache")})

    in_cache = f"{tmp_path}/home/cache/hvdrun/folders/"
    done = run(named)
    assert done.stdout.startswith(in_cache if "--sync" in hosts else named) and done.stdout.endswith(" True\n"), done
    done = run("/")  # as of a program that changes its folder and leaves the variable
    real = str((tmp_path / "disk7" / "project").resolve())
    assert done.stdout.startswith(in_cache if "--sync" in hosts else real) and done.stdout.endswith(" True\n"), done
    assert run(named, "-x", "PWD=/tmp").stdout.startswith("/tmp "), done


@pytest.mark.parametrize("arguments, message", [
    (["--rsh", "no-such-program {host}"], "--rsh: no such program: 'no-such-program' in PATH"),
    (["--rsh", "ssh 'x"], "--rsh 'ssh 'x': nothing follows the last '"),
    (["--rsh", "ssh", "-i", "key"], "-i and --ssh-config mean nothing to --rsh"),
    (["--rsh", "ssh", "-p", "22"], "-p means nothing to an --rsh without {port}"),
    (["--rsh", "ssh", "-H", "bob@a:1"], "a: the host list says user 'bob', but --rsh has no {user}"),
])
def test_a_wrong_command_is_one_line_and_starts_nothing(arguments, message):
    hosts = [] if "-H" in arguments else ["-H", "a:1,b:1"]
    done = hvdrun(*arguments, *hosts, "-np", 1, "true")
    assert done.returncode == 240
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_every_command_that_fails_is_named_with_its_last_words():
    done = hvdrun("--rsh", "sh -c 'echo $1 is not there >&2; exit 7' x", "-np", 2, "-H", "a:1,b:1", "true")
    assert done.returncode == 241
    for host in "ab":
        assert re.search(rf"^hvdrun: {host}: rsh: .* exited with code 7: {host} is not there$", done.stderr, re.M)


def test_a_command_that_hangs_is_ended_before_the_start_timeout_with_its_words(marker):
    done = hvdrun("--rsh", "sh -c 'echo thinking >&2; exec sleep 1000' x", "--start-timeout", 20, "-np", 1, "-H", "a:1",
                  "true", env=env_with(marker))
    assert done.returncode == 241
    assert "gave no answer within 18 s; try it by hand: thinking" in done.stderr
    assert wait_until_gone(marker) == {}


def family(marker, command=EXECUTES):
    job = start("--rsh", command, "--grace", 2, "-np", 4, "-H", "a:2,b:2", *PYTHON, program("family.py"),
                env=env_with(marker))
    read_until(job.stdout, "up", 4)
    return job


@pytest.mark.parametrize("command", [EXECUTES, JOINS])
def test_a_killed_launcher_leaves_nothing(command, marker, tmp_path):
    job = start("--rsh", command, "--reconnect-timeout", 4, "-np", 2, "-H", "a:1,b:1", *PYTHON, program("family.py"),
                env=env_with(marker, TMPDIR=str(tmp_path)))
    read_until(job.stdout, "up", 2)
    kill(job.pid)
    job.communicate(timeout=PATIENCE)
    assert wait_until_gone(marker) == {}
    assert list(tmp_path.glob("hvdrun-??????")) == []  # the agents' own folders; their guardians cleaned up


def test_a_launcher_that_is_killed_while_a_command_hangs_takes_it_along(marker):
    job = start("--rsh", "sh -c 'echo hanging >&2; exec sleep 1000' x", "--verbose", "-np", 1, "-H", "a:1", "true",
                env=env_with(marker))
    read_until(job.stderr, "hanging")
    kill(job.pid)
    job.communicate(timeout=PATIENCE)
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("nth", [0, 1], ids=["guardian", "agent"])
def test_a_killed_agent_leaves_nothing(marker, nth):
    job = family(marker)
    # Of one node: the guardian has the lower number of the two.
    on_a = [pid for pid, args in sorted(processes_with(marker).items()) if re.search("agent-[0-9a-f]{64}", args)]
    kill(on_a[nth])
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode in (243, 143), err
    assert re.search(r"on [ab] |node [ab] was lost", err), err
    assert wait_until_gone(marker) == {}


def test_a_killed_command_is_started_anew_and_nothing_is_lost(marker):
    job = start("--rsh", JOINS, "--reconnect-timeout", 120, "-np", 2, "-H", "a:1,b:1", *PYTHON,
                program("pace_lines.py"), "on", 200000, env=env_with(marker))
    first = read_until_each(job.stdout, 2)
    looks = {pid: args for pid, args in processes_with(marker).items() if args.startswith("sh -c shift; eval")}
    wrappers = without_copies(looks)
    kill(wrappers[0])
    end_pacing(marker)
    out, err = job.stdout.read(), job.stderr.read()  # not communicate(), which forgets what readline() has read ahead
    assert job.wait(PATIENCE) == 0, err
    assert "trying to reach it again" in err and "reached again" in err
    check_paced("".join(first).splitlines() + out.splitlines(), 2)
    assert wait_until_gone(marker) == {}


def test_a_killed_rank_leaves_nothing(marker):
    job = family(marker)
    mine = processes_with(marker)
    kill(next(pid for pid, args in processes_with("HVD_RANK=1\0").items() if pid in mine and "family.py" in args))
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 137 and "rank 1 on a" in err
    assert wait_until_gone(marker) == {}


def test_a_ctrl_c_at_the_terminal_reaches_the_ranks_once_and_not_the_command(marker):
    script = "trap 'echo interrupted; exit 0' INT; echo up; while :; do sleep 0.1; done"
    job = start("--rsh", EXECUTES, "--grace", 20, "-np", 2, "-H", "a:1,b:1", "sh", "-c", script, env=env_with(marker),
                start_new_session=True)
    read_until(job.stdout, "up", 2)
    os.killpg(job.pid, signal.SIGINT)  # as the terminal does
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 130
    assert sorted(out.splitlines()) == ["[0]<stdout>:interrupted", "[1]<stdout>:interrupted"]
    assert wait_until_gone(marker) == {}


# --- over ssh, on hosts with addresses of their own


def test_ranks_meet_at_the_addresses_that_their_names_mean(lab3):
    done = lab3.run(HVDRUN, "--rsh", "ssh {host}", "-np", "4", "-H", "node1:2,node2:2", "sh", "-c",
                    "echo $(hostname) $HVD_RANK $MASTER_ADDR")
    assert done.returncode == 0, done.stderr
    at = lab3.addr("node1")
    assert sorted(done.stdout.splitlines()) == [f"[{r}]<stdout>:node{1 + r // 2} {r} {at}" for r in range(4)]
    done = lab3.run(HVDRUN, "--rsh", "ssh", "-np", "4", "-H", "node1:2,node2:2", *PYTHON, program("idle.py"), LIBHVD, "0")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 4 joined", done.stdout)) == 4
    assert lab3.wait_for_no_processes() == []


def test_nodes_whose_names_mean_nothing_meet_in_the_network_that_they_share(lab3):
    command = "sh -c 'h=$1; shift; exec ssh node${h#pod} \"$@\"' x"
    done = lab3.run(HVDRUN, "--rsh", command, "-np", "3", "-H", "pod1:1,pod2:1,localhost:1", *PYTHON, program("idle.py"),
                    LIBHVD, "0")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 3 joined", done.stdout)) == 3


def test_a_job_over_the_ssh_command_leaves_nothing_when_killed(lab3):
    job = lab3.popen(HVDRUN, "--rsh", "ssh", "-np", "4", "--grace", "2", "-H", "node1:2,node2:2", *PYTHON,
                     program("family.py"))
    read_until(job.stdout, "up", 4)
    os.kill(lab3.pid_of(job), 9)
    job.wait(PATIENCE)
    assert lab3.wait_for_no_processes() == []


# --- the switch to the system's ssh


def libssh2_signs_rsa():
    text = subprocess.run([HVDRUN, "--check-build"], capture_output=True, text=True).stdout
    version = re.search(r"libssh2 1\.(\d+)", text)
    return version is None or int(version[1]) >= 11


@pytest.fixture
def rsa_lab(make_lab):
    """A lab of two nodes whose user has an RSA key and no other."""
    if libssh2_signs_rsa():
        pytest.skip("this libssh2 can use RSA keys, or there is none")
    lab = make_lab(2)
    made = lab.run("sh", "-c", "cd ~/.ssh && ssh-keygen -q -t rsa -N '' -f id_rsa && for h in node1 node2; do "
                               "ssh $h 'cat >~/.ssh/authorized_keys' <id_rsa.pub || exit 1; done; rm id_ed25519*")
    assert made.returncode == 0, made.stderr
    return lab


def test_an_rsa_key_is_used_by_the_systems_ssh_and_that_is_said_once(rsa_lab):
    done = rsa_lab.run(HVDRUN, "-np", "4", "-H", "node1:2,node2:2", *PYTHON, program("idle.py"), LIBHVD, "0")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 4 joined", done.stdout)) == 4
    said = re.findall(r"^hvdrun: node[12]: using the system's ssh, because libssh2 \S+ signs RSA keys with SHA-1 only",
                      done.stderr, re.M)
    assert len(said) == 1, done.stderr
    quiet = rsa_lab.run(HVDRUN, "-q", "-np", "2", "-H", "node1:1,node2:1", "true")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    job = rsa_lab.popen(HVDRUN, "-np", "2", "--grace", "2", "-H", "node1:1,node2:1", *PYTHON, program("family.py"))
    read_until(job.stdout, "up", 2)
    os.kill(rsa_lab.pid_of(job), 9)
    job.wait(PATIENCE)
    assert rsa_lab.wait_for_no_processes() == []


def test_a_refusal_of_the_systems_ssh_is_told_with_its_words(rsa_lab):
    rsa_lab.run("ssh", "node2", ">~/.ssh/authorized_keys")
    done = rsa_lab.run(HVDRUN, "-np", "2", "-H", "node1:1,node2:1", "true")
    assert done.returncode == 241
    assert re.search(r"^hvdrun: node2: the system's ssh exited with code 255: .*Permission denied \(publickey\)",
                     done.stderr, re.M), done.stderr
    assert rsa_lab.wait_for_no_processes() == []


def test_a_host_behind_another_is_reached_through_it(make_lab):
    lab = make_lab(2)
    lab.run("sh", "-c", "printf 'Host node2\\n  ProxyJump node1\\n' >>~/.ssh/config")
    lab.cut("launcher", "node2")
    done = lab.run(HVDRUN, "-np", "4", "-H", "node1:2,node2:2", *PYTHON, program("idle.py"), LIBHVD, "0")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 4 joined", done.stdout)) == 4
    if has_libssh2():
        assert "hvdrun: node2: using the system's ssh, because ssh_config has 'ProxyJump node1' for it" in done.stderr
    assert lab.wait_for_no_processes() == []
