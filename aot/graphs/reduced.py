"""The same model with few layers: what is checked where the whole one would take too much memory or time.

Every graph keeps its name, its rows, its widths and its vocabulary; only decoder layers that repeat are left out, and
the auxiliary states are tapped at other places, each still at one of its own.
"""

from __future__ import annotations

from dataclasses import replace

from aot.graphs.geometry import Geometry

LEAST_LAYERS = 2


def reduced(geometry: Geometry) -> Geometry:
    """`geometry` with as few target layers as show every kind of layer and keep every tap distinct, at least two."""
    target, draft = geometry.target, geometry.draft
    taps = sorted(set(draft.aux_layers))
    # The stream before layer 0 is the embedding, which no other tap may become
    first = 0 if taps and taps[0] == 0 else 1
    places = {tap: place for place, tap in enumerate(taps, first)}
    windows = [target.window(layer) for layer in range(target.num_layers)]
    kinds = max((windows.index(window) + 1 for window in set(windows)), default=0)
    layers = min(target.num_layers, max(LEAST_LAYERS, kinds, *places.values(), 0))
    return replace(
        geometry,
        target=replace(target, num_layers=layers, windows=target.windows[:layers]),
        draft=replace(draft, aux_layers=tuple(places[tap] for tap in draft.aux_layers)),
    )
