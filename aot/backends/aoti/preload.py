"""What every compile worker needs, imported once: workers are forked from a process that has done it.

Importing torch and Inductor takes seconds, about a third of a small unit's compile.
"""

import os

# Read when Inductor loads. No pool of compile threads: it would not survive the fork, and one unit is one process.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


import aot.backends.aoti.adjust
import aot.backends.aoti.packing
import aot.graphs.modules  # noqa: F401
