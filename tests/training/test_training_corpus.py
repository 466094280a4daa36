"""Conversations in, cohorts out: what is stored, what is gone on with, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from runtime.bundle.errors import ConfigError, UsageError
from tests.training.toy import PROMPTS, Toy
from training.checkpoint import write_draft
from training.conversations import Conversation, read_conversations
from training.corpus import check_corpus, cohort_path, digest, open_corpus, write_cohort
from training.generate import Settings, alike, generate, parse_aux_layers
from training.plan import Plan, batches, first_tokens, of_kinds, split
from training.target import BatchTarget
from training.vocabulary import count_tokens, coverage, most_frequent

SETTINGS = Settings(seed=0, cohort=4, max_tokens=5, max_prompt=20, sampled=0.5, temperatures=(1.0,), aux_layers=(1, 2))


MODEL = {"model": "toy", "dtype": "float32"}


class Letters:
    """A tokenizer whose tokens are letters: the toy vocabulary has 48 of them."""

    def apply_chat_template(self, messages: list[dict[str, str]]) -> str:
        return "".join(f"[{message['content']}]" for message in messages)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) % 48 for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(token + 48) for token in ids)


def answer_all(toy: Toy, conversations: list[Conversation], folder: Path, settings: Settings = SETTINGS) -> int:
    return generate(toy.target, toy.config, Letters(), iter(conversations), folder, settings, 10_000, MODEL)  # type: ignore[arg-type]


def test_a_cohort_reads_back_as_it_was_written(toy: Toy, tmp_path: Path) -> None:
    answers, heat = toy.answers(1.0), [0.0, 1.0, 0.5, 0.0, 1.0]
    write_cohort(cohort_path(tmp_path, 0), answers, list("abcde"), heat, {"seed": 3})
    cohort = open_corpus(tmp_path)[0]
    assert (len(cohort), cohort.settings) == (5, {"seed": 3})
    for index, answer in enumerate(answers):
        sequence = cohort[index]
        assert (sequence.kind, sequence.temperature) == ("abcde"[index], heat[index])
        assert sequence.prompt_length == answer.prompt_length == len(PROMPTS[index])
        for name in ("tokens", "features", "finals", "choices"):
            assert torch.equal(getattr(sequence, name), getattr(answer, name)), name


def test_a_damaged_cohort_and_an_empty_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no corpus in .*: expected cohort-\*"):
        open_corpus(tmp_path)
    cohort_path(tmp_path, 0).write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match=r"cohort-00000.safetensors of the corpus cannot be read"):
        open_corpus(tmp_path)


def test_each_turn_is_a_sequence_with_the_models_own_answers_before_it(toy: Toy, tmp_path: Path) -> None:
    total = answer_all(toy, [Conversation("talk", ("ab", "c")), Conversation("one", ("d",))], tmp_path)
    sequences = [cohort[index] for cohort in open_corpus(tmp_path) for index in range(len(cohort))]
    assert total == 15 == sum(sequence.answer_length for sequence in sequences)
    first = next(s for s in sequences if s.kind == "talk" and s.prompt_length == 4)
    second = next(s for s in sequences if s.kind == "talk" and s.prompt_length > 4)
    answer = Letters().decode(first.tokens[4:].tolist())
    assert second.tokens[: second.prompt_length].tolist() == Letters().encode(f"[ab][{answer}][c]", False)


def test_an_interrupted_corpus_goes_on_to_the_same_content(toy: Toy, tmp_path: Path) -> None:
    conversations = [Conversation("k", ("a" * (1 + i % 3), "z")) for i in range(20)]
    answer_all(toy, conversations, tmp_path)
    before = [load_file(path) for path in sorted(tmp_path.iterdir())]
    assert len(before) == 10
    for path in sorted(tmp_path.iterdir())[3:]:
        path.unlink()
    answer_all(toy, conversations, tmp_path)
    after = [load_file(path) for path in sorted(tmp_path.iterdir())]
    for old, new in zip(before, after, strict=True):
        assert old.keys() == new.keys()
        assert all(torch.equal(old[name], new[name]) for name in old)


def test_a_corpus_of_other_settings_is_not_gone_on_with(toy: Toy, tmp_path: Path) -> None:
    answer_all(toy, [Conversation("k", ("a",))], tmp_path)
    other = Settings(**{**vars(SETTINGS), "max_tokens": 6})
    with pytest.raises(UsageError, match=r"another max_tokens: expected 6, found 5"):
        answer_all(toy, [Conversation("k", ("a",))], tmp_path, other)


def test_other_prompts_do_not_go_on_with_a_corpus(toy: Toy, tmp_path: Path) -> None:
    answer_all(toy, [Conversation("k", ("a",))], tmp_path)
    for others in ([Conversation("k", ("b",))], [Conversation("k", ("a",)), Conversation("k", ("c",))]):
        with pytest.raises(UsageError, match=r"cohort-00000.safetensors of .* answers other prompts"):
            answer_all(toy, others, tmp_path)


def test_a_corpus_must_be_of_the_target_and_of_one_make(toy: Toy, tmp_path: Path) -> None:
    answer_all(toy, [Conversation("k", ("a" * i,)) for i in range(1, 9)], tmp_path)
    cohorts = open_corpus(tmp_path)
    # The toy's states are of three layers, the settings name two
    for cohort in cohorts:
        cohort.settings["aux_layers"] = [1, 2, 3]
    assert check_corpus(cohorts, toy.config, "toy") == (1, 2, 3)
    with pytest.raises(ConfigError, match=r"not of this target: expected features of 96, .* model other, found"):
        check_corpus(cohorts, toy.config, "other")
    with pytest.raises(ConfigError, match=r"ids below 3, model toy, found features of 96, an id \d+"):
        check_corpus(cohorts, replace(toy.config, vocab_size=3), "toy")
    cohorts[1].settings["aux_layers"] = [0, 1, 2]
    with pytest.raises(ConfigError, match=r"different aux_layers: expected \[1, 2, 3\], found \[0, 1, 2\]"):
        check_corpus(cohorts, toy.config, "toy")


def test_lengths_that_the_tensors_do_not_bear_out_are_damage(toy: Toy, tmp_path: Path) -> None:
    path = cohort_path(tmp_path, 0)
    write_cohort(path, toy.answers(), list("abcde"), [0.0] * 5, {})
    tensors = load_file(path)
    tensors["lengths"][0] += 1
    save_file(tensors, path, metadata={"kinds": "[]", "settings": "{}"})
    with pytest.raises(ConfigError, match=r"cannot be read: found \d+ tokens where the lengths say \d+"):
        open_corpus(tmp_path)


def test_what_is_written_has_the_permissions_of_any_new_file(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    write_cohort(cohort_path(tmp_path, 0), toy.answers(), list("abcde"), [0.0] * 5, {})
    write_draft(tmp_path, toy.draft_json, toy.draft, toy.draft_ids, torch.bfloat16)
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_digest_tells_corpora_apart(toy: Toy) -> None:
    greedy, sampled = toy.sequences(), toy.sequences(temperature=1.0)
    assert digest(greedy) == digest(toy.sequences())
    assert len({digest(greedy), digest(sampled), digest(greedy[:-1]), digest(greedy[::-1])}) == 4


def test_a_cohort_is_cut_where_its_prompts_grow_by_half() -> None:
    assert alike([10, 12, 31, 31, 32, 70, 200]) == [slice(0, 4), slice(4, 5), slice(5, 6), slice(6, 7)]
    assert alike([40] * 5) == [slice(0, 5)]


def test_half_of_the_answers_are_sampled() -> None:
    heat = [SETTINGS.temperature(number, index) for number in range(20) for index in range(100)]
    assert set(heat) == {0.0, 1.0}
    assert 900 <= sum(temperature == 0 for temperature in heat) <= 1100


@given(turns=st.lists(st.text(min_size=1).filter(str.strip), min_size=1), system=st.none() | st.text())
def test_every_conversation_reads_back(turns: list[str], system: str | None, tmp_path_factory: object) -> None:
    folder: Path = tmp_path_factory.mktemp("conversations")  # type: ignore[attr-defined]
    (folder / "c.jsonl").write_text(json.dumps({"kind": "k", "turns": turns, "system": system}) + "\n\n")
    assert list(read_conversations(folder / "c.jsonl")) == [Conversation("k", tuple(turns), system)]


def test_a_prompt_is_a_conversation_of_one_turn(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "kind": "k", "prompt": "Hello"}')
    assert list(read_conversations(tmp_path / "c.jsonl")) == [Conversation("k", ("Hello",))]


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"turns": []}', '{"turns": [1]}', '{"turns": [" "]}', '{"turns": "a"}', "\ud800"]
)
def test_what_is_no_conversation_is_told_by_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b'{"turns": ["a"]}\n' + line.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match=r"line 2 of c.jsonl is not a conversation|not UTF-8"):
        list(read_conversations(tmp_path / "c.jsonl"))


def test_a_conversation_ends_with_its_last_turn() -> None:
    open_one = Conversation("k", ("a", "b")).answered("x")
    assert open_one == Conversation("k", ("a", "b"), None, ("x",))
    assert open_one.answered("y") is None


@pytest.mark.parametrize("text", ["3,2", "1,x", "", "2,2", "1,9"])
def test_aux_layers_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--aux-layers does not fit the target: expected different .* from 0 to 8"):
        parse_aux_layers(text, 8)


def test_the_default_aux_layers_are_the_published_ones() -> None:
    assert parse_aux_layers(None, 30) == (2, 15, 27)


def test_the_draft_vocabulary_is_the_most_frequent_ids_in_ascending_order() -> None:
    counts = torch.tensor([5, 0, 9, 5, 1, 0])
    assert most_frequent(counts, 2).tolist() == [0, 2]
    assert most_frequent(counts, 3, always=(5,)).tolist() == [0, 2, 5]
    assert coverage(counts, torch.tensor([0, 2])) == pytest.approx(14 / 20)


def test_tokens_and_choices_are_counted(toy: Toy) -> None:
    counts = count_tokens(toy.sequences(), 48)
    assert int(counts.sum()) == 2 * 9 * len(PROMPTS)


def test_every_sequence_is_in_one_batch_of_an_epoch(toy: Toy) -> None:
    sequences = toy.sequences() * 7
    plan = Plan(steps=1, tokens_per_step=30)
    first, again, next_epoch = batches(sequences, plan, 0), batches(sequences, plan, 0), batches(sequences, plan, 1)
    assert first == again != next_epoch
    for made in (first, next_epoch):
        assert sorted(index for batch in made for index in batch) == list(range(35))
        assert all(sum(sequences[index].answer_length for index in batch) <= 30 for batch in made)


def test_held_out_answers_are_greedy_and_not_trained_on(toy: Toy) -> None:
    sequences = [*toy.sequences(), *toy.sequences(temperature=1.0)]
    training, held_out = split(sequences, 2)
    assert len(training) == 8
    assert [s.temperature for s in held_out] == [0.0, 0.0]
    assert not any(s is t for s in held_out for t in training)
    with pytest.raises(UsageError, match=r"the corpus is too small: expected more than 5 greedy answers, found 5"):
        split(sequences, 5)


def test_fewer_kinds_are_among_more_kinds(toy: Toy) -> None:
    sequences = [replace(s, kind=kind) for kind in "abcdef" for s in toy.sequences()]
    found = [{s.kind for s in of_kinds(sequences, count, seed=1)} for count in (2, 4, 6)]
    assert [len(kinds) for kinds in found] == [2, 4, 6]
    assert found[0] < found[1] < found[2]
    assert len(of_kinds(sequences, 2, seed=1)) == 10
    with pytest.raises(UsageError, match=r"too few kinds of prompt: expected at most 6, found 7"):
        of_kinds(sequences, 7, seed=1)


def test_a_corpus_is_cut_by_answer_tokens(toy: Toy) -> None:
    assert len(first_tokens(toy.sequences(), 10)) == 2


def test_auxiliary_states_reach_from_the_embeddings_to_the_last_layer(toy: Toy) -> None:
    target = BatchTarget(toy.config, toy.weights, (0, 4), 32)
    answer = target.answer([[1, 2]], [0.0], 3, (), torch.Generator())[0]
    # Position 0 is the embeddings, position N what leaves the last layer
    assert torch.equal(answer.features[:, :32], toy.weights["model.embed_tokens.weight"][answer.tokens[:-1].long()])
