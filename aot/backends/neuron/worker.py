"""One graph lowered, in a process of its own: `python -m aot.backends.neuron.worker JOB.json OUT_DIR`.

The interpreter is one that has torch-xla, whatever else it lacks: nothing is imported here but that, torch and the
models. Standard input is a pipe that ends when the build does. Writes OUT_DIR/raw.hlo with raw.json (see
`lowering.Noted`), and the same for the check graph.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path


def main(job_file: str, out: str) -> None:
    """Lower the graph described in `job_file` into folder `out`."""
    threading.Thread(target=_end_with_build, daemon=True).start()
    from aot.backends.neuron.chain import ChainSpec
    from aot.backends.neuron.lowering import lower
    from runtime.bundle.record import from_json

    chain = from_json(ChainSpec, json.loads(Path(job_file).read_text(encoding="utf-8")), "job")
    for name, wanted in (("raw", chain), ("check", chain.check)):
        if wanted is None:
            continue
        started = time.monotonic()
        data, noted = lower(wanted)
        (Path(out) / f"{name}.hlo").write_bytes(data)
        (Path(out) / f"{name}.json").write_text(json.dumps(dataclasses.asdict(noted)), encoding="utf-8")
        print(f"{name}: {len(wanted.calls)} calls, {len(data)} bytes in {time.monotonic() - started:.1f} s", flush=True)


def _end_with_build() -> None:
    """End this worker when the build is gone, which holds the other end of standard input."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
