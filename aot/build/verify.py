"""Verify a staged bundle and seal what was seen into its manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from aot.build.assemble import write_manifest
from aot.build.plan import Plan
from aot.build.scopes import Scope
from aot.verify.bits import BitsCheck
from aot.verify.eager import EagerBackend
from aot.verify.graphs import TOLERANCE, check_graph
from aot.verify.scripted import check_scripted
from runtime.backends import Backend, backend_for
from runtime.bundle.errors import CompileError, Eagle3Error, ErrorGroup
from runtime.bundle.manifest import Exactness, Graph, Manifest
from runtime.bundle.open import Bundle, open_bundle
from runtime.weights import Weights


def verify(
    staging: Path, manifest: Manifest, plan: Plan, weights: Mapping[str, Scope], say: Callable[[str], None]
) -> Manifest:
    """Check every graph, measure bit stability, run the scripted patterns; returns the sealed manifest.

    Raises:
        CompileError: a compiled graph is wrong, or speculation would change the text.
    """
    bundle = Bundle(staging, manifest)
    compiled = backend_for(bundle, Weights(bundle))
    eager = EagerBackend({unit.name: unit for unit in plan.table.units}, weights)
    graphs = check_graphs(manifest, compiled, eager)
    worst = max((graph.check.max_abs_error for graph in graphs if graph.check), default=0.0)
    say(f"Checked {len(graphs)} graphs against eager PyTorch, largest error {worst:.2g}")
    manifest = write_manifest(staging, dataclasses.replace(manifest, graphs=graphs))

    if manifest.exactness.lossless == "exact":
        exactness = check_bits(manifest, compiled, say)
        manifest = write_manifest(staging, dataclasses.replace(manifest, exactness=exactness))
        scripted = check_scripted(open_bundle(staging, verify=False))
        exactness = dataclasses.replace(exactness, scripted_patterns=scripted.patterns)
        manifest = write_manifest(staging, dataclasses.replace(manifest, exactness=exactness))
        say(scripted.sentence("compiled"))
    return manifest


def check_bits(manifest: Manifest, compiled: Backend, say: Callable[[str], None]) -> Exactness:
    """Measure along which axes rows keep their bits; returns the manifest's promise with what was seen.

    Raises:
        CompileError: they do not keep them from row to row.
    """
    bits = BitsCheck(manifest, compiled)
    if not bits.rows_keep_bits():
        raise CompileError(
            "The verify graphs give a token other bits in another row, so greedy speculation could change the text",
            expected="equal bits in every row",
            found="different ones",
            repair="build with exact_greedy: false, or another backend.gemm",
        )
    axes = bits.axes()
    widths = () if "context" in axes else bits.context_widths()
    across = " and ".join(axes) or "no bucket axis"
    some = f", and at {len(widths)} context widths" if widths else ""
    say(f"Verify rows keep every bit in any row; across {across} too{some}")
    if bits.fewer and "drafts" not in axes:
        say("Passes of fewer rows change bits, so none will run: a smaller K leaves out the draft's passes alone")
    return dataclasses.replace(manifest.exactness, bitwise_across=axes, context_widths=widths)


def check_graphs(manifest: Manifest, compiled: Backend, eager: EagerBackend) -> tuple[Graph, ...]:
    """Every graph beside eager PyTorch; returns the graphs with what was seen.

    Raises:
        CompileError, ErrorGroup: some compute something else.
    """
    checked: list[Graph] = []
    problems: list[Eagle3Error] = []
    met: set[str] = set()
    limit = TOLERANCE[manifest.dtype]
    for graph in manifest.graphs:
        check, relative = check_graph(graph, manifest, compiled, eager, met=met)
        if relative > limit or not check.tokens_equal:
            problems.append(
                CompileError(
                    f"Graph {graph.name} does not compute what eager PyTorch computes",
                    expected=f"a relative error of at most {limit:g} in every call, and equal tokens",
                    found=f"{relative:.3g}, tokens {'equal' if check.tokens_equal else 'different'}",
                    repair="this is a defect of the compiler or the builder; please report it with build.json",
                )
            )
        checked.append(dataclasses.replace(graph, check=check))
    if problems:
        raise problems[0] if len(problems) == 1 else ErrorGroup("Compiled graphs are wrong", problems)
    return tuple(checked)
