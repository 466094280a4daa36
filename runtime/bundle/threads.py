"""How long a compute thread waits for the others before it sleeps.

A decode step is a few hundred short parallel loops with a barrier after each. By default GNU OpenMP's threads spin at a
barrier for about a millisecond; when another process holds a core, every barrier then costs that. Measured on two cores
with one busy neighbour: 241 ms a token by default, 65 ms with the count below, 33 ms when threads sleep at once. On two
quiet cores: 15.0, 14.7 (to 15.6) and 22.7 ms. So: spin through the gaps between loops and no longer.
"""

from __future__ import annotations

import os

SPIN_COUNT = "3000"


def bound_spinning() -> None:
    """Set the count unless the user chose a policy; only of use before torch is imported, which reads it once."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
