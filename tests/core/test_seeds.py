"""Seeds decide every draw: the same seed and parts give the same bytes on every Python, others give others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romulus.core.seeds import Seeds, derive, rng

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))


def test_a_draw_uses_the_seed_in_force_at_its_position() -> None:
    seeds = Seeds.first(A.hex()).with_new(3, B).with_new(7, C)

    assert [seeds.in_force(position) for position in (0, 2, 3, 6, 7, 100)] == [A, A, B, B, C, C]
    assert seeds.newest == C


def test_a_new_seed_replaces_those_from_its_position_on() -> None:
    seeds = Seeds.first(A.hex()).with_new(3, B).with_new(7, C)

    assert list(seeds.with_new(3, C)) == [(0, A), (3, C)]
    assert list(seeds.with_new(0, B)) == [(0, B)]


def test_a_retry_is_known_by_its_seeds_also_where_nothing_of_the_first_pass_is_kept() -> None:
    first = Seeds.first(A.hex())
    again = first.renewed(0, B)

    assert (first.replaced, again.replaced) == (False, True)
    assert (again.in_force(0), again.newest) == (B, B)
    assert Seeds.parse(again.dump()) == again
    assert list(again.renewed(0, C)) == [(0, A), (0, C)]
    assert list(first.renewed(3, B)) == [(0, A), (3, B)]


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=5), st.sets(st.integers(1, 10**9), min_size=4, max_size=4))
def test_seeds_come_back_from_their_text(seeds: list[bytes], positions: set[int]) -> None:
    made = Seeds(tuple(zip([0, *sorted(positions)], seeds, strict=False)))

    assert Seeds.parse(made.dump()) == made
    assert hash(Seeds.parse(made.dump())) == hash(made)


@pytest.mark.parametrize("text", ["[]", '[[1,"00"]]', '[[0,"00"],[4,"01"],[4,"02"]]', '[[0,"00"],[5,"01"],[4,"02"]]', '[[0,"xy"]]'])
def test_seeds_that_could_not_have_been_written_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"seed|position|hex"):
        Seeds.parse(text)


def test_a_seed_is_never_shown() -> None:
    assert A.hex() not in repr(Seeds.first(A.hex()))


def test_draws_are_the_same_on_every_python() -> None:
    draws = rng(A)

    assert [draws.getrandbits(32) for _ in range(3)] == [1641999186, 3590011175, 619049565]
    assert derive(A, "step", 1).hex() == "c61d0ffac3da19ac4d5a510f34b296f2"


def test_other_parts_give_other_bytes() -> None:
    made = [
        derive(A),
        derive(B),
        derive(A, "1"),
        derive(A, 1),
        derive(A, b"1"),
        derive(A, "a", "b"),
        derive(A, "ab"),
        derive(A, "", "ab"),
        derive(A, "ab", ""),
    ]

    assert len(set(made)) == len(made)
    assert {len(one) for one in made} == {16}
