"""Every status of the Neuron runtime as a sentence: what it means, and what its reader can do.

The codes are those of libnrt's public header nrt_status.h. One that is not among them keeps its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runtime.bundle.errors import Eagle3Error, HostError, IntegrityError

NRT_SUCCESS = 0

REBUILD = "rebuild the bundle with eagle3-build for this instance and its Neuron SDK"
FREE_CORES = "end the other process that holds the NeuronCores, or give this one others by NEURON_RT_VISIBLE_CORES"
LOOK_AT_DEVICE = "look at the device (neuron-ls, the kernel's log), reset it or restart the instance"
OUR_DEFECT = "report it with the command that you ran"


@dataclass(frozen=True)
class Status:
    """One NRT_STATUS: its name, what it means, what to do, and whose fault it is: the machine's or the NEFF's."""

    name: str
    means: str
    repair: str
    fault: Literal["host", "neff"] = "host"


STATUSES = {
    1: Status("NRT_FAILURE", "the runtime failed without a reason", "read its log: NEURON_RT_LOG_LEVEL=INFO"),
    2: Status("NRT_INVALID", "the runtime found an argument invalid", "read its log: NEURON_RT_LOG_LEVEL=INFO"),
    3: Status("NRT_INVALID_HANDLE", "a handle is not one of the runtime's", OUR_DEFECT),
    4: Status(
        "NRT_RESOURCE",
        "the device or the runtime has no room for it",
        "end what else uses the device, or build the bundle with a smaller kv_blocks or for more ranks",
    ),
    5: Status(
        "NRT_TIMEOUT",
        "the device did not answer in time",
        "raise NEURON_RT_EXEC_TIMEOUT (seconds) if the pass is that long, else reset the device",
    ),
    6: Status("NRT_HW_ERROR", "the device's hardware failed", LOOK_AT_DEVICE),
    7: Status("NRT_QUEUE_FULL", "the device's queue of passes is full", FREE_CORES),
    9: Status("NRT_LOAD_NOT_ENOUGH_NC", "too few NeuronCores are free", FREE_CORES),
    10: Status(
        "NRT_UNSUPPORTED_NEFF_VERSION",
        "this runtime does not read NEFFs of that version",
        "update the Neuron runtime to the SDK that built the bundle, or rebuild the bundle with this instance's SDK",
    ),
    11: Status("NRT_FAIL_HOST_MEM_ALLOC", "the host has too little memory", "free host memory"),
    13: Status(
        "NRT_UNINITIALIZED",
        "the runtime is not initialized",
        "look for an earlier failure of nrt_init in the log: the driver may be missing (neuron-ls)",
    ),
    14: Status("NRT_CLOSED", "the runtime is closed already", "start the program again"),
    15: Status("NRT_QUEUE_EMPTY", "a queue of the runtime is empty", OUR_DEFECT),
    101: Status("NRT_EXEC_UNIT_DISABLED", "the execution unit is beyond recovery", LOOK_AT_DEVICE),
    1002: Status("NRT_EXEC_BAD_INPUT", "the graph's tensors are not those of the NEFF", REBUILD, "neff"),
    1003: Status(
        "NRT_EXEC_COMPLETED_WITH_NUM_ERR",
        "the pass made values that are no numbers",
        "check the weights, and the dtype: float16 overflows where bfloat16 does not",
    ),
    1004: Status("NRT_EXEC_COMPLETED_WITH_ERR", "the pass ended with errors of the device", LOOK_AT_DEVICE),
    1005: Status("NRT_EXEC_NC_BUSY", "the NeuronCore is held by another model or process", FREE_CORES),
    1006: Status("NRT_EXEC_OOB", "the graph read or wrote past the end of a tensor", REBUILD, "neff"),
    1100: Status("NRT_COLL_PENDING", "a collective operation is still pending", "start the program again"),
    1200: Status(
        "NRT_EXEC_HW_ERR_COLLECTIVES",
        "a collective operation never ended, because another rank failed or the link between devices did",
        LOOK_AT_DEVICE,
    ),
    1201: Status("NRT_EXEC_HW_ERR_HBM_UE", "device memory lost data beyond repair", LOOK_AT_DEVICE),
    1202: Status("NRT_EXEC_HW_ERR_NC_UE", "memory on a NeuronCore lost data", LOOK_AT_DEVICE),
    1203: Status("NRT_EXEC_HW_ERR_DMA_ABORT", "a DMA engine failed", LOOK_AT_DEVICE),
    1204: Status("NRT_EXEC_SW_NQ_OVERFLOW", "the notification queue overflowed", "start the program again"),
    1205: Status("NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE", "device memory lost data; a reset repairs it", LOOK_AT_DEVICE),
    1206: Status("NRT_NETWORK_PROXY_FAILURE", "the network between instances failed", "check the EFA network"),
}

# What a general code means when it is nrt_load that returns it
OF_LOAD = {2: Status("NRT_INVALID", "the runtime finds the NEFF invalid", REBUILD, "neff")}


def status_of(call: str, code: int) -> Status:
    """What `code` means as the result of `call`."""
    if call in ("nrt_load", "nrt_load_collectives") and code in OF_LOAD:
        return OF_LOAD[code]
    unknown = Status(f"status {code}", "this version knows no such status", "look it up in nrt_status.h of the SDK")
    return STATUSES.get(code, unknown)


def status_error(call: str, code: int, subject: str) -> Eagle3Error:
    """The error of a `call` that returned `code` when it was done for `subject` ("unit target_verify, rank 3")."""
    status = status_of(call, code)
    kind = IntegrityError if status.fault == "neff" else HostError
    found = f"{status.name} ({code})" if code in STATUSES else status.name
    return kind(f"{call} failed for {subject}, {status.means}", found=found, repair=status.repair)
