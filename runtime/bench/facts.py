"""What the figures are of: bundle, machine, versions and settings. A figure without them says nothing."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from runtime.bundle.cores import usable_cores
from runtime.bundle.host import torch_release
from runtime.bundle.manifest import Manifest


@dataclass(frozen=True)
class Facts:
    """One run's circumstances, as `--json` prints them.

    Attributes:
        num_speculative_tokens: the bundle's K; its passes have 1+K rows.
        lossless: what the bundle promises of greedy text, "exact" or "near_tie".
        threads, cores: compute threads of torch, and the cores that this process may use.
        load_average: runnable processes of the minute before the run. Above the cores, the machine was busy.
        max_tokens: the limit of a prompt that names none of its own.
    """

    bundle: str
    bundle_id: str
    num_speculative_tokens: int
    dtype: str
    lossless: str
    device: str
    cpu: str
    cores: int
    threads: int
    load_average: float
    system: str
    versions: dict[str, str]
    prompts: int
    max_tokens: int
    concurrency: int
    warmup: int
    ignore_eos: bool
    raw: bool

    @classmethod
    def gather(
        cls,
        manifest: Manifest,
        *,
        prompts: int,
        max_tokens: int,
        concurrency: int,
        warmup: int,
        ignore_eos: bool,
        raw: bool,
    ) -> Facts:
        return cls(
            bundle=manifest.name,
            bundle_id=manifest.bundle_id,
            num_speculative_tokens=manifest.speculation.num_speculative_tokens,
            dtype=manifest.dtype,
            lossless=manifest.exactness.lossless,
            device=manifest.requires.device,
            cpu=cpu_model(),
            cores=usable_cores().count,
            threads=torch.get_num_threads(),
            load_average=round(os.getloadavg()[0], 2),
            system=platform.platform(),
            versions={"eagle3-aot": _own_version(), "torch": torch_release(), "python": platform.python_version()},
            prompts=prompts,
            max_tokens=max_tokens,
            concurrency=concurrency,
            warmup=warmup,
            ignore_eos=ignore_eos,
            raw=raw,
        )

    def lines(self) -> list[str]:
        """For people: the bundle, the machine, what was run."""
        at_once = "one request" if self.concurrency == 1 else f"{self.concurrency} requests"
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return [
            f"bundle   {self.bundle} {self.bundle_id[:12]}, K={self.num_speculative_tokens}, {self.dtype}, "
            f"{self.lossless}",
            f"machine  {self.device}: {self.cpu}, {self.cores} cores, {self.threads} threads, load average "
            f"{self.load_average:.2f} before; {self.system}",
            f"with     {versions}",
            f"run      {self.prompts} prompts, at most {self.max_tokens} new tokens each, {at_once} at a time, greedy"
            + (", past end of sequence" if self.ignore_eos else ""),
        ]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def cpu_model() -> str:
    """The CPU's name; its architecture where the system tells no name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _own_version() -> str:
    try:
        return version("eagle3-aot")
    except PackageNotFoundError:
        return "not installed"
