"""B7: two parts of a manifest that say different things of one are refused, by the field, for every kind of thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle.errors import ErrorGroup
from runtime.bundle.open import MANIFEST, open_bundle
from tests.runtime.bundle.toy import forge

Data = dict[str, Any]


def graph(data: Data, kind: str) -> Data:
    return next(one for one in data["graphs"] if one["kind"] == kind)


def unit(data: Data, kind: str) -> Data:
    return next(one for one in data["units"] if one["name"].startswith(kind))


def exchanged_weights(data: Data) -> None:
    first, second = (data["weights"][f"target.layers.{layer}.self_attn.o_proj.weight"] for layer in (0, 1))
    first["plain"], second["plain"] = second["plain"], first["plain"]


def shifted_layers(data: Data) -> None:
    calls = graph(data, "target_verify")["calls"]
    calls[1]["scope"], calls[2]["scope"] = calls[2]["scope"], calls[1]["scope"]


def other_pool(data: Data) -> None:
    call = graph(data, "target_verify")["calls"][1]
    call["inputs"] = [name.replace("kv.0.", "kv.1.") for name in call["inputs"]]


def other_tap(data: Data) -> None:
    call = graph(data, "target_verify")["calls"][-1]
    call["inputs"][-1] = "hidden.0"


def other_head(data: Data) -> None:
    graph(data, "target_verify")["calls"][0]["unit"] = "target_embed.t8"


def exchanged_names(data: Data) -> None:
    first, second = unit(data, "target_layer")["constants"][1:3]
    first["name"], second["name"] = second["name"], first["name"]


def dropped_constant(data: Data) -> None:
    unit(data, "target_layer")["constants"].pop()


def reshaped_constant(data: Data) -> None:
    shape = unit(data, "target_layer")["constants"][-1]["shape"]
    shape[0] += 1


def said_of(*roles: str, **sizes: int) -> Callable[[Data], None]:
    """Other numbers for these models, in what the runtime reads and in their configurations."""

    def edit(data: Data) -> None:
        for role in roles:
            data[role].update(sizes)
            data[role]["config"].update(sizes)

    return edit


def without_config(data: Data) -> None:
    data["target"].update(vocab_size=4096)
    del data["target"]["config"]["vocab_size"]
    said_of("draft", vocab_size=4096)(data)


def longer_than_the_angles(data: Data) -> None:
    """Length, bucket and graphs agree on 64 tokens; the tables of rotary angles have 32 rows."""
    data["limits"].update(max_model_len=64)
    data["buckets"].update(context_tokens=[16, 64])
    for one in data["graphs"]:
        if one["context"] == 32:
            one.update(context=64, name=one["name"].replace("c32", "c64"))


CONTRADICTIONS: dict[str, tuple[Callable[[Data], object], str]] = {
    "block size": (lambda data: data["kv_cache"].update(block_size=8), "kv_cache"),
    "head dim": (lambda data: data["kv_cache"]["groups"][0].update(head_dim=4), "head_dim"),
    "kv heads": (lambda data: data["kv_cache"]["groups"][1].update(kv_heads=1), "kv_heads"),
    "layers": (lambda data: data["kv_cache"]["groups"][1].update(first_layer=3), "kv_cache.groups"),
    "layers of the target": (lambda data: data["kv_cache"]["groups"][0].update(layers=3), "layers"),
    "dtype": (lambda data: data.update(dtype="bfloat16"), "dtype"),
    "pool": (lambda data: data["kv_cache"].update(num_blocks=4), "num_blocks"),
    "short buckets": (lambda data: data["buckets"].update(context_tokens=[16]), "max_model_len"),
    "missing bucket": (lambda data: data["buckets"].update(context_tokens=[32]), "graph"),
    "longer prompts": (lambda data: data["limits"].update(max_model_len=64), "max_model_len"),
    "more requests": (lambda data: data["limits"].update(max_num_seqs=3), "max_num_seqs"),
    "larger batches": (lambda data: data["buckets"].update(num_seqs=[1, 3]), "max_num_seqs"),
    "K": (lambda data: data["speculation"].update(num_speculative_tokens=3), "lacks a graph"),
    "schedule": (
        lambda data: data["speculation"].update(num_speculative_tokens_per_batch_size=[[1, 1, 1], [2, 2, 2]]),
        "lacks a graph",
    ),
    "aux layers": (lambda data: data["speculation"].update(aux_layers=[0, 2, 3]), "aux_layers"),
    "aux layers beyond": (lambda data: data["speculation"].update(aux_layers=[1, 2, 9]), "aux_layers"),
    "vocabulary": (lambda data: data["target"].update(vocab_size=128), "vocab_size"),
    "vocabulary beyond the tables": (
        said_of("target", "draft", vocab_size=4096),
        "target.embed.embed_tokens.weight has another shape than target.vocab_size",
    ),
    "vocabulary beyond the head": (said_of("target", "draft", vocab_size=4096), "target.head.lm_head.weight"),
    "smaller vocabulary": (said_of("target", "draft", vocab_size=32), "embed_tokens"),
    "vocabulary without a config": (without_config, "target.embed.embed_tokens.weight"),
    "draft's vocabulary": (said_of("draft", vocab_size=4096), "draft.vocab_size is not the target's"),
    "draft's table": (
        said_of("target", "draft", vocab_size=4096),
        "draft.embed_tokens.weight has another shape than draft.vocab_size",
    ),
    "length beyond the angles": (
        longer_than_the_angles,
        "target.embed.rotary.weight has another shape than limits.max_model_len",
    ),
    "length beyond the draft's angles": (longer_than_the_angles, "draft.rotary.weight"),
    "hidden size": (lambda data: data["target"].update(hidden_size=16), "hidden_size"),
    "eos": (lambda data: data["target"].update(eos_token_ids=[3]), "eos_token_ids"),
    "plain decoding": (lambda data: data["exactness"].update(lossless="near_tie"), "lacks a graph"),
    "widths": (
        lambda data: data["exactness"].update(bitwise_across=["requests"], context_widths=[16]),
        "context_widths",
    ),
    "rows": (lambda data: graph(data, "target_verify").update(rows=4), "graph"),
    "graph's context": (lambda data: graph(data, "target_verify").update(context=32), "graph"),
    "graph's kind": (lambda data: graph(data, "draft_initial").update(kind="draft_recurrent"), "graph"),
    "graph twice": (lambda data: data["graphs"].append({**data["graphs"][0], "name": "again"}), "no pass asks for"),
    "graph's output": (lambda data: graph(data, "target_verify")["outputs"].reverse(), "gives other values"),
    "graph's dtype": (lambda data: graph(data, "target_verify")["inputs"][0].update(dtype="int64"), "tokens"),
    "unit's input": (lambda data: unit(data, "target_layer")["inputs"][0].update(shape=[3, 16]), "hidden"),
    "unit's pool": (lambda data: unit(data, "draft_initial")["inputs"][-1].update(dtype="bfloat16"), "value_pool"),
    "order of layers": (shifted_layers, "scope"),
    "another layer's KV": (other_pool, "inputs"),
    "another state": (other_tap, "inputs"),
    "another unit": (other_head, "target_embed"),
    "constant's shape": (reshaped_constant, "target_layer"),
    "constant's dtype": (lambda data: unit(data, "draft")["constants"][0].update(dtype="float16"), "draft"),
    "constants' names": (exchanged_names, "constants out of order"),
    "constant dropped": (dropped_constant, "takes other weights"),
    "weights exchanged": (exchanged_weights, "o_proj"),
    "weight of another": (
        lambda data: data["weights"].update({"extra": data["weights"]["draft.norm.weight"]}),
        "extra",
    ),
    "artifact": (
        lambda data: unit(data, "target_embed").update(artifact=unit(data, "target_layer")["artifact"]),
        "lies in a file of another name",
    ),
    "tiles": (lambda data: data["requires"].update(amx=True), "requires.amx"),
    "ranks": (lambda data: data["requires"].update(ranks=2), "requires.ranks"),
}


def contradictions(bundle: Path) -> list[str]:
    with pytest.raises(ErrorGroup) as caught:
        open_bundle(bundle, host=False)
    assert caught.value.exit_code == 5
    assert caught.value.what.endswith("contradicts itself")
    assert all(problem.repair for problem in caught.value.problems)
    return [problem.sentence() for problem in caught.value.problems]


@pytest.mark.parametrize(("edit", "named"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_b7_a_contradiction_is_refused_by_the_field(toy: Path, edit: Callable[[Data], object], named: str) -> None:
    forge(toy, edit)
    found = contradictions(toy)
    assert any(named in sentence for sentence in found), found


# Files of weights


def rewrite(bundle: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the content of the draft's weights and seal the bundle again."""
    file = next(bundle.glob("weights/draft-*"))
    content = change(file.read_bytes())
    file.unlink()
    file.write_bytes(content)
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(bundle, lambda data: data["files"].update({f"weights/{file.name}": entry}))


def with_header(change: Callable[[Data], object]) -> Callable[[bytes], bytes]:
    def rewritten(content: bytes) -> bytes:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + length :]

    return rewritten


def entry_of(header: Data) -> Data:
    return header["fc.weight"]


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "seven bytes": lambda content: content[:7],
    "cut in the header": lambda content: content[:100],
    "cut in the data": lambda content: content[:-4],
    "more data": lambda content: content + b"more",
    "length beyond the file": lambda content: b"\xff" * 8 + content[8:],
    "length beyond any": lambda content: (2**40).to_bytes(8, "little") + content[8:],
    "no JSON": lambda content: content[:8] + b"\0" + content[9:],
    "deep JSON": lambda content: (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "a list": lambda content: (2).to_bytes(8, "little") + b"[]",
    "unknown dtype": with_header(lambda header: entry_of(header).update(dtype="F7")),
    "another dtype": with_header(lambda header: entry_of(header).update(dtype="I32")),
    "negative shape": with_header(lambda header: entry_of(header).update(shape=[-32, -96])),
    "another shape": with_header(lambda header: entry_of(header)["shape"].reverse()),
    "larger shape": with_header(lambda header: entry_of(header).update(shape=[64, 96])),
    "offsets beyond": with_header(lambda header: entry_of(header)["data_offsets"].__setitem__(1, 2**40)),
    "offsets of another": with_header(
        lambda header: entry_of(header).update(data_offsets=header["lm_head.weight"]["data_offsets"])
    ),
    "a key too many": with_header(lambda header: entry_of(header).update(more=1)),
    "renamed": with_header(lambda header: header.update(other=header.pop("fc.weight"))),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_b7_b14_a_file_of_weights_that_is_not_what_units_take(toy: Path, change: Callable[[bytes], bytes]) -> None:
    rewrite(toy, change)
    assert any("weights/draft-" in sentence or "fc.weight" in sentence for sentence in contradictions(toy))


def test_the_toy_itself_contradicts_nothing(toy: Path) -> None:
    assert open_bundle(toy, host=False).manifest.bundle_id == json.loads((toy / MANIFEST).read_text())["bundle_id"]
