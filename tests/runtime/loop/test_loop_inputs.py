"""What goes into a graph: ids of the vocabulary, slots of the request itself, and padding that is set anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from runtime.batch import Bucket, pad_rows
from runtime.bundle.manifest import Graph
from runtime.engine import Engine
from runtime.prefix import PrefixCaching
from runtime.request import Request
from runtime.sequence import Sequence
from tests.runtime.loop.rig import (
    BLOCK,
    MAX_LEN,
    VOCAB,
    K,
    Shape,
    Watch,
    make_rig,
    observe,
    prompt_of,
    text_of,
)


@dataclass
class Inspector:
    """Checks every input of every graph of an engine; `rows` counts the real rows seen, by kind of graph."""

    engine: Engine
    rows: dict[str, int] = field(default_factory=dict)
    members: list[Sequence] = field(default_factory=list)

    def __call__(self, spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        assert set(inputs) == {value.name for value in spec.inputs}
        for value in spec.inputs:
            fixed = [n for n, dim in zip(inputs[value.name].shape, value.shape, strict=True) if dim == n]
            assert len(fixed) == sum(not isinstance(dim, str) for dim in value.shape), (spec.name, value)
            assert str(inputs[value.name].dtype) == f"torch.{value.dtype}"
        # K3 (vllm#37629): no id below 0, none at or above the vocabulary, padding included
        assert inputs["tokens"].min() >= 0
        assert inputs["tokens"].max() < VOCAB
        prefilling = [sequence for sequence in self.engine.running if sequence.prefilling]
        if spec.kind == "target_prefill":
            # It and the draft passes behind it belong to the first request whose prompt is not computed
            self.members = prefilling[:1]
        elif spec.kind.startswith("target"):
            self.members = [sequence for sequence in self.engine.running if sequence not in prefilling]
        members = self.members
        each = spec.rows // spec.requests
        table = inputs["block_table"].tolist()
        last = inputs["last_index"].tolist() if "last_index" in inputs else None
        counts = inputs["num_draft_tokens"].tolist() if "num_draft_tokens" in inputs else [None] * spec.requests
        written: list[int] = []
        for r in range(spec.requests):
            group = slice(r * each, (r + 1) * each)
            columns = (inputs[name][group].tolist() for name in ("tokens", "positions", "slot_mapping"))
            rows = list(zip(*columns, strict=True))
            member = members[r] if r < len(members) else None
            own = member.block_ids if member else []
            width = len(table[r])
            assert table[r] == (own[:width] + [0] * (width - len(own)))[:width]
            real = [row for row in rows if row[2] // BLOCK in own]
            # L3 (sglang#22958): what is no row of the request is padding: token 0, position 0, the null slot
            assert all(row == (0, 0, 0) for row in rows[len(real) :])
            assert rows[: len(real)] == real
            for offset, (_, position, slot) in enumerate(real):
                assert position == real[0][1] + offset < MAX_LEN
                assert slot == own[position // BLOCK] * BLOCK + position % BLOCK
                # The row can see itself
                assert position < width * BLOCK
            written += [row[2] for row in real]
            self.rows[spec.kind] = self.rows.get(spec.kind, 0) + len(real)
            if spec.kind == "target_verify":
                assert counts[r] == max(len(real) - 1, 0)
            if last is not None:
                assert last[r] == r * each + max(len(real), 1) - 1
        assert len(set(written)) == len(written)


@pytest.mark.parametrize("pattern", [(0,), (3,), (2, 0, 3, 1)], ids=str)
@pytest.mark.parametrize("sizes", [(1, 4), (4,)], ids=str)
def test_every_input_of_every_graph_is_sound(pattern: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Chunked prompts, requests that end at different times, a batch of four that shrinks to one."""
    rig = make_rig(Shape(num_seqs=sizes, prefill_tokens=(5, 8)))
    requests = [Request(str(i), prompt_of(3 + 5 * i, i), max_tokens=18 - 4 * i) for i in range(4)]
    requests.append(Request("long", prompt_of(61, 5), max_tokens=30))
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(Watch().over(texts, pattern))
    inspector = Inspector(engine)
    observe(engine, inspector)
    for request, output in zip(requests, engine.generate(requests), strict=True):
        room = MAX_LEN - len(request.prompt_token_ids)
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, min(request.max_tokens, room))
    # Every prompt row once, through the target and through the draft
    assert inspector.rows["target_prefill"] == sum(len(r.prompt_token_ids) for r in requests)
    assert inspector.rows["draft_initial_prefill"] == inspector.rows["target_prefill"]


def test_a_batch_that_shrinks_in_a_pinned_bucket_leaves_no_stale_rows() -> None:
    """L3 (sglang#22958): bucket 4 with four requests, then with one; the others' places hold padding again."""
    rig = make_rig(Shape(num_seqs=(4,)))
    requests = [Request(str(i), prompt_of(6, i), max_tokens=30 if i == 0 else 12) for i in range(4)]
    engine = rig.engine()
    members: list[int] = []

    def look(spec: Graph, inputs: Mapping[str, Tensor]) -> None:
        if spec.kind == "target_verify":
            members.append(int((inputs["block_table"][:, 0] > 0).sum()))
            rows = members[-1] * (1 + K)
            assert any(inputs["slot_mapping"][:rows])
            for name in ("tokens", "positions", "slot_mapping"):
                assert not any(inputs[name][rows:]), name
            assert not inputs["block_table"][members[-1] :].any()
            assert not any(inputs["num_draft_tokens"][members[-1] :])

    observe(engine, look)
    outputs = engine.generate(requests)
    # It grows by one at a time, and shrinks
    assert members[0] == members[-1] == 1
    assert max(members) == 4
    assert list(outputs[0].token_ids) == rig.plain(requests[0].prompt_token_ids, 30)


def test_a_pass_writes_to_its_own_blocks_and_the_null_block_only() -> None:
    """Every block that no running request owns keeps its bytes through a whole batch."""
    rig = make_rig(Shape(kv_blocks=40))
    requests = [Request(str(i), prompt_of(5 + i, i), max_tokens=12) for i in range(3)]
    engine = rig.engine()
    canary = -3.25
    for pool in engine.graphs.pools.values():
        pool.fill_(canary)
    for request in requests:
        engine.add_request(request)
    used = {0}
    while engine.has_unfinished():
        engine.step()
        used |= {block for sequence in engine.running for block in sequence.block_ids}
    others = sorted(set(range(40)) - used)
    assert others
    for name, pool in engine.graphs.pools.items():
        assert torch.equal(pool[others], torch.full_like(pool[others], canary)), name


def test_the_padded_rows_of_two_requests_in_a_bucket_of_three() -> None:
    members = [
        Sequence(Request("a", (1,)), 0, [], [5, 9]),
        Sequence(Request("b", (1,)), 0, [], [2]),
    ]
    inputs = pad_rows(members, [[11, 12], [13]], [3, 0], Bucket(3, 2, 2), block_size=4)
    assert {name: tensor.tolist() for name, tensor in inputs.items()} == {
        "tokens": [11, 12, 13, 0, 0, 0],
        "positions": [3, 4, 0, 0, 0, 0],
        # Position 3 is the last of block 5, position 4 the first of block 9, position 0 the first of block 2
        "slot_mapping": [23, 36, 8, 0, 0, 0],
        "block_table": [[5, 9], [2, 0], [0, 0]],
    }
    assert {tensor.dtype for tensor in inputs.values()} == {torch.int32}


@pytest.mark.parametrize("caching", ["exact", "off"])
def test_inputs_are_sound_where_requests_are_stopped_and_run_again(caching: PrefixCaching) -> None:
    """L3 (sglang#22958), K3 (vllm#37629): rows of known tokens beside drafts, places that change hands, a canary."""
    rig = make_rig(Shape(prefill_tokens=(5, 8), kv_blocks=40, layers=4, seed=25))
    requests = [Request(str(i), prompt_of(5 + 4 * i, i), max_tokens=20) for i in range(4)]
    texts = {request.request_id: text_of(rig, request) for request in requests}
    engine = rig.engine(Watch().over(texts, (1, 3, 0)), prefix_caching=caching)
    # The scheduler has a third of the pool; what lies behind is the canary
    engine.blocks.allocate(39 - 14)
    free = set(engine.blocks._free)
    for pool in engine.graphs.pools.values():
        pool.fill_(-3.25)
    observe(engine, Inspector(engine))
    for request, output in zip(requests, engine.generate(requests), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 20)
    assert engine.num_preemptions > 0
    others = sorted(set(range(1, 40)) - free)
    assert len(others) == 25
    for name, pool in engine.graphs.pools.items():
        assert torch.equal(pool[others], torch.full_like(pool[others], -3.25)), name
