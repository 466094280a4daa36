"""A NEFF's header is read field by field, and what does not add up is refused with a sentence."""

from __future__ import annotations

import dataclasses
import struct
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.bundle.errors import IntegrityError
from runtime.bundle.manifest import Manifest
from runtime.bundle.neff import HEADER, Header, Neff, read_header, read_neff
from runtime.bundle.record import from_json, to_json
from runtime.bundle.references import reference_problems
from tests.aot.backends.neuron.stand_in import hlo_of, neff, write_header

DATA = b"a tar"
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def test_the_fields_lie_where_the_documentation_says() -> None:
    made = bytearray(1024)
    for offset, form, value in (
        *((0, "<Q", 2), (8, "<Q", 1024), (16, "<Q", 5), (24, "<Q", 2), (32, "<Q", 1)),
        *((168, "<I", 3), (544, "<Q", 0x11), (552, "<I", 2)),
    ):
        struct.pack_into(form, made, offset, value)
    made[40:51] = b"2.27.5334.0"
    made[172:204] = bytes(range(32))
    made[204:220] = bytes(range(100, 116))
    assert read_header(bytes(made), 1029) == Header(
        package_version=2,
        version="2.1",
        build_version="2.27.5334.0",
        num_tpb=3,
        lnc=2,
        feature_bits=0x11,
        hash=bytes(range(32)).hex(),
        uuid=bytes(range(100, 116)).hex(),
    )


@given(
    numbers=st.tuples(U64, U64, U64, U32, U64),
    lnc=st.sampled_from([0, 1, 2]),
    build=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=128),
    digest=st.binary(min_size=32, max_size=32),
    uuid=st.binary(min_size=16, max_size=16),
    data=st.binary(min_size=1, max_size=64),
)
def test_what_is_written_is_read(
    numbers: tuple[int, int, int, int, int], lnc: int, build: str, digest: bytes, uuid: bytes, data: bytes
) -> None:
    package, major, minor, cores, bits = numbers
    header = HEADER.pack(
        package, 1024, len(data), major, minor, build.encode(), cores, digest, uuid, b"", 0, b"", bits, lnc, b""
    )
    read = read_header(header + data, 1024 + len(data))
    assert read == Header(package, f"{major}.{minor}", build, cores, lnc, bits, digest.hex(), uuid.hex())


@given(data=st.binary(max_size=2048), size=st.integers(0, 4096))
def test_any_bytes_are_read_or_refused(data: bytes, size: int) -> None:
    with pytest.raises(IntegrityError):  # 1,024 random bytes do not hold both sizes
        read_header(data, size)


@given(place=st.integers(0, 1023), byte=st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(place: int, byte: int) -> None:
    made = write_header(DATA, lnc=2) + DATA
    changed = made[:place] + bytes([byte]) + made[place + 1 :]
    fields = HEADER.unpack_from(changed)
    text = fields[5].partition(b"\0")[0]
    adds_up = fields[1:3] == (1024, len(DATA)) and fields[13] in (0, 1, 2) and all(32 <= c < 127 for c in text)
    with nullcontext() if adds_up else pytest.raises(IntegrityError, match="is no readable NEFF"):
        assert read_header(changed, len(changed)).lnc == fields[13]


@pytest.mark.parametrize(
    ("header", "expected", "found"),
    [
        (write_header(DATA, lnc=1)[:1023], "a header of 1024 bytes", "1023 bytes"),
        (write_header(DATA, lnc=1, header_size=1025) + DATA, "header size 1024", "1025"),
        (write_header(DATA, lnc=1, data_size=6) + DATA, "6 bytes behind the header", "5"),
        (write_header(b"", lnc=1), "0 bytes behind the header", "0"),
        (write_header(DATA, lnc=3) + DATA, "a logical core size of 1 or 2", "3"),
        (write_header(DATA, lnc=1, build_version="2.27\x1b[2J") + DATA, "ASCII", "no text"),
    ],
)
def test_each_contradiction_is_named(header: bytes, expected: str, found: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_header(header, len(header), "graphs/a/graph.neff")
    assert caught.value.what == "graphs/a/graph.neff is no readable NEFF"
    assert expected in caught.value.expected
    assert found in caught.value.found


@pytest.mark.parametrize(
    ("build_version", "told", "marked"),
    [
        ("2.27.5334.0+f702b353", False, False),
        ("2.27.5334.0+f702b353", True, True),
        ("2.27.5334.0+standin (stand-in)", False, True),
    ],
)
def test_a_stand_ins_neff_is_marked(tmp_path: Path, build_version: str, told: bool, marked: bool) -> None:
    file = tmp_path / "graph.neff"
    file.write_bytes(neff(b"HLO", lnc=2, build_version=build_version))
    read = read_neff(file, "graphs/a/graph.neff", stand_in=told)
    assert (read.path, read.build_version, read.lnc, read.stand_in) == ("graphs/a/graph.neff", build_version, 2, marked)
    assert from_json(Neff, to_json(read)) == read
    assert hlo_of(file.read_bytes()) == b"HLO"


def test_a_neff_outside_the_listed_files_is_refused(golden: Manifest) -> None:
    record = Neff("graphs/a/graph.neff", 1, "2.0", "2.27", 1, 2, 0, "00", "00", stand_in=False)
    units = (dataclasses.replace(golden.units[0], neff=record), *golden.units[1:])
    problems = reference_problems(dataclasses.replace(golden, units=units))
    assert [problem.what for problem in problems] == [
        f"The NEFF of unit {golden.units[0].name} lies in a file without a digest"
    ]
