"""Weights in a bundle: each content once, aligned, readable by safetensors."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, save
from torch import Tensor

from aot.backends.aoti.backend import AotiBackend
from aot.backends.aoti.packing import apply
from aot.backends.aoti.toolchain import Toolchain
from aot.build.store import ALIGNMENT, WeightStore, aligned, digest, wanted_layouts
from runtime.bundle.manifest import Call, Constant, Unit, WeightRef

BACKEND = AotiBackend(Toolchain("g++", "g++ 12", "x86-64-v3", (), "packed", "2.13.0"))


def stored(folder: Path, reference: WeightRef) -> Tensor:
    with safe_open(folder / Path(reference.file).name, framework="pt") as file:
        tensor: Tensor = file.get_tensor(reference.tensor)
        return tensor


def test_equal_content_is_stored_once_whatever_scope_names_it(tmp_path: Path) -> None:
    embedding = torch.randn(32, 16)
    wanted = {f"{scope}.w": {"plain"} for scope in ("target.embed", "target.head", "draft")}
    store = WeightStore(tmp_path / "weights", wanted, BACKEND)
    for scope in ("target.embed", "target.head", "draft"):
        store.add(scope, {"w": embedding.clone()})
    references = [store.references[name]["plain"] for name in wanted]
    assert references[0] == references[1] == references[2]
    (file,) = (tmp_path / "weights").iterdir()
    assert torch.equal(stored(tmp_path / "weights", references[0]), embedding)
    assert references[0].file == f"weights/{file.name}"


def test_equal_content_in_one_scope_is_stored_once(tmp_path: Path) -> None:
    store = WeightStore(tmp_path / "weights", {"s.a": {"plain"}, "s.b": {"plain"}}, BACKEND)
    store.add("s", {"a": torch.ones(8), "b": torch.ones(8)})
    assert store.references["s.a"] == store.references["s.b"]
    (file,) = (tmp_path / "weights").iterdir()
    assert list(load(file.read_bytes())) == ["a"]


def test_bytes_that_are_equal_under_another_dtype_or_shape_are_another_content() -> None:
    zeros = torch.zeros(4)
    assert digest(zeros) == digest(zeros.clone())
    assert digest(zeros) != digest(zeros.view(2, 2))
    assert digest(zeros) != digest(torch.zeros(4, dtype=torch.int32))
    assert digest(zeros) != digest(-zeros)


def test_only_wanted_weights_are_stored_each_in_every_wanted_layout(tmp_path: Path) -> None:
    store = WeightStore(tmp_path / "weights", {"s.used": {"plain", "block32_pair2"}}, BACKEND)
    used = torch.randn(40, 16).to(torch.bfloat16)
    store.add("s", {"used": used, "unused": torch.randn(3)})
    assert set(store.references) == {"s.used"}
    places = store.references["s.used"]
    assert torch.equal(stored(tmp_path / "weights", places["plain"]), used)
    packed = stored(tmp_path / "weights", places["block32_pair2"])
    assert torch.equal(packed, apply("block32_pair2", used))
    assert places["block32_pair2"].tensor == "used@block32_pair2"


def test_the_layouts_that_are_wanted_come_from_the_calls() -> None:
    def unit(name: str, layout: str) -> Unit:
        constants = (
            Constant("c", "proj.weight", layout, "float32", (4, 4)),
            Constant("n", "norm", "plain", "float32", (4,)),
        )
        return Unit(name, "", "", constants, (), ())

    units = {"layer": unit("layer", "plain"), "packed": unit("packed", "block32"), "idle": unit("idle", "block16")}
    calls = [Call("layer", "l.0", (), ()), Call("packed", "l.0", (), ()), Call("layer", "l.1", (), ())]
    assert wanted_layouts(calls, units, BACKEND) == {
        "l.0.proj.weight": {"plain", "block32"},
        "l.0.norm": {"plain"},
        "l.1.proj.weight": {"plain"},
        "l.1.norm": {"plain"},
    }


@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=6), metadata=st.booleans())
def test_aligned_files_hold_the_same_tensors_on_cache_lines(sizes: list[int], metadata: bool) -> None:
    tensors = {f"t{i}": torch.arange(size, dtype=torch.int32) + i for i, size in enumerate(sizes)}
    data = aligned(save(tensors, {"format": "pt"} if metadata else None))
    read = load(data)
    assert {name: tensor.tolist() for name, tensor in read.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert (8 + length) % ALIGNMENT == 0
    assert ("__metadata__" in header) == metadata
    for name, entry in header.items():
        begin, end = entry["data_offsets"] if name != "__metadata__" else (0, 0)
        if (end - begin) % ALIGNMENT == 0:
            assert begin % ALIGNMENT == 0
