"""Force every accept and reject pattern through the compiled loop, and compare every pass with what was meant.

The script knows what plain decoding wrote. For a pattern (a_1, a_2, ...) the i-th proposal is a_i right tokens followed
by wrong ones, so the i-th verify pass must accept exactly a_i drafts, or as many as there is room for. No luck and no
trained draft is needed. The text must be plain decoding's, and so must every bit of the KV that a request leaves: a
stale row need not change a greedy token. Graphs that draw tokens run seeded requests as well, whose text must be that
of the same seed without drafts.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from runtime.bundle.errors import CompileError
from runtime.bundle.manifest import Manifest
from runtime.bundle.open import Bundle
from runtime.engine import Engine
from runtime.judge import Judge, Judged, Known
from runtime.request import Request, RequestOutput
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.schedule import KSchedule
from runtime.scripted import forget_kv, run_pattern

PROMPT_TOKENS, NEW_TOKENS, MOST_REQUESTS = 12, 17, 8
REPAIR = "this is a defect of the builder; please report it with build.json"


@dataclass(frozen=True)
class Scripted:
    """What the patterns showed.

    Attributes:
        patterns: how many were run through in full, so that each of their counts was accepted in some pass.
        drafts, accepted: of all their passes.
    """

    patterns: int
    drafts: int
    accepted: int

    def sentence(self, loop: str) -> str:
        """What was done, for the build's report."""
        return (
            f"Ran {self.patterns} accept and reject patterns through the {loop} loop: {self.accepted} of {self.drafts} "
            "drafts accepted, each as meant, text and KV equal to plain decoding"
        )


def patterns(k: int) -> list[tuple[int, ...]]:
    """Accept counts per pass: each count alone, every change from one count to another, and a cycle through all.

    A change from 0 to a leaves a rows that wrong drafts wrote where accepted ones are then written: were one of these
    not written, its KV would be the wrong draft's.
    """
    single = [(count,) for count in range(k + 1)]
    changes = list(itertools.permutations(range(k + 1), 2)) if k <= 4 else [(0, k), (k, 0)]
    return list(dict.fromkeys([*single, *changes, tuple(range(k + 1))]))


def check_scripted(bundle: Bundle, seed: int = 0, device: str | None = None) -> Scripted:
    """Run all patterns, for one request and for a batch of up to MOST_REQUESTS.

    Where the bundle has a schedule, each pattern also runs under it, with requests that end one after another, so that
    K and the rows of a pass change on the way.

    Raises:
        CompileError: a pass accepts another number of drafts than was meant, or leaves other KV, or a pattern's text
            differs from plain decoding, or no pass had a draft.
    """
    manifest = bundle.manifest
    k = manifest.speculation.num_speculative_tokens
    requests = _requests(manifest, seed)
    engine = Engine.load(bundle, speculation=False, device=device)
    known = _plain(engine, requests)
    runs: list[tuple[list[Request], KSchedule | None]] = [(requests, None)]
    if len(requests) > 1:
        runs.insert(0, (requests[:1], None))
    if manifest.speculation.schedule is not None:
        runs.append((_ending_in_turn(requests), manifest.speculation.schedule))
    passed = drafts = accepted = 0
    for pattern in patterns(k):
        reached: set[int] = set()
        # The graphs are open already; only the proposer differs
        for group, schedule in runs:
            each = {request.request_id: pattern for request in group}
            outputs, seen = run_pattern(engine, group, known, each, schedule)
            _must_be_right(group, outputs, seen, known, pattern)
            reached |= {one.num_accepted for passes in seen.passes.values() for one in passes if one.num_drafts}
            drafts, accepted = drafts + seen.num_drafts, accepted + seen.num_accepted
        passed += reached >= set(pattern)
    if not passed:
        raise CompileError(
            "No verify pass had a scripted draft to accept or to reject, so nothing is known of speculation",
            expected=f"passes with drafts within max_model_len {manifest.limits.max_model_len}",
            found="none",
            repair=f"raise max_model_len to {2 * k + 4} at least; else {REPAIR}",
        )
    return Scripted(passed, drafts, accepted)


def _requests(manifest: Manifest, seed: int) -> list[Request]:
    """As many as are run at a time, of different lengths, so that they end at different times."""
    k, room = manifest.speculation.num_speculative_tokens, manifest.limits.max_model_len
    # Rows stand on both sides of a block's end
    prompt_len = min(max(PROMPT_TOKENS, manifest.kv_cache.block_size - 4), room // 2)
    # The cycle through all counts is run once at least
    new = min(max(NEW_TOKENS, 2 + (k + 1) * (k + 2) // 2), room - prompt_len)
    numbers = random.Random(seed)
    spread = max(1, room - 1 - prompt_len)
    lengths = [prompt_len + i % spread for i in range(min(manifest.limits.max_num_seqs, MOST_REQUESTS))]
    prompts = [tuple(numbers.randrange(manifest.target.vocab_size) for _ in range(length)) for length in lengths]
    return [
        Request(str(i), prompt, max_tokens=new, ignore_eos=True, sampling=_sampling(manifest, i))
        for i, prompt in enumerate(prompts)
    ]


def _plain(engine: Engine, requests: Seq[Request]) -> dict[str, Known]:
    """What plain decoding makes of the requests."""
    judge = Judge(engine.proposer, engine.graphs, None)
    forget_kv(engine, requests)
    outputs = engine.beside(judge).generate(list(requests))
    for output in outputs:
        # Two runs that end with the same error would be equal, and nothing would be proved
        if (error := output.error) is not None:
            raise CompileError(
                f"{error.what}, in plain decoding with random tokens",
                expected=error.expected,
                found=error.found,
                repair=error.repair,
            )
    for miss in judge.seen.misses.values():
        raise CompileError(
            f"{miss.where} {miss.what} in plain decoding", expected=miss.expected, found=miss.found, repair=REPAIR
        )
    for request, output in zip(requests, outputs, strict=True):
        _must_end_at_its_length(request, output, "plain decoding")
    return {
        output.request_id: Known(output.prompt_token_ids + output.token_ids, judge.seen.kv[output.request_id])
        for output in outputs
    }


def _ending_in_turn(requests: Seq[Request]) -> list[Request]:
    """The same requests with ever more tokens to generate, the last with as many as before."""
    count = len(requests)
    return [
        replace(request, max_tokens=max(1, request.max_tokens * place // count))
        for place, request in enumerate(requests, start=1)
    ]


def _sampling(manifest: Manifest, index: int) -> SamplingParams:
    """Greedy; of graphs that draw tokens too, every other request draws them, the first one among these."""
    if manifest.sampling != "random" or index % 2:
        return GREEDY
    return SamplingParams(temperature=1.0, top_p=0.95, seed=index)


def _must_be_right(
    requests: Seq[Request],
    outputs: Seq[RequestOutput],
    seen: Judged,
    known: dict[str, Known],
    pattern: tuple[int, ...],
) -> None:
    """Raises CompileError for the first pass that did something else than was meant, or the first wrong token."""
    for miss in seen.misses.values():
        raise CompileError(
            f"{miss.where} {miss.what}, where scripted drafts are to be accepted {pattern}",
            expected=miss.expected,
            found=miss.found,
            repair=REPAIR,
        )
    for request, output in zip(requests, outputs, strict=True):
        prompt = len(request.prompt_token_ids)
        want, got = known[request.request_id].token_ids[prompt:][: request.max_tokens], output.token_ids
        if got != want:
            pairs = zip(got, want, strict=False)
            at = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(got), len(want)))
            raise CompileError(
                f"Scripted drafts that accept {pattern} change the text of request {request.request_id}",
                expected=f"plain decoding's {want[at : at + 4]} from token {at}",
                found=f"{got[at : at + 4]}",
                repair=REPAIR,
            )
        _must_end_at_its_length(request, output, f"scripted drafts that accept {pattern}")


def _must_end_at_its_length(request: Request, output: RequestOutput, decoding: str) -> None:
    """Raises CompileError where anything else ended a request, which no token can do: it ignores them."""
    if output.finish_reason != "length" or output.error is not None:
        raise CompileError(
            f"Request {request.request_id} ends otherwise than at its length in {decoding}",
            expected="the finish reason 'length'",
            found=repr(output.finish_reason) if output.error is None else output.error.sentence(),
            repair=REPAIR,
        )
