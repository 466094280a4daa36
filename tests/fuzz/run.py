"""`python -m tests.fuzz.run TARGET --folder F --seed S --cases N`: run spoiled inputs, print what became of them.

Each case has a generator of its own, seeded by (target, seed, number), so that one can be run again alone with --only.
`--part I/N` takes every N-th case, for several processes side by side.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fuzz.forking import ALLOWED, WORDS, forked, word_for
from tests.fuzz.target import Target


def targets() -> dict[str, Target]:
    from tests.fuzz.targets.builds import Checkpoints, Configs
    from tests.fuzz.targets.bundles import Files, Manifests
    from tests.fuzz.targets.cache import Caches
    from tests.fuzz.targets.http import Http

    return {
        "manifest": Manifests(),
        "files": Files(),
        "config": Configs(),
        "checkpoint": Checkpoints(),
        "http": Http(),
        "cache": Caches(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(targets()))
    parser.add_argument("--folder", type=Path, required=True, help="where the input is that is spoiled")
    parser.add_argument("--prepare", action="store_true", help="make that input and end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--only", type=int, help="run this case alone and print what it printed")
    options = parser.parse_args()
    target = targets()[options.target]
    if options.prepare:
        target.prepare(options.folder)
        return 0
    part, parts = map(int, options.part.split("/"))
    numbers = range(part, options.cases, parts) if options.only is None else [options.only]
    json.dump(
        fuzz(target, f"{options.target} {options.seed}", options.folder, numbers, options.only is not None), sys.stdout
    )
    return 0


def fuzz(target: Target, seed: str, pristine: Path, numbers: Iterable[int], show: bool = False) -> dict[str, Any]:
    """Run the cases `numbers`; how many got each word, and those that got one that is not allowed.

    Raises:
        RuntimeError: the input as it should be is not taken, so that nothing else would mean anything.
    """
    target.load()
    # What is imported stays out of the collector's way, and so out of the memory that forks copy
    gc.freeze()
    counts, bad = dict.fromkeys(WORDS, 0), []
    with _case(target, pristine) as folder:
        unspoiled = forked(lambda: target.run(folder), folder, target.seconds)
    if unspoiled.code != 0:
        raise RuntimeError(f"the input as it should be is not taken: {unspoiled}")
    wanted = target.answer(unspoiled.out)
    for number in numbers:
        with _case(target, pristine) as folder:
            what = target.spoil(random.Random(f"{seed} {number}"), folder)
            ended = forked(lambda folder=folder: target.run(folder), folder, target.seconds)  # type: ignore[misc]
        word = word_for(ended, lambda out: target.answer(out) == wanted)
        counts[word] += 1
        if show or word not in ALLOWED:
            printed = (ended.err or ended.out)[-1500:]
            bad.append(
                {"case": number, "word": word, "what": what, "how": [ended.code, ended.signal], "printed": printed}
            )
    return {"counts": counts, "bad": bad}


@contextmanager
def _case(target: Target, pristine: Path) -> Iterator[Path]:
    """A folder with a copy of the input, for one case."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=pristine))
    try:
        target.copy(pristine, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # One thread: the forks of a process that has used more hang in their first parallel region
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
