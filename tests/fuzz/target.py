"""What a kind of input is to the fuzzer."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Target(Protocol):
    """One kind of input.

    seconds: how long one input may take; what is not done then hangs.
    """

    seconds: float

    def prepare(self, folder: Path) -> None:
        """Make the input as it should be in `folder`; not in the process that forks."""

    def load(self) -> None:
        """Import everything that a run needs, in the process that forks."""

    def copy(self, pristine: Path, folder: Path) -> None:
        """The input as it should be, in `folder`, to be spoiled there."""

    def spoil(self, rng: random.Random, folder: Path) -> str:
        """Spoil the copy in `folder`, and say how."""

    def run(self, folder: Path) -> int:
        """What a user would do with it, in a fork; returns the exit code."""

    def answer(self, out: str) -> str:
        """What of the printed text must be the same for every input that is taken."""


def linked_copy(source: Path, copy: Path) -> Path:
    """A copy whose files are hard links: whoever changes one replaces it."""
    return Path(shutil.copytree(source, copy, copy_function=os.link, symlinks=True))


def console(main: Callable[[], object], *arguments: object) -> int:
    """Run a console script's `main` with these arguments, as the shell would."""
    sys.argv = ["fuzzed", *map(str, arguments)]
    code = main()
    return code if isinstance(code, int) else 0
