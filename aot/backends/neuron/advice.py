"""What to do about a compile that failed: neuronx-cc's error codes and exit codes in one sentence each.

The codes are those of AWS's documentation ("Neuron Compiler Error Codes"), printed in the log as NCC_EVRF009. That
exit code 70 is an internal failure that often does not come again is users' experience (aws-neuron-sdk issue 1369).
"""

from __future__ import annotations

import re

INTERNAL_FAILURE, KILLED = 70, -9

_HBM = "the graph and its buffers do not fit the device's memory: lower max_model_len or num_gpu_blocks, or raise \
tensor_parallel_size"
_LARGE = "the graph has more instructions than the compiler takes: use smaller prefill buckets, or raise \
tensor_parallel_size"
_OPERATION = "the graph holds an operation that this compiler does not know: this is a defect of the lowering, unless \
the compiler is much older than 2.22"
_INTEGER = "an integer operation has no exact form on the device: this is a defect of the lowering, which its lint \
should have found"
_NKI = "the graph asks for an NKI kernel, which graphs of this builder do not have: check the compiler arguments"

CODES = {
    "EMOD025": "a shape in the graph is not static: this is a defect of the lowering, which its lint should have found",
    "EOOM001": _HBM,
    "EOOM002": _HBM,
    "EVRF009": _HBM,
    "EVRF007": _LARGE,
    "EBVF030": _LARGE,
    "EXTP004": _LARGE,
    "EARG001": "this target does not know that lnc: set backend.lnc to what the instance has",
    "EVRF001": _OPERATION,
    "EUOC002": _OPERATION,
    "EHCA005": _OPERATION,
    "EVRF015": _OPERATION,
    "EVRF013": _INTEGER,
    "EVRF031": "a gather or scatter may leave its tensor: this is a defect of the lowering",
    "EVRF035": _INTEGER,
    "EVRF051": "this target does not have that float8 type: set another dtype",
    "EVRF056": "a gather or scatter may leave its tensor: this is a defect of the lowering",
    "EVRF059": _NKI,
    "EVRF060": _INTEGER,
    "EVRF061": _INTEGER,
    "EVRF062": _INTEGER,
    "EVRF063": _INTEGER,
    "EVRF064": "the compiler finds the HLO invalid: it may be older than the torch-xla that wrote it",
    "EVRF065": _NKI,
}

EXITS = {
    2: "the compiler did not understand its arguments: its release may be another than its version says",
    INTERNAL_FAILURE: "the compiler failed inside, which often does not come again: run the same command once more",
    KILLED: "the system ended the compiler, most likely for want of host memory: pass --jobs 1, or use a larger host",
    -6: "the compiler ended itself (abort): run the same command once more, or try another release of it",
    -11: "the compiler crashed (segmentation fault): run the same command once more, or try another release of it",
    -15: "something asked the compiler to end: run the same command once more",
}

_CODE = re.compile(r"NCC_([A-Z]{2,8}\d{3,4})")


def codes(log: str) -> list[str]:
    """The error codes in a log, without "NCC_", each once, in order."""
    return list(dict.fromkeys(_CODE.findall(log)))


def as_signal(exit_code: int) -> int:
    """128 + N, as a shell or a wrapper reports signal N, as -N; other codes as they are."""
    return 128 - exit_code if 128 < exit_code < 160 else exit_code


def advise(log: str, exit_code: int) -> str:
    """One sentence on what to do about a failed compile.

    The first known code in the log decides, then any code that it names, then the exit code.
    """
    found = codes(log)
    known = next((code for code in found if code in CODES), None)
    if known is not None:
        return f"NCC_{known}: {CODES[known]}"
    if found:
        return f"look NCC_{found[0]} up among the Neuron compiler's error codes in AWS's documentation"
    status = as_signal(exit_code)
    if status in EXITS:
        return EXITS[status]
    return f"the compiler ended by signal {-status}" if status < 0 else "the log says why"
