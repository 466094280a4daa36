"""The dtypes that a bundle knows, by torch's names, and what safetensors calls them."""

from __future__ import annotations

from typing import Annotated

from runtime.bundle.ranges import OneOf

# Name: bytes of an element, and the name in a safetensors header
DTYPES = {
    "bfloat16": (2, "BF16"),
    "float16": (2, "F16"),
    "float32": (4, "F32"),
    "float64": (8, "F64"),
    "bool": (1, "BOOL"),
    "uint8": (1, "U8"),
    "int8": (1, "I8"),
    "int16": (2, "I16"),
    "int32": (4, "I32"),
    "int64": (8, "I64"),
}
# Of weights, activations and the KV cache
FLOATS = ("bfloat16", "float16", "float32")
BY_SAFETENSORS_NAME = {stored: name for name, (_, stored) in DTYPES.items()}

Dtype = Annotated[str, OneOf(tuple(DTYPES))]
FloatDtype = Annotated[str, OneOf(FLOATS)]


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return DTYPES[dtype][0]
