"""`eagle3-build finish`: make the NEFFs of a lowered Neuron bundle, on a machine that has neuronx-cc."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  eagle3-build finish --bundle artifacts/llama8b
  eagle3-build finish --bundle artifacts/llama8b --jobs 2 --timeout 7200
"""


@click.command(epilog=EXAMPLES)
@click.option("--bundle", type=click.Path(path_type=Path), required=True, help="Bundle folder.")
@click.option("--compiler", help="Path of neuronx-cc; default the one on the PATH.")
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers at once; default by cores and memory.")
@click.option("--timeout", type=click.FloatRange(min=1), default=3600, show_default=True, help="Seconds for one graph.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, no progress.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the bundle's folder.")
def finish(bundle: Path, compiler: str | None, jobs: int | None, timeout: float, as_json: bool, quiet: bool) -> None:
    """Compile the graphs of a lowered Neuron bundle with neuronx-cc.

    The bundle comes from a machine without the compiler, where its build ended with state lowered. It is replaced by
    the finished one when every graph is compiled, and left as it is otherwise; what compiled is in the cache.
    """
    from aot.backends.neuron.compiler import find, missing
    from aot.build.finish import finish_bundle
    from aot.cache import Cache, cache_root
    from aot.report import LiveReporter, PlainReporter, QuietReporter

    found = find(compiler)
    if found is None:
        raise missing()
    reporter: QuietReporter
    if as_json or quiet:
        reporter = QuietReporter()
    elif sys.stderr.isatty():
        from rich.console import Console

        reporter = LiveReporter(Console(stderr=True))
    else:
        reporter = PlainReporter()
    finished = finish_bundle(bundle, found, Cache(cache_root()), reporter, jobs, timeout=timeout)
    fresh = sum(not result.cached for result in finished.results)
    if as_json:
        facts = {
            "bundle": str(bundle),
            "bundle_id": finished.manifest.bundle_id,
            "state": finished.manifest.state,
            "compiled": fresh,
            "cached": len(finished.results) - fresh,
            "compiler": found.version,
            "stand_in": finished.manifest.toolchain.get("stand_in") == "yes",
        }
        click.echo(json.dumps(facts))
        return
    if not finished.results:
        reporter.say(f"Nothing to do: every graph of {bundle} has its NEFF")
    else:
        reporter.say(f"Finished {len(finished.results)} graphs: {fresh} compiled, the others from cache")
    if finished.manifest.toolchain.get("stand_in") == "yes":
        reporter.say("note: these NEFFs come from a stand-in for neuronx-cc; no device can run them")
    click.echo(str(bundle))
