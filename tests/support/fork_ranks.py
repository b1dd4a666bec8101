"""Runs the ranks of tests as forks of one process that has imported a framework: that import is most of a short test's time.

Arguments: the modules to import, as far as they are there.
Started once per test session and framework (ranks.py). Each line on standard input is a request, a JSON object: `folder`, `script`,
`arguments`, `environment`, `ranks` (each rank's own environment), `imports` (modules that they find imported), and
`after_failure` (seconds that the others get when one rank has failed). Answers,
a line each: the pid of a process that leads a session of its own and runs the ranks; and, when it has ended, "done". It
writes rank R's output to folder/R.out and the exit codes to folder/codes.json. The library is loaded by the script, in each
rank for itself, and reads the rank's own environment.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback

for module in sys.argv[1:]:
    with contextlib.suppress(ImportError):  # an environment with other frameworks alone (scripts/fronts-versions)
        importlib.import_module(module)


def become_rank(output, environment):
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


def tell_if_cuda_is_lost():
    """CUDA does not survive a fork: what it says then does not name the cause."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda._is_in_bad_fork():
        print("fork_ranks: CUDA was in use before this rank was forked, by importing torch or what a test imports with it: "
              "nothing on a GPU can work in this rank. Run it by hvdrun (by_agent=False)", file=sys.stderr)  # fmt: skip


def leave(code):
    """Ends this fork as a script ends, exit handlers and all, but without taking Python apart: that would write to, and so
    copy, every page that it shares with the process that has imported a framework, which took longer
    than the test."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_script(script, arguments):
    """Its exit code."""
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def exit_codes(children, seconds):
    """Of all, in order. When one has failed, the others, which may wait for it, get `seconds` to end; then they say where they are."""
    codes = {}
    signals = iter((signal.SIGABRT, signal.SIGKILL))

    def end_the_rest(*_):
        number = next(signals, signal.SIGKILL)
        for child in set(children) - set(codes):
            with contextlib.suppress(ProcessLookupError):  # it has just been waited for
                os.kill(child, number)
        signal.alarm(10 if number == signal.SIGABRT else 0)

    signal.signal(signal.SIGALRM, end_the_rest)
    while len(codes) < len(children):
        child, status = os.wait()
        codes[child] = os.waitstatus_to_exitcode(status)
        if codes[child] and not signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.alarm(max(1, seconds))
    signal.alarm(0)
    return [codes[child] for child in children]


def run_ranks(request):
    """In the leader: forks the ranks and waits for them."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    folder, script = request["folder"], request["script"]
    sys.path[:0] = [os.path.dirname(script)]
    children = []
    for rank, environment in enumerate(request["ranks"]):
        child = os.fork()
        if child == 0:
            become_rank(f"{folder}/{rank}.out", environment)
            tell_if_cuda_is_lost()
            leave(run_script(script, request["arguments"]))
        children.append(child)
    signal.signal(signal.SIGABRT, signal.SIG_IGN)  # by which they are asked where they hang; this one sees them end
    codes = exit_codes(children, request["after_failure"])
    with open(f"{folder}/codes.json", "w") as file:
        json.dump(codes, file)


def main():
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        for module in request["imports"]:
            importlib.import_module(module)
        gc.freeze()  # else each rank's collector would copy all that it shares with this process
        leader = os.fork()
        if leader == 0:
            run_ranks(request)
            os._exit(0)
        print(leader, flush=True)
        os.waitpid(leader, 0)
        print("done", flush=True)


if __name__ == "__main__":
    main()
