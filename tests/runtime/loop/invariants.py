"""What holds between any two steps of the loop: who owns which block, who is before whom, and that a step does work."""

from __future__ import annotations

from collections import Counter

from runtime.engine import Engine
from runtime.request import StepOutput
from tests.runtime.loop.rig import observe


def check_blocks(engine: Engine) -> None:
    """Each block is free, or owned by as many running requests as it counts, by each once; block 0 by nobody."""
    blocks = engine.blocks
    owned: Counter[int] = Counter()
    for sequence in engine.running:
        assert len(set(sequence.block_ids)) == len(sequence.block_ids)
        assert len(sequence.block_ids) >= blocks.blocks_for(sequence.num_computed)
        owned.update(sequence.block_ids)
    assert all(not sequence.block_ids for sequence in engine.waiting)
    assert [owned[block] for block in range(blocks.num_blocks)] == blocks._owners
    assert sorted(blocks._free) == [block for block in range(1, blocks.num_blocks) if not owned[block]]
    # What is found under a key is one block, which knows the key
    assert {block: key for key, block in blocks._published.items()} == blocks._keys


def check_order(engine: Engine) -> None:
    """Whoever arrived first is served first: all that run arrived before all that wait, each in order."""
    arrivals = [sequence.arrival for sequence in (*engine.running, *engine.waiting)]
    assert arrivals == sorted(arrivals)


class Stepper:
    """Steps an engine and checks after each one that it did what it must."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps = 0
        self._passes = 0
        observe(engine, lambda spec, inputs: self._count(spec.kind))

    def _count(self, kind: str) -> None:
        self._passes += kind.startswith("target")

    def step(self) -> list[StepOutput]:
        """One step: it runs one pass if there is anything to do, and the first request is never stopped."""
        check_blocks(self.engine)
        first = next(iter((*self.engine.running, *self.engine.waiting)), None)
        running = first is not None and first in self.engine.running
        before, self._passes = self.engine.has_unfinished(), 0
        outputs = self.engine.step()
        self.steps += 1
        assert self._passes == before
        # Where there is anything, the first request has its blocks, and loses them only by ending
        assert first is None or first.finish_reason or first in self.engine.running
        assert not running or first is None or first.finish_reason or first.block_ids
        check_blocks(self.engine)
        check_order(self.engine)
        return outputs

    def run(self, most: int = 1000) -> dict[str, list[int]]:
        """Step until nothing is left; the texts of those that finished."""
        while self.engine.has_unfinished():
            self.step()
            assert self.steps < most
        return {output.request_id: list(output.token_ids) for output in self.engine.take_finished()}
