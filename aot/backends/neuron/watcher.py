"""Ends compilers whose build was killed: `python watcher.py`, told on standard input which process groups are running.

A build that is killed outright cannot end what it started, and a compiler may go on for an hour. This process only
waits: "+ID" is a group that started, "-ID" one that ended. Standard input ends when the build does, however it ends;
the groups that are running then are killed. The standard library alone, and nothing of this project, is imported.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Wait for the end of standard input, then kill every group that has not ended."""
    running: set[int] = set()
    for line in sys.stdin:
        change = running.add if line[0] == "+" else running.discard
        change(int(line[1:]))
    for group in running:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
