"""libnrt, the Neuron runtime's C library, by ctypes: one method per call, every failure a typed error.

Handles are opaque pointers and stay integers here. A call releases Python's lock while it runs, so ranks that wait for
each other in a collective operation can be driven by threads of one process.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any, ClassVar

from runtime.backends.nrt.status import NRT_SUCCESS, status_error
from runtime.backends.nrt.structs import (
    DTYPE_NAMES,
    FRAMEWORK_NONE,
    PLACEMENT_DEVICE,
    InstanceStruct,
    TensorInfo,
    TensorInfoArrayStruct,
    TensorInfoStruct,
    Version,
    VersionStruct,
)
from runtime.bundle.errors import HostError

NAME = "libnrt.so.1"
VARIABLE = "EAGLE3_LIBNRT"
INSTALLED = f"/opt/aws/neuron/lib/{NAME}"
REPAIR = (
    "run on a Trainium instance that has the Neuron runtime (aws-neuronx-runtime-lib), or on the CPU by --device sim"
)

# Arguments of each call; all but those in NO_STATUS return an NRT_STATUS
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "nrt_init": (c_int, c_char_p, c_char_p),
    "nrt_close": (),
    "nrt_get_version": (POINTER(VersionStruct), c_size_t),
    "nrt_get_instance_info": (POINTER(InstanceStruct), c_size_t),
    "nrt_load": (c_void_p, c_size_t, c_int32, c_int32, POINTER(c_void_p)),
    "nrt_load_collectives": (c_void_p, c_size_t, c_int32, c_int32, c_uint32, c_uint32, POINTER(c_void_p)),
    "nrt_unload": (c_void_p,),
    "nrt_execute": (c_void_p, c_void_p, c_void_p),
    "nrt_get_model_tensor_info": (c_void_p, POINTER(POINTER(TensorInfoArrayStruct))),
    "nrt_free_model_tensor_info": (POINTER(TensorInfoArrayStruct),),
    "nrt_tensor_allocate": (c_int, c_int, c_size_t, c_char_p, POINTER(c_void_p)),
    "nrt_tensor_free": (POINTER(c_void_p),),
    "nrt_tensor_write": (c_void_p, c_void_p, c_size_t, c_size_t),
    "nrt_tensor_read": (c_void_p, c_void_p, c_size_t, c_size_t),
    "nrt_tensor_memset": (c_void_p, c_uint64, c_int, c_size_t),
    "nrt_allocate_tensor_set": (POINTER(c_void_p),),
    "nrt_add_tensor_to_tensor_set": (c_void_p, c_char_p, c_void_p),
    "nrt_destroy_tensor_set": (POINTER(c_void_p),),
}
NO_STATUS = ("nrt_close", "nrt_tensor_free", "nrt_destroy_tensor_set")


class Library:
    """The calls of one libnrt. `subject` in each is what an error names: "unit target_verify, rank 3"."""

    _users: ClassVar[int] = 0
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, native: ctypes.CDLL, path: str) -> None:
        self.path = path
        self._calls: dict[str, Any] = {}
        for name, arguments in PROTOTYPES.items():
            try:
                function = getattr(native, name)
            except AttributeError:
                raise HostError(
                    f"{path} is not a Neuron runtime that this version can use",
                    expected=f"a library with {name}",
                    found="none",
                    repair="install a current Neuron runtime (aws-neuronx-runtime-lib)",
                ) from None
            function.argtypes = arguments
            function.restype = None if name in NO_STATUS else c_int
            self._calls[name] = function

    def _call(self, name: str, subject: str, *arguments: object) -> None:
        code = self._calls[name](*arguments)
        if code != NRT_SUCCESS:
            raise status_error(name, code, subject)

    # The runtime is one per process, whatever number of bundles is open in it

    def init(self) -> None:
        """Reserve the NeuronCores, unless an earlier user of this process did; pairs with `close`."""
        with self._lock:
            if not Library._users:
                self._call("nrt_init", "this process", FRAMEWORK_NONE, b"", b"")
            Library._users += 1

    def close(self) -> None:
        """Give the NeuronCores back when the last user closes."""
        with self._lock:
            Library._users -= 1
            if not Library._users:
                self._calls["nrt_close"]()

    def version(self) -> Version:
        found = VersionStruct()
        self._call("nrt_get_version", "the runtime", byref(found), ctypes.sizeof(found))
        numbers = (found.rt_major, found.rt_minor, found.rt_patch, found.rt_maintenance)
        return Version(numbers, found.rt_detail.decode("utf-8", "replace"))

    def instance_family(self) -> int:
        """nrt_instance_info_t.family, see `versions.FAMILIES`."""
        found = InstanceStruct()
        self._call("nrt_get_instance_info", "this instance", byref(found), ctypes.sizeof(found))
        return int(found.family)

    # Models

    def load(self, neff: bytes, rank: int, ranks: int, subject: str) -> int:
        """The model handle of `neff` on logical core `rank`; with several ranks all must load at the same time."""
        handle = c_void_p()
        # vnc_count is deprecated: the header asks for -1
        if ranks == 1:
            self._call("nrt_load", subject, neff, len(neff), rank, -1, byref(handle))
        else:
            self._call("nrt_load_collectives", subject, neff, len(neff), rank, -1, rank, ranks, byref(handle))
        return handle.value or 0

    def unload(self, model: int, subject: str) -> None:
        self._call("nrt_unload", subject, model)

    def execute(self, model: int, inputs: int, outputs: int, subject: str) -> None:
        """One pass over two tensor sets; returns when it is done."""
        self._call("nrt_execute", subject, model, inputs, outputs)

    def tensor_infos(self, model: int, subject: str) -> list[TensorInfo]:
        """What the loaded model takes and gives."""
        found = POINTER(TensorInfoArrayStruct)()
        self._call("nrt_get_model_tensor_info", subject, model, byref(found))
        first = ctypes.addressof(found.contents) + TensorInfoArrayStruct.tensor_array.offset
        infos = []
        for item in (TensorInfoStruct * found.contents.tensor_count).from_address(first):
            dtype = DTYPE_NAMES.get(item.dtype, f"type {item.dtype}")
            shape = tuple(item.shape[axis] for axis in range(item.ndim))
            infos.append(TensorInfo(item.name.decode("utf-8", "replace"), item.usage, item.size, dtype, shape))
        self._call("nrt_free_model_tensor_info", subject, found)
        return infos

    # Tensors and sets of them

    def allocate(self, rank: int, size: int, name: str) -> int:
        """The handle of `size` bytes in the memory of logical core `rank`; their content is not defined."""
        handle = c_void_p()
        subject = f"{size} bytes of {name} on rank {rank}"
        self._call("nrt_tensor_allocate", subject, PLACEMENT_DEVICE, rank, size, name.encode(), byref(handle))
        return handle.value or 0

    def free(self, tensor: int) -> None:
        self._calls["nrt_tensor_free"](byref(c_void_p(tensor)))

    def write(self, tensor: int, address: int, size: int, subject: str, offset: int = 0) -> None:
        """Copy `size` bytes at `address` of the host to `offset` in the tensor."""
        self._call("nrt_tensor_write", subject, tensor, address, offset, size)

    def read(self, tensor: int, address: int, size: int, subject: str) -> None:
        """Copy the tensor's first `size` bytes to `address` of the host."""
        self._call("nrt_tensor_read", subject, tensor, address, 0, size)

    def clear(self, tensor: int, size: int, subject: str) -> None:
        """Zero the tensor's first `size` bytes."""
        self._call("nrt_tensor_memset", subject, tensor, 0, 0, size)

    def new_set(self, subject: str) -> int:
        handle = c_void_p()
        self._call("nrt_allocate_tensor_set", subject, byref(handle))
        return handle.value or 0

    def put(self, tensor_set: int, name: str, tensor: int, subject: str) -> None:
        """Bind `tensor` under `name` in a set, in place of what was bound there."""
        self._call("nrt_add_tensor_to_tensor_set", subject, tensor_set, name.encode(), tensor)

    def destroy_set(self, tensor_set: int) -> None:
        self._calls["nrt_destroy_tensor_set"](byref(c_void_p(tensor_set)))


def open_library() -> Library:
    """libnrt: the file that $EAGLE3_LIBNRT names, else what the loader finds, else where its package installs it.

    Raises:
        HostError: there is none, or it is not one.
    """
    named = os.environ.get(VARIABLE)
    refusals = []
    for place in [named] if named else [NAME, INSTALLED]:
        try:
            return _opened(place)
        except OSError as error:
            refusals.append(str(error))
    raise HostError(
        f"The Neuron runtime cannot be opened (${VARIABLE} names it)"
        if named
        else "This machine has no Neuron runtime",
        expected=named or NAME,
        found=refusals[0],
        repair=f"set {VARIABLE} to the path of {NAME}, or unset it" if named else REPAIR,
    )


@cache
def _opened(place: str) -> Library:
    return Library(ctypes.CDLL(place), place)
