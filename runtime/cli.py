"""`eagle3-run`: the command line, and what becomes of every way to fail.

Nothing heavy is imported before the options are read, so that `--help` and a misspelt option are answered at
once.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from runtime.bench.command import bench
from runtime.bundle.errors import Eagle3Error, UsageError, render
from runtime.bundle.streams import STREAM_ERRORS, ended_well, prepare_streams
from runtime.bundle.threads import bound_spinning, bound_threads
from runtime.export import export_config
from runtime.sampling.options import given, sampling_options
from runtime.serve.command import serve
from runtime.tune.command import tune

if TYPE_CHECKING:
    from runtime.prompts import Prompt

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it

EPILOG = """\b
Examples:
  eagle3-run --bundle artifacts/smollm2-135m
      chat, on a terminal; otherwise the prompt is read from standard input
  eagle3-run --bundle artifacts/smollm2-135m --prompt "Why is the sky blue?" --stats
  eagle3-run --bundle artifacts/smollm2-135m --raw --prompt "Once upon a time" --max-tokens 40
  eagle3-run --bundle artifacts/smollm2-135m --prompts prompts.jsonl --json > answers.jsonl
  eagle3-run --bundle artifacts/smollm2-135m --prompt "Name a colour." --temperature 0.8 --top-p 0.95 --seed 7
  eagle3-run --bundle artifacts/smollm2-135m --check
  eagle3-run --bundle artifacts/smollm2-135m-neuron --device sim --prompt "Why is the sky blue?"
  eagle3-run bench --bundle artifacts/smollm2-135m --prompts eval.jsonl
  eagle3-run serve --bundle artifacts/smollm2-135m --port 8000
  eagle3-run export-config --for vllm --bundle artifacts/llama8b

\b
Lines of a prompts file:
  {"prompt": "Why is the sky blue?"}
  {"id": "q7", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32}
  {"prompt_token_ids": [1, 4093, 253]}
  {"prompt": "Name a colour.", "temperature": 0.8, "seed": 7, "stop": ["\\n"]}
A line may have any option of sampling under its name with underscores, and ignore_eos,
include_stop_str_in_output, skip_special_tokens, stop_token_ids, logit_bias, allowed_token_ids
and bad_words.

\b
Exit codes: 0 ok, 1 unexpected, --check found a difference, or an answer is not whole, 2 usage,
4 incompatible host or no room for the answer, 5 damaged bundle, 130 interrupted, 141 its reader went away.
EAGLE3_DEBUG=1 in the environment shows the traceback of an unexpected error.
"""
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


# --bundle is required, but click would ask for it in front of a subcommand too, which has its own
@click.group(invoke_without_command=True, epilog=EPILOG, context_settings=SETTINGS)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder that eagle3-build made.  [required]",
)
@click.option("--prompt", "texts", multiple=True, metavar="TEXT", help="Answer TEXT; may be given several times.")
@click.option(
    "--prompts",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.jsonl",
    help="Answer every line of FILE.",
)
@click.option("--raw", is_flag=True, help="Give prompts to the model as they are, without chat template.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Generate at most N tokens for each prompt.  [default: 256; 64 with --check]",
)
@sampling_options
@click.option(
    "--rejection",
    type=click.Choice(["coupled", "standard"]),
    help="How drafts are checked above temperature 0: coupled gives a seed's text with and without speculation, "
    "standard its distribution.  [default: coupled]",
)
@click.option(
    "--prefix-caching",
    type=click.Choice(["exact", "full", "off"]),
    default="exact",
    show_default=True,
    help="Take KV of a prompt's beginning from earlier requests: exact where no bit of the answer changes by it.",
)
@click.option("--no-speculation", is_flag=True, help="Decode plainly, one token a pass.")
@click.option("--ignore-eos", is_flag=True, help="Go on past the model's end of sequence.")
@click.option("--stats", is_flag=True, help="Print counts and times of the run to standard error.")
@click.option(
    "--check",
    is_flag=True,
    help="Compare speculation with plain decoding, on built-in prompts or yours; exit 1 on any difference.",
)
@click.option("--device", type=click.Choice(["sim"]), help="sim: run a Neuron bundle's graphs on this CPU.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for each prompt.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@click.pass_context
def command(
    context: click.Context,
    /,
    bundle: Path | None,
    texts: tuple[str, ...],
    file: Path | None,
    raw: bool,
    max_tokens: int | None,
    no_speculation: bool,
    ignore_eos: bool,
    stats: bool,
    check: bool,
    device: str | None,
    as_json: bool,
    quiet: bool,
    rejection: Literal["coupled", "standard"] | None,
    prefix_caching: Literal["exact", "full", "off"],
    **sampling: object,
) -> int:
    """Answer prompts from a bundle by speculative decoding; nothing is compiled.

    Answers go to standard output, all else to standard error.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context, context.invoked_subcommand)
        return 0
    if bundle is None:
        missing = next(option for option in context.command.params if option.name == "bundle")
        raise click.MissingParameter(ctx=context, param=missing)
    if check and no_speculation:
        raise UsageError("--check compares speculation with plain decoding", repair="leave --no-speculation out")
    if sampling["logprobs"] is not None and not (as_json or check):
        raise UsageError("--logprobs are printed by --json only", repair="give --json too, or leave --logprobs out")
    from runtime import commands
    from runtime.prompts import Prompt, read_prompts

    prompts = [Prompt(f"--prompt {number}", text) for number, text in enumerate(texts, start=1)]
    if file is not None:
        prompts += read_prompts(file)
    chat = not (prompts or check or as_json) and sys.stdin.isatty() and sys.stdout.isatty()
    if chat and raw:
        raise UsageError("--raw is for prompts, and a chat has none", repair="give --prompt TEXT, or leave --raw out")
    if not (prompts or check or chat):
        prompts = [_prompt_from_stdin()]
    session = commands.open_session(
        bundle,
        commands.Options(
            raw=raw,
            max_tokens=max_tokens,
            speculation=not no_speculation,
            ignore_eos=ignore_eos,
            stats=stats,
            as_json=as_json,
            quiet=quiet,
            device=device,
            sampling=given(sampling),
            rejection=rejection,
            prefix_caching=prefix_caching,
        ),
    )
    if check:
        return commands.check(session, tuple(prompts))
    if chat:
        return commands.chat(session)
    return commands.answer_prompts(session, tuple(prompts))


command.add_command(bench)
command.add_command(tune)
command.add_command(export_config)
command.add_command(serve)


def _refuse_options_before(context: click.Context, subcommand: str) -> None:
    """Options in front of a subcommand would be those of the command without one, and have no effect."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source not in (None, click.core.ParameterSource.DEFAULT):
            raise UsageError(
                f"{option.opts[-1]} stands before {subcommand}",
                expected=f"options of {subcommand} after it",
                repair=_moved(context, option.opts[-1], subcommand),
            )


def _moved(context: click.Context, option: str, subcommand: str) -> str:
    known = command.get_command(context, subcommand)
    if known is not None and any(option in param.opts for param in known.params):
        return f"eagle3-run {subcommand} {option} ..."
    return f"leave it out: {subcommand} has no {option}"


def _prompt_from_stdin() -> Prompt:
    from runtime.prompts import Prompt

    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(
            "Standard input is not text",
            expected="UTF-8",
            found=error.reason,
            repair="give the prompt as UTF-8",
        ) from None
    if not text.strip():
        raise UsageError(
            "There is no prompt",
            repair="give --prompt TEXT or --prompts FILE.jsonl, or text on standard input",
        )
    return Prompt("standard input", text.removesuffix("\n"))


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script: runs the command and turns every way to fail into a message and an exit code."""
    prepare_streams()
    bound_spinning()
    bound_threads()
    with suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    code = ended_well(lambda: _run(list(sys.argv[1:] if arguments is None else arguments)))
    return _fail(code, ()) if isinstance(code, Eagle3Error) else code


def _run(arguments: Sequence[str]) -> int:
    try:
        with command.make_context("eagle3-run", list(arguments)) as context:
            code: int = command.invoke(context)
        return code
    except click.exceptions.Exit as done:  # --help
        return done.exit_code
    except click.ClickException as error:
        return _fail(_usage(error), arguments)
    except Eagle3Error as error:
        return _fail(error, arguments)
    except (KeyboardInterrupt, click.Abort):
        click.echo("", err=True)
        return INTERRUPTED
    except STREAM_ERRORS:
        raise
    except Exception as error:
        if os.environ.get("EAGLE3_DEBUG") == "1":
            traceback.print_exc()
        text = " ".join(str(error).split()).rstrip(".")
        defect = Eagle3Error(
            f"{type(error).__name__}: {text} (this is a defect of eagle3-run)",
            repair="report it, with what EAGLE3_DEBUG=1 in the environment prints",
        )
        return _fail(defect, arguments)


def _usage(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    repair = f"{context.command_path if context else 'eagle3-run'} --help shows the options"
    if isinstance(error, click.NoSuchOption):
        close = " or ".join(error.possibilities or ())
        return UsageError(
            f"There is no option {error.option_name}", repair=f"did you mean {close}?" if close else repair
        )
    message, _, close = error.format_message().partition(" Did you mean ")
    return UsageError(message.rstrip("."), repair=f"did you mean {close}" if close else repair)


def _fail(error: Eagle3Error, arguments: Sequence[str]) -> int:
    if "--json" in arguments:
        click.echo(json.dumps(error.to_json()))
    else:
        for line in render(error):
            click.echo(line, err=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
