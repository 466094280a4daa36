"""Units run on device memory: weights and pools are there once, results go from graph to graph, one read gets one."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from runtime.backends.device import DeviceTensor
from runtime.backends.nrt.backend import NrtBackend
from runtime.bundle.errors import Eagle3Error, HostError, IntegrityError, UsageError
from runtime.bundle.open import Bundle
from runtime.weights import Weights
from tests.runtime.backends.nrt.stand_in import REQUIRES, StandIn, neuron_bundle, neuron_unit

Open = Callable[[Bundle], NrtBackend]
F4 = ("float32", (4,))
POOL = ("float32", (4, 4, 2, 8))  # 4 blocks of 4 tokens, 2 heads of 8: 1024 bytes

SCALE = neuron_unit("scale", inputs={"x": F4}, outputs={"y": F4}, weights={"a.weight": F4})
SHIFT = neuron_unit("shift", inputs={"x": F4}, outputs={"y": F4}, weights={"a.weight": F4, "b.weight": F4})


def scale(rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    given["y"][:] = taken["a.weight"] * taken["x"]


def shift(rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    given["y"][:] = taken["a.weight"] + taken["b.weight"] + taken["x"]


A, B = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([10.0, 20.0, 30.0, 40.0])


@pytest.fixture
def pair(stand_in: StandIn, backend: Open, tmp_path: Path) -> NrtBackend:
    stand_in.add(SCALE, scale)
    stand_in.add(SHIFT, shift)
    return backend(neuron_bundle(tmp_path, [SCALE, SHIFT], {"a.weight": {"plain": A}, "b.weight": {"plain": B}}))


def on_device(value: Tensor) -> DeviceTensor:
    assert isinstance(value, DeviceTensor)
    return value


def test_a_unit_computes_what_its_neff_does(pair: NrtBackend) -> None:
    (y,) = pair.open(SCALE, "")([torch.tensor([1.0, 1.0, 2.0, 2.0])])
    assert on_device(y).tolist() == [1.0, 2.0, 6.0, 8.0]
    assert (y.shape, cast(Any, y).dtype) == ((4,), "float32")


def test_a_unit_is_loaded_once(pair: NrtBackend, stand_in: StandIn) -> None:
    pair.open(SCALE, "")
    pair.open(SCALE, "")
    assert stand_in.calls("nrt_load") == 1


def test_a_weight_is_uploaded_once_for_all_units(pair: NrtBackend, stand_in: StandIn) -> None:
    pair.open(SCALE, "")
    pair.open(SHIFT, "")
    assert stand_in.calls("nrt_tensor_write") == 2
    assert stand_in.bytes("nrt_tensor_write") == A.nbytes + B.nbytes


def test_a_stored_tensor_with_two_names_is_uploaded_once(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.add(SHIFT, shift)
    bundle = neuron_bundle(tmp_path, [SHIFT], {"a.weight": {"plain": A}}, same={"b.weight": "a.weight"})
    run = backend(bundle).open(SHIFT, "")
    assert stand_in.calls("nrt_tensor_write") == 1
    assert run([torch.zeros(4)])[0].tolist() == (2 * A).tolist()


def test_a_result_goes_to_the_next_unit_without_the_host_and_is_read_once(pair: NrtBackend, stand_in: StandIn) -> None:
    first, second = pair.open(SCALE, ""), pair.open(SHIFT, "")
    uploads = stand_in.calls("nrt_tensor_write")
    (y,) = first([torch.ones(4)])
    (z,) = second([y])
    assert stand_in.calls("nrt_tensor_write") == uploads + 1
    assert stand_in.calls("nrt_tensor_read") == 0
    assert z.tolist() == (A + A + B).tolist()
    assert stand_in.calls("nrt_tensor_read") == 1


def test_an_input_may_come_from_the_host_after_it_came_from_a_device(pair: NrtBackend) -> None:
    first, second = pair.open(SCALE, ""), pair.open(SHIFT, "")
    (y,) = first([torch.ones(4)])
    second([y])
    assert second([torch.zeros(4)])[0].tolist() == (A + B).tolist()
    assert y.tolist() == A.tolist()  # the host's values did not go where y lies


def test_a_recurrent_unit_reads_what_it_last_made(pair: NrtBackend, stand_in: StandIn) -> None:
    run = pair.open(SCALE, "")
    (y,) = run([torch.ones(4)])
    for _ in range(3):
        (y,) = run([y])
    assert y.tolist() == (A**4).tolist()
    assert stand_in.calls("nrt_tensor_read") == 1


def test_a_device_tensor_of_another_dtype_takes_the_way_over_the_host(
    stand_in: StandIn, backend: Open, tmp_path: Path
) -> None:
    wide = neuron_unit("wide", inputs={"x": F4}, outputs={"y": ("bfloat16", (4,))})
    narrow = neuron_unit("narrow", inputs={"x": F4}, outputs={"y": F4})

    def copy(rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
        given["y"][:] = taken["x"]

    stand_in.add(wide, copy)
    stand_in.add(narrow, copy)
    opened = backend(neuron_bundle(tmp_path, [wide, narrow]))
    (y,) = opened.open(wide, "")([A])
    (z,) = opened.open(narrow, "")([y])
    assert stand_in.calls("nrt_tensor_read") == 1
    assert z.tolist() == A.tolist()


def test_an_input_of_another_shape_is_refused(pair: NrtBackend) -> None:
    with pytest.raises(IntegrityError, match=r"a x of another shape: expected \[4\], found \[5\]\.$"):
        pair.open(SCALE, "")([torch.zeros(5)])


# KV pools

APPEND = neuron_unit(
    "append", inputs={"x": ("float32", (8,))}, outputs={"sum": F4}, kv={"kv.0.k": POOL, "kv.0.v": POOL}
)
LOOK = neuron_unit("look", inputs={"block": ("int32", (1,))}, outputs={"y": F4}, kv={"kv.0.k": POOL})


def append(rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    given["kv.0.k.out"][1, 0, 0] = taken["x"]
    given["sum"][:] = taken["kv.0.k"].sum()


def look(rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    given["y"][:] = taken["kv.0.k"][int(taken["block"])].sum()


def test_a_pool_is_zeroed_and_shared_by_all_units(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.add(APPEND, append)
    stand_in.add(LOOK, look)
    bundle = neuron_bundle(tmp_path, [APPEND, LOOK])
    opened = backend(bundle)
    pools = opened.pools(bundle.manifest.kv_cache, 4)
    assert list(pools) == ["kv.0.k", "kv.0.v"]
    k = on_device(pools["kv.0.k"])
    assert (k.shape, k.nbytes(), k.host().count_nonzero().item()) == ((4, 4, 2, 8), 1024, 0)
    writes = stand_in.bytes("nrt_tensor_write")
    (total,) = opened.open(APPEND, "")([torch.arange(8.0), pools["kv.0.k"], pools["kv.0.v"]])
    assert total.tolist() == [28.0] * 4
    (y,) = opened.open(LOOK, "")([torch.tensor([1], dtype=torch.int32), pools["kv.0.k"]])
    assert y.tolist() == [28.0] * 4
    assert k.host()[1, 0, 0].tolist() == list(range(8))
    # The inputs went to the device and the pools never did
    assert stand_in.bytes("nrt_tensor_write") - writes == 8 * 4 + 4


def test_a_pool_can_be_filled(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    bundle = neuron_bundle(tmp_path, [APPEND])
    k = on_device(backend(bundle).pools(bundle.manifest.kv_cache, 4)["kv.0.k"])
    k.fill_(1)
    assert k.host().sum().item() == 4 * 4 * 2 * 8
    k.fill_(0)
    assert k.host().sum().item() == 0


def test_pools_of_another_size_are_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    bundle = neuron_bundle(tmp_path, [APPEND])
    with pytest.raises(UsageError) as caught:
        backend(bundle).pools(bundle.manifest.kv_cache, 5)
    assert caught.value.sentence() == (
        "The KV pool of a Neuron bundle cannot be resized: "
        "expected 4 blocks, for which its graphs were compiled, found 5."
    )


def test_units_that_disagree_about_a_pool_are_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    other = neuron_unit("other", inputs={}, outputs={"y": F4}, kv={"kv.0.k": ("float32", (4, 4, 2, 16))})
    bundle = neuron_bundle(tmp_path, [APPEND, other])
    with pytest.raises(IntegrityError, match=r"^Units disagree about the pool kv\.0\.k"):
        backend(bundle).pools(bundle.manifest.kv_cache, 4)


def test_a_pool_of_the_host_is_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.add(LOOK, look)
    run = backend(neuron_bundle(tmp_path, [LOOK])).open(LOOK, "")
    with pytest.raises(IntegrityError, match="handed a pool that is not its own"):
        run([torch.tensor([1], dtype=torch.int32), torch.zeros(POOL[1])])


def test_a_device_without_room_is_a_sentence(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.set_capacity(1500)
    bundle = neuron_bundle(tmp_path, [APPEND])
    with pytest.raises(HostError) as caught:
        backend(bundle).pools(bundle.manifest.kv_cache, 4)
    assert caught.value.sentence() == (
        "nrt_tensor_allocate failed for 1024 bytes of kv.0.v on rank 0, the device or the runtime has no room for it: "
        "found NRT_RESOURCE (4)."
    )
    assert "kv_blocks" in caught.value.repair


# Failures


@pytest.mark.parametrize("code", [1, 2, 5, 6, 7, 1002, 1003, 1004, 1005, 1006, 1200, 4711])
def test_a_pass_that_fails_is_a_sentence(pair: NrtBackend, stand_in: StandIn, code: int) -> None:
    run = pair.open(SCALE, "")
    stand_in.fail("nrt_execute", code)
    with pytest.raises(
        Eagle3Error, match=rf"^nrt_execute failed for unit scale, rank 0, .*found .*{code}\)?\.$"
    ) as error:
        run([A])
    assert error.value.repair


def test_nothing_runs_after_a_failure(pair: NrtBackend, stand_in: StandIn) -> None:
    run = pair.open(SCALE, "")
    stand_in.fail("nrt_execute", 6)
    with pytest.raises(HostError, match="NRT_HW_ERROR"):
        run([A])
    stand_in.fail("nrt_execute", 0)
    with pytest.raises(
        HostError, match="cannot go on after an earlier failure: found nrt_execute failed for unit scale"
    ):
        run([A])


# Closing


def test_closing_frees_everything(pair: NrtBackend, stand_in: StandIn) -> None:
    run = pair.open(SCALE, "")
    pair.open(SHIFT, "")
    (y,) = run([A])
    run([y])  # takes a second buffer
    assert all(stand_in.live())
    pair.close()
    pair.close()
    assert stand_in.live() == [0, 0, 0]
    assert stand_in.calls("wrong frees") == 0
    assert stand_in.bytes("live infos") == 0
    assert stand_in.calls("nrt_close") == 1
    with pytest.raises(UsageError, match="after its bundle was closed"):
        y.tolist()


def test_a_device_that_refuses_to_unload_is_given_back_all_the_same(pair: NrtBackend, stand_in: StandIn) -> None:
    pair.open(SCALE, "")
    stand_in.fail("nrt_unload", 6)
    pair.close()
    assert stand_in.live() == [0, 0, 1]
    assert stand_in.calls("nrt_close") == 1


def test_letting_go_of_the_graphs_frees_everything(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.add(SCALE, scale)
    bundle = neuron_bundle(tmp_path, [SCALE], {"a.weight": {"plain": A}})
    run = NrtBackend(bundle, Weights(bundle)).open(SCALE, "")
    gc.collect()
    assert run([A])[0].tolist() == (A * A).tolist()  # the unit kept its backend
    del run
    gc.collect()
    assert stand_in.live() == [0, 0, 0]
    assert stand_in.calls("nrt_close") == 1


def test_two_bundles_share_the_runtime_of_the_process(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    stand_in.add(SCALE, scale)
    bundle = neuron_bundle(tmp_path, [SCALE], {"a.weight": {"plain": A}})
    first, second = backend(bundle), backend(bundle)
    first.close()
    assert second.open(SCALE, "")([A])[0].tolist() == (A * A).tolist()
    second.close()
    assert (stand_in.calls("nrt_init"), stand_in.calls("nrt_close")) == (1, 1)


# Ranks

TWO = replace(REQUIRES, ranks=2)
PART = neuron_unit(
    "part",
    inputs={"x": F4},
    outputs={"y": F4, "rank_seen": ("int32", (1,))},
    weights={"w.weight": ("float32", (2, 4)), "n.weight": F4},
    sharded=["w.weight"],
    kv={"kv.0.k": POOL},
    rank=True,
)
W, N = torch.arange(16.0).view(4, 4), torch.tensor([1.0, 0.5, 0.25, 2.0])
WEIGHTS = {"w.weight": {"shard.0": W[:2].contiguous(), "shard.1": W[2:].contiguous()}, "n.weight": {"plain": N}}


class Gather:
    """y = W (n * x) with the rows of W on two ranks: each computes its part, and all have all of it after they met."""

    def __init__(self) -> None:
        self._parts, self._barrier = dict[int, Tensor](), threading.Barrier(2, timeout=5)

    def __call__(self, rank: int, taken: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
        assert taken["rank"].tolist() == [rank]
        self._parts[rank] = taken["w.weight"] @ (taken["n.weight"] * taken["x"])
        self._barrier.wait()
        given["y"][:] = torch.cat([self._parts[0], self._parts[1]])
        given["rank_seen"][0] = rank
        given["kv.0.k.out"][1] = rank + 1
        self._barrier.wait()


@pytest.fixture
def two(stand_in: StandIn, backend: Open, tmp_path: Path) -> NrtBackend:
    stand_in.add(PART, Gather())
    return backend(neuron_bundle(tmp_path, [PART], WEIGHTS, requires=TWO))


def test_two_ranks_compute_together(two: NrtBackend, stand_in: StandIn) -> None:
    pool = on_device(two.pools(two._bundle.manifest.kv_cache, 4)["kv.0.k"])
    run = two.open(PART, "")
    assert (stand_in.calls("nrt_load_collectives"), stand_in.calls("nrt_load")) == (2, 0)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for _ in range(20):  # ranks that are out of step would meet in the wrong pass sooner or later
        y, seen = run([x, cast(Tensor, pool)])
        # Not bit by bit: CPUs sum in their own order
        torch.testing.assert_close(torch.tensor(y.tolist()), W @ (N * x), rtol=1e-6, atol=0)
        assert seen.tolist() == [0]  # a result is read from rank 0
        x = on_device(y).host() / 64
    assert pool.nbytes() == 2 * 1024
    assert pool.host()[1].flatten().tolist() == [1.0] * 64  # rank 0's part


def test_each_rank_gets_its_shard_and_every_rank_the_rest(two: NrtBackend, stand_in: StandIn) -> None:
    two.open(PART, "")
    # two shards, a plain weight on both ranks, and each one's rank
    assert stand_in.bytes("nrt_tensor_write") == W.nbytes + 2 * N.nbytes + 2 * 4


def test_ranks_that_start_one_after_the_other_would_never_meet(two: NrtBackend, stand_in: StandIn) -> None:
    pool = two.pools(two._bundle.manifest.kv_cache, 4)["kv.0.k"]
    run = two.open(PART, "")
    stand_in.set_patience(0.2)
    run([torch.zeros(4), pool])
    unit = two._opened["part"]
    with pytest.raises(HostError, match="NRT_TIMEOUT"):
        two.devices.library.execute(unit._models[0], unit._input_sets[0], unit._output_sets[0], "rank 0 alone")


def test_a_rank_that_fails_is_reported_while_the_others_still_wait(two: NrtBackend, stand_in: StandIn) -> None:
    pool = two.pools(two._bundle.manifest.kv_cache, 4)["kv.0.k"]
    run = two.open(PART, "")
    stand_in.set_patience(1.0)
    stand_in.fail("nrt_execute", 1202, rank=1)
    started = time.perf_counter()
    with pytest.raises(HostError, match=r"unit part, rank 1, .*NRT_EXEC_HW_ERR_NC_UE"):
        run([torch.zeros(4), pool])
    assert time.perf_counter() - started < 0.8
    with pytest.raises(HostError, match="cannot go on after an earlier failure"):
        run([torch.zeros(4), pool])
    two.close()  # waits for rank 0, whose wait the runtime ends
    assert stand_in.live() == [0, 0, 0]


def test_a_rank_that_hangs_keeps_its_memory_when_the_bundle_is_closed(
    two: NrtBackend, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.backends.nrt.memory.PATIENCE", 0.1)
    pool = two.pools(two._bundle.manifest.kv_cache, 4)["kv.0.k"]
    run = two.open(PART, "")
    stand_in.set_patience(1.0)
    stand_in.fail("nrt_execute", 6, rank=0)
    with pytest.raises(HostError):
        run([torch.zeros(4), pool])
    while stand_in.calls("nrt_execute") < 2:  # until rank 1 waits for rank 0
        time.sleep(0.01)
    two.close()
    assert all(stand_in.live())
    assert stand_in.calls("nrt_close") == 0
    time.sleep(1.2)  # the stand-in outlives the test, so its wait must end in it


def test_too_few_cores_for_the_ranks_are_refused(
    stand_in: StandIn, backend: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "1")
    with pytest.raises(HostError, match="does not leave the bundle a NeuronCore for each rank"):
        backend(neuron_bundle(tmp_path, [PART], WEIGHTS, requires=TWO))


def test_a_result_that_is_missing_from_the_tables_is_refused(stand_in: StandIn, backend: Open, tmp_path: Path) -> None:
    unit = replace(SCALE, outputs=(*SCALE.outputs, replace(SCALE.outputs[0], name="z")))
    stand_in.add(unit, scale)
    with pytest.raises(IntegrityError, match="does not list z"):
        backend(neuron_bundle(tmp_path, [unit], {"a.weight": {"plain": A}})).open(unit, "")
