"""A stand-in for the Neuron runtime, and bundles for it: the C library of stand_in_nrt.c, driven from Python.

What a unit computes is a Python function of its tensors, which are views of the stand-in's device memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from runtime.backends.nrt.structs import NRT_DTYPES
from runtime.backends.nrt.tables import SUFFIX
from runtime.bundle.interface import Parameter, Result, Role
from runtime.bundle.manifest import (
    FORMAT_VERSION,
    Buckets,
    Constant,
    Exactness,
    KVCache,
    KVGroup,
    Limits,
    Manifest,
    Model,
    Requires,
    Speculation,
    TensorSpec,
    Unit,
    WeightRef,
)
from runtime.bundle.neff import Neff
from runtime.bundle.open import ROW_CONVENTION, Bundle
from runtime.weights import dtype_of

SOURCE = Path(__file__).with_name("stand_in_nrt.c")
# The NEFF header as the Neuron SDK documents it, 1024 bytes
HEADER = struct.Struct("<5Q128sI32s16s256sI64sQI468s")
COMPILER = "2.27.5334.0+stand-in"
TENSORS, SETS, MODELS = 0, 1, 2

Compute = Callable[[int, Mapping[str, Tensor], Mapping[str, Tensor]], None]


def compile_stand_in(folder: Path) -> Path:
    """The stand-in built into `folder`."""
    made = folder / "libnrt-stand-in.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "the stand-in for libnrt needs a C compiler"
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
    subprocess.run([compiler, *flags, "-o", str(made), str(SOURCE)], check=True)
    return made


class StandIn:
    """The test's side of the library: what its models are and compute, what it reports, how it fails, what it counted.

    errors: what the functions of units raised.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.errors = path, list[Exception]()
        self._native = ctypes.CDLL(str(path))
        self._native.stand_in_count.restype = ctypes.c_int64
        self._native.stand_in_live.restype = ctypes.c_int64
        self._native.stand_in_environment.restype = ctypes.c_char_p
        self._native.stand_in_set_version.argtypes = (*(ctypes.c_uint64,) * 4, ctypes.c_char_p)
        self._native.stand_in_set_patience.argtypes = (ctypes.c_double,)
        self._native.stand_in_set_capacity.argtypes = (ctypes.c_int64,)
        pointer = ctypes.POINTER
        self._native.stand_in_tensor.argtypes = (
            ctypes.c_void_p,
            ctypes.c_char_p,
            pointer(ctypes.c_void_p),
            pointer(ctypes.c_size_t),
        )
        self._native.stand_in_reset()
        self._units: dict[str, tuple[Unit, Compute]] = {}
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)
        self._executor = kind(self._execute)
        self._native.stand_in_set_executor(self._executor)

    def add(self, unit: Unit, compute: Compute, lines: Sequence[str] | None = None) -> None:
        """Make the NEFF of `unit` loadable.

        Args:
            compute: given the rank, its inputs and its outputs by the manifest's names; writes into the outputs. An
                aliased result is there under its own name, as the same memory.
            lines: the tensors that the NEFF reports, if not those of the unit.
        """
        assert unit.neff is not None
        self._units[unit.name] = (unit, compute)
        table = "\n".join(table_lines(unit) if lines is None else lines)
        digest = bytes.fromhex(unit.neff.hash)
        assert self._native.stand_in_register(digest, unit.name.encode(), table.encode()) == 0

    def _execute(self, name: bytes, rank: int, inputs: int, outputs: int) -> int:
        try:
            unit, compute = self._units[name.decode()]
            taken = {entry.name: self._view(inputs, entry) for entry in unit.parameters}
            given = {entry.name: self._view(outputs, entry) for entry in unit.results}
            compute(rank, taken, given)
        except Exception as error:
            self.errors.append(error)
            return 1
        return 0

    def _view(self, tensor_set: int, entry: Parameter | Result) -> Tensor:
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        bare = entry.neff_name.removesuffix(SUFFIX)
        found = [
            self._native.stand_in_tensor(tensor_set, spelled.encode(), ctypes.byref(data), ctypes.byref(size))
            for spelled in (bare, bare + SUFFIX)  # the NEFF may spell it otherwise than the manifest
        ]
        assert 0 in found, f"{entry.neff_name} is not bound"
        memory = (ctypes.c_char * size.value).from_address(data.value or 0)
        return torch.frombuffer(memory, dtype=dtype_of(entry.dtype)).view(entry.shape)

    # What it says of itself

    def set_version(self, *numbers: int, detail: str = "stand-in") -> None:
        self._native.stand_in_set_version(*numbers, detail.encode())

    def set_family(self, family: int) -> None:
        self._native.stand_in_set_family(family)

    def set_capacity(self, size: int) -> None:
        self._native.stand_in_set_capacity(size)

    def set_patience(self, seconds: float) -> None:
        """How long a rank waits for the others: what NEURON_RT_EXEC_TIMEOUT is to the real library."""
        self._native.stand_in_set_patience(seconds)

    def fail(self, call: str, status: int, rank: int = -1, after: int = 0) -> None:
        """`call` gives `status` on `rank`, or on all, after `after` calls that succeed."""
        self._native.stand_in_fail(call.encode(), status, rank, after)

    # What it counted

    def calls(self, call: str) -> int:
        return int(self._native.stand_in_count(call.encode(), 0))

    def bytes(self, call: str) -> int:
        return int(self._native.stand_in_count(call.encode(), 1))

    def live(self) -> list[int]:
        """Tensors, sets and models that were made and not freed."""
        return [int(self._native.stand_in_live(kind)) for kind in (TENSORS, SETS, MODELS)]

    def environment(self) -> dict[str, str]:
        """The variables that nrt_init saw."""
        text: str = self._native.stand_in_environment().decode()
        return dict(line.split("=", 1) for line in text.splitlines())


def table_lines(unit: Unit) -> list[str]:
    """The tensors of `unit` as its NEFF reports them."""
    spelled = {parameter.name: parameter.neff_name for parameter in unit.parameters}
    entries: list[tuple[str, Parameter | Result, str]] = [("in", entry, "-") for entry in unit.parameters]
    entries += [("out", entry, spelled[entry.alias_of] if entry.alias_of else "-") for entry in unit.results]
    lines = []
    for usage, entry, alias in entries:
        size = dtype_of(entry.dtype).itemsize
        for dim in entry.shape:
            size *= dim
        shape = " ".join(map(str, (len(entry.shape), *entry.shape)))
        lines.append(f"{usage} {entry.neff_name} {NRT_DTYPES[entry.dtype]} {size} {alias} {shape}")
    return lines


# Bundles

Spec = tuple[str, tuple[int, ...]]  # dtype, shape


def neuron_unit(
    name: str,
    *,
    inputs: Mapping[str, Spec],
    outputs: Mapping[str, Spec],
    weights: Mapping[str, Spec] | None = None,
    sharded: Sequence[str] = (),
    kv: Mapping[str, Spec] | None = None,
    rank: bool = False,
) -> Unit:
    """A unit as a Neuron bundle has it: weights, KV, rank, inputs; outputs, then the pools that it updates."""
    weights, kv = weights or {}, kv or {}

    def parameter(own: str, role: Role, spec: Spec, suffix: str = "") -> Parameter:
        return Parameter(own, own + suffix, role, *spec, sharded=own in sharded)

    parameters = [parameter(own, "weight", spec) for own, spec in weights.items()]
    parameters += [parameter(own, "kv", spec, SUFFIX) for own, spec in kv.items()]
    parameters += [parameter("rank", "rank", ("int32", (1,)))] if rank else []
    parameters += [parameter(own, "input", spec) for own, spec in inputs.items()]
    results = [Result(own, own, *spec) for own, spec in outputs.items()]
    results += [Result(f"{own}.out", f"{own}.out", *spec, alias_of=own) for own, spec in kv.items()]
    return Unit(
        name=name,
        artifact=f"graphs/{name}/graph.hlo",
        digest="",
        constants=tuple(Constant(own, own, "shard" if own in sharded else "plain", "float32", ()) for own in weights),
        inputs=tuple(TensorSpec(own, *spec) for own, spec in (*inputs.items(), *kv.items())),
        outputs=tuple(TensorSpec(own, *spec) for own, spec in outputs.items()),
        parameters=tuple(parameters),
        results=tuple(results),
        neff=neff_record(name),
    )


def neff_record(name: str) -> Neff:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return Neff(f"graphs/{name}/graph.neff", 2, "2.0", COMPILER, 1, 1, 0, digest, "00" * 16, stand_in=True)


def neff_bytes(neff: Neff) -> bytes:
    """A NEFF with the header that `neff` records and nothing that a device could run."""
    major, minor = map(int, neff.version.split("."))
    text = neff.build_version.encode()
    digest, uuid = bytes.fromhex(neff.hash), bytes.fromhex(neff.uuid)
    head = (neff.package_version, 1024, 0, major, minor, text, neff.num_tpb, digest, uuid)
    return HEADER.pack(*head, b"stand-in", 1, b"", neff.feature_bits, neff.lnc, b"")


REQUIRES = Requires("neuron", "trn2", "", "linux", (), "", False, ranks=1, lnc=1)


def neuron_bundle(
    root: Path,
    units: Sequence[Unit],
    weights: Mapping[str, Mapping[str, Tensor]] | None = None,
    *,
    same: Mapping[str, str] | None = None,
    requires: Requires = REQUIRES,
    num_blocks: int = 4,
    layers: int = 1,
) -> Bundle:
    """A bundle in `root` of nothing but what the backend reads.

    Args:
        weights: by name and layout.
        same: a weight's name -> that of another, of which it is a second name.
    """
    tensors, references = {}, dict[str, dict[str, WeightRef]]()
    for name, layouts in (weights or {}).items():
        for layout, tensor in layouts.items():
            tensors[f"{name}.{layout}"] = tensor
            references.setdefault(name, {})[layout] = WeightRef("weights.safetensors", f"{name}.{layout}", "")
    references |= {name: references[other] for name, other in (same or {}).items()}
    root.mkdir(parents=True, exist_ok=True)
    save_file(tensors or {"nothing": torch.zeros(1)}, root / "weights.safetensors")
    for unit in units:
        if unit.neff is not None:
            file = root / unit.neff.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(neff_bytes(unit.neff))
    model = Model("", "", 64, 32, (), {})
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        bundle_id="",
        name="stand-in",
        state="ready",
        builder="",
        dtype="float32",
        target=model,
        draft=model,
        speculation=Speculation("eagle3", 3, (), ROW_CONVENTION),
        limits=Limits(64, 4),
        buckets=Buckets((16,), (1, 4), (32, 64)),
        kv_cache=KVCache(4, num_blocks, (KVGroup("target", 0, layers, 2, 8, "float32"),)),
        exactness=Exactness("exact", (), 0),
        requires=requires,
        toolchain={"neuronx-cc": COMPILER},
        units=tuple(units),
        graphs=(),
        weights=references,
        files={},
    )
    return Bundle(root, manifest)


def with_neff(unit: Unit, **changes: object) -> Unit:
    """`unit` with another header on its NEFF."""
    assert unit.neff is not None
    return replace(unit, neff=replace(unit.neff, **changes))  # type: ignore[arg-type]
