"""The contenders of `run_fl_benchmark`: one file each, the same work (`work.py`), each its own process.

What must happen before anything heavy is imported happens here: the clock of the imports starts, BLAS gets one thread
a process (the matrices of this work are too small to share between cores; whoever wants two cores starts two
processes), and Flower and Ray do not report their use.
"""

import os
import time

BEGAN = time.perf_counter()

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
for _name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(_name, "0")
