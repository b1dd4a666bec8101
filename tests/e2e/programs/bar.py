"""A progress bar as tqdm draws it, on standard error: each state begins with a carriage return. Beside it, lines.

After each state but the last it waits until the file FOLDER/N is there (N: the state), so that a test can look at it.
"""

import os
import sys
import time

count, folder = int(sys.argv[1]), sys.argv[2]
rank = os.environ["HVD_RANK"]
for i in range(count + 1):
    filled = 40 * i // count
    sys.stderr.write(f"\r{100 * i // count:3d}%|{'█' * filled}{' ' * (40 - filled)}| {i}/{count} of rank {rank}")
    sys.stderr.flush()
    while i < count and not os.path.exists(f"{folder}/{i}"):
        time.sleep(0.01)
    print(f"rank {rank} did {i}", flush=True)
sys.stderr.write("\n")
