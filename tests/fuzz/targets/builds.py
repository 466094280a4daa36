"""What a build reads before it compiles: the YAML, both config.json, checkpoints, tokenizers.

`Configs` asks for a plan of random models. `Checkpoints` runs a build up to the point at which it would stage what was
compiled: models are read, the tokenizer is opened, weights are loaded and cast. Loaded weights are compared with what
the safetensors library reads in the same file.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import spoil_bytes, spoil_json, spoil_text
from tests.fuzz.target import console, linked_copy

ROOT = Path(__file__).parents[3]


class Configs:
    """configs/tiny.yaml and its two config.json, one of them changed: `eagle3-build plan`."""

    seconds = 30.0

    def prepare(self, folder: Path) -> None:
        shutil.copytree(ROOT / "configs" / "tiny", folder / "input" / "tiny")
        import yaml

        body = yaml.safe_load((ROOT / "configs" / "tiny.yaml").read_text())
        (folder / "input" / "fuzzed.yaml").write_text(json.dumps(body, indent=1))

    def load(self) -> None:
        _import_builder()

    def copy(self, pristine: Path, folder: Path) -> None:
        linked_copy(pristine / "input", folder / "input")

    def spoil(self, rng: random.Random, folder: Path) -> str:
        copy = folder / "input"
        file = copy / rng.choice(("fuzzed.yaml", "fuzzed.yaml", "tiny/target.json", "tiny/draft.json"))
        return f"{file.name}: {_spoil_json_file(rng, file)}"

    def run(self, folder: Path) -> int:
        import aot.cli

        os.environ["EAGLE3_CACHE"] = str(folder / "cache")
        return console(aot.cli.main, "plan", "--config", folder / "input" / "fuzzed.yaml", "--json")

    def answer(self, out: str) -> str:
        # What is planned may be anything, and is one JSON object
        return "a plan" if isinstance(json.loads(out), dict) else out


class Checkpoints:
    """A toy target with a tokenizer and a toy draft, as folders: one file changed; a build up to its staging."""

    seconds = 60.0

    def prepare(self, folder: Path) -> None:
        import torch
        from safetensors.torch import save_file

        from aot.checkpoint.draft import draft_config_from_json
        from aot.checkpoint.random_weights import random_draft_weights, random_target_weights
        from aot.checkpoint.target import target_config_from_json
        from tests.runtime.cli.conftest import byte_tokenizer

        where = folder / "input"
        (where / "target").mkdir(parents=True)
        (where / "draft").mkdir()
        texts = {
            name: json.loads((ROOT / "configs" / "tiny" / f"{name}.json").read_text()) for name in ("target", "draft")
        }
        texts["target"] |= {"vocab_size": 257, "eos_token_id": 256}
        texts["draft"] |= {"vocab_size": 257, "draft_vocab_size": 64}
        target = target_config_from_json(texts["target"])
        draft = draft_config_from_json(texts["draft"], target)
        weights = random_target_weights(target, 1, torch.float32)
        names = sorted(weights)
        halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, held in halves.items():
            save_file({name: weights[name].contiguous() for name in held}, where / "target" / file)
        index = {"metadata": {}, "weight_map": {name: file for file, held in halves.items() for name in held}}
        (where / "target" / "model.safetensors.index.json").write_text(json.dumps(index))
        save_file(random_draft_weights(draft, 2, torch.float32), where / "draft" / "model.safetensors")
        for name, text in texts.items():
            (where / name / "config.json").write_text(json.dumps(text))
        byte_tokenizer().save(str(where / "target" / "tokenizer.json"))
        extras: dict[str, Any] = {
            "tokenizer_config.json": {
                "bos_token": None,
                "eos_token": "<eos>",
                "pad_token": {"content": "<eos>", "special": True},
                "add_bos_token": False,
                "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
            },
            "generation_config.json": {"eos_token_id": [256], "temperature": 0.7},
            "special_tokens_map.json": {"eos_token": "<eos>"},
        }
        for name, body in extras.items():
            (where / "target" / name).write_text(json.dumps(body))
        config = {
            "model": "target",
            "dtype": "bfloat16",
            "max_model_len": 128,
            "max_num_seqs": 2,
            "block_size": 16,
            "speculative_config": {"method": "eagle3", "model": "draft", "num_speculative_tokens": 3},
            "backend": {"name": "aoti", "device": "cpu"},
            "buckets": {"prefill_tokens": [16], "num_seqs": [1, 2], "context_tokens": [128]},
        }
        (where / "fuzzed.yaml").write_text(json.dumps(config))

    def load(self) -> None:
        _import_builder()

    def copy(self, pristine: Path, folder: Path) -> None:
        linked_copy(pristine / "input", folder / "input")

    def spoil(self, rng: random.Random, folder: Path) -> str:
        copy = folder / "input"
        files = [path for path in sorted(copy.rglob("*")) if path.is_file()]
        # Every kind of file as often as the next
        suffix = rng.choice((".safetensors", "config.json", "tokenizer.json", "index.json", "tokenizer_config.json"))
        file = rng.choice([path for path in files if path.name.endswith(suffix)])
        name = file.relative_to(copy).as_posix()
        if rng.random() < 0.05:
            file.unlink()
            if rng.random() < 0.5:
                file.symlink_to("nowhere")
            return f"{name} gone"
        if suffix != ".safetensors":
            return f"{name}: {_spoil_json_file(rng, file)}"
        data = file.read_bytes()
        length = int.from_bytes(data[:8], "little")
        if rng.random() < 0.5:
            data, what = spoil_bytes(rng, data, region=8 + length)
        else:
            header = json.loads(data[8 : 8 + length])
            what = spoil_json(rng, header)
            text = json.dumps(header).encode()
            data = len(text).to_bytes(8, "little") + text + data[8 + length :]
        file.unlink()
        file.write_bytes(data)
        return f"{name}: {what}"

    def run(self, folder: Path) -> int:
        import aot.build.run
        import aot.cli

        os.environ["EAGLE3_CACHE"] = str(folder / "cache")
        where = folder / "input"

        def staged(plan: Any, backend: Any, cache: Any, staging: Any, target: Any, draft: Any, *rest: Any) -> None:
            print("different" if _differ(target, where / "target") or _differ(draft, where / "draft") else "same")
            raise SystemExit(0)

        aot.build.run._compile = lambda *given, **named: []  # type: ignore[assignment]
        aot.build.run._stage = staged  # type: ignore[assignment]
        return console(aot.cli.main, "--config", where / "fuzzed.yaml", "--output", folder / "output", "-q")

    def answer(self, out: str) -> str:
        return out


def _differ(loaded: Any, folder: Path) -> bool:
    """Whether a loaded tensor is not what the safetensors library reads under its name in the file that names it."""
    import torch
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    named = json.loads(index.read_text())["weight_map"] if index.is_file() else None
    for file in files:
        for name, tensor in load_file(file).items():
            if named is not None and named.get(name) != file.name:
                continue
            if name in loaded and tensor.is_floating_point():
                mine = loaded[name]
                if mine.shape != tensor.shape or not torch.equal(mine, tensor.to(mine.dtype)):
                    return True
    return False


def _spoil_json_file(rng: random.Random, file: Path) -> str:
    text = file.read_text()
    file.unlink()
    if rng.random() < 0.2:
        spoiled, what = spoil_text(rng, text)
        file.write_bytes(spoiled.encode("utf-8", "surrogatepass"))
        return what
    body = json.loads(text)
    what = spoil_json(rng, body)
    if rng.random() < 0.25 and body:
        what += "; " + spoil_json(rng, body)
    file.write_text(json.dumps(body))
    return what


def _import_builder() -> None:
    import safetensors.torch  # noqa: F401
    import tokenizers  # noqa: F401

    import aot.build.backends
    import aot.build.models
    import aot.build.plan
    import aot.build.run
    import aot.checkpoint.tokenizer
    import aot.cli
    import aot.config
    import aot.report
    import aot.show  # noqa: F401
