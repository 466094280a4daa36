"""`eagle3-run serve`: its options, and what it does with them. Nothing heavy is imported before they are read."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runtime.bundle.errors import UsageError

if TYPE_CHECKING:
    from runtime.prefix import PrefixCaching
    from runtime.sampling.sampler import Rejection

NEEDED = ("starlette", "uvicorn", "prometheus_client")
EPILOG = """\b
Examples:
  eagle3-run serve --bundle artifacts/smollm2-135m --port 8000
  EAGLE3_API_KEY=secret eagle3-run serve --bundle artifacts/smollm2-135m --host 0.0.0.0
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json'
      -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}'

\b
Paths: /v1/completions, /v1/chat/completions, /v1/models, /health, /metrics, /version.
SIGTERM or Ctrl-C ends the server once its requests are done, a second one at once.

\b
Exit codes: 0 ended by a signal, 1 unexpected, 2 usage (the port is taken, the extra is missing),
4 incompatible host, 5 damaged bundle.
"""


# Some thirty years. The loop's clock counts milliseconds in 64 bits, so it can wait neither for ever nor for 1e30 s
_LONGEST_S = 1e9


def _seconds(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse what FloatRange lets pass: infinity, a time beyond all use, and NaN, which is in no range."""
    if value is not None and not value <= _LONGEST_S:
        raise click.BadParameter(f"{value:g} is not a number of seconds up to {_LONGEST_S:g}.", context, parameter)
    return value


def _is_plain(text: str) -> bool:
    return bool(text) and text == text.strip() and text.isprintable()


@click.command("serve", epilog=EPILOG, short_help="Serve a bundle over HTTP, with OpenAI's interface.")
@click.option(
    "--bundle", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The folder that eagle3-build made."
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="NAME", help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="N",
    help="The port to listen on; 0 takes a free one and logs it.",
)
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    envvar="EAGLE3_API_KEY",
    metavar="KEY",
    help="Ask for this key at /v1/; may be given several times. Other users of this machine can read it from the "
    "command line, so better set EAGLE3_API_KEY (keys between spaces).",
)
@click.option(
    "--served-model-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="The model's name for clients; may be given several times, answers carry the first.  [default: the bundle's]",
)
@click.option(
    "--max-queue",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    metavar="N",
    help="Requests that may wait beside the running ones; more get 503.",
)
@click.option(
    "--request-timeout",
    type=click.FloatRange(min=0, min_open=True),
    callback=_seconds,
    metavar="SECONDS",
    help="End a request that takes longer, its wait included, with 504.  [default: no limit]",
)
@click.option(
    "--shutdown-timeout",
    type=click.FloatRange(min=0),
    callback=_seconds,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that running requests get after the signal to stop.",
)
@click.option(
    "--allowed-origins",
    multiple=True,
    metavar="ORIGIN|JSON",
    help="Let pages of this origin use the server from a browser (CORS), as in https://example.org; * lets all, "
    "several times or a JSON list as in '[\"*\"]' lets several.  [default: none]",
)
@click.option(
    "--allowed-methods",
    multiple=True,
    metavar="METHOD|JSON",
    help="Methods that those pages may use.  [default: *]",
)
@click.option(
    "--allowed-headers",
    multiple=True,
    metavar="HEADER|JSON",
    help="Headers that those pages may send.  [default: *]",
)
@click.option("--allow-credentials", is_flag=True, help="Let those pages send cookies and the like.")
@click.option("--no-speculation", is_flag=True, help="Decode plainly, one token a pass.")
@click.option(
    "--num-speculative-tokens-per-batch-size",
    "schedule",
    metavar="JSON|FILE",
    help="Draft tokens by number of running requests, as in [[1, 4, 3], [5, 8, 1]], or a file of eagle3-run tune.",
)
@click.option(
    "--rejection",
    type=click.Choice(["coupled", "standard"]),
    help="How drafts of requests with a temperature are accepted.  [default: coupled]",
)
@click.option(
    "--prefix-caching",
    type=click.Choice(["exact", "full", "off"]),
    default="exact",
    show_default=True,
    help="Whether requests share the KV of equal beginnings of their prompts.",
)
@click.option("--device", type=click.Choice(["sim"]), help="sim: run a Neuron bundle's graphs on this CPU.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged, to standard error.",
)
def serve(
    bundle: Path,
    host: str,
    port: int,
    api_keys: tuple[str, ...],
    names: tuple[str, ...],
    max_queue: int,
    request_timeout: float | None,
    shutdown_timeout: float,
    allowed_origins: tuple[str, ...],
    allowed_methods: tuple[str, ...],
    allowed_headers: tuple[str, ...],
    allow_credentials: bool,
    no_speculation: bool,
    schedule: str | None,
    rejection: Rejection | None,
    prefix_caching: PrefixCaching,
    device: str | None,
    log_level: str,
) -> int:
    """Serve a bundle over HTTP with OpenAI's interface; nothing is compiled while a client waits."""
    missing = [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            "The server needs packages that are not installed",
            expected=", ".join(name.replace("_", "-") for name in NEEDED),
            found=f"no {' and no '.join(missing)}",
            repair="pip install 'eagle3-aot[serve]'",
        )
    if not all(_is_plain(key) and key.isascii() for key in api_keys):
        raise UsageError(
            "An API key is empty, not ASCII, or has what no header can carry",
            expected="ASCII characters that print, none of them a space at either end",
            repair="give another --api-key, or leave it out",
        )
    bad = next((name for name in names if not _is_plain(name)), None)
    if bad is not None:
        raise UsageError(
            "A model's name for clients cannot be used",
            expected="characters that print, none of them a space at either end",
            found=repr(bad),
            repair="give another --served-model-name, or leave it out",
        )
    given = allowed_methods or allowed_headers or allow_credentials
    if given and not allowed_origins:
        raise UsageError(
            "There is no origin to allow anything",
            expected="--allowed-origins beside --allowed-methods, --allowed-headers and --allow-credentials",
            repair="give --allowed-origins, or leave the others out",
        )
    from runtime.serve.cors import Cors, read_list
    from runtime.serve.start import Settings, start

    cors = Cors(
        read_list("--allowed-origins", allowed_origins),
        read_list("--allowed-methods", allowed_methods) or Cors.methods,
        read_list("--allowed-headers", allowed_headers) or Cors.headers,
        allow_credentials,
    )
    start(
        Settings(
            bundle=bundle,
            host=host,
            port=port,
            api_keys=api_keys,
            names=names,
            max_queue=max_queue,
            request_timeout=request_timeout,
            shutdown_timeout=shutdown_timeout,
            cors=cors,
            speculation=not no_speculation,
            schedule=schedule,
            rejection=rejection,
            prefix_caching=prefix_caching,
            device=device,
            log_level=log_level,
        )
    )
    return 0
