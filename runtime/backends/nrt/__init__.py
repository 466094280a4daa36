"""Neuron devices through libnrt, the runtime's C library.

It is tested against a stand-in for that library, and has met no device yet.
"""

from runtime.backends.nrt.backend import NrtBackend

__all__ = ["NrtBackend"]
