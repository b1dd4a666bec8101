"""Runs scripts of cases one after the other in one process, each in a job of its own, since importing torch takes longer than
most of them do. Runs as a rank (test_torch_mpi.py). Reports {script: what it reports}.

Usage: rank_suites.py SCRIPT...
"""

import json
import os
import pathlib
import runpy
import sys

from rank_side import report

folder = pathlib.Path(os.environ["HVD_TEST_REPORTS"])
reports = {}
for script in sys.argv[1:]:
    own = folder / script
    own.mkdir(exist_ok=True)
    os.environ["HVD_TEST_REPORTS"] = str(own)
    runpy.run_path(str(pathlib.Path(__file__).parent / script), run_name="__main__")
    os.environ["HVD_TEST_REPORTS"] = str(folder)
    name = f"{os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ.get('HVD_RANK') or '0'}.json"
    reports[script] = json.loads((own / name).read_text())
    report(reports)
