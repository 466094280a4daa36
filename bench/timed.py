"""An engine whose compiled calls are timed one by one, so that a step falls into call kinds and the host's rest.

The kind of a call is its unit's name without the bucket: target_embed, target_layer, target_verify_head,
draft_initial, draft_recurrent, or draft_fused in their place. The rest of a step, what no compiled call took, is the
host's: the loop, the inputs, the dispatch from call to call.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from torch import Tensor

from runtime.backends import Backend, Run, backend_for
from runtime.bundle.manifest import GraphKind, KVCache, Unit
from runtime.bundle.open import Bundle
from runtime.engine import Engine
from runtime.fused import draft_kinds, draft_proposer
from runtime.graphs import GraphSet
from runtime.proposer import NoProposer
from runtime.request import Request
from runtime.weights import Weights

PLAIN: tuple[GraphKind, ...] = ("target_prefill", "target_verify")
HOST = "host"
STEP = "step"


class TimedBackend:
    """Another backend, with a stop watch around every call. `seconds` holds the time by kind since `clear`."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.seconds: dict[str, float] = defaultdict(float)

    def clear(self) -> None:
        self.seconds.clear()

    def pools(self, cache: KVCache, num_blocks: int) -> Mapping[str, Tensor]:
        return self._inner.pools(cache, num_blocks)

    def open(self, unit: Unit, scope: str) -> Run:
        run, kind = self._inner.open(unit, scope), unit.name.partition(".")[0]

        def timed(values: Sequence[Tensor]) -> list[Tensor]:
            started = time.perf_counter()
            made = run(values)
            self.seconds[kind] += time.perf_counter() - started
            return made

        return timed


class TimedEngine:
    """An engine over a `TimedBackend`, speculating or not."""

    def __init__(self, bundle: Bundle, *, speculation: bool) -> None:
        self.weights = Weights(bundle)
        self._backend = TimedBackend(backend_for(bundle, self.weights))
        k = bundle.manifest.speculation.num_speculative_tokens
        kinds = [*PLAIN, *draft_kinds(bundle.manifest, k)] if speculation else PLAIN
        self.graphs = GraphSet(bundle, kinds, None, self._backend)
        proposer = draft_proposer(self.graphs) if speculation else NoProposer()
        # As `Engine.load` makes it: several requests draft what the bundle's own schedule says
        self.engine = Engine(self.graphs, proposer, schedule=bundle.manifest.speculation.schedule)

    def steps(self, *requests: Request, count: int) -> list[dict[str, float]]:
        """Prefill `requests`, then run `count` decode steps of them; they are dropped after that.

        Returns:
            For each decode step seconds by call kind, with `host` and their sum `step`.
        """
        for request in requests:
            self.engine.add_request(request)
        while self.engine.waiting or any(sequence.prefilling for sequence in self.engine.running):
            self.engine.step()
        steps = []
        for _ in range(count):
            self._backend.clear()
            started = time.perf_counter()
            self.engine.step()
            total = time.perf_counter() - started
            inside = dict(self._backend.seconds)
            steps.append({**inside, HOST: total - sum(inside.values()), STEP: total})
        for request in requests:
            self.engine.abort(request.request_id)
        return steps
