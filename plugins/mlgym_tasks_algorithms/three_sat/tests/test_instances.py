"""The hidden instances: what they are, and that a disguise changes nothing but the look."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

steady = settings(deadline=None, derandomize=True)
SEED = "000102030405060708090a0b0c0d0e0f"
seeds = st.binary(min_size=16, max_size=16).map(bytes.hex)


@steady
@given(seed=seeds, variables=st.integers(3, 60), ratio=st.floats(0, 6))
def test_an_instance(parts: SimpleNamespace, seed: str, variables: int, ratio: float) -> None:
    made = parts.instances.uniform(variables, ratio, parts.instances.Keyed(seed, "x"))
    assert made == parts.instances.uniform(variables, ratio, parts.instances.Keyed(seed, "x"))
    assert (made.variables, len(made.clauses)) == (variables, round(ratio * variables))
    for clause in made.clauses:
        assert len({abs(one) for one in clause}) == 3
        assert all(1 <= abs(one) <= variables for one in clause)


def test_literals_are_uniform(parts: SimpleNamespace) -> None:
    made = parts.instances.uniform(10, 2_000, parts.instances.Keyed(SEED, "x"))
    counts = Counter(one for clause in made.clauses for one in clause)
    assert len(counts) == 20
    assert all(abs(count - 3_000) < 5 * 3_000**0.5 for count in counts.values())
    triples = Counter(frozenset(map(abs, clause)) for clause in made.clauses)
    assert len(triples) == 120
    assert max(triples.values()) < 3 * min(triples.values())


@steady
@given(seed=seeds, variables=st.integers(3, 8), ratio=st.floats(1, 6))
def test_a_disguise_renames_and_reorders(parts: SimpleNamespace, seed: str, variables: int, ratio: float) -> None:
    rng = parts.instances.Keyed(seed, "x")
    made = parts.instances.uniform(variables, ratio, rng)
    shown = parts.instances.disguised(made, rng)
    assert shown.variables == variables
    assert len(shown.clauses) == len(made.clauses)
    assert model_sizes(parts, shown) == model_sizes(parts, made)
    assert occurrences(shown) == occurrences(made)


def model_sizes(parts: SimpleNamespace, instance: Any) -> list[int]:
    values = product((0, 1), repeat=instance.variables)
    return sorted(sum(one) for one in values if parts.instances.satisfies(dict(enumerate(map(bool, one), 1)), instance))


def occurrences(instance: Any) -> list[tuple[int, int]]:
    counts = Counter(one for clause in instance.clauses for one in clause)
    return sorted((counts[one], counts[-one]) for one in range(1, instance.variables + 1))


def test_passes_show_the_same_instances_otherwise(parts: SimpleNamespace) -> None:
    groups = [
        {"variables": 20, "ratio": 4.26, "count": 10, "batch": 4},
        {"variables": 5, "ratio": 2, "count": 3, "batch": 9},
    ]
    batches = parts.instances.batches_of(groups, SEED)
    assert [len(batch) for batch in batches] == [4, 4, 2, 3]
    assert batches == parts.instances.batches_of(groups, SEED)
    assert batches != parts.instances.batches_of(groups, SEED[::-1])
    first, second = (parts.passes.disguise(number, batches, SEED) for number in (0, 1))
    assert first == parts.passes.disguise(0, batches, SEED)
    for at, batch in enumerate(batches):
        looks = [sorted(occurrences(one) for one in some) for some in (batch, first.batches[at], second.batches[at])]
        assert looks[0] == looks[1] == looks[2]
    clauses = [{one.clauses for batch in shown for one in batch} for shown in (batches, first.batches, second.batches)]
    assert not (clauses[0] & clauses[1] or clauses[0] & clauses[2] or clauses[1] & clauses[2])
    assert sorted(first.order) == sorted(second.order) == [0, 1, 2, 3]
    assert len({*first.seeds, *second.seeds}) == 8


def test_other_purposes_have_other_numbers(parts: SimpleNamespace) -> None:
    drawn = {
        (seed, purpose): parts.instances.Keyed(seed, purpose).getrandbits(64)
        for seed in (SEED, SEED[::-1])
        for purpose in "ab"
    }
    assert len(set(drawn.values())) == 4
    rng = parts.instances.Keyed(SEED, "a")
    numbers = [rng.random() for _ in range(10_000)]
    assert all(0 <= one < 1 for one in numbers)
    assert len(set(numbers)) == 10_000
    assert abs(sum(numbers) / 10_000 - 0.5) < 0.015
    assert len({rng.getrandbits(100_000) for _ in range(3)}) == 3
