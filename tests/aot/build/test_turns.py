"""One build at a time works on an output, and only what a build made is ever taken away (M7, B13)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aot.build.assemble import publish
from aot.build.turns import aside, turn

ROOT = Path(__file__).parents[3]

# A build that stages, moves the old bundle aside where it is told to, and is killed there
KILLED = """
import os, signal, sys
from pathlib import Path
from aot.build.turns import aside, turn
output = Path(sys.argv[1])
with turn(output) as held:
    staging = held.new_staging()
    (staging / "new.txt").write_text("new")
    if sys.argv[2] == "between":
        output.rename(aside(staging))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "kept.txt").write_text("old")
    return folder


def killed(output: Path, when: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", KILLED, str(output), when], env=environment, check=False, timeout=60)


def names(output: Path) -> list[str]:
    return sorted(path.name for path in output.parent.iterdir())


@pytest.mark.parametrize("when", ["staged", "between"])
def test_what_a_killed_build_left_is_taken_away_and_the_old_bundle_is_there(output: Path, when: str) -> None:
    killed(output, when)
    assert len(names(output)) == 3
    assert output.exists() == (when == "staged")
    with turn(output):
        assert (output / "kept.txt").read_text() == "old"
    assert names(output) == ["out"]


def test_a_turn_that_ends_leaves_nothing_beside_the_output(output: Path) -> None:
    with turn(output) as held:
        staging = held.new_staging()
        (staging / "new.txt").write_text("new")
        publish(staging, output)
    assert names(output) == ["out"]
    assert (output / "new.txt").read_text() == "new"


@pytest.mark.parametrize(
    "theirs",
    [
        ".out.old-backup",
        ".out.staging-1",
        ".out.old-7",
        ".out.eagle3-old-backup",
        ".out.eagle3-old-0123456789abcdef",
        ".out.eagle3-staging-0123456789abcdef",
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_b13_a_users_folder_beside_the_output_stays(output: Path, theirs: str, there: bool) -> None:
    """Whatever it is called: no build wrote its name down. Nor does it become the bundle where there is none."""
    mine = output.with_name(theirs)
    mine.mkdir()
    (mine / "precious.txt").write_text("mine")
    if not there:
        (output / "kept.txt").unlink()
        output.rmdir()
    killed(output, "staged")
    with turn(output) as held:
        assert held.new_staging().is_dir()
    assert (mine / "precious.txt").read_text() == "mine"
    assert output.exists() == there


@pytest.mark.parametrize("line", ["../precious", "0123456789abcdef/../../precious", "precious", "", "0" * 100_000])
def test_a_list_of_tokens_names_no_other_folder(output: Path, line: str) -> None:
    precious = output.with_name("precious")
    precious.mkdir()
    output.with_name(".out.eagle3-turn").write_text(f"{line}\n")
    with turn(output):
        pass
    assert names(output) == ["out", "precious"]


def test_m7_builds_with_other_caches_take_turns_and_leave_each_others_staging_alone(output: Path) -> None:
    """The lock lies beside the output, which both share, and not in a cache, which they do not."""
    order: list[str] = []
    waits = threading.Event()

    def second() -> None:
        with turn(output, waits.set) as held:
            order.append("second")
            held.new_staging().rmdir()

    with turn(output) as held:
        staging = held.new_staging()
        (staging / "new.txt").write_text("new")
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(60)
        assert (staging / "new.txt").read_text() == "new"
        order.append("first")
        publish(staging, output)
    thread.join(60)
    assert order == ["first", "second"]
    assert names(output) == ["out"]


def test_many_take_turns_though_each_removes_the_lock(output: Path) -> None:
    """Who waited for a lock whose file is gone holds the lock of nothing, and must ask again."""
    inside, most = [0], [0]
    guard = threading.Lock()

    def build() -> None:
        for _ in range(20):
            with turn(output) as held:
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                held.new_staging().rmdir()
                with guard:
                    inside[0] -= 1

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert most == [1]
    assert names(output) == ["out"]


def test_the_staged_folder_and_the_one_moved_aside_differ() -> None:
    staging = Path("a/.out-staging-x.eagle3-staging-0123456789abcdef")
    assert aside(staging) == Path("a/.out-staging-x.eagle3-old-0123456789abcdef")
