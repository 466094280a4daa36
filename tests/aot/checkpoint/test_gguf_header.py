"""The head of a GGUF file is read exactly, arrays stepped over, and a damaged file is one sentence."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aot.checkpoint.gguf_header import read_gguf_header
from runtime.bundle.errors import ConfigError

in_one_folder = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
scalars = st.one_of(
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.floats(width=32, allow_nan=False),
    st.text(min_size=1, max_size=20),
)
arrays = st.one_of(
    st.lists(st.text(max_size=5), min_size=1, max_size=5),
    st.lists(st.integers(0, 100), min_size=1, max_size=5),
)
names = st.text("abcdefghij._", min_size=1, max_size=12).map(lambda name: "test." + name)


def write_gguf(path: Path, metadata: dict[str, object], tensors: dict[str, np.ndarray]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@in_one_folder
@given(metadata=st.dictionaries(names, st.one_of(scalars, arrays), max_size=6))
def test_what_the_gguf_package_writes_is_read_back(metadata: dict[str, object], tmp_path: Path) -> None:
    tensors = {"a.weight": np.zeros((3, 5), np.float32), "b.weight": np.zeros(7, np.float16)}
    header = read_gguf_header(write_gguf(tmp_path / "m.gguf", metadata, tensors))
    plain = {name: value for name, value in metadata.items() if not isinstance(value, list)}
    assert {name: header.metadata[name] for name in header.metadata if name.startswith("test.")} == plain
    assert header.metadata["general.architecture"] == "llama"
    assert header.shapes == {"a.weight": (3, 5), "b.weight": (7,)}


def test_a_file_cut_anywhere_in_its_head_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf", {"test.list": ["a", "bc"], "test.n": 3, "test.l": [1, 2]}, {})
    content = whole.read_bytes()
    end = content.index(b"test.l", content.index(b"test.n")) + len("test.l") + 4 + 4 + 8 + 2 * 4
    for size in range(end):
        whole.write_bytes(content[:size])
        with pytest.raises(ConfigError, match="cannot be read as a GGUF model"):
            read_gguf_header(whole)


@in_one_folder
@given(
    tail=st.binary(max_size=200),
    version=st.sampled_from([2, 3]),
    counts=st.tuples(*[st.integers(0, 2**64 - 1)] * 2),
)
def test_random_bytes_are_refused_or_read_but_never_crash(
    tail: bytes, version: int, counts: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, *counts) + tail)
    with contextlib.suppress(ConfigError):
        read_gguf_header(path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"PK\x03\x04" + bytes(40), "no GGUF magic at its start"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1, known are 2 and 3"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**40), "the file ends inside its header"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"a", 99), "unknown value type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + struct.pack("<Q1sIB", 1, b"a", 0, 7) * 2, "a twice"),
    ],
)
def test_a_file_that_is_not_gguf_says_why(content: bytes, found: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_gguf_header(tmp_path / "m.gguf")
    assert caught.value.sentence() == f"m.gguf cannot be read as a GGUF model: found {found}."
