"""The training corpus on disk: answers with the target's states, one file per cohort.

    cohort-00017.safetensors
        tokens   [sum n] int32           prompt and answer of each sequence, one after the other
        features [sum (n-1), A*H]        auxiliary states of every token but each sequence's last
        finals   [sum (n-1-p), H]        normed last states of the answers' tokens but the last
        choices  [sum (n-p)] int32       the target's greedy token at each place of the answers
        lengths, prompt_lengths  [sequences] int32       n and p
        temperatures [sequences] float32
      metadata: kinds (JSON), settings (JSON: whatever decided the content)

The target's logits are not stored: `finals` times the target's head are the same numbers in a fourteenth of the space
of an 8,192-entry row. Files are mapped, so a corpus larger than memory trains too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aot.checkpoint.target import TargetConfig
from runtime.bundle.errors import ConfigError, UsageError
from training.files import readable
from training.target import Answer

PATTERN = "cohort-*.safetensors"


def cohort_path(folder: Path, number: int) -> Path:
    return folder / f"cohort-{number:05d}.safetensors"


def write_cohort(
    path: Path,
    answers: Sequence[Answer],
    kinds: Sequence[str],
    temperatures: Sequence[float],
    settings: Mapping[str, object],
) -> None:
    """Write one cohort whole: a reader never sees half a file."""
    tensors = {
        "tokens": torch.cat([answer.tokens for answer in answers]),
        "features": torch.cat([answer.features for answer in answers]),
        "finals": torch.cat([answer.finals for answer in answers]),
        "choices": torch.cat([answer.choices for answer in answers]),
        "lengths": torch.tensor([len(answer.tokens) for answer in answers], dtype=torch.int32),
        "prompt_lengths": torch.tensor([answer.prompt_length for answer in answers], dtype=torch.int32),
        "temperatures": torch.tensor(list(temperatures), dtype=torch.float32),
    }
    metadata = {"kinds": json.dumps(list(kinds)), "settings": json.dumps(dict(settings), sort_keys=True)}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata=metadata)
    readable(partial)
    partial.replace(path)


@dataclass(frozen=True)
class TrainingSequence:
    """One sequence of a corpus: n tokens of which the first p are the prompt."""

    tokens: Tensor
    prompt_length: int
    features: Tensor
    finals: Tensor
    choices: Tensor
    kind: str
    temperature: float

    @property
    def answer_length(self) -> int:
        return len(self.tokens) - self.prompt_length


class Cohort:
    """A cohort's file, mapped; its sequences are views.

    Raises:
        ConfigError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                self._tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self.kinds: list[str] = json.loads(metadata["kinds"])
            self.settings: dict[str, object] = json.loads(metadata["settings"])
            self.lengths: list[int] = self._tensors["lengths"].tolist()
            self.prompt_lengths: list[int] = self._tensors["prompt_lengths"].tolist()
            self._starts = self._laid_out()
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise ConfigError(
                f"{path.name} of the corpus cannot be read",
                found=str(error),
                repair="remove the file and generate again; finished cohorts are kept",
            ) from None

    def _laid_out(self) -> list[tuple[int, int, int, int]]:
        """Where each sequence begins in tokens, features, finals and choices.

        Raises:
            ValueError: the tensors do not hold what the lengths say.
        """
        starts = []
        token = feature = final = choice = 0
        for length, prompt in zip(self.lengths, self.prompt_lengths, strict=True):
            starts.append((token, feature, final, choice))
            token, feature = token + length, feature + length - 1
            final, choice = final + length - 1 - prompt, choice + length - prompt
        ends = {"tokens": token, "features": feature, "finals": final, "choices": choice}
        for name, end in ends.items():
            if len(self._tensors[name]) != end:
                raise ValueError(f"{len(self._tensors[name])} {name} where the lengths say {end}")
        return starts

    @property
    def largest_id(self) -> int:
        return int(self._tensors["tokens"].max())

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> TrainingSequence:
        token, feature, final, choice = self._starts[index]
        length, prompt = self.lengths[index], self.prompt_lengths[index]
        return TrainingSequence(
            self._tensors["tokens"][token : token + length],
            prompt,
            self._tensors["features"][feature : feature + length - 1],
            self._tensors["finals"][final : final + length - 1 - prompt],
            self._tensors["choices"][choice : choice + length - prompt],
            self.kinds[index],
            float(self._tensors["temperatures"][index]),
        )


def open_corpus(folder: Path) -> list[Cohort]:
    """Every cohort of a corpus, in order.

    Raises:
        UsageError: there is none.
        ConfigError: a file is damaged.
    """
    paths = sorted(folder.glob(PATTERN))
    if not paths:
        raise UsageError(
            f"there is no corpus in {folder}",
            expected="cohort-*.safetensors",
            found="none",
            repair="make one with python -m training.generate",
        )
    return [Cohort(path) for path in paths]


def all_sequences(cohorts: Iterable[Cohort]) -> list[TrainingSequence]:
    return [cohort[index] for cohort in cohorts for index in range(len(cohort))]


def check_corpus(cohorts: Sequence[Cohort], target: TargetConfig, fingerprint: str) -> tuple[int, ...]:
    """Whether a corpus is of this target, and of one make; returns its auxiliary layers.

    Args:
        fingerprint: of the target's files; a corpus that names none is not compared.

    Raises:
        ConfigError: it is another model's, or its cohorts were made with different settings.
    """
    first = cohorts[0]
    for cohort in cohorts:
        for name in ("aux_layers", "model"):
            if cohort.settings.get(name) != first.settings.get(name):
                raise ConfigError(
                    f"the cohorts of the corpus were made with different {name}",
                    expected=str(first.settings.get(name)),
                    found=str(cohort.settings.get(name)),
                    repair="keep the corpora of two makes in two folders",
                )
    named = first.settings.get("aux_layers")
    aux = tuple(named) if isinstance(named, list) else ()
    one = first[0]
    found = (one.features.shape[1], one.finals.shape[1], first.settings.get("model", fingerprint))
    wanted = (len(aux) * target.hidden_size, target.hidden_size, fingerprint)
    largest = max(cohort.largest_id for cohort in cohorts)
    if found != wanted or largest >= target.vocab_size:
        raise ConfigError(
            "the corpus is not of this target",
            expected=f"features of {wanted[0]}, ids below {target.vocab_size}, model {fingerprint[:12]}",
            found=f"features of {found[0]}, an id {largest}, model {str(found[2])[:12]}",
            repair="give the --model that answered it, or generate a corpus with this one",
        )
    return aux


def digest(sequences: Iterable[TrainingSequence]) -> str:
    """What tells these sequences, in this order, from others: a sha256 over their tokens and prompt lengths."""
    total = hashlib.sha256()
    for sequence in sequences:
        total.update(sequence.prompt_length.to_bytes(4, "little"))
        total.update(sequence.tokens.numpy().tobytes())
    return total.hexdigest()
