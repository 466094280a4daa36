"""Drafts by a pattern: the i-th proposal is a_i right tokens and then wrong ones, so the i-th pass must accept a_i.

The script knows plain decoding's text, so no luck and no trained draft is needed, and `runtime.judge` sees whether each
pass did what was meant. How many drafts a pass can hold is known beforehand too: `turns` says it without the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from runtime.backends.device import DeviceTensor
from runtime.engine import Engine
from runtime.judge import Judge, Judged, Known, Miss
from runtime.proposer import ScriptedProposer
from runtime.request import Request, RequestOutput
from runtime.schedule import KSchedule
from runtime.sequence import Sequence


class PatternProposer(ScriptedProposer):
    """Proposes by a pattern (a_1, a_2, ...), over and over."""

    def __init__(
        self, known: Mapping[str, Known], patterns: Mapping[str, Seq[int]], vocab_size: int, num_speculative_tokens: int
    ) -> None:
        """`known` and `patterns` by request."""
        super().__init__(self._propose, num_speculative_tokens)
        self._known, self._patterns, self._vocab_size = known, patterns, vocab_size
        self._turns: dict[str, int] = {}
        self._lengths: dict[str, int] = {}

    def _propose(self, sequence: Sequence, room: int) -> list[int]:
        name, length = sequence.request.request_id, len(sequence.token_ids)
        # A request that was preempted is asked again at the same place
        if self._lengths.get(name) != length:
            self._turns[name] = self._turns.get(name, -1) + 1
            self._lengths[name] = length
        pattern = self._patterns[name]
        right = self._known[name].token_ids[length:][:room]
        return wrong_after(right, pattern[self._turns[name] % len(pattern)], self._vocab_size)


def wrong_after(right: Seq[int], accept: int, vocab_size: int) -> list[int]:
    """`accept` right tokens; one past the right token is wrong, and so is all behind it."""
    return [token if i < accept else (token + 1) % vocab_size for i, token in enumerate(right)]


def turns(first: int, end: int, limit: int, pattern: Seq[int], num_speculative_tokens: int) -> list[tuple[int, int]]:
    """(drafts held, drafts accepted) of each verify pass of a request whose drafts follow `pattern`, K drafts a pass.

    Args:
        first: tokens of the request before its first verify pass, the prefill's one among them.
        end: tokens when it ends.
        limit: tokens at which it would end at the latest, `Sequence.length_limit`.
    """
    found: list[tuple[int, int]] = []
    length, turn = first, 0
    while length < end:
        drafts = max(0, min(num_speculative_tokens, limit - length - 1, end - length))
        accepted = min(pattern[turn % len(pattern)], drafts) if drafts else 0
        turn += drafts > 0
        found.append((drafts, accepted))
        length += accepted + 1
    return found


def run_pattern(
    engine: Engine,
    requests: Seq[Request],
    known: Mapping[str, Known],
    patterns: Mapping[str, Seq[int]],
    schedule: KSchedule | None = None,
) -> tuple[list[RequestOutput], Judged]:
    """Run `requests` over the graphs of `engine`, which has nothing unfinished, with drafts by pattern.

    Args:
        known: by request, what plain decoding made of it, or of it and more tokens.
        patterns: by request.
        schedule: K by the number of requests; without one all passes have K drafts where there is room, and the passes
            of a request that keeps its blocks must be those that `turns` names.

    Returns:
        What they wrote, and what was seen. In `misses` is whatever was not as meant.
    """
    manifest = engine.manifest
    k = manifest.speculation.num_speculative_tokens
    script = PatternProposer(known, patterns, manifest.target.vocab_size, k)
    judge = Judge(script, engine.graphs, known)
    forget_kv(engine, requests)
    outputs = engine.beside(judge, schedule or KSchedule.constant(k)).generate(list(requests))
    if schedule is None:
        for request, output in zip(requests, outputs, strict=True):
            # A request that gave its blocks up lost its drafts with them, and `turns` does not know when
            if not output.num_preemptions:
                pattern = patterns[request.request_id]
                _must_be_the_turns(request, output, pattern, k, manifest.limits.max_model_len, judge)
    return outputs, judge.seen


def _must_be_the_turns(
    request: Request, output: RequestOutput, pattern: Seq[int], k: int, max_model_len: int, judge: Judge
) -> None:
    prompt, name = len(request.prompt_token_ids), request.request_id
    limit = min(prompt + request.max_tokens, max_model_len)
    meant = turns(prompt + 1, prompt + len(output.token_ids), limit, pattern, k)
    held = [(one.num_drafts, one.num_accepted) for one in judge.seen.passes.get(name, [])]
    if name in judge.seen.misses or held == meant:
        return
    step = next((i for i, pair in enumerate(zip(held, meant, strict=False)) if pair[0] != pair[1]), len(meant))
    ours, theirs = (_counts(passes[step] if step < len(passes) else None) for passes in (held, meant))
    judge.seen.misses[name] = Miss(name, step + 1, "is not the one that was meant", theirs, ours)


def _counts(turn: tuple[int, int] | None) -> str:
    return "no such pass" if turn is None else f"{turn[0]} drafts, {turn[1]} of them accepted"


def forget_kv(engine: Engine, requests: Seq[Request]) -> None:
    """Overwrite what earlier runs left: it is right for the same text, and would hide a KV row that is not written."""
    tokens = (len(request.prompt_token_ids) + request.max_tokens for request in requests)
    used = 1 + sum(engine.blocks.blocks_for(count) for count in tokens)
    for pool in engine.graphs.pools.values():
        (pool if isinstance(pool, DeviceTensor) else pool[:used]).fill_(1)
