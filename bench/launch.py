"""Run one command and tell its wall time, time to its first output byte, and peak memory, as JSON on stdout.

    python -I bench/launch.py COMMAND ARGUMENT ...

A process of its own because of how Linux counts: a program's peak resident memory (`ru_maxrss`) begins with that
of the process that started it, so only a small starter leaves the number alone. Standard library only, no imports
of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time


def main(command: list[str]) -> dict[str, object]:
    """Run `command` to its end. Times in seconds from just before it is started; memory in bytes."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        stream = process.stdout
        if stream is None:
            raise RuntimeError("the child has no standard output")
        first = os.read(stream.fileno(), 1)
        first_byte = time.perf_counter() - started
        rest = stream.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        errors.seek(0)
        told = errors.read()
    return {
        "exit_code": os.waitstatus_to_exitcode(status),
        "wall_s": wall,
        "first_byte_s": first_byte if first else None,
        "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "stdout": (first + rest).decode(errors="replace"),
        "stderr": told.decode(errors="replace"),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
