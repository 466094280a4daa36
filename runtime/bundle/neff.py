"""What is recorded of a NEFF: the compiled graph of one Neuron device family.

A NEFF is a header of 1,024 bytes and a tar archive. Everything is little-endian, and the fields follow each other
without gaps (AWS Neuron documentation, "Work with NEFF Files"):

    offset  size  field                      offset  size  field
         0     8  package version               172    32  hash of the package
         8     8  header size, 1024             204    16  uuid
        16     8  data size                     220   256  name
        24     8  format version, major         476     4  requested cores
        32     8  format version, minor         480    64  cores per node
        40   128  build version                 544     8  feature bits
       168     4  cores needed                  552     4  logical core size (lnc)
                                                556   468  padding

There is no magic number, so a file is taken for a NEFF when its sizes and its text add up. Which of the two digests the
hash is depends on the package version and is not documented further; it is recorded and not recomputed.
"""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from runtime.bundle.errors import IntegrityError
from runtime.bundle.ranges import Between, Matching

HEADER = struct.Struct("<5Q128sI32s16s256sI64sQI468s")
STAND_IN = "stand-in"
# A logical NeuronCore is one or two physical ones; 0 in a header says that nothing was recorded
LNC_SIZES = (0, 1, 2)


@dataclass(frozen=True)
class Header:
    """What a NEFF's header says, hash (32 bytes) and uuid (16 bytes) in hex; the fields of `Neff` that it decides."""

    package_version: int
    version: str
    build_version: str
    num_tpb: int
    lnc: int
    feature_bits: int
    hash: str
    uuid: str


@dataclass(frozen=True)
class Neff:
    """A NEFF in the bundle and what its 1024-byte header says.

    path: of the file in the bundle.
    version: "MAJOR.MINOR" of the format; package_version, build_version, num_tpb, lnc, feature_bits, hash and uuid as
        the header has them, hash and uuid in hex.
    stand_in: it comes from a stand-in for the compiler, for tests, and no device can run it.
    """

    path: str
    package_version: Annotated[int, Between(0, 2**64 - 1)]
    version: Annotated[str, Matching(r"[0-9]{1,20}\.[0-9]{1,20}", "MAJOR.MINOR")]
    build_version: str
    num_tpb: Annotated[int, Between(0, 2**32 - 1)]
    lnc: Annotated[int, Between(0, 2)]
    feature_bits: Annotated[int, Between(0, 2**64 - 1)]
    hash: str
    uuid: str
    stand_in: bool


def read_header(data: bytes, size: int, name: str = "graph.neff") -> Header:
    """The header of a NEFF.

    Args:
        data: the file's first bytes, 1,024 of them or more.
        size: of the whole file, in bytes.
        name: of the file, for the error.

    Raises:
        IntegrityError: the file is too short, or its header contradicts itself or the file.
    """
    if len(data) < HEADER.size:
        raise _refuse(name, f"a header of {HEADER.size} bytes", f"{len(data)} bytes")
    fields = HEADER.unpack_from(data)
    package_version, header_size, data_size, major, minor, build, num_tpb, digest, uuid = fields[:9]
    feature_bits, lnc = fields[12:14]
    if header_size != HEADER.size:
        raise _refuse(name, f"header size {HEADER.size}", str(header_size))
    if data_size == 0 or data_size != size - HEADER.size:
        raise _refuse(name, f"{data_size} bytes behind the header", f"{size - HEADER.size}")
    if lnc not in LNC_SIZES:
        raise _refuse(name, "a logical core size of 1 or 2", str(lnc))
    text = build.partition(b"\0")[0]
    if not all(0x20 <= byte < 0x7F for byte in text):
        raise _refuse(name, "a build version in ASCII", "bytes that are no text")
    return Header(
        package_version, f"{major}.{minor}", text.decode("ascii"), num_tpb, lnc, feature_bits, digest.hex(), uuid.hex()
    )


def read_neff(file: Path, path: str, *, stand_in: bool = False) -> Neff:
    """Describe the NEFF `file`, which is `path` in its bundle.

    Args:
        stand_in: the compiler is known to be a stand-in; else the header's build version tells.

    Raises:
        IntegrityError: it is no NEFF.
    """
    with file.open("rb") as stream:
        header = read_header(stream.read(HEADER.size), file.stat().st_size, path)
    return Neff(path=path, stand_in=stand_in or STAND_IN in header.build_version.lower(), **asdict(header))


def _refuse(name: str, expected: str, found: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is no readable NEFF",
        expected=expected,
        found=found,
        repair="compile it again with neuronx-cc, or get the bundle again from where it was built",
    )
