"""How many compute threads there are, and how long one waits for the others before it sleeps.

There are as many as the cores that this process may use (`runtime.bundle.cores`).

A decode step is a few hundred short parallel loops with a barrier after each. By default GNU OpenMP's threads spin at a
barrier for about a millisecond; when another process holds a core, every barrier then costs that. Measured on two cores
with one busy neighbour: 241 ms a token by default, 65 ms with the count below, 33 ms when threads sleep at once. On two
quiet cores: 15.0, 14.7 (to 15.6) and 22.7 ms. So: spin through the gaps between loops and no longer.
"""

from __future__ import annotations

import os
from pathlib import Path

from runtime.bundle.cores import ROOT, asked_threads, compute_threads, whole_cores

SPIN_COUNT = "3000"


def bound_spinning() -> None:
    """Set the count unless the user chose a policy; only of use before torch is imported, which reads it once."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def bound_threads(root: Path = ROOT) -> None:
    """Leave no more compute threads than a CPU quota has cores; only of use before torch is imported.

    Told by OMP_NUM_THREADS, which holds for compute in every thread of the process; a smaller number there stays. Where
    nothing is below the affinity, torch decides.
    """
    threads = compute_threads(root)
    asked = asked_threads()
    if threads.bound == "environment" or asked == str(threads.count):
        return
    if threads.bound == "quota":
        # A number here is followed where torch alone would leave out a core's second thread
        os.environ["OMP_NUM_THREADS"] = str(min(threads.count, whole_cores(root)))
    elif asked:
        os.environ["OMP_NUM_THREADS"] = str(threads.count)
