"""The same model, smaller: what is checked where the whole one would take too much memory or time.

Every graph keeps its name, its rows, its context, its hidden size, its heads and its ranks. Decoder layers that repeat
are left out, and the auxiliary states are tapped at other places, each still at one of its own. Vocabulary and MLP are
cut, since they only make tables longer; whether the ranks divide them stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from aot.graphs.geometry import Geometry, Padding, over_ranks

LEAST_LAYERS = 2
MOST_VOCAB, MOST_DRAFT_VOCAB, MOST_INTERMEDIATE = 4096, 2048, 2048


def reduced(geometry: Geometry) -> Geometry:
    """`geometry` with as few target layers as show every kind of layer and keep every tap distinct, at least two.

    Its KV pools have as many blocks as its largest graph names.
    """
    target, draft = geometry.target, geometry.draft
    taps = sorted(set(draft.aux_layers))
    # The stream before layer 0 is the embedding, which no other tap may become
    first = 0 if taps and taps[0] == 0 else 1
    places = {tap: place for place, tap in enumerate(taps, first)}
    windows = [target.window(layer) for layer in range(target.num_layers)]
    kinds = max((windows.index(window) + 1 for window in set(windows)), default=0)
    layers = min(target.num_layers, max(LEAST_LAYERS, kinds, *places.values(), 0))
    vocab = _shorter(target.vocab_size, MOST_VOCAB, geometry.ranks)
    draft_vocab = vocab if draft.full_vocabulary else _shorter(draft.draft_vocab_size, MOST_DRAFT_VOCAB, geometry.ranks)
    buckets = geometry.buckets
    small = replace(
        geometry,
        target=replace(
            target,
            num_layers=layers,
            windows=target.windows[:layers],
            vocab_size=vocab,
            intermediate_size=_shorter(target.intermediate_size, MOST_INTERMEDIATE, geometry.ranks),
        ),
        draft=replace(
            draft,
            aux_layers=tuple(places[tap] for tap in draft.aux_layers),
            vocab_size=vocab,
            draft_vocab_size=draft_vocab,
            intermediate_size=_shorter(draft.intermediate_size, MOST_INTERMEDIATE, geometry.ranks),
        ),
        num_blocks=1 + buckets.num_seqs[-1] * (buckets.context_tokens[-1] // geometry.block_size),
        target_padding=Padding(hidden=geometry.target_padding.hidden),
        draft_padding=Padding(hidden=geometry.draft_padding.hidden),
    )
    return over_ranks(small, geometry.ranks)


def _shorter(size: int, most: int, ranks: int) -> int:
    """About `most`, with the rest that `size` leaves when the ranks share it; `size` itself where it is no larger."""
    return size if size <= most else most // ranks * ranks + size % ranks
