"""Greedy speculation writes the text of plain greedy decoding, whatever the draft proposes."""

from __future__ import annotations

import itertools

import pytest
from torch import Tensor

from runtime.proposer import NoProposer, ScriptedProposer
from runtime.request import Request
from runtime.sequence import Sequence
from tests.runtime.loop.rig import VOCAB, K, Shape, make_rig, oracle, prompt_of, text_of

# Each count alone, every change from one count to another, and a cycle through all
PATTERNS = [
    *((count,) for count in range(K + 1)),
    *itertools.permutations(range(K + 1), 2),
    tuple(range(K + 1)),
]


@pytest.mark.parametrize("length", [1, 2, 4, 5, 16])
def test_plain_decoding_is_the_references(length: int) -> None:
    """Prompts of one token, of a block, of one more, and of a whole prefill bucket."""
    rig = make_rig()
    prompt = prompt_of(length)
    (output,) = rig.generate(Request("a", prompt, max_tokens=24), proposer=NoProposer())
    assert list(output.token_ids) == rig.plain(prompt, 24)
    assert (output.prompt_token_ids, output.finish_reason) == (prompt, "length")


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_every_accept_pattern_keeps_the_text(pattern: tuple[int, ...]) -> None:
    """G5 (EAGLE#50, TensorRT-LLM#5791)."""
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=21)
    texts = {"a": text_of(rig, request)}
    (output,) = rig.generate(request, proposer=oracle(texts, pattern))
    assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 21)


@pytest.mark.parametrize("wrong", range(K))
def test_a_wrong_draft_hides_the_right_ones_behind_it(wrong: int) -> None:
    """One wrong draft between right ones: what follows it was computed from a token that never came."""
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=20)
    text = text_of(rig, request)

    def script(sequence: Sequence, room: int) -> list[int]:
        at = len(sequence.token_ids)
        return [t if i != wrong else (t + 1) % VOCAB for i, t in enumerate(text[at : at + room])]

    (output,) = rig.generate(request, proposer=ScriptedProposer(script, K))
    assert [*output.prompt_token_ids, *output.token_ids] == text[: 7 + 20]
    # All passes but the last few, which the cutoff shortens, accept exactly what stands before the wrong draft
    assert output.spec_decode.num_accepted_tokens_per_pos[wrong:] == [0] * (K - wrong)
    assert output.spec_decode.num_drafts >= 19 // (wrong + 1) - 1


def test_a_draft_that_is_always_right_needs_a_quarter_of_the_passes() -> None:
    rig = make_rig()
    request = Request("a", prompt_of(7), max_tokens=21)
    engine = rig.engine(oracle({"a": text_of(rig, request)}, (K,)))
    (output,) = engine.generate([request])
    # The prompt gives one token, then five passes of 1+K
    assert (len(output.token_ids), engine.steps) == (21, 1 + 5)
    assert output.spec_decode.num_accepted_tokens_per_pos == [5, 5, 5]


@pytest.mark.parametrize("counts", [(3, 0, 2, 1), (0, 0, 0, 0), (1, 3, 3, 0), (2, 2, 0, 3)], ids=str)
def test_requests_may_hold_different_numbers_of_drafts(counts: tuple[int, ...]) -> None:
    """E5 (vllm-gaudi#593): a batch whose requests propose 3, 0, 2 and 1 tokens, every one right."""
    rig = make_rig()
    requests = [Request(str(i), prompt_of(5 + i, i), max_tokens=14) for i in range(4)]
    texts = {request.request_id: text_of(rig, request) for request in requests}

    def script(sequence: Sequence, room: int) -> list[int]:
        name, at = sequence.request.request_id, len(sequence.token_ids)
        return texts[name][at : at + min(room, counts[int(name)])]

    outputs = rig.generate(*requests, proposer=ScriptedProposer(script, K))
    for count, request, output in zip(counts, requests, outputs, strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 14)
        assert output.spec_decode.num_accepted_tokens == output.spec_decode.num_draft_tokens
        assert (output.spec_decode.num_drafts > 0) == (count > 0)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("norm_before_residual", [False, True])
def test_the_real_draft_keeps_the_text_at_every_k(k: int, norm_before_residual: bool) -> None:
    """L10 (TensorRT-LLM#10323) for a chain of one."""
    rig = make_rig(Shape(k=k, norm_before_residual=norm_before_residual, seed=25))
    requests = [Request(str(i), prompt_of(9, i), max_tokens=24) for i in range(4)]
    for request, output in zip(requests, rig.generate(*requests), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 24)
        assert output.spec_decode.num_drafts > 0


@pytest.mark.parametrize("greedy_only", [True, False])
def test_graphs_that_also_return_logits_run_the_same_loop(greedy_only: bool) -> None:
    rig = make_rig(Shape(greedy_only=greedy_only))
    prompt = prompt_of(9, 1)
    (output,) = rig.generate(Request("a", prompt, max_tokens=12))
    assert list(output.token_ids) == rig.plain(prompt, 12)


def test_a_draft_with_wider_heads_than_the_target_shares_its_block_table() -> None:
    """B14: head size 16 beside the target's 8; blocks are the same, a block of the draft is twice as wide."""
    rig = make_rig(Shape(draft_head_dim=16))
    requests = [Request(str(i), prompt_of(9, i), max_tokens=12) for i in range(2)]
    for request, output in zip(requests, rig.generate(*requests), strict=True):
        assert list(output.token_ids) == rig.plain(request.prompt_token_ids, 12)


class ProposesOnce(NoProposer):
    """Three wrong tokens after the prompt, and never a word again."""

    def after_prefill(self, sequence: Sequence, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        sequence.drafts = [(shifted[-1] + 1) % VOCAB] * K


def test_drafts_are_verified_once() -> None:
    """A proposer that stays silent has proposed nothing; what it said before is spent."""
    rig = make_rig()
    (output,) = rig.generate(Request("a", prompt_of(7), max_tokens=12), proposer=ProposesOnce())
    assert list(output.token_ids) == rig.plain(prompt_of(7), 12)
    assert output.spec_decode.num_drafts == 1
