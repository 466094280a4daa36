"""The lint: nothing about a right module, and for each rule one finding about a module that breaks just it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from aot.backends.neuron.hlo import proto
from aot.backends.neuron.hlo.lint import ALLOWED, Finding, findings
from aot.backends.neuron.hlo.passes import Lowered
from runtime.bundle.interface import Parameter, Result
from tests.aot.backends.neuron.jax_modules import in_our_form, noted, raw

RANKS = 2
SIX = ((2, 3), "float32")


def right() -> Lowered:
    """A product, a reduction over the ranks, a row written into a pool: a small module in our form."""

    def function(weight, pool, slot, reduced):  # type: ignore[no-untyped-def]
        written = pool.at[slot].set(reduced, mode="promise_in_bounds")
        return lax.dot(reduced, weight), written, reduced, lax.dot(weight, weight)

    facts = noted(
        [(0, "draft.fc.weight", "weight"), (1, "kv.0.k", "kv"), (2, "slots", "input")],
        results=["features", "kv.0.k", "copied"],
        collectives=[(3, "all_reduce", 0)],
    )
    data = raw(function, ((3, 3), "float32"), ((8, 3), "float32"), ((3,), "int32"), ((3, 3), "float32"))
    return in_our_form(data, facts, RANKS)


def told(made: Lowered, ranks: int = RANKS) -> list[Finding]:
    return findings(made.data, made.parameters, made.results, ranks)


def test_a_right_module_has_no_finding() -> None:
    assert told(right()) == []


def test_a_finding_names_graph_instruction_and_fault() -> None:
    finding = Finding("sort.7", "sort", "operator sort is not among those that are known to compile")
    assert finding.sentence("draft_initial.r4.c64").startswith("Graph draft_initial.r4.c64, sort.7: operator sort is")


def edited(change: Callable[[Any], None], made: Lowered | None = None) -> Lowered:
    """A module after `change` of its message."""
    made = made or right()
    module = proto.parse(made.data)
    change(module)
    return dataclasses.replace(made, data=proto.serialize(module))


def of(module: Any, opcode: str) -> Any:
    return next(i for i in proto.entry(module).instructions if i.opcode == opcode)


def called_by(module: Any, opcode: str) -> Any:
    (which,) = of(module, opcode).called_computation_ids
    return next(c for c in module.computations if c.id == which)


def sorts(module: Any) -> None:
    of(module, "dot").opcode = "sort"


def calls_the_host(module: Any) -> None:
    instruction = of(module, "dot")
    instruction.opcode, instruction.custom_call_target = "custom-call", "TopK"


def grows(module: Any) -> None:
    of(module, "dot").shape.is_dynamic_dimension[0] = True


def has_no_size(module: Any) -> None:
    of(module, "dot").shape.dimensions[0] = -1


def is_64_bits_wide(module: Any) -> None:
    of(module, "dot").shape.element_type = proto.ELEMENT_TYPES["int64"]


def is_double(module: Any) -> None:
    of(module, "dot").shape.element_type = 12


def multiplies_integers(module: Any) -> None:
    # In a place where no other rule looks
    first = of(module, "dot")
    next(i for i in proto.entry(module).instructions if i.id == first.operand_ids[0]).shape.element_type = 4


def adds_where_it_writes(module: Any) -> None:
    combiner = called_by(module, "scatter")
    combiner.instructions.add(id=10_000, opcode="add", name="add.10000")
    proto.set_shape(combiner.instructions[-1].shape, "float32", ())


def has_no_group(module: Any) -> None:
    del of(module, "all-reduce").replica_groups[:]


def has_a_rank_too_few(module: Any) -> None:
    del of(module, "all-reduce").replica_groups[0].replica_ids[-1]


def forgets_an_alias(module: Any) -> None:
    del module.input_output_alias.entries[:]


def may_alias(module: Any) -> None:
    module.input_output_alias.entries[0].kind = 1


def aliases_another(module: Any) -> None:
    module.input_output_alias.entries[0].parameter_number = 0


def overwrites_an_input(module: Any) -> None:
    entry = module.input_output_alias.entries.add(parameter_number=2, kind=proto.MUST_ALIAS)
    entry.output_shape_index.append(0)


def gives_a_parameter(module: Any) -> None:
    entry = proto.entry(module)
    root = next(i for i in entry.instructions if i.id == entry.root_id)
    root.operand_ids[0] = of(module, "parameter").id


def loses_a_name(module: Any) -> None:
    of(module, "parameter").ClearField("frontend_attributes")


def loses_its_results_names(module: Any) -> None:
    of(module, "tuple").ClearField("frontend_attributes")


RULES: dict[Callable[[Any], None], tuple[str, str]] = {
    sorts: ("sort", "operator sort is not among those"),
    calls_the_host: ("custom-call", "operator custom-call TopK is not"),
    grows: ("dot", "a dimension that is not static"),
    has_no_size: ("dot", "a dimension that is not static"),
    is_64_bits_wide: ("dot", "a 64-bit integer"),
    is_double: ("dot", "values of type 12"),
    multiplies_integers: ("dot", "a matrix product of integers"),
    adds_where_it_writes: ("scatter", "a scatter that computes"),
    has_no_group: ("all-reduce", "all-reduce over no explicit group, where one group of 2"),
    has_a_rank_too_few: ("all-reduce", r"all-reduce over [[0]], where one group of 2"),
    forgets_an_alias: ("tuple", "result kv.0.k must alias kv.0.k, and aliases nothing"),
    may_alias: ("tuple", "result kv.0.k must alias kv.0.k"),
    aliases_another: ("tuple", "result kv.0.k must alias kv.0.k, and aliases draft.fc.weight"),
    overwrites_an_input: ("tuple", "result features overwrites a parameter"),
    gives_a_parameter: ("tuple", "result features is a parameter, not a copy of one"),
    loses_a_name: ("parameter", "parameter draft.fc.weight without its name for the device"),
    loses_its_results_names: ("tuple", "results whose names are not those listed"),
}


@pytest.mark.parametrize("fault", RULES, ids=lambda fault: fault.__name__)
def test_each_rule(fault: Callable[[Any], None]) -> None:
    opcode, said = RULES[fault]
    made = edited(fault)
    matching = [finding for finding in told(made) if finding.what.startswith(said)]
    assert [finding.opcode for finding in matching] == [opcode]
    names = {i.name for i in proto.entry(proto.parse(made.data)).instructions}
    assert matching[0].where in names
    if fault not in (multiplies_integers, is_64_bits_wide):  # what reads or is read is wrong then, too
        assert told(made) == matching


def test_an_all_reduce_of_integers() -> None:
    facts = noted([(0, "x", "input")], collectives=[(1, "all_reduce", 0)])
    data = raw(lambda x, reduced: (reduced + 1, -reduced, x * 2), ((4,), "int32"), ((4,), "int32"))
    (finding,) = told(in_our_form(data, facts, RANKS))
    assert finding.opcode == "all-reduce"
    assert finding.what == "an all-reduce of integers, which the device computes in float32"


def test_a_gather_of_integers_moves_them_only() -> None:
    facts = noted([(0, "x", "input")], collectives=[(1, "all_gather", 0)])
    data = raw(lambda x, gathered: (gathered + 1, -gathered, x * 2), ((4,), "int32"), ((8,), "int32"))
    assert told(in_our_form(data, facts, RANKS)) == []


def test_groups_of_another_number_of_ranks() -> None:
    assert [finding.opcode for finding in told(right(), ranks=4)] == ["all-reduce"]


def test_a_scatter_that_adds_as_pytorch_s_accumulate_would_make_it() -> None:
    data = raw(
        lambda x, slot: (x.at[slot].add(1.0, mode="promise_in_bounds"), x * 2), ((4,), "float32"), ((2,), "int32")
    )
    made = in_our_form(data, noted([(0, "x", "input"), (1, "slot", "input")]))
    (finding,) = told(made, 1)
    assert (finding.opcode, finding.what) == ("scatter", "a scatter that computes, where only overwriting is exact")


def test_operators_that_jax_has_and_we_do_not() -> None:
    made = in_our_form(raw(lambda x: (jnp.sort(x), lax.sin(x)), ((4,), "float32")), noted([(0, "x", "input")]))
    assert {finding.opcode for finding in told(made, 1)} >= {"sort", "sine"}
    assert not {"sort", "sine", "custom-call", "while", "conditional", "rng", "top-k"} & ALLOWED


def listed(made: Lowered, **changes: Any) -> Lowered:
    return dataclasses.replace(made, **changes)


def test_the_manifest_s_tables_must_be_the_module_s() -> None:
    made = right()
    weight, pool, slots = made.parameters
    features, written, copied = made.results

    def sentences(parameters: tuple[Parameter, ...], results: tuple[Result, ...]) -> list[str]:
        return [finding.what for finding in told(listed(made, parameters=parameters, results=results))]

    other = dataclasses.replace(weight, shape=(3, 4))
    assert sentences((other, pool, slots), made.results) == [
        "parameter draft.fc.weight is float32 [3, 3], not float32 [3, 4]"
    ]
    short = dataclasses.replace(slots, dtype="int64")
    assert sentences((weight, pool, short), made.results) == ["parameter slots is int32 [3], not int64 [3]"]
    assert sentences((weight, pool), made.results) == ["3 parameters and 3 results, where 2 and 3 are listed"]
    unwritten = dataclasses.replace(written, alias_of="")
    assert "pool kv.0.k is read and never written back" in sentences(made.parameters, (features, unwritten, copied))
    assert sentences(made.parameters, (dataclasses.replace(features, shape=(9,)), written, copied)) == [
        "result features is float32 [3, 3], not float32 [9]"
    ]
    assert sentences(made.parameters, (dataclasses.replace(features, dtype="bfloat16"), written, copied)) == [
        "result features is float32 [3, 3], not bfloat16 [3, 3]"
    ]
