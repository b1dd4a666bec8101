"""Reads standard input to its end, and prints how much that was, and its MD5.

reads_input.py [STEPS]   rank 0 stops after its first bytes, and again a million later: it makes STEPS/at0, and goes on
                         when STEPS/go0 is there
"""

import hashlib
import os
import sys
import time

count, md5, step = 0, hashlib.md5(), 0
while data := os.read(0, 65536):
    count += len(data)
    md5.update(data)
    if len(sys.argv) > 1 and step < 2 and count > step * 1_000_000:
        open(f"{sys.argv[1]}/at{step}", "w").close()
        while not os.path.exists(f"{sys.argv[1]}/go{step}"):
            time.sleep(0.01)
        step += 1
print(count, md5.hexdigest(), flush=True)
