"""Keys of the prefix cache: what two texts must share so that one may take the other's blocks over."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.prefix import PrefixCaching, PrefixKeys

SIZE = 4
SHARED = list(range(1, 9))
A, B = [*SHARED, 20, 21], [*SHARED, 30, 31]


def keys(mode: PrefixCaching, tokens: list[int], prompt: int | None = None, chunk: int = 4) -> list[bytes]:
    """The keys of all blocks of `tokens`, the first `prompt` of which are the prompt."""
    found: list[bytes] = []
    PrefixKeys(mode, SIZE, chunk).extend(found, tokens, len(tokens) if prompt is None else prompt, len(tokens))
    return found


def shared(one: list[bytes], other: list[bytes]) -> int:
    return next(
        (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(map(len, (one, other)))
    )


def test_a_block_s_key_holds_the_token_behind_it() -> None:
    """K1 (vllm#17137): the draft's row 7 is made of token 8, so the second block of A is not B's."""
    for mode in ("full", "exact"):
        assert shared(keys(mode, A), keys(mode, B)) == 1
        assert shared(keys(mode, A), keys(mode, [*SHARED, 20, 99])) == 2


def test_a_block_whose_following_token_is_unknown_has_no_key() -> None:
    """K1 (vllm#51771): so the last block of a prompt never matches, and a pass is always left to run."""
    assert len(keys("full", SHARED)) == 1
    assert len(keys("full", [*SHARED, 9])) == 2
    assert len(keys("full", SHARED[:4])) == 0


def test_off_makes_no_keys() -> None:
    assert keys("off", A) == []


def test_keys_grow_with_the_text_and_keep() -> None:
    maker, found = PrefixKeys("exact", SIZE, 4), list[bytes]()
    for known in range(1, 11):
        maker.extend(found, A, len(A), known)
        assert found == keys("exact", A)[: max(0, known - 1) // SIZE]


def test_exact_keys_say_how_each_row_came_about() -> None:
    """Chunks of 8: rows in a whole chunk, in the shorter last one, and in verify passes are not the same bits."""
    text = list(range(24))
    whole, short, none = (keys("exact", text, prompt, chunk=8) for prompt in (16, 12, 5))
    # All of these run rows 0..7 but the last, whose prompt ends within them
    assert shared(whole, short) == 2
    assert shared(whole, none) == 0
    # Rows 8..11 are of a chunk of eight or of one of four
    assert shared(whole, keys("exact", text, 20, chunk=8)) == 4
    assert shared(short, keys("exact", text, 13, chunk=8)) == 2
    # Full mode does not ask
    assert shared(keys("full", text, 16, chunk=8), keys("full", text, 5, chunk=8)) == 5


def test_exact_mode_restarts_where_a_cold_run_begins_a_pass() -> None:
    exact, full = PrefixKeys("exact", SIZE, 8), PrefixKeys("full", SIZE, 8)
    assert [exact.restart(matched, 30) for matched in (0, 4, 8, 12, 16, 20)] == [0, 0, 8, 8, 16, 16]
    assert [full.restart(matched, 30) for matched in (0, 4, 8, 12)] == [0, 4, 8, 12]
    # Behind the prompt anywhere: verify rows keep their bits wherever they stand
    assert [exact.restart(matched, 10) for matched in (8, 12, 16)] == [8, 12, 16]


def test_a_restart_is_at_the_beginning_of_a_block() -> None:
    """Chunks of five end within blocks of four; only every fourth of them ends with one."""
    exact = PrefixKeys("exact", SIZE, 5)
    assert [exact.restart(matched, 60) for matched in (4, 8, 16, 20, 36, 40)] == [0, 0, 0, 20, 20, 40]


@settings(max_examples=200, deadline=None)
@given(
    one=st.lists(st.integers(0, 2), min_size=1, max_size=24),
    other=st.lists(st.integers(0, 2), min_size=1, max_size=24),
    mode=st.sampled_from(["exact", "full"]),
)
def test_keys_agree_exactly_where_texts_do(one: list[int], other: list[int], mode: PrefixCaching) -> None:
    """Of two prompts in whole chunks of one block: as many blocks as both share with the token behind."""
    same = next(
        (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )
    first, second = keys(mode, one), keys(mode, other)
    assert shared(first, second) == max(0, same - 1) // SIZE
    assert len(set(first + second)) == len(first) + len(second) - shared(first, second)
