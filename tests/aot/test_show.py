"""What `eagle3-build inspect --bundle` says of a Neuron bundle: what it is for, and what it still lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from aot.show import bundle_lines
from runtime.bundle.manifest import Manifest, loads
from runtime.bundle.neff import Neff

GOLDEN = Path(__file__).parents[1] / "runtime/bundle/golden/manifest-v2.json"
NEFF = Neff("graphs/u/graph.neff", 1, "2.0", "stand-in", 1, 2, 3, "00" * 32, "00" * 16, True)


def neuron(state: str) -> Manifest:
    manifest = loads(json.loads(GOLDEN.read_text(encoding="utf-8")))
    requires = replace(manifest.requires, backend="neuron", device="trn2", ranks=4, lnc=2)
    return loads({**json.loads(replace(manifest, requires=requires).dumps()), "state": state})


def test_a_lowered_bundle_names_the_command_that_finishes_it() -> None:
    lines = list(bundle_lines(replace(neuron("lowered"), weights={}), "made/here"))
    assert "  compiler not compiled: eagle3-build finish --bundle made/here" in lines
    assert "  weights  none: graphs alone" in lines
    assert "  requires trn2 linux, lnc 2, ranks 4" in lines


def test_a_finished_bundle_shows_its_compiler_and_every_neff() -> None:
    manifest = neuron("ready")
    first, *others = manifest.units
    units = (replace(first, neff=NEFF), *others)
    lines = list(bundle_lines(replace(manifest, units=units, toolchain={"neuronx-cc": "2.99"})))
    assert "  compiler neuronx-cc 2.99" in lines
    (neff,) = [line for line in lines if line.startswith("  neff ")]
    assert (
        neff.split() == f"neff {first.name} version 2.0, features 0x3, lnc 2, a stand-in that no device can run".split()
    )
