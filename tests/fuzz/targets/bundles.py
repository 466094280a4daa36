"""Bundles: a manifest that contradicts itself and is sealed anew, and a folder in which something lies that must not.

Both are run by eagle3-run, two prompts, and compared with the answers of the bundle as it was built. A manifest that is
sealed again is a bundle of its own: where it says truly that it is another one (other end-of-sequence ids, a shorter
limit), its text may be another, so those places are left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import Place, spoil_bytes, spoil_folder, spoil_json, spoil_text
from tests.fuzz.target import console, linked_copy

PROMPTS = ([5, 9, 40, 3, 77], [(7 * i * i + 13 * i + 29) % 250 + 2 for i in range(40)])
# Another value here describes another model or another promise, and no two parts of the bundle contradict each other
_OF_ANOTHER = {
    ("target", "eos_token_ids"),
    ("limits", "max_model_len"),
    ("exactness", "bitwise_across"),
    ("exactness", "context_widths"),
}


class _Bundles:
    """What both kinds share: the bundle, the prompts, the answers."""

    seconds = 60.0

    def prepare(self, folder: Path) -> None:
        """`folder` holds the tiny bundle as `bundle`, which gets a tokenizer here."""
        from tests.runtime.cli.conftest import INFO, TEMPLATE, byte_tokenizer

        lines = [{"prompt_token_ids": ids, "max_tokens": 12} for ids in PROMPTS]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        where = folder / "bundle" / "tokenizer"
        where.mkdir()
        byte_tokenizer().save(str(where / "tokenizer.json"))
        (where / "tokenizer_info.json").write_text(json.dumps(INFO))
        (where / "chat_template.jinja").write_text(TEMPLATE)
        for file in where.iterdir():
            list_anew(folder / "bundle", file)

    def load(self) -> None:
        import runtime.backends.aoti
        import runtime.cli
        import runtime.engine
        import runtime.generate
        import runtime.prompts
        import runtime.text.tokenizer  # noqa: F401

    def copy(self, pristine: Path, folder: Path) -> None:
        linked_copy(pristine / "bundle", folder / "bundle")
        shutil.copy(pristine / "prompts.jsonl", folder)

    def run(self, folder: Path) -> int:
        import runtime.cli

        arguments = ("--bundle", folder / "bundle", "--prompts", folder / "prompts.jsonl", "--ignore-eos", "--json")
        return console(runtime.cli.main, *arguments)

    def answer(self, out: str) -> str:
        return str([json.loads(line)["token_ids"] for line in out.splitlines()])


class Manifests(_Bundles):
    """A manifest with one or two places changed, its id made anew as its author would; some as text."""

    def spoil(self, rng: random.Random, folder: Path) -> str:
        file = folder / "bundle" / "manifest.json"
        text = file.read_text()
        file.unlink()
        if rng.random() < 0.1:
            spoiled, what = spoil_text(rng, text)
            file.write_text(spoiled, errors="surrogatepass")
            return what
        body = json.loads(text)
        what = spoil_json(rng, body, _may_change)
        if rng.random() < 0.25:
            what += "; " + spoil_json(rng, body, _may_change)
        file.write_text(sealed(body))
        return what


class Files(_Bundles):
    """A bundle's folder with something planted, gone, cut or swapped, or a unit's description changed and sealed."""

    def spoil(self, rng: random.Random, folder: Path) -> str:
        bundle, outside = folder / "bundle", folder / "outside"
        outside.write_text("{}")
        if rng.random() < 0.6:
            return spoil_folder(rng, bundle, outside)
        files = [path for path in sorted(bundle.rglob("*")) if path.suffix in (".json", ".safetensors", ".jinja")]
        file = rng.choice([path for path in files if path.parent != bundle])
        data = file.read_bytes()
        if file.suffix == ".json":
            body = json.loads(data)
            what = spoil_json(rng, body) if isinstance(body, dict) and body else "nothing"
            data = json.dumps(body).encode()
        elif file.suffix == ".jinja":
            data, what = spoil_bytes(rng, data)
        else:
            # Numbers of the weights are anybody's; what is said of them is not
            data, what = spoil_bytes(rng, data, region=8 + int.from_bytes(data[:8], "little"))
        file.unlink()
        file.write_bytes(data)
        list_anew(bundle, file)
        return f"{file.relative_to(bundle)} sealed again: {what}"


def list_anew(bundle: Path, file: Path) -> None:
    """List `file` in the bundle's manifest with the size and digest that it has now."""
    listed = bundle / "manifest.json"
    body = json.loads(listed.read_text())
    data = file.read_bytes()
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    body["files"][file.relative_to(bundle).as_posix()] = entry
    listed.unlink()
    listed.write_text(sealed(body))


def sealed(body: dict[str, Any]) -> str:
    """The text of a manifest with the id that its content has, where it can have one."""
    from runtime.bundle.errors import Eagle3Error
    from runtime.bundle.manifest import loads

    # Where it has none, no reader gets as far as the id
    with contextlib.suppress(
        Eagle3Error, RecursionError, KeyError, TypeError, ValueError, AttributeError, OverflowError
    ):
        body["bundle_id"] = loads(body).with_id().bundle_id
    return json.dumps(body)


def _may_change(at: Place) -> bool:
    return at[:2] not in _OF_ANOTHER and at[0] != "bundle_id"
