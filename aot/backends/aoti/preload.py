"""What every compile worker needs, imported once: workers are forked from a process that has done it.

Importing torch and Inductor takes seconds, about a third of a small unit's compile.
"""

import os

# A variable that steers the compiler would change the code and not its cache key.
_PREFIXES = ("TORCHINDUCTOR_", "AOT_INDUCTOR_", "AOTINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "INDUCTOR_")
_NAMES = ("ATEN_CPU_CAPABILITY", "DUMP_AOTI_MINIFIER", "LD_RUN_PATH")
for _name in [name for name in os.environ if name.startswith(_PREFIXES) or name in _NAMES]:
    del os.environ[_name]

# Read when Inductor loads. No pool of compile threads: it would not survive the fork, and one unit is one process.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch._dynamo  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402
import torch.export  # noqa: E402, F401

import aot.backends.aoti.adjust  # noqa: E402
import aot.backends.aoti.packing  # noqa: E402
import aot.graphs.modules  # noqa: E402, F401
