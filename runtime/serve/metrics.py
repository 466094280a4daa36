"""/metrics in Prometheus' form, under vLLM's names, so that dashboards made for vLLM show this server too.

What the engine counts itself is read from it when somebody asks; the rest is counted as outputs pass. Each server has
a registry of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.request import SpecDecodeStats, StepOutput
from runtime.serve.driver import Driver, Ticket

REASONS = ("stop", "length", "abort", "error")
STEPS_S = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
REQUESTS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)


class Blocks(Protocol):
    """The KV pool's counts."""

    @property
    def num_free(self) -> int: ...

    num_blocks: int
    prefix_queries: int
    prefix_hits: int


class Counted(Protocol):
    """What an engine counts itself."""

    @property
    def running(self) -> Iterable[object]: ...

    @property
    def blocks(self) -> Blocks: ...

    @property
    def num_preemptions(self) -> int: ...

    totals: SpecDecodeStats


class Metrics:
    """Counts what passes, as the driver's observer, and renders everything.

    Args:
        engine: read from the thread that renders, while it runs: each figure is right, two may be a step apart.
        model: the label model_name of every metric.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, engine: Counted, model: str) -> None:
        self._registry = CollectorRegistry()
        self.driver: Driver | None = None

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ["model_name"], buckets=buckets, registry=self._registry).labels(model)

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, ["model_name"], registry=self._registry).labels(model)

        self._prompt_tokens = counter("vllm:prompt_tokens", "Prompt tokens of requests whose first token came.")
        self._generation_tokens = counter("vllm:generation_tokens", "Tokens generated.")
        success = Counter(
            "vllm:request_success",
            "Requests that ended, by what ended them.",
            labelnames=["model_name", "finished_reason"],
            registry=self._registry,
        )
        self._ended = {reason: success.labels(model, reason) for reason in REASONS}
        self._first = histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", FIRST_S)
        self._between = histogram(
            "vllm:inter_token_latency_seconds",
            "Between two outputs of a request; with speculation one output may hold several tokens.",
            STEPS_S,
        )
        self._per_token = histogram(
            "vllm:request_time_per_output_token_seconds", "Mean of a request's tokens after the first.", STEPS_S
        )
        self._whole = histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", REQUESTS_S)
        self._prompts = histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKENS)
        self._answers = histogram("vllm:request_generation_tokens", "Tokens that a request generated.", TOKENS)
        self._registry.register(_EngineCollector(self, engine, model))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The exposition of all metrics."""
        return generate_latest(self._registry)

    # What the driver tells

    def stepped(self, ticket: Ticket, output: StepOutput, now: float) -> None:
        if not output.token_ids:
            return
        if ticket.last is None:
            self._first.observe(now - ticket.arrived)
            self._prompt_tokens.inc(len(ticket.request.prompt_token_ids))
        else:
            self._between.observe(now - ticket.last)
        self._generation_tokens.inc(len(output.token_ids))

    def ended(self, ticket: Ticket, reason: str, now: float) -> None:
        self._ended[reason].inc()
        output = ticket.output
        if output is None:
            return
        self._whole.observe(now - ticket.arrived)
        self._prompts.observe(len(output.prompt_token_ids))
        self._answers.observe(len(output.token_ids))
        timing = output.timing
        if len(output.token_ids) > 1 and timing.first_token is not None and timing.last_token is not None:
            self._per_token.observe((timing.last_token - timing.first_token) / (len(output.token_ids) - 1))


class _EngineCollector(Collector):
    """Reads the engine's own counts at every scrape."""

    def __init__(self, metrics: Metrics, engine: Counted, model: str) -> None:
        self._metrics, self._engine, self._model = metrics, engine, model

    def collect(self) -> Iterable[Metric]:
        engine, driver = self._engine, self._metrics.driver
        running = len(list(engine.running))
        waiting = max(0, (0 if driver is None else driver.unfinished) - running)
        blocks = engine.blocks
        # Block 0 is the null block, which nobody can have
        used = 1 - blocks.num_free / max(1, blocks.num_blocks - 1)
        yield self._gauge("vllm:num_requests_running", "Requests that the engine runs.", running)
        yield self._gauge("vllm:num_requests_waiting", "Requests that wait to be run.", waiting)
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of the KV pool in use; 1 is all of it.", used)
        totals = engine.totals
        for name, text, value in (
            (
                "vllm:prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache.",
                blocks.prefix_queries,
            ),
            ("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", blocks.prefix_hits),
            ("vllm:num_preemptions", "Times that a request gave up its blocks.", engine.num_preemptions),
            ("vllm:spec_decode_num_drafts", "Verify passes of a request that held drafts.", totals.num_drafts),
            ("vllm:spec_decode_num_draft_tokens", "Draft tokens verified.", totals.num_draft_tokens),
            ("vllm:spec_decode_num_accepted_tokens", "Draft tokens accepted.", totals.num_accepted_tokens),
        ):
            counter = CounterMetricFamily(name, text, labels=["model_name"])
            counter.add_metric([self._model], value)
            yield counter
        per_position = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens accepted, by their place in the draft.",
            labels=["model_name", "position"],
        )
        for position, count in enumerate(list(totals.num_accepted_tokens_per_pos)):
            per_position.add_metric([self._model, str(position)], count)
        yield per_position

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(name, text, labels=["model_name"])
        gauge.add_metric([self._model], value)
        return gauge
