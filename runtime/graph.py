"""A graph ready to run: its calls bound to opened units, its values kept in numbered places."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from torch import Tensor

from runtime.backends import Backend, Run
from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Graph, Unit


class LoadedGraph:
    """Runs a graph's calls in order.

    Attributes:
        spec: the manifest's entry.
        runs, seconds: how often it ran and for how long, for --stats.
    """

    def __init__(self, spec: Graph, units: Mapping[str, Unit], backend: Backend, pools: Mapping[str, Tensor]) -> None:
        self.spec = spec
        self.runs, self.seconds = 0, 0.0
        self._places = {value.name: i for i, value in enumerate(spec.inputs)}
        self._values: list[Tensor | None] = [None] * len(spec.inputs)
        self._steps: list[tuple[Run, list[int], list[int]]] = []
        for call in spec.calls:
            run = backend.open(units[call.unit], call.scope)
            inputs = [self._place(name, pools) for name in call.inputs]
            self._steps.append((run, inputs, [self._new_place(name) for name in call.outputs]))
        self._outputs = [self._places[value.name] for value in spec.outputs]

    def _new_place(self, name: str) -> int:
        self._values.append(None)
        self._places[name] = len(self._values) - 1
        return self._places[name]

    def _place(self, name: str, pools: Mapping[str, Tensor]) -> int:
        if name in self._places:
            return self._places[name]
        if name not in pools:
            raise IntegrityError(
                f"Graph {self.spec.name} reads {name}, which nothing makes", repair="rebuild the bundle"
            )
        place = self._new_place(name)
        self._values[place] = pools[name]
        return place

    def value(self, name: str) -> Tensor:
        """What the last run made under `name`: for checks that look between the calls."""
        return self._values[self._places[name]]  # type: ignore[return-value]

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Run on named inputs; returns the outputs in the manifest's order."""
        values, places = self._values, self._places
        for name, tensor in inputs.items():
            values[places[name]] = tensor
        started = time.perf_counter()
        for run, read, write in self._steps:
            made: Sequence[Tensor] = run([values[place] for place in read])  # type: ignore[misc]
            for place, tensor in zip(write, made, strict=True):
                values[place] = tensor
        self.seconds += time.perf_counter() - started
        self.runs += 1
        return [values[place] for place in self._outputs]  # type: ignore[misc]
