"""The structures and element types of libnrt's interface, as its public headers lay them out."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

# nrt_dtype_t of each dtype that a bundle's tensors may have
NRT_DTYPES = {
    "float16": 0x7,
    "bfloat16": 0x6,
    "float32": 0xA,
    "uint8": 0x3,
    "int8": 0x2,
    "int16": 0x4,
    "uint16": 0x5,
    "int32": 0x8,
    "uint32": 0x9,
    "int64": 0xC,
    "uint64": 0x1,
    "float8_e4m3fn": 0xE,
    "float8_e5m2": 0xF,
}
DTYPE_NAMES = {code: name for name, code in NRT_DTYPES.items()}

# nrt_tensor_usage_t
USAGE_INPUT, USAGE_OUTPUT = 0, 1
# nrt_tensor_placement_t
PLACEMENT_DEVICE = 0
# nrt_framework_type_t: no framework stands between this process and the runtime
FRAMEWORK_NONE = 1


class VersionStruct(ctypes.Structure):
    """nrt_version_t."""

    _fields_ = (
        ("rt_major", ctypes.c_uint64),
        ("rt_minor", ctypes.c_uint64),
        ("rt_patch", ctypes.c_uint64),
        ("rt_maintenance", ctypes.c_uint64),
        ("rt_detail", ctypes.c_char * 128),
        ("git_hash", ctypes.c_char * 64),
    )


class InstanceStruct(ctypes.Structure):
    """nrt_instance_info_t."""

    _fields_ = (
        ("family", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("arch_name", ctypes.c_char * 16),
        ("device_revision", ctypes.c_char * 8),
    )


class TensorInfoStruct(ctypes.Structure):
    """nrt_tensor_info_t."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("usage", ctypes.c_int),
        ("size", ctypes.c_size_t),
        ("dtype", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_uint32)),
        ("ndim", ctypes.c_uint32),
    )


class TensorInfoArrayStruct(ctypes.Structure):
    """nrt_tensor_info_array_t up to its open-ended array, whose first element it holds for the alignment."""

    _fields_ = (("tensor_count", ctypes.c_uint64), ("tensor_array", TensorInfoStruct * 1))


@dataclass(frozen=True)
class Version:
    """The runtime library's version: (major, minor, patch, maintenance), and what it says of itself."""

    numbers: tuple[int, int, int, int]
    detail: str

    @property
    def stand_in(self) -> bool:
        """It is a stand-in for the runtime, made for tests."""
        return "stand-in" in self.detail


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that a loaded NEFF takes or gives. `size` in bytes; dtype "type N" where N is no known nrt_dtype_t."""

    name: str
    usage: int
    size: int
    dtype: str
    shape: tuple[int, ...]
