"""The compiler's command line for each kind of graph, and which arguments a user may add."""

from __future__ import annotations

import typing

import pytest

from aot.backends.neuron.flags import arguments, check_extra
from runtime.bundle.errors import ConfigError
from runtime.bundle.manifest import GraphKind

PREFILL = {"target_prefill", "draft_initial_prefill", "draft_fused_prefill"}


def test_the_whole_command_line() -> None:
    assert arguments("target_verify", target="trn2", lnc=2, release=(2, 27, 5334, 0)) == [
        *("compile", "graph.hlo", "--framework", "XLA", "--target", "trn2", "--lnc", "2"),
        *("--model-type", "transformer", "--auto-cast", "none", "-O2"),
        *("--native-int64", "disabled", "--implicit-integer-downcast", "all"),
        *("--output", "graph.neff", "--logfile", "log-neuron-cc.txt"),
    ]


@pytest.mark.parametrize("kind", typing.get_args(GraphKind))
def test_prompts_are_compiled_with_less_effort(kind: GraphKind) -> None:
    made = arguments(kind, target="trn3", lnc=1)
    assert [flag for flag in made if flag.startswith("-O")] == ["-O1" if kind in PREFILL else "-O2"]


@pytest.mark.parametrize(
    ("release", "passed"),
    [
        (None, False),
        ((2, 22, 12471, 0), False),
        ((2, 26, 6360, 0), False),
        ((2, 27), True),
        ((2, 27, 1), True),
        ((3,), True),
    ],
)
def test_int64_flags_go_to_compilers_that_know_them(release: tuple[int, ...] | None, passed: bool) -> None:
    made = arguments("target_verify", target="trn2", lnc=2, release=release)
    assert ("--native-int64" in made, "--implicit-integer-downcast" in made) == (passed, passed)


def test_a_users_arguments_come_last() -> None:
    extra = ("--auto-cast-type=bf16", "--verbose", "info", "--enable-fast-loading-neuron-binaries")
    assert arguments("target_verify", target="trn2", lnc=2, extra=extra)[-4:] == list(extra)


@pytest.mark.parametrize(
    "argument",
    [
        *("--output", "--output=a.neff", "--out", "--target=trn1", "--framework", "--lnc=1", "-lnc", "--log"),
        *("--logical-nc-config", "-O3", "-O", "--optlevel=3", "--auto-cast=all", "--model-type=generic", "--"),
    ],
)
def test_arguments_of_ours_are_refused(argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_extra(("--verbose=info", argument))
    assert caught.value.found == argument


@pytest.mark.parametrize(("target", "lnc"), [("trn1", 1), ("trn2", 0), ("trn2", 4), ("", 1)])
def test_unknown_devices_are_refused(target: str, lnc: int) -> None:
    with pytest.raises(ConfigError, match="Unknown"):
        arguments("target_verify", target=target, lnc=lnc)
