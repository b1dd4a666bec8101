"""What the benchmarks share: the programs to compare, and running them in turn so that a machine's moods hit all alike."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HVDRUN = str(ROOT / "build/bin/hvdrun")
PYTHON = str(ROOT / "build/venv/bin/python")
MPIRUN = shutil.which("mpirun")
MPI = [MPIRUN, "--oversubscribe", "--allow-run-as-root"] if MPIRUN else None
TIMEOUT_S = 600


def run(command):
    """What the command printed; ends the benchmark where it fails."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, cwd=ROOT,
                          env=env, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def build(name, source, compiler, *flags):
    """Compiles scripts/bench/SOURCE; its path, or None where that compiler is not here."""
    if shutil.which(compiler) is None:
        print(f"no {compiler} here: {name} is left out", flush=True)
        return None
    program = ROOT / "build/bench" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-O2", ROOT / "scripts/bench" / source, "-o", program, *flags], cwd=ROOT, check=True)
    return str(program)


def allreduce_programs():
    """Name -> program of allreduce_rank.c's kind, which prints {bytes: seconds}; without those that cannot be here."""
    programs = {"hvd": build("allreduce_hvd", "allreduce_rank.c", "cc", "-Iruntime/include", "-Lbuild/lib", "-lhvd",
                             f"-Wl,-rpath,{ROOT}/build/lib"),
                "mpi": build("allreduce_mpi", "allreduce_rank.c", "mpicc", "-DWITH_MPI") if MPI else None}
    found = {name: [program] for name, program in programs.items() if program}
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        found["gloo"] = [PYTHON, "scripts/bench/allreduce_gloo.py"]
    else:
        print("no torch in build/venv: Gloo is left out", flush=True)
    return found


def launched(name, program, ranks):
    """The command that starts `ranks` of the program here: Open MPI's by its own launcher, others by hvdrun."""
    return [*(MPI if name.startswith("mpi") else [HVDRUN, "-q", "--no-tags"]), "-np", str(ranks), *program]


def interleaved(measures, rounds):
    """Calls each of {name: function} `rounds` times, in turn; {name: {key: median of its values}} of the dicts returned."""
    results = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            results[name].append(measure())
    return {name: {key: statistics.median(values[key] for values in found) for key in found[0]}
            for name, found in results.items()}


def json_of(command):
    """{bytes: seconds} that a rank printed."""
    return {int(size): value for size, value in json.loads(run(command)).items()}


def markdown(title, heads, rows):
    lines = [f"\n**{title}**\n", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])
