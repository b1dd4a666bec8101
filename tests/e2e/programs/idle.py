"""Joins the job through libhvd's C interface, does one barrier, then sleeps."""

import ctypes
import os
import sys
import time

lib = ctypes.CDLL(sys.argv[1])
lib.hvd_last_error.restype = ctypes.c_char_p
if lib.hvd_init(None) != 0:
    sys.exit(lib.hvd_last_error().decode())
print(f"rank {lib.hvd_rank(None)} of {lib.hvd_size(None)} joined pid {os.getpid()}", flush=True)
time.sleep(float(sys.argv[2]))
lib.hvd_shutdown()
