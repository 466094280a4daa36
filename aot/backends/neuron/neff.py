"""Compile one graph to a NEFF with neuronx-cc, unless the cache has it.

The key is HLO, arguments and compiler version. Exit code 70, the compiler's internal failure, is tried again at once,
since it often does not come again. A NEFF whose header is not what was asked for is a failure; a failure leaves a log
and nothing in the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aot.backends.neuron.advice import INTERNAL_FAILURE, KILLED, advise, as_signal
from aot.backends.neuron.compiler import COMMAND, Compiler
from aot.backends.neuron.flags import INPUT, LOG, OUTPUT
from aot.backends.neuron.processes import Processes
from aot.build.result import UnitResult
from aot.cache import Cache, key_of
from runtime.bundle.errors import CompileError, Eagle3Error, IntegrityError
from runtime.bundle.neff import read_neff
from runtime.bundle.open import sha256_file

RECORD = "command.json"
TRIES = 3
# Of a log, the part in which the reason of a failure stands
_TAIL = 1 << 20


@dataclass(frozen=True)
class NeffJob:
    """One graph to compile: its HLO file, the compiler's arguments (`flags.arguments`), and the lnc among them."""

    name: str
    hlo: Path
    arguments: tuple[str, ...]
    lnc: int

    def factors(self, compiler: Compiler) -> dict[str, str]:
        """Everything that decides the NEFF, by name. No paths."""
        return {
            "hlo": sha256_file(self.hlo),
            "arguments": json.dumps(list(self.arguments)),
            "compiler": compiler.version,
        }


@dataclass(frozen=True)
class NeffResult(UnitResult):
    """How one graph went; exit_code is that of the last try.

    attempts: how often the compiler ran, 0 where the cache had the NEFF.
    timed_out: it was ended for taking too long.
    problem: why there is no NEFF.
    """

    attempts: int = 0
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.problem is None

    @property
    def lacked_memory(self) -> bool:
        """The system killed the compiler, most likely for want of memory, and it may be tried again."""
        return as_signal(self.exit_code) == KILLED and not self.timed_out and self.attempts < TRIES


def neff_cache(cache: Cache) -> Cache:
    """The part of the user's build cache that holds NEFFs."""
    return dataclasses.replace(cache, kind="neffs", needed=(OUTPUT, RECORD))


@dataclass(frozen=True)
class Driver:
    """What every graph of one run shares."""

    compiler: Compiler
    cache: Cache
    logs: Path
    timeout: float
    processes: Processes

    def compile(self, job: NeffJob, before: NeffResult | None = None) -> NeffResult:
        """Compile one graph into the cache, unless it is there; `before` is how earlier tries went."""
        began = time.monotonic() - (before.seconds if before else 0)
        attempts = before.attempts if before else 0
        factors = job.factors(self.compiler)
        key, log = key_of(factors), self.logs / f"{job.name}.log"

        def result(exit_code: int, problem: Eagle3Error | None = None, timed_out: bool = False) -> NeffResult:
            seconds, cached = time.monotonic() - began, attempts == 0
            return NeffResult(job.name, key, exit_code, seconds, 0, log, cached, problem, attempts, timed_out)

        with self.cache.locked(key, lambda: self.processes.stopping):
            if self.cache.has(key):
                return result(0)
            if attempts == 0:
                log.unlink(missing_ok=True)
            while True:
                attempts += 1
                with self.cache.staging(key) as staged:
                    exit_code = self._run(job, staged, log, attempts)
                    if exit_code is None:
                        return result(KILLED, self._too_slow(job, log), timed_out=True)
                    if exit_code == 0:
                        problem = self._examine(job, staged, log)
                        if problem is None:
                            self._keep(job, staged, log, attempts)
                            self.cache.publish(staged, key, factors)
                        return result(0, problem)
                if exit_code != INTERNAL_FAILURE or attempts == TRIES:
                    return result(exit_code, self._failed(job, log, exit_code, attempts))

    def _run(self, job: NeffJob, staged: Path, log: Path, attempt: int) -> int | None:
        """One run of the compiler in `staged`; what it said is added to `log`."""
        work, said = staged / "work", staged / "output.txt"
        work.mkdir()
        shutil.copyfile(job.hlo, work / INPUT)
        exit_code = self.processes.run([self.compiler.command, *job.arguments], work, said, self.timeout)
        with log.open("ab") as kept:
            how = "took too long" if exit_code is None else f"exit code {exit_code}"
            kept.write(f"== {COMMAND} {shlex.join(job.arguments)}\n== try {attempt}: {how}\n".encode())
            for part in (said, work / LOG):
                with contextlib.suppress(OSError), part.open("rb") as stream:
                    shutil.copyfileobj(stream, kept)
        return exit_code

    def _examine(self, job: NeffJob, staged: Path, log: Path) -> Eagle3Error | None:
        """Why what the compiler wrote is not what was asked for; the header names no target, so lnc alone is compared.

        0, where the header does not say, passes.
        """
        file = staged / "work" / OUTPUT
        repair = f"read {log}, and compile again, or with another release of {COMMAND}"
        what = f"{COMMAND} wrote no usable NEFF for graph {job.name}"
        if not file.is_file():
            return CompileError(what, expected=f"the file {OUTPUT}", found="no such file", repair=repair)
        try:
            neff = read_neff(file, OUTPUT)
        except IntegrityError as error:
            return CompileError(what, expected=error.expected, found=error.found, repair=repair)
        if neff.lnc not in (0, job.lnc):
            return CompileError(what, expected=f"lnc {job.lnc}", found=f"lnc {neff.lnc}", repair=repair)
        return None

    def _keep(self, job: NeffJob, staged: Path, log: Path, attempts: int) -> None:
        """Leave in `staged` what an entry holds and nothing else."""
        record = command_record(job.arguments, self.compiler.version, attempts)
        (staged / "work" / OUTPUT).rename(staged / OUTPUT)
        (staged / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        shutil.copyfile(log, staged / LOG)
        (staged / "output.txt").unlink()
        shutil.rmtree(staged / "work")

    def _failed(self, job: NeffJob, log: Path, exit_code: int, attempts: int) -> Eagle3Error:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL))
            text = stream.read().decode("utf-8", errors="replace")
        tries = f" in each of {attempts} tries" if attempts > 1 else ""
        return CompileError(
            f"Graph {job.name} failed to compile",
            expected="exit code 0",
            found=f"exit code {exit_code}{tries}",
            repair=f"{advise(text, exit_code)}; the log is {log}",
        )

    def _too_slow(self, job: NeffJob, log: Path) -> Eagle3Error:
        return CompileError(
            f"Graph {job.name} took too long to compile",
            expected=f"at most {self.timeout:g} s",
            found="a compiler that was still running, and was ended",
            repair=f"give a longer --timeout, or use smaller buckets; the log is {log}",
        )


def command_record(
    arguments: Sequence[str], compiler: str = "", attempts: int = 0, extra: Sequence[str] = ()
) -> dict[str, object]:
    """The content of command.json: how a graph's NEFF was, or is to be, compiled.

    Args:
        compiler: its version, "" as long as none has run.
        extra: the arguments that are the user's own, so that finishing a lowered bundle elsewhere passes them too.
    """
    return {
        "argv": [COMMAND, *arguments],
        "flags": list(arguments),
        "extra": list(extra),
        "compiler": compiler,
        "attempts": attempts,
    }
