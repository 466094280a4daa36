"""What `--check` proves beside texts: that right drafts are accepted and wrong ones are not, and that KV is the same.

Equal texts prove little where nothing is accepted: then speculation is plain decoding. So a few of the requests also
run with scripted drafts, of which each pass must accept as many as the script means, and every pass of the draft's own
is judged by plain decoding's text. See `runtime.judge`.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

from runtime.bundle.manifest import Manifest
from runtime.check import batched
from runtime.engine import Engine
from runtime.judge import Judge, Judged, Known
from runtime.prefix import PrefixCaching
from runtime.request import Request, RequestOutput, SpecDecodeStats
from runtime.scripted import run_pattern

MOST_SCRIPTED = 8
ALONE, BATCH = "scripted drafts alone", "scripted drafts in a batch"


class Acceptance:
    """Judges the runs of one `--check`, in their order: `plain`, `known`, `script`, `speculation`.

    Attributes:
        scripted: drafts of the scripted runs.
    """

    def __init__(self, manifest: Manifest, requests: Seq[Request], prefix_caching: PrefixCaching = "exact") -> None:
        """Of `requests` as many as run at a time, and no more than MOST_SCRIPTED, are run with scripted drafts."""
        self._vocab_size, self._k = manifest.target.vocab_size, manifest.speculation.num_speculative_tokens
        self._requests = list(requests[: min(manifest.limits.max_num_seqs, MOST_SCRIPTED)])
        self._names = {name for request in self._requests for name in (request.request_id, batched(request.request_id))}
        # Otherwise texts may part at near ties, and a right draft with them
        self._exact = manifest.exactness.lossless == "exact" and prefix_caching != "full"
        self._known: dict[str, Known] = {}
        self._plain: Judge | None = None
        self._judges: dict[str, Judged] = {}
        self.scripted = SpecDecodeStats()

    def plain(self, engine: Engine) -> None:
        """Watch plain decoding, before its runs."""
        judge = Judge(engine.proposer, engine.graphs, None, read_kv=self._names.__contains__)
        engine.watch(lambda proposer: judge)
        self._plain = judge
        self._judges["plain decoding"] = judge.seen

    def known(self, reference: Seq[RequestOutput]) -> None:
        """Take what plain decoding wrote of each request alone."""
        kv = self._plain.seen.kv if self._plain is not None and self._exact else {}
        for output in reference:
            known = Known(output.prompt_token_ids + output.token_ids, kv.get(output.request_id))
            self._known[output.request_id] = self._known[batched(output.request_id)] = known

    def script(self, engine: Engine) -> None:
        """Run scripted drafts over plain decoding's graphs: each request alone, then all as one batch."""
        alone = Judged()
        for index, request in enumerate(self._requests):
            self._run(engine, [request], index, alone)
        batch = Judged()
        self._run(engine, [replace(one, request_id=batched(one.request_id)) for one in self._requests], 0, batch)
        self._judges |= {ALONE: alone, BATCH: batch}
        # It holds pools, which may be a device's, and the next engine wants the memory
        self._plain = None

    def _run(self, engine: Engine, requests: list[Request], first: int, found: Judged) -> None:
        """One run, its judgement into `found`. Request i begins its cycle through all counts with count i."""
        counts = self._k + 1
        patterns = {
            request.request_id: [(first + index + turn) % counts for turn in range(counts)]
            for index, request in enumerate(requests)
        }
        outputs, seen = run_pattern(engine, requests, self._known, patterns)
        for output in outputs:
            self.scripted.merge(output.spec_decode)
        found.passes |= seen.passes
        # Where near ties are allowed one of them may turn any pass, but not every one
        if self._exact or (not seen.num_accepted and any(miss.expects_more for miss in seen.misses.values())):
            found.misses |= seen.misses

    def speculation(self, engine: Engine) -> None:
        """Watch the draft's own speculation, before its runs."""
        if self._exact:
            judge = Judge(engine.proposer, engine.graphs, self._known, read_kv=self._names.__contains__)
            engine.watch(lambda proposer: judge)
            self._judges["speculation"] = judge.seen

    def misses(self, name: str) -> dict[str, str]:
        """What was not as it should have been with a request, by run: a sentence of the first."""
        names = (name, batched(name))
        return {
            run: seen.misses[one].sentence()
            for run, seen in self._judges.items()
            for one in names
            if one in seen.misses
        }
