"""Each input runs in a process forked from one that has imported everything, and what became of it has one word.

    refused      one of our exit codes and a sentence
    right        the input was taken, and what came out is what it must be
    traceback    an exception that nobody turned into a sentence, or "this is a defect"
    signal       the process was ended by one: a segmentation fault, a bus error, a lack of memory
    hang         it did not end in time
    wrong        it was taken, and something else came out

Only the first two are allowed. The parent of the forks runs nothing itself: a process that has used its OpenMP threads
cannot be forked safely.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Word = Literal["refused", "right", "traceback", "signal", "hang", "wrong"]
WORDS: tuple[Word, ...] = ("refused", "right", "traceback", "signal", "hang", "wrong")
ALLOWED: tuple[Word, ...] = ("refused", "right")

# The exit codes of a sentence: usage, configuration, host, integrity, compile, cache miss
SENTENCES = (2, 3, 4, 5, 6, 7)
# Memory that one input may make its process reserve; what wants more gets an error and not the whole machine's
MEMORY = 12 << 30


@dataclass(frozen=True)
class Ended:
    """How a forked process ended, and what it printed."""

    code: int | None
    signal: int | None
    out: str
    err: str

    @property
    def hung(self) -> bool:
        return self.code is None and self.signal is None


def forked(work: Callable[[], int], folder: Path, seconds: float) -> Ended:
    """Run `work` in a fork, its output in files of `folder`; its return value is the exit code."""
    out, err = folder / "stdout", folder / "stderr"
    child = os.fork()
    if child == 0:
        _run(work, out, err)
    descriptor = os.pidfd_open(child)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    done = poll.poll(seconds * 1000)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(descriptor)
    # What the input made its process start ends with it
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    texts = out.read_text(errors="replace"), err.read_text(errors="replace")
    if not done:
        return Ended(None, None, *texts)
    if os.WIFSIGNALED(status):
        return Ended(None, os.WTERMSIG(status), *texts)
    return Ended(os.WEXITSTATUS(status), None, *texts)


def _run(work: Callable[[], int], out: Path, err: Path) -> None:
    """In the child: never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        for name, number in ((out, 1), (err, 2)):
            opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, number)
            os.close(opened)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = work()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def word_for(ended: Ended, right: Callable[[str], bool]) -> Word:
    """The one word for how an input ended.

    Args:
        right: whether what was printed by a run that ended well is right.
    """
    if ended.hung:
        return "hang"
    if ended.signal is not None:
        return "signal"
    # Exceptions that only a log shows count too: somebody's thread or task ended by one
    if "Traceback (most recent call last)" in ended.err or "is a defect" in ended.err + ended.out:
        return "traceback"
    if ended.code == 0:
        return "right" if right(ended.out) else "wrong"
    return "refused" if ended.code in SENTENCES and ("error" in ended.err or "error" in ended.out) else "traceback"
