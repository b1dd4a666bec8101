"""horovod.runner.launch and what lies around it: horovodrun's arguments, which become an hvdrun command."""

import importlib
import os
import subprocess
import sys

import pytest
from hvdrun import HVDRUN
from patience import PATIENCE

from horovod import runner
from horovod.runner import _job, _options, launch
from horovod.runner.common.util import config_parser
from horovod.runner.elastic import constants, driver
from horovod.runner.elastic.discovery import FixedHosts, HostDiscoveryScript

ELASTIC = "-np 3 --min-np 2 --max-np 8 --slots-per-host 4 --elastic-timeout 20 --reset-limit 5 --blacklist-cooldown-range 6 7"


def parsed(monkeypatch, text):
    monkeypatch.setattr(sys, "argv", ["horovodrun", *text.split()])
    return launch.parse_args()


def words_of(text, elastic=False):
    return _options.hvdrun_words(_options.parse(text.split()), elastic)


def test_what_was_said_of_an_elastic_job_is_in_attributes(monkeypatch):
    args = parsed(monkeypatch, f"{ELASTIC} --host-discovery-script ./hosts.sh --log-level INFO train --min-np 9")
    said = (args.num_proc, args.min_num_proc, args.max_num_proc, args.slots, args.elastic_timeout, args.reset_limit)
    assert said == (3, 2, 8, 4, 20, 5)
    assert args.cooldown_range == [6, 7] and args.host_discovery_script == "./hosts.sh" and args.log_level == "INFO"
    assert args.command == ["train", "--min-np", "9"]
    assert args.hosts is None and args.verbose is None and args.run_func is None
    assert parsed(monkeypatch, "--network-interface lo --network-interface eth0,eth1 train").nics == "lo,eth0,eth1"
    same = parsed(monkeypatch, "-np 2 --min-num-proc 1 --max-num-proc 4 train")
    assert (same.min_num_proc, same.max_num_proc) == (1, 4)


def test_settings_of_the_runtime_become_its_variables(monkeypatch):
    args = parsed(monkeypatch, "-np 2 --fusion-threshold-mb 3 --cycle-time-ms 2 --no-hierarchical-allreduce --tcp "
                               "--log-without-timestamp --autotune-warmup-samples 4 --timeline-mark-cycles true")  # fmt: skip
    env = {"HOROVOD_CACHE_CAPACITY": "7"}
    assert config_parser.set_env_from_args(env, args) is env
    assert env == {
        config_parser.HOROVOD_CACHE_CAPACITY: "7", config_parser.HOROVOD_FUSION_THRESHOLD: str(3 << 20),
        "HOROVOD_CYCLE_TIME": "2.0", "HOROVOD_HIERARCHICAL_ALLREDUCE": "0", "NCCL_IB_DISABLE": "1",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }  # fmt: skip


@pytest.mark.skipif(not os.access(HVDRUN, os.X_OK), reason="hvdrun is not built")
@pytest.mark.parametrize("is_opposite", [False, True])
def test_hvdrun_knows_every_word(is_opposite, tmp_path):
    """All options at once, but for those that end it or exclude others."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("params:\n  cycle_time_ms: 2\n")
    values = {"hosts": "localhost:2", "config_file": settings, "num_proc": 2, "nics": "lo", "log_level": "INFO",
              "timeline_filename": "t", "autotune_log_file": "a", "output_filename": tmp_path, "ssh_identity_file": "k",
              "min_num_proc": 1, "max_num_proc": 2}  # fmt: skip
    left_out = ("check_build", "hostfile", "host_discovery_script", "slots", "cooldown_range", "use_mpi", "use_jsrun", "mpi_args",
                "binding_args")  # fmt: skip
    words = []
    for option in _options.OPTIONS:
        if option.dest not in left_out:
            value = values.get(option.dest, 1 if option.count else not (is_opposite and option.opposite))
            assert option.words(value), option
            words += option.words(value)
    done = subprocess.run([HVDRUN, "plan", *words, "true"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    offered = [word for word in words_of(f"{ELASTIC} --host-discovery-script x", elastic=True) if "timeout" not in word]
    done = subprocess.run([HVDRUN, "plan", *offered, "true"], capture_output=True, text=True, timeout=PATIENCE)
    assert "plan runs no discovery of hosts" in done.stderr, done.stderr  # it has read all words
    outside = {name: value for name, value in os.environ.items() if name != "LSB_JOBID"}
    done = subprocess.run([HVDRUN, "plan", *words_of("-np 2 --jsrun"), "true"], capture_output=True, text=True, env=outside,
                          timeout=PATIENCE)  # fmt: skip
    assert "lsf was asked for" in done.stderr, done.stderr


def test_arguments_that_a_program_sets_itself_may_have_their_former_names():
    args = runner._HorovodArgs(np=4, min_np=2)
    args.max_np = 8
    assert (args.num_proc, args.min_num_proc, args.max_num_proc, args.np, args.max_np) == (4, 2, 8, 4, 8)
    assert _options.hvdrun_words(args, elastic=False) == ["--num-proc=4", "--min-num-proc=2", "--max-num-proc=8"]
    with pytest.raises(ValueError, match="num_proc is needed for a function"):
        launch._run(_options.Arguments(hosts="localhost:2", run_func=os.getpid))
    assert runner._HorovodArgs().num_proc == 1 and runner._HorovodArgs(num_proc=3).np == 3


@pytest.mark.parametrize(("given", "words"), [
    ([], []), (set(), []), ("", []), ("eth0,eth1", ["--network-interfaces=eth0,eth1"]), (["b", "a"], ["--network-interfaces=b,a"]),
    ({"b", "a"}, ["--network-interfaces=a,b"]),
])  # fmt: skip
def test_networks_may_be_given_as_any_collection(given, words):
    assert _options.hvdrun_words(_options.Arguments(nics=given), elastic=False) == words


def test_the_release_can_be_asked_for_and_the_commands_options_are_its_own(monkeypatch, capsys):
    assert parsed(monkeypatch, "-np 2 train --log x -v --min").command == ["train", "--log", "x", "-v", "--min"]
    for word in ("-v", "--version"):
        with pytest.raises(SystemExit):
            parsed(monkeypatch, word)
        assert capsys.readouterr().out == "0.28.1\n"


def test_hosts_of_an_elastic_job_are_offered_again_and_again(monkeypatch):
    monkeypatch.delenv("HOROVOD_ELASTIC_TIMEOUT", raising=False)
    words = words_of("-np 2 --min-np 1 -H a:2,b:2", elastic=True)
    assert "--host-discovery-script=printf '%s\\n' a:2 b:2" in words and not [w for w in words if w.startswith("--hosts")]
    assert "--discovery-interval=1.0" in words and "--elastic-timeout=600" in words and "--exclude-failed-hosts" in words
    assert words_of("-np 2 -H a:2,b:2") == ["--num-proc=2", "--hosts=a:2,b:2"]
    assert "--host-discovery-script=cat 'my hosts'" in _options.hvdrun_words(
        _options.Arguments(num_proc=2, min_num_proc=1, hostfile="my hosts"), elastic=True
    )
    assert "--min-num-proc=2" in words_of("-np 2 --host-discovery-script x", elastic=True)
    monkeypatch.setattr(driver, "DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    monkeypatch.setattr(driver, "ELASTIC_TIMEOUT_SECS", 7)
    words = words_of("-np 2 --min-np 1 -H a:2", elastic=True)
    assert "--discovery-interval=0.1" in words and "--elastic-timeout=7" in words
    assert "--elastic-timeout=3.0" in words_of("-np 2 --min-np 1 -H a:2 --elastic-timeout 3", elastic=True)


@pytest.mark.skipif(not os.access(HVDRUN, os.X_OK), reason="hvdrun is not built")
def test_a_command_runs_and_its_failure_is_told_in_known_words(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(_job, "find_program", lambda _name: HVDRUN)
    args = _options.parse(["-np", "2", "-H", "localhost:2,127.0.0.1:2", "--min-np", "2", "sh", "-c", "echo $HOROVOD_HOSTNAME"])
    assert launch._run_elastic(args) is None
    printed = capfd.readouterr().out
    assert printed.count("localhost") == 2 and printed.count("127.0.0.1") == 2
    args.command = ["sh", "-c", "exit 3"]
    with pytest.raises(RuntimeError, match="one or more processes exited with non-zero status") as failed:
        launch._run_elastic(args)
    assert "hvdrun ended with exit code 3" in str(failed.value) and "exited with code 3" in str(failed.value)
    assert launch._run(_options.parse(["-np", "1", "true"])) is None


def test_the_end_of_an_elastic_job_by_its_limit_is_told_in_known_words(monkeypatch):
    told = constants.RESET_LIMIT_EXCEEDED_MESSAGE.format(4)
    monkeypatch.setattr(_job, "find_program", lambda _name: "/bin/sh")
    args = _options.Arguments(num_proc=1, command=[])
    monkeypatch.setattr(_options, "hvdrun_words", lambda *_: ["-c", f"echo 'hvdrun: {told}' >&2; exit 247"])
    with pytest.raises(RuntimeError) as failed:
        launch._run_elastic(args)
    assert str(failed.value).startswith(told + "\n")


def test_hosts_can_be_asked_for(tmp_path):
    script = tmp_path / "hosts"
    script.write_text("echo a:2; echo; echo '  b '; echo a:5\n")
    assert HostDiscoveryScript(f"sh {script}", 3).find_available_hosts_and_slots() == {"a": 2, "b": 3}
    with pytest.raises(RuntimeError, match="exited with code 4"):
        HostDiscoveryScript("exit 4").find_available_hosts_and_slots()
    with pytest.raises(ValueError):
        HostDiscoveryScript("echo a:b").find_available_hosts_and_slots()
    fixed = FixedHosts({"a": 1})
    fixed.set({"b": 2})
    assert fixed.find_available_hosts_and_slots() == {"b": 2}


@pytest.mark.parametrize("name", [
    "gloo_run.gloo_run", "gloo_run.gloo_run_elastic", "js_run.js_run", "js_run.generate_jsrun_rankfile", "mpi_run.mpi_run",
    "launch.run_controller", "common.util.hosts.parse_hosts", "common.util.hosts.SlotInfo",
    "common.util.hosts.get_host_assignments", "common.util.host_hash.host_hash", "elastic.driver.ElasticDriver",
    "elastic.discovery.HostManager", "elastic.settings.ElasticSettings", "elastic.worker.WorkerNotificationManager",
])  # fmt: skip
def test_what_hvdrun_does_instead_is_there_and_says_so(name):
    module, _, last = name.rpartition(".")
    with pytest.raises(NotImplementedError, match="hvdrun"):
        getattr(importlib.import_module(f"horovod.runner.{module}"), last)()
