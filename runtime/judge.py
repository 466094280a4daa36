"""Proof that verify passes accept what they should and leave the KV that plain decoding leaves.

Plain decoding says what the text is, so of any drafts it is known which are right. A `Judge` stands around a proposer,
whichever it is, and compares every pass with that: how many drafts it held, how many were accepted, which tokens came
out. Where a request ends, its KV is compared with plain decoding's too, position by position and bit by bit, since one
stale row need not change a greedy token.

A graph that never accepts gives plain decoding's text as well. It is seen here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from torch import Tensor

from runtime.batch import Bucket
from runtime.bundle.signs import NOTHING, Chosen
from runtime.fingerprints import fingerprints, target_pools
from runtime.graphs import GraphSet
from runtime.proposer import Proposer
from runtime.sequence import Sequence


@dataclass(frozen=True)
class Miss:
    """What a pass did otherwise than it should have.

    Attributes:
        request: its id.
        step: which of the request's verify passes, from 1; 0 for its prompt.
        what: a clause with that pass as its subject.
        expects_more: fewer drafts were accepted than were right.
    """

    request: str
    step: int
    what: str
    expected: str
    found: str
    expects_more: bool = False

    @property
    def where(self) -> str:
        """ "Verify pass 3 of request 0", or its prefill."""
        return f"{f'Verify pass {self.step}' if self.step else 'The prefill'} of request {self.request}"

    def sentence(self) -> str:
        """All of it in one line."""
        return f"{self.where} {self.what}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Known:
    """What plain decoding made of a request.

    Attributes:
        token_ids: prompt and generated tokens.
        kv: `fingerprints` of its rows; None where they are not to be compared.
    """

    token_ids: tuple[int, ...]
    kv: Tensor | None = None


@dataclass(frozen=True)
class Pass:
    """One verify pass of one request: the position of its first row, the drafts that it held and accepted."""

    start: int
    num_drafts: int
    num_accepted: int


@dataclass
class Judged:
    """What a judge saw.

    Attributes:
        passes: by request, those that gave tokens.
        kv: by request that ended, `fingerprints` of its rows.
        misses: by request, the first.
    """

    passes: dict[str, list[Pass]] = field(default_factory=dict)
    kv: dict[str, Tensor] = field(default_factory=dict)
    misses: dict[str, Miss] = field(default_factory=dict)

    @property
    def num_accepted(self) -> int:
        """Accepted drafts of all passes."""
        return sum(one.num_accepted for passes in self.passes.values() for one in passes)

    @property
    def num_drafts(self) -> int:
        """Drafts of all passes."""
        return sum(one.num_drafts for passes in self.passes.values() for one in passes)


class Judge(Proposer):
    """A proposer whose target passes are judged.

    Attributes:
        seen: what came of it, so far.
    """

    def __init__(
        self,
        inner: Proposer,
        graphs: GraphSet,
        known: Mapping[str, Known] | None,
        *,
        read_kv: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """Judge what is run for `inner`.

        Args:
            known: by request; None for plain decoding itself, which must give one token a pass.
            read_kv: whether to take a request's KV when it ends, where `known` has it too.
        """
        self._inner, self._known, self._read_kv = inner, known, read_kv
        self._block_size = graphs.manifest.kv_cache.block_size
        self._vocab_size = graphs.manifest.target.vocab_size
        self._pools = target_pools(graphs)
        self.seen = Judged()

    def limit(self, num_speculative_tokens: int) -> None:
        self._inner.limit(num_speculative_tokens)

    def follows(self, sequence: Sequence) -> bool:
        return self._inner.follows(sequence)

    def can_follow_single_rows(self, members: Seq[Sequence]) -> bool:
        return self._inner.can_follow_single_rows(members)

    def read_prefill(
        self,
        sequence: Sequence,
        inputs: Mapping[str, Tensor],
        next_token: Tensor,
        features: Tensor,
        following: int | None,
    ) -> list[int]:
        return self._inner.read_prefill(sequence, inputs, next_token, features, following)

    def read_verify(
        self, members: Seq[Sequence], inputs: Mapping[str, Tensor], accepted: Tensor, features: Tensor
    ) -> list[list[int]]:
        rows = self._inner.read_verify(members, inputs, accepted, features)
        for member, row, held in zip(members, rows, inputs["num_draft_tokens"].tolist(), strict=False):
            # Known tokens that a preempted request computes again are chosen by nobody
            if member.caught_up:
                self._judge(member, Chosen.of(row, self._vocab_size), held)
        return rows

    def after_prefill(self, sequence: Sequence, shifted: list[int], start: int, features: Tensor, final: bool) -> None:
        self._judge_kv([sequence])
        self._inner.after_prefill(sequence, shifted, start, features, final)

    def after_verify(self, members: Seq[Sequence], accepted: Seq[list[int]], features: Tensor, bucket: Bucket) -> None:
        self._judge_kv(members)
        self._inner.after_verify(members, accepted, features, bucket)

    def _judge(self, member: Sequence, chosen: Chosen, held: int) -> None:
        """One pass of one request that chose `chosen` behind what it has, `held` drafts in it."""
        name, length = member.request.request_id, len(member.token_ids)
        passes = self.seen.passes.setdefault(name, [])
        step, accepted = len(passes) + 1, chosen.num_accepted
        if chosen.tokens:
            passes.append(Pass(length - 1, len(member.drafts), accepted))
        known = None if self._known is None else self._known.get(name)
        if self._known is not None and known is None:
            return
        if known is not None and tuple(member.token_ids) != known.token_ids[:length]:
            at = _first_difference(member.token_ids, known.token_ids)
            place = f" as token {at - member.num_prompt_tokens}"
            want, got = list(known.token_ids[at : at + 1]), member.token_ids[at : at + 1]
            self._miss(name, step - 1, "changes the text", f"{want}{place}", f"{got}")
        ahead = [] if known is None else list(known.token_ids[length:])
        right = _first_difference(member.drafts, ahead)
        if held != len(member.drafts):
            self._miss(name, step, "holds another number of drafts", f"{len(member.drafts)}", f"{held}")
        # Behind the end of plain decoding's text nobody knows what the target would say
        open_end = right == len(ahead) < len(member.drafts)
        if not (right <= accepted if open_end else right == accepted):
            self._miss(
                name,
                step,
                "accepts another number of drafts",
                f"{right} of {len(member.drafts)}",
                f"{accepted}",
                expects_more=right > accepted,
            )
        # A sign where plain decoding has a token is another text
        tokens = chosen.tokens + ([] if chosen.sign == NOTHING else [chosen.sign])
        if known is not None and tokens[: len(ahead)] != ahead[: len(tokens)]:
            place = f" from token {length - member.num_prompt_tokens}"
            self._miss(name, step, "changes the text", f"{ahead[: len(tokens)]}{place}", f"{tokens}")

    def _judge_kv(self, members: Seq[Sequence]) -> None:
        """Take the KV of those that have ended; their blocks are still theirs."""
        ended = [member for member in members if member.finish_reason is not None and self._reads_kv_of(member)]
        for member, found in zip(ended, fingerprints(self._pools, ended, self._block_size), strict=True):
            name = member.request.request_id
            self.seen.kv[name] = found
            right = self._kv_of(name)
            if right is None or name in self.seen.misses:
                continue
            rows = min(len(found), len(right))
            different = (found[:rows] != right[:rows]).nonzero()
            if len(different):
                self._miss_kv(name, *different[0].tolist())

    def _reads_kv_of(self, member: Sequence) -> bool:
        name = member.request.request_id
        return (self._known is None or self._kv_of(name) is not None) and self._read_kv(name)

    def _kv_of(self, name: str) -> Tensor | None:
        known = None if self._known is None else self._known.get(name)
        return None if known is None else known.kv

    def _miss_kv(self, name: str, position: int, column: int) -> None:
        passes = self.seen.passes.get(name, [])
        step = next((i for i, one in enumerate(passes, 1) if 0 <= position - one.start <= one.num_accepted), 0)
        row = f"row {position - passes[step - 1].start}, " if step else ""
        pool = list(self._pools)[column % len(self._pools)]
        self._miss(
            name,
            step,
            f"leaves other KV than plain decoding ({row}position {position}, {pool})",
            "the same bits",
            "different ones",
        )

    def _miss(self, name: str, step: int, what: str, expected: str, found: str, *, expects_more: bool = False) -> None:
        self.seen.misses.setdefault(name, Miss(name, step, what, expected, found, expects_more))


def _first_difference(one: Seq[int], other: Seq[int]) -> int:
    """How many tokens two lists begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
