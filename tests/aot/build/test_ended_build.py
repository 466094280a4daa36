"""However a build ends, what it started ends with it, and nothing half made is left; the compiler only sleeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from aot.cache import key_of

pytestmark = [pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")]

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("sleepy_build.py")
# No bound of the product: a machine on which everything else runs too
PATIENCE = 60

Start = Callable[..., "subprocess.Popen[str]"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits for its parent to ask does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_of(folder: Path) -> list[int]:
    """Live processes in whose environment the folder is, this one's aside."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                environment = (process / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in environment:
                found.append(int(process.name))
    return found


class Sleepers:
    """The worker and the compiler of each unit of a sleepy build, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wait(self, *names: str) -> list[int]:
        """Wait until the compilers of these units sleep; returns the ids of their processes."""
        files = [self._folder / name for name in names]
        wait_until(lambda: all(file.is_file() for file in files))
        return [int(pid) for file in files for pid in file.read_text().split()]


@pytest.fixture
def sleepers(tmp_path: Path) -> Sleepers:
    return Sleepers(tmp_path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(*options)`: a sleepy build as a shell starts it, the leader of a process group."""
    started = []

    def run(*options: str, path: str = "") -> subprocess.Popen[str]:
        # The root is this session's Python path; TMPDIR is longer than a socket's path may be
        temporary = tmp_path / ("long" * 20)
        temporary.mkdir()
        build = subprocess.Popen(
            [sys.executable, str(SCRIPT), *options],
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}:{path}" if path else str(ROOT),
                "SLEEPY": str(tmp_path),
                "EAGLE3_CACHE": str(tmp_path / "cache"),
                "TMPDIR": str(temporary),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(build)
        return build

    yield run
    for build in started:
        build.kill()
    for file in (*tmp_path.glob("one"), *tmp_path.glob("two")):
        for pid in map(int, file.read_text().split()):
            if is_alive(pid):  # a test has failed
                os.kill(pid, signal.SIGKILL)
    for build in started:
        build.communicate()


SIGNALS = pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGINT, "Interrupted; "), (signal.SIGTERM, "Ended by SIGTERM; "), (signal.SIGHUP, "Ended by SIGHUP; ")],
)


@SIGNALS
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["the process alone", "its group"])
def test_m4_a_signal_ends_all_workers_and_compilers_and_leaves_no_staging(
    start: Start,
    sleepers: Sleepers,
    tmp_path: Path,
    number: signal.Signals,
    said: str,
    send: Callable[[int, int], None],
) -> None:
    build = start()
    pids = sleepers.wait("one", "two")
    send(build.pid, number)
    out, err = build.communicate(timeout=PATIENCE)
    assert build.returncode == 128 + number
    assert err.splitlines()[-1].startswith(said)
    assert "Traceback" not in err
    assert out == ""
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert list((tmp_path / "cache" / "staging").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_m4_a_signal_ends_a_build_that_waits_for_a_unit_of_another_build(
    start: Start, sleepers: Sleepers, tmp_path: Path, number: signal.Signals
) -> None:
    locks = tmp_path / "cache" / "locks"
    locks.mkdir(parents=True)
    key = key_of({"unit": json.dumps({"name": "two", "dtype": "float32"})})
    with FileLock(locks / f"{key}.lock"):
        build = start()
        pids = sleepers.wait("one")
        build.send_signal(number)
        build.communicate(timeout=PATIENCE)
    assert build.returncode == 128 + number
    assert not any(is_alive(pid) for pid in pids)


def test_m4_a_signal_does_not_wait_for_what_workers_are_forked_from(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports torch, which takes seconds; here something that says so and takes longer than anybody waits."""
    monkeypatch.setenv("SLEEPY_PRELOAD", "slow_import")
    (tmp_path / "slow_import.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path / 'importing')!r}).touch()\ntime.sleep(600)\n"
    )
    build = start(path=str(tmp_path))
    wait_until((tmp_path / "importing").exists)
    build.send_signal(signal.SIGTERM)
    _, err = build.communicate(timeout=PATIENCE)
    assert build.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1].startswith("Ended by SIGTERM; ")
    assert "Traceback" not in err


def test_m4_a_second_signal_does_not_end_the_cleaning_up(start: Start, sleepers: Sleepers, tmp_path: Path) -> None:
    build = start()
    sleepers.wait("one", "two")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        build.send_signal(number)
    build.communicate(timeout=PATIENCE)
    assert build.returncode in (128 + signal.SIGTERM, 128 + signal.SIGHUP)  # which comes first is the system's choice
    assert list((tmp_path / "cache" / "staging").iterdir()) == []


def test_b3_a_killed_build_leaves_no_worker_and_no_compiler(start: Start, sleepers: Sleepers, tmp_path: Path) -> None:
    build = start()
    pids = sleepers.wait("one", "two")
    build.kill()
    build.wait(PATIENCE)
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    wait_until(lambda: processes_of(tmp_path) == [])  # nor what they are forked from


def test_m5_a_compile_beyond_its_time_is_ended_and_the_others_go_on(start: Start, sleepers: Sleepers) -> None:
    build = start("--timeout", "10")
    out, err = build.communicate(timeout=2 * PATIENCE)
    assert build.returncode == 0, err
    problems = json.loads(out)
    assert problems["quick"] is None
    for name in ("one", "two"):
        problem = problems[name]
        assert problem["exit_code"] == 6
        assert f"Unit {name} " in problem["message"]
        assert problem["expected"] == "at most 10 s"
        assert f"{name}.log" in problem["repair"]
        assert "--timeout" in problem["repair"]
    assert not any(is_alive(pid) for pid in sleepers.wait("one", "two"))
