"""Measure the build and the runtime, and print each figure beside its target.

docs/benchmarks.md says how each figure is measured. Only public commands and the runtime's own API are used. What is
built is thrown away, but for artifacts/bench-near-tie, which the verify part builds and the next run finds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from bench.builds import measure_builds, measure_rebuild, near_tie_bundle
from bench.commands import CONFIG, ROOT, BenchError, build
from bench.figures import Figure, table
from bench.machine import describe, load_average
from bench.runs import measure_memory, measure_start
from runtime.bundle.errors import Eagle3Error, render
from runtime.bundle.open import MANIFEST, read_manifest
from runtime.bundle.threads import bound_spinning

EXAMPLES = """\b
Examples:
  python bench/run.py                          everything, a quarter of an hour on two quiet cores
  python bench/run.py --only decode,verify     some parts
  python bench/run.py --json figures.json      the same for machines
"""
DEFAULT_BUNDLE = ROOT / "artifacts" / CONFIG.stem


def _decode(bundle: Path, quick: bool) -> list[Figure]:
    from bench.passes import measure_decode

    return measure_decode(bundle, repeats=2 if quick else 5)


def _verify(bundle: Path, quick: bool) -> list[Figure]:
    from bench.passes import measure_verify

    return measure_verify(near_tie_bundle(), repeats=30 if quick else 150)


def _host(bundle: Path, quick: bool) -> list[Figure]:
    from bench.passes import measure_host

    return measure_host(bundle, repeats=20 if quick else 100)


def _pool(bundle: Path, quick: bool) -> list[Figure]:
    from bench.passes import measure_pool

    return measure_pool(bundle, repeats=30 if quick else 150)


def _requests(bundle: Path, quick: bool) -> list[Figure]:
    from bench.several import measure_several

    return measure_several(bundle, repeats=1 if quick else 5)


def _sampled(bundle: Path, quick: bool) -> list[Figure]:
    from bench.several import measure_sampled

    return measure_sampled(bundle, repeats=20 if quick else 60)


# What starts processes comes first, while this one is small: later it holds torch and two models, and a build sees
# less free memory. The parts that need torch import it when they run.
PARTS: dict[str, Callable[[Path, bool], list[Figure]]] = {
    "start": lambda bundle, quick: measure_start(bundle, 2 if quick else 5),
    "memory": lambda bundle, quick: measure_memory(bundle),
    "build": lambda bundle, quick: measure_builds(),
    "rebuild": lambda bundle, quick: measure_rebuild(1 if quick else 3),
    "decode": _decode,
    "verify": _verify,
    "host": _host,
    "sampled": _sampled,
    "requests": _requests,
    "pool": _pool,
}


def chosen(only: str | None) -> list[str]:
    """The parts named in `only` ("decode,verify"), all where it is None; in the order of PARTS."""
    names = list(PARTS) if only is None else [name.strip() for name in only.split(",")]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}; the parts are {', '.join(PARTS)}", param_hint="--only")
    return [name for name in PARTS if name in names]


@click.command(help=__doc__, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="PARTS", help=f"Comma-separated: {','.join(PARTS)}.")
@click.option(
    "--bundle",
    default=DEFAULT_BUNDLE,
    type=click.Path(path_type=Path),
    help="The demo's bundle; built when it is not there.  [default: artifacts/smollm2-135m]",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the figures to FILE.")
@click.option("--quick", is_flag=True, help="Fewer repeats: to try the script out, not to publish from.")
def main(only: str | None, bundle: Path, json_file: Path | None, quick: bool) -> None:
    bound_spinning()  # as the two commands do, for the peer too
    parts, bundle = chosen(only), bundle.resolve()
    machine, load_before = describe(), load_average()
    if not (bundle / MANIFEST).is_file():
        click.echo(f"Building {bundle}", err=True)
        build(bundle)
    manifest = read_manifest(bundle)
    figures: list[Figure] = []
    failed: list[str] = []
    for part in parts:
        click.echo(f"Measuring {part} ...", err=True, nl=False)
        started = time.perf_counter()
        try:
            figures += PARTS[part](bundle, quick)
        except (BenchError, Eagle3Error) as error:  # the other parts' figures are worth having
            failed.append(part)
            click.echo(f" failed: {error}", err=True)
        else:
            click.echo(f" done in {time.perf_counter() - started:.0f} s", err=True)
    machine |= {
        "bundle": f"{manifest.name} {manifest.bundle_id[:16]}, {manifest.toolchain.get('gemm', 'unknown')} GEMMs, "
        f"{manifest.toolchain.get('march', '')}",
        "load average": f"{load_before} before, {load_average()} after (1 and 5 minutes)",
    }
    for name, fact in machine.items():
        click.echo(f"{name:<14} {fact}")
    click.echo()
    for line in table(figures):
        click.echo(line)
    missed = sum(figure.reached is False for figure in figures)
    targets = sum(figure.reached is not None for figure in figures)
    click.echo(f"\n{targets - missed} of {targets} targets reached.")
    if failed:
        click.echo(f"Not measured: {', '.join(failed)}.")
    if json_file is not None:
        report = {"machine": machine, "failed": failed, "figures": [figure.to_json() for figure in figures]}
        json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except Eagle3Error as error:
        click.echo("\n" + "\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
    except BenchError as error:
        click.echo(f"\nerror: {error}", err=True)
        sys.exit(1)
