"""The messages of a serialized HloModuleProto, as far as the passes and the lint read or write them.

XLA ships no Python classes for them, so they are declared here by field number. Fields that are not declared (dot and
gather dimension numbers, padding, precision) are kept by protobuf as they came and written back.

Source of names and numbers: xla/service/hlo.proto and xla/xla_data.proto as compiled into torch-xla 2.9.0.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "eagle3.hlo"

_F = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int64": _F.TYPE_INT64,
    "int32": _F.TYPE_INT32,
    "float": _F.TYPE_FLOAT,
    "bool": _F.TYPE_BOOL,
    "string": _F.TYPE_STRING,
    "bytes": _F.TYPE_BYTES,
}

# message -> field -> (number, type); "*" before a type means repeated
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Layout": {"minor_to_major": (1, "*int64"), "tail_padding_alignment_in_elements": (16, "int64")},
    "Shape": {
        "element_type": (2, "int32"),
        "dimensions": (3, "*int64"),
        "tuple_shapes": (4, "*Shape"),
        "layout": (5, "Layout"),
        "is_dynamic_dimension": (6, "*bool"),
    },
    "ProgramShape": {"parameters": (1, "*Shape"), "result": (2, "Shape"), "parameter_names": (3, "*string")},
    "Literal": {
        "shape": (1, "Shape"),
        "preds": (2, "*bool"),
        "s32s": (4, "*int32"),
        "s64s": (5, "*int64"),
        "f32s": (8, "*float"),
        "f16s": (11, "bytes"),
        "bf16s": (13, "bytes"),
    },
    "Attribute": {"key": (1, "string"), "value": (2, "string")},
    "FrontendAttributes": {"map": (1, "*Attribute")},
    "ReplicaGroup": {"replica_ids": (1, "*int64")},
    "Slice": {"start": (1, "int64"), "limit": (2, "int64"), "stride": (3, "int64")},
    "Instruction": {
        "name": (1, "string"),
        "opcode": (2, "string"),
        "shape": (3, "Shape"),
        "metadata": (7, "bytes"),
        "literal": (8, "Literal"),
        "parameter_number": (9, "int64"),
        "tuple_index": (13, "int64"),
        "dimensions": (14, "*int64"),
        "slice_dimensions": (17, "*Slice"),
        "channel_id": (26, "int64"),
        "custom_call_target": (28, "string"),
        "id": (35, "int64"),
        "operand_ids": (36, "*int64"),
        "control_predecessor_ids": (37, "*int64"),
        "called_computation_ids": (38, "*int64"),
        "replica_groups": (49, "*ReplicaGroup"),
        "comparison_direction": (63, "string"),
        "frontend_attributes": (68, "FrontendAttributes"),
        "use_global_device_ids": (71, "bool"),
    },
    "Computation": {
        "name": (1, "string"),
        "instructions": (2, "*Instruction"),
        "program_shape": (4, "ProgramShape"),
        "id": (5, "int64"),
        "root_id": (6, "int64"),
    },
    "AliasEntry": {
        "output_shape_index": (1, "*int64"),
        "parameter_number": (2, "int64"),
        "parameter_shape_index": (3, "*int64"),
        "kind": (4, "int32"),
    },
    "InputOutputAlias": {"entries": (1, "*AliasEntry")},
    "Module": {
        "name": (1, "string"),
        "entry_computation_name": (2, "string"),
        "computations": (3, "*Computation"),
        "host_program_shape": (4, "ProgramShape"),
        "id": (5, "int64"),
        "entry_computation_id": (6, "int64"),
        "input_output_alias": (8, "InputOutputAlias"),
        "stack_frame_index": (17, "bytes"),
    },
}

# Element types of shapes, by our dtype names
ELEMENT_TYPES = {"bool": 1, "int32": 4, "int64": 5, "float16": 10, "float32": 11, "bfloat16": 16, "tuple": 13}
DTYPES = {number: name for name, number in ELEMENT_TYPES.items()}
MUST_ALIAS = 2


def _declare() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="eagle3_hlo.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            plain = kind.lstrip("*")
            label = _F.LABEL_REPEATED if kind.startswith("*") else _F.LABEL_OPTIONAL
            made = declared.field.add(name=field, number=number, label=label)
            if plain in _SCALARS:
                made.type = _SCALARS[plain]
            else:
                made.type, made.type_name = _F.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES = _declare()
Module, Computation, Instruction = _CLASSES["Module"], _CLASSES["Computation"], _CLASSES["Instruction"]
Shape = _CLASSES["Shape"]


def parse(data: bytes) -> Any:
    """A module from its serialized bytes.

    Raises:
        ValueError: they are no HloModuleProto with an entry computation.
    """
    module = Module()
    try:
        module.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, whose place differs between its releases
        raise ValueError(f"not a serialized HloModuleProto: {error}") from None
    if not any(computation.id == module.entry_computation_id for computation in module.computations):
        raise ValueError("a module without an entry computation")
    return module


def serialize(module: Any) -> bytes:
    """A module's bytes; the same module always gives the same bytes."""
    data: bytes = module.SerializeToString(deterministic=True)
    return data


def entry(module: Any) -> Any:
    """The computation that the module runs."""
    return next(c for c in module.computations if c.id == module.entry_computation_id)


def set_shape(shape: Any, dtype: str, dimensions: tuple[int, ...]) -> None:
    """Make `shape` an array of `dimensions` in row-major order."""
    shape.Clear()
    shape.element_type = ELEMENT_TYPES[dtype]
    shape.dimensions.extend(dimensions)
    shape.is_dynamic_dimension.extend([False] * len(dimensions))
    shape.layout.minor_to_major.extend(range(len(dimensions) - 1, -1, -1))
    shape.layout.tail_padding_alignment_in_elements = 1


def dtype_of(shape: Any) -> str:
    """The dtype of an array shape by our name, or "type N" for one that we do not know."""
    return DTYPES.get(shape.element_type, f"type {shape.element_type}")
