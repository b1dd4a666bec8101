"""A rank with a family: a child in its group, one in a session of its own, one that ignores SIGTERM. Then it waits."""

import os
import subprocess
import sys
import time

subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sleep", "1001"], start_new_session=True)
subprocess.Popen([sys.executable, "-S", "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1002)"],
                 start_new_session=True)
print(f"rank {os.environ['HVD_RANK']} up", flush=True)
if len(sys.argv) > 1 and os.environ["HVD_RANK"] == sys.argv[1]:
    sys.exit(int(sys.argv[2]))
time.sleep(1000)
