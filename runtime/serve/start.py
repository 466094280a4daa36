"""From the options to a server that runs: bind, verify the bundle, load the engine, serve."""

from __future__ import annotations

import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.bundle.errors import UsageError
from runtime.bundle.manifest import Manifest
from runtime.commands import Options, open_session
from runtime.prefix import PrefixCaching
from runtime.sampling.params import GREEDY, SamplingParams
from runtime.schedule import read_schedule
from runtime.serve.app import make_app
from runtime.serve.cors import Cors
from runtime.serve.driver import Driver
from runtime.serve.generation import Served
from runtime.serve.metrics import Metrics
from runtime.serve.server import Address, bind, listen, run_to_end, set_up_log, url_of
from runtime.text import Tokenizer
from runtime.text.pieces import Pieces

if TYPE_CHECKING:
    from runtime.engine import Engine
    from runtime.sampling.sampler import Rejection

logger = logging.getLogger("eagle3.serve")


@dataclass(frozen=True)
class Settings:
    """The options of `eagle3-run serve`."""

    bundle: Path
    host: str
    port: int
    api_keys: tuple[str, ...]
    names: tuple[str, ...]
    max_queue: int
    request_timeout: float | None
    shutdown_timeout: float
    cors: Cors
    speculation: bool
    schedule: str | None
    rejection: Rejection | None
    prefix_caching: PrefixCaching
    device: str | None
    log_level: str


def start(settings: Settings) -> None:
    """Serve until a signal ends it.

    Raises:
        UsageError: the port is taken, the bundle has no tokenizer, or an option does not fit it.
        IntegrityError, HostError: as `open_bundle`.
    """
    set_up_log(settings.log_level)
    bound = bind(Address(settings.host, settings.port))
    try:
        session = open_session(settings.bundle, Options(device=settings.device, quiet=True))
        manifest, tokenizer = session.bundle.manifest, session.tokenizer
        if tokenizer is None:
            raise UsageError(
                "This bundle has no tokenizer, so there is no text to serve",
                expected="a bundle with a tokenizer",
                found="token ids alone",
                repair='run it with eagle3-run --prompts FILE.jsonl, in lines like {"prompt_token_ids": [1, 2, 3]}',
            )
        most = manifest.speculation.num_speculative_tokens
        schedule = None if settings.schedule is None else read_schedule(settings.schedule, most)
        from runtime.engine import Engine

        started = time.perf_counter()
        # In a thread that ends: compute threads belong to the one that first needed them, and while two have some,
        # OpenMP takes the machine for overcommitted and puts them to sleep at every barrier, which halves the speed
        with ThreadPoolExecutor(1) as loader:
            engine = loader.submit(
                Engine.load,
                session.bundle,
                speculation=settings.speculation,
                device=settings.device,
                tokenizer=tokenizer,
                rejection=settings.rejection,
                prefix_caching=settings.prefix_caching,
                schedule=schedule,
            ).result()
        try:
            _serve(engine, session.bundle.manifest, tokenizer, bound, settings, time.perf_counter() - started)
        finally:
            engine.close()
    finally:
        bound.close()


def _serve(
    engine: Engine, manifest: Manifest, tokenizer: Tokenizer, bound: socket.socket, settings: Settings, seconds: float
) -> None:
    logger.info("Loaded %s in %.1f s.", manifest.name, seconds)
    served = describe(manifest, tokenizer, settings.names)
    driver, app = assemble(
        engine,
        served,
        max_running=manifest.limits.max_num_seqs,
        max_queue=settings.max_queue,
        request_timeout=settings.request_timeout,
        api_keys=settings.api_keys,
        cors=settings.cors,
    )
    address = Address(settings.host, settings.port)
    if not address.is_loopback and not settings.api_keys:
        logger.warning(
            "Everybody who reaches %s can use this server: give --api-key, or leave --host out.", settings.host
        )
    listen(bound, address)
    logger.info("Serving %s at %s.", served.names[0], url_of(bound))
    run_to_end(app, driver, bound, shutdown_timeout=settings.shutdown_timeout)


def describe(manifest: Manifest, tokenizer: Tokenizer, names: tuple[str, ...] = ()) -> Served:
    """What is served of a bundle.

    Where its graphs only take the likeliest token, a request that names no temperature is answered greedily, for
    OpenAI's default of 1 would refuse them all.
    """
    # Not by the first request, for which the loop would stand still
    tokenizer.prepare()
    return Served(
        names=names or (manifest.name,),
        fingerprint=manifest.bundle_id[:16],
        tokenizer=tokenizer,
        pieces=Pieces(tokenizer),
        max_model_len=manifest.limits.max_model_len,
        vocab_size=manifest.target.vocab_size,
        default=GREEDY if manifest.sampling == "greedy" else SamplingParams(),
    )


def assemble(
    engine: Any,
    served: Served,
    *,
    max_running: int,
    max_queue: int = 256,
    request_timeout: float | None = None,
    api_keys: tuple[str, ...] = (),
    cors: Cors | None = None,
    **limits: int,
) -> tuple[Driver, Any]:
    """A driver that has not been started, and the application over it.

    Args:
        limits: more for `make_app`.
    """
    metrics = Metrics(engine, served.names[0])
    driver = Driver(engine, metrics, max_running=max_running, max_queue=max_queue, request_timeout=request_timeout)
    metrics.driver = driver
    return driver, make_app(driver, served, metrics, api_keys=api_keys, cors=cors or Cors(), **limits)
