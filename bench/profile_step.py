"""Where one decode step goes: median milliseconds by call kind, beside the floor that memory bandwidth sets.

    python bench/profile_step.py

A step of few rows reads every weight once and computes little with it, so weights over memory bandwidth is the least
time it can take. `floor` is that, `GB/s` what the calls reached; a kind far above its floor is worth work, one at its
floor is not. The KV read is left out: at the profile's context it is a hundredth of the weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from bench.commands import CONFIG, ROOT
from bench.machine import describe, load_average
from runtime.bundle.errors import Eagle3Error, render
from runtime.bundle.open import open_bundle
from runtime.bundle.threads import bound_spinning


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--bundle", default=ROOT / "artifacts" / CONFIG.stem, type=click.Path(path_type=Path, exists=True))
def main(bundle: Path) -> None:
    bound_spinning()  # as eagle3-run does, before torch is imported
    import torch

    from bench.step import bandwidth, profile

    opened = open_bundle(bundle)
    rate = bandwidth()
    for name, fact in describe().items():
        click.echo(f"{name:<14} {fact}")
    threads = torch.get_num_threads()
    click.echo(f"{'load average':<14} {load_average()} (1 and 5 minutes)")
    click.echo(f"{'bandwidth':<14} {rate / 1e9:.1f} GB/s, best of reads of 512 MiB by {threads} threads")
    for speculation in (False, True):
        click.echo()
        click.echo("\n".join(profile(opened, speculation, rate)))


if __name__ == "__main__":
    try:
        main()
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
