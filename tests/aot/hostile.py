"""Files as nobody should publish them: seeded mutants of the files that a build reads.

Each generator takes a whole file's content and a `random.Random`, and gives a broken or strange one of the same kind.
The same seed gives the same mutants. `INPUTS` puts them together: for each kind of file a folder in which everything
else is whole, and the reader that a build uses on it. `read` says what came of one: "right" or "refused"; any other
exception passes through.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from aot.checkpoint.draft import load_draft_weights, load_map, read_draft_config
from aot.checkpoint.random_weights import random_target_weights
from aot.checkpoint.source import ModelSource
from aot.checkpoint.target import (
    load_target_weights,
    read_target_config,
    read_target_headers,
    target_config_from_json,
)
from aot.config import load_config
from aot.verify.tokenizer import place_tokenizer
from runtime.bundle.errors import Eagle3Error
from tests.aot.toy_drafts import eagle3, tensors

Json = Any
Mutate = Callable[[bytes, random.Random], bytes]

TARGET: dict[str, Json] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
    "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32},
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "eos_token_id": [2, 3],
    "bos_token_id": 0,
}
DRAFT = eagle3(
    eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "norm_before_fc": False},
    sliding_window=None,
    tie_word_embeddings=False,
)
YAML = """name: toy
model: target
max_model_len: 64
max_num_seqs: 2
block_size: 8
dtype: float32
speculative_config:
  method: eagle3
  model: draft
  num_speculative_tokens: 3
  aux_layers: [1, 3, 4]
  draft_overrides:
    rope_theta: 10000.0
    attention_window: 16
buckets:
  prefill_tokens: [16]
  num_seqs: [1, 2]
  context_tokens: [32, 64]
backend: {name: aoti, gemm: library}
kv_blocks: 20
"""
# Written as JSON and, but for the deep ones, as YAML too
LITERALS = (
    *("null", "true", "0", "-1", "1", "2", "7", "1e59", "1e400", "-0.0", "NaN", "Infinity", str(2**31), str(2**63)),
    *(str(10**59), "9" * 4200, "9" * 5000, "20000000", '""', '"x"', '"\\ud800"', '"\\u0000"', '"../../x"', "[]", "{}"),
    *("[null]", "[[1]]", '{"a": {}}', "[" * 900 + "]" * 900, '{"a":' * 300 + "1" + "}" * 300, '"' + "y" * 5000 + '"'),
)

YAML_LITERALS = (".inf", ".nan", "&a [*a]", "!!binary x", "!!python/object:os.x {}", "~x/y", "1:59", "2001-99-99", "|")


def mutant_of_json(content: bytes, chance: random.Random) -> bytes:
    """One to three values replaced, keys left out, renamed or given twice; now and then its bytes broken too."""
    whole = json.loads(content)
    marks: dict[str, str] = {}
    for number in range(chance.randint(1, 3)):
        places = list(_places(whole))
        if not places:
            break
        holder, key = chance.choice(places)
        act = chance.choice(("replace", "replace", "replace", "leave out", "rename"))
        if act == "leave out":
            del holder[key]
        elif act == "rename" and isinstance(holder, dict):
            other = chance.choice(places)[1]
            holder[str(other)] = holder.pop(key)
        else:
            holder[key] = f"@{number}@"
            marks[json.dumps(holder[key])] = chance.choice(LITERALS)
    text = json.dumps(whole)
    for mark, literal in marks.items():
        text = text.replace(mark, literal)
    if chance.random() < 0.1:
        text = text.replace("{", '{"hidden_size": 31, ', 1)
    made = text.encode("utf-8", "surrogatepass")
    return mutant_of_bytes(made, chance) if chance.random() < 0.15 else made


def _places(value: Json) -> list[tuple[Any, Any]]:
    """Every (object or list, key or index) in `value`."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    found: list[tuple[Any, Any]] = [(value, key) for key, _ in inner]
    for _, part in inner:
        found += _places(part)
    return found


def mutant_of_yaml(content: bytes, chance: random.Random) -> bytes:
    """A value, a key or a line replaced, doubled, moved in or out; now and then its bytes broken too."""
    lines = content.decode().splitlines()
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        key, _, value = lines[at].partition(":")
        literal = chance.choice([one for one in LITERALS if len(one) < 10_000])
        lines[at] = chance.choice(
            (
                f"{key}: {literal}",
                f"{key}: {literal}",
                f"{key}: 0x{'f' * chance.choice((1, 8, 5000))}",
                f"{key}: {chance.choice(YAML_LITERALS)}",
                f'"\\ud800":{value}',
                f"? [a, b]\n: {literal}",
                lines[at] + "\n" + lines[at],
                "  " + lines[at],
                lines[at].strip(),
                "",
            )
        )
    made = "\n".join(lines).encode("utf-8", "surrogatepass")
    return mutant_of_bytes(made, chance) if chance.random() < 0.15 else made


def mutant_of_bytes(content: bytes, chance: random.Random) -> bytes:
    """Bytes flipped, cut off, put in or written over, most of them near the beginning, where headers are."""
    made = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        at = min(len(made), int(len(made) * chance.random() ** chance.choice((1, 4))))
        act = chance.randrange(5)
        if act == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif act == 1:
            del made[at:]
        elif act == 2:
            number = chance.choice((0, 1, 255, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1, chance.getrandbits(64)))
            made[at : at + 8] = struct.pack("<Q", number)
        elif act == 3:
            made[at:at] = chance.randbytes(chance.randint(1, 9))
        else:
            del made[at : at + chance.randint(1, 9)]
    return bytes(made)


def mutant_of_safetensors(content: bytes, chance: random.Random) -> bytes:
    """A header whose JSON is a mutant, of the length that it has, or bytes broken anywhere."""
    if chance.random() < 0.4:
        return mutant_of_bytes(content, chance)
    (length,) = struct.unpack_from("<Q", content)
    header = mutant_of_json(content[8 : 8 + length], chance)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


# What is read


@dataclass(frozen=True)
class Input:
    """A kind of file: its name in the folder of `write_whole`, its mutants, and the reader that a build uses."""

    file: str
    mutate: Mutate
    reader: Callable[[Path], object]


def write_whole(folder: Path) -> None:
    """A folder with everything whole: toy.yaml, target/ with its tokenizer, draft/, and model.gguf."""
    target, draft = folder / "target", folder / "draft"
    for part in (target, draft):
        part.mkdir(parents=True, exist_ok=True)
    (folder / "toy.yaml").write_text(YAML)
    (target / "config.json").write_text(json.dumps(TARGET))
    (target / "generation_config.json").write_text(json.dumps({"eos_token_id": [2], "bos_token_id": 0}))
    save_file(random_target_weights(target_config_from_json(TARGET), 0, torch.float32), target / "model.safetensors")
    (draft / "config.json").write_text(json.dumps(DRAFT))
    save_file(tensors(), draft / "model.safetensors")
    (folder / "sharded").mkdir(exist_ok=True)
    (folder / "sharded" / "config.json").write_text(json.dumps(DRAFT))
    save_file(tensors(), folder / "sharded" / "part.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(tensors(), "part.safetensors")}
    (folder / "sharded" / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "pickled").mkdir(exist_ok=True)
    (folder / "pickled" / "config.json").write_text(json.dumps(DRAFT))
    torch.save(tensors(), folder / "pickled" / "pytorch_model.bin")
    _write_tokenizer(target)
    _write_gguf(folder / "model.gguf")


def _write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        "add_bos_token": True,
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
        "added_tokens_decoder": {"0": {"content": "<s>"}},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))


def _write_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (
        ("embedding_length", 32),
        ("feed_forward_length", 48),
        ("block_count", 1),
        ("attention.head_count", 4),
        ("context_length", 64),
    ):
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "</s>", "a"])
    for kind, token in (("bos", 0), ("eos", 1), ("eot", 2)):
        writer.add_uint32(f"tokenizer.ggml.{kind}_token_id", token)
    sizes = {"attn_norm": (32,), "ffn_norm": (32,), "ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48)}
    sizes |= {f"attn_{part}": (32, 32) for part in ("q", "k", "v", "output")}
    whole = {"token_embd": (64, 32), "output_norm": (32,), "output": (64, 32)}
    for name, shape in {**whole, **{f"blk.0.{part}": shape for part, shape in sizes.items()}}.items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _target(folder: Path) -> None:
    source = ModelSource("target", "folder", folder / "target")
    config = read_target_config(source)
    read_target_headers(source, config)
    load_target_weights(source, config, torch.float32)


def _gguf(folder: Path) -> None:
    source = ModelSource("model.gguf", "gguf", folder / "model.gguf")
    load_target_weights(source, read_target_config(source), torch.float32)


def _draft_at(name: str) -> Callable[[Path], None]:
    def reader(folder: Path) -> None:
        source, target = ModelSource(name, "folder", folder / name), target_config_from_json(TARGET)
        config = read_draft_config(source, target)
        load_map(source, config)
        load_draft_weights(source, config, target, torch.bfloat16)

    return reader


def _tokenizer(folder: Path) -> None:
    source = ModelSource("target", "folder", folder / "target")
    read_target_config(source)
    place_tokenizer(source, folder / "placed", 64)


INPUTS: dict[str, Input] = {
    "YAML": Input("toy.yaml", mutant_of_yaml, lambda folder: load_config(folder / "toy.yaml")),
    "target's config.json": Input("target/config.json", mutant_of_json, _target),
    "generation_config.json": Input("target/generation_config.json", mutant_of_json, _target),
    "target's safetensors": Input("target/model.safetensors", mutant_of_safetensors, _target),
    "draft's config.json": Input("draft/config.json", mutant_of_json, _draft_at("draft")),
    "draft's safetensors": Input("draft/model.safetensors", mutant_of_safetensors, _draft_at("draft")),
    "index": Input("sharded/model.safetensors.index.json", mutant_of_json, _draft_at("sharded")),
    "bin": Input("pickled/pytorch_model.bin", mutant_of_bytes, _draft_at("pickled")),
    "GGUF": Input("model.gguf", mutant_of_bytes, _gguf),
    "tokenizer.json": Input("target/tokenizer.json", mutant_of_json, _tokenizer),
    "tokenizer_config.json": Input("target/tokenizer_config.json", mutant_of_json, _tokenizer),
}


def read(kind: str, folder: Path, content: bytes) -> str:
    """What a build makes of `folder` with `content` as the file of `kind`, which is whole again afterwards."""
    chosen = INPUTS[kind]
    path = folder / chosen.file
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        chosen.reader(folder)
    except Eagle3Error:
        return "refused"
    finally:
        path.write_bytes(whole)
    return "right"
