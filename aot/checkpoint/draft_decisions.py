"""Who decides a field of a draft's config: an override, the config, the weights, or a default."""

from __future__ import annotations

from aot.checkpoint.draft_format import DraftFields
from aot.checkpoint.headers import Shapes


def axis_size(shapes: Shapes, name: str, axis: int) -> int | None:
    """The size of tensor `name` along `axis`, None where there is no such tensor."""
    shape = shapes.get(name, ())
    return shape[axis] if len(shape) > axis else None


class Decisions:
    """Collects values with their sources and the notes about them.

    Attributes:
        sources: who decided each field so far.
        notes: sentences for the user.
    """

    def __init__(self, fields: DraftFields, shapes: Shapes) -> None:
        self.fields, self.shapes = fields, shapes
        self.sources: dict[str, str] = {}
        self.notes: list[str] = []

    def by(self, name: str, source: str) -> None:
        self.sources[name] = source

    def size(self, name: str, key: str, measured: int | None, default: int | None = None) -> int:
        """A number that the weights settle; without weights what the config says, else `default` (None: needed)."""
        top = self.fields.top
        if measured is None:
            self.by(name, "config" if top.has(key) or default is None else "default")
            return top.integer(key) if default is None else top.integer(key, default)
        said = top.integer(key) if top.has(key) else None
        top.in_range(key, measured)
        self.by(name, "config" if said == measured else "weights")
        if said not in (None, measured):
            self.notes.append(
                f"{key} of {self.fields.where} is {said}, the draft's weights have {measured}; the weights are taken"
            )
        return measured

    def plain(self, name: str, default: int) -> int:
        """An integer that only the config can say."""
        self.by(name, "config" if self.fields.top.has(name) else "default")
        return self.fields.top.integer(name, default)

    def tensor(self, name: str, tensor: str, *keys: str) -> bool:
        """Whether the draft has a part: its tensor is there, or one of `keys` asks for it (then it must be)."""
        asked = any(self.fields.flag(key, False) for key in keys)
        self.by(name, "config" if asked else "weights" if self.shapes else "default")
        return asked or tensor in self.shapes
