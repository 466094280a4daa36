"""The command line of neuronx-cc for one graph: which flags, and why.

    --framework XLA            the input is a serialized HLO module; the only framework that the compiler takes
    --target trn2 | trn3       the device family. AWS's reference lists trn2; trn3 is what public callers of the
                               compiler pass for Trainium3, undocumented when this was written
    --lnc 1 | 2                physical cores per logical NeuronCore; must be what the runtime is set to. The reference
                               spells it --logical-nc-config or -lnc; this is the spelling of AWS's LLM libraries
    --model-type transformer   schedules attention and MLP as those of a decoder; what AWS's own LLM libraries pass
    --auto-cast none           every product in the dtype that the graph says; the default, which older releases
                               had otherwise, and what the numbers of the verification are good for
    -O1 for prefill, else -O2  as AWS's LLM libraries do: a prompt's pass is large and dominated by its matrix
                               products, so that the deeper search costs compile time and gains little
    --native-int64 disabled    with --implicit-integer-downcast all: what was the default before the two flags came
                               with release 2.27, whose notes announce that it will change. The graphs hold no
                               int64, so nothing should depend on it. Older compilers do not know the flags

Source: AWS Neuron documentation, "Neuron Compiler CLI Reference Guide" and the compiler's release notes. Input and
output have fixed names in the folder in which the compiler runs, so no path enters a cache key or a bundle.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.bundle.errors import ConfigError
from runtime.bundle.manifest import GraphKind

INPUT, OUTPUT, LOG = "graph.hlo", "graph.neff", "log-neuron-cc.txt"
TARGETS = ("trn2", "trn3")
LNC = (1, 2)
INT64_FLAGS_SINCE = (2, 27)

# The compiler reads its arguments as argparse does: an unambiguous beginning of a name is the name
_OWN = (
    *("--framework", "--target", "--output", "--logfile", "--lnc", "--logical-nc-config", "--model-type"),
    *("--auto-cast", "--optlevel", "--native-int64", "--implicit-integer-downcast", "--help", "--version"),
)
_OWN_SHORT = ("-O", "-o", "-lnc", "-h", "-V")
# Begin as one of ours does, but are others
_NOT_OWN = ("--auto-cast-type",)


def arguments(
    kind: GraphKind, *, target: str, lnc: int, release: tuple[int, ...] | None = None, extra: Sequence[str] = ()
) -> list[str]:
    """What follows `neuronx-cc` on the command line that compiles a graph of kind `kind`.

    Args:
        target: "trn2" or "trn3".
        lnc: physical cores per logical NeuronCore, 1 or 2.
        release: the compiler's version numbers; None where it is not known yet: no flag then depends on it.
        extra: further arguments, the user's own, last.

    Raises:
        ConfigError: target or lnc are not among the known ones, or `extra` sets what is set here.
    """
    if target not in TARGETS:
        raise ConfigError("Unknown Neuron target", expected=" or ".join(TARGETS), found=target, repair="set one")
    if lnc not in LNC:
        raise ConfigError("Unknown logical core size", expected="1 or 2", found=str(lnc), repair="set lnc to one")
    check_extra(extra)
    made = ["compile", INPUT, "--framework", "XLA", "--target", target, "--lnc", str(lnc)]
    made += ["--model-type", "transformer", "--auto-cast", "none", "-O1" if kind.endswith("prefill") else "-O2"]
    if release is not None and release >= INT64_FLAGS_SINCE:
        made += ["--native-int64", "disabled", "--implicit-integer-downcast", "all"]
    return [*made, "--output", OUTPUT, "--logfile", LOG, *extra]


def check_extra(extra: Sequence[str]) -> None:
    """Refuse compiler arguments of the user's that would undo ours.

    Raises:
        ConfigError: naming the first one.
    """
    for argument in extra:
        name = argument.partition("=")[0]
        if name.startswith("--"):
            is_ours = name not in _NOT_OWN and len(name) > 2 and any(own.startswith(name) for own in _OWN)
        else:
            is_ours = name.startswith(_OWN_SHORT)
        if is_ours or name == "--":
            raise ConfigError(
                "A compiler argument is one that the build sets itself",
                expected="arguments other than " + ", ".join((*_OWN[:-2], *_OWN_SHORT[:2])),
                found=argument,
                repair="remove it; target and lnc are keys of their own under backend",
            )
