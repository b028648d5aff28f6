"""The hidden instances, and the disguise in which each pass shows them. All randomness comes from the grading seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Clause = tuple[int, ...]


class Keyed(random.Random):
    """The standard library's draws over SHAKE-256 of a secret (FIPS 202): what was seen predicts nothing.

    Args:
        secret: in hexadecimal.
        purpose: each has numbers of its own.
    """

    _BLOCK = 1 << 13  #: bytes

    def __init__(self, secret: str, purpose: str) -> None:
        super().__init__()
        self._key = bytes.fromhex(secret) + purpose.encode()
        self._pool, self._blocks = b"", 0

    def getrandbits(self, k: int, /) -> int:
        """``k`` random bits as a number."""
        count = (k + 7) // 8
        if len(self._pool) < count:
            block = hashlib.shake_256(self._blocks.to_bytes(8, "big") + self._key).digest(max(count, self._BLOCK))
            self._pool, self._blocks = self._pool + block, self._blocks + 1
        taken, self._pool = self._pool[:count], self._pool[count:]
        return int.from_bytes(taken, "big") >> (8 * count - k)

    def random(self) -> float:
        """A float from 0 to 1, 1 excluded."""
        return self.getrandbits(53) / (1 << 53)


class Instance(NamedTuple):
    """A formula over the variables 1 to ``variables``."""

    variables: int
    clauses: tuple[Clause, ...]


def batches_of(groups: Sequence[dict[str, Any]], secret: str) -> list[list[Instance]]:
    """All instances, in batches of those of one kind.

    Args:
        groups: each with ``variables``, ``ratio`` (clauses a variable), ``count`` and ``batch`` (instances in one).
        secret: the grading seed.
    """
    rng = Keyed(secret, "instances")
    batches = []
    for group in groups:
        made = [uniform(group["variables"], group["ratio"], rng) for _ in range(group["count"])]
        batches += [made[at : at + group["batch"]] for at in range(0, len(made), group["batch"])]
    return batches


def uniform(variables: int, ratio: float, rng: random.Random) -> Instance:
    """Uniform random 3-SAT: each clause has three different variables, each negated with probability one half.

    Mitchell, Selman and Levesque, "Hard and easy distributions of SAT problems", AAAI 1992.
    """
    names = range(1, variables + 1)
    signs = (1, -1)
    return Instance(
        variables,
        tuple(tuple(rng.choice(signs) * one for one in rng.sample(names, 3)) for _ in range(round(ratio * variables))),
    )


def disguised(instance: Instance, rng: random.Random) -> Instance:
    """The same formula with its variables renamed, and the order of clauses and literals changed."""
    names = list(range(1, instance.variables + 1))
    rng.shuffle(names)
    clauses = []
    for clause in instance.clauses:
        renamed = [names[one - 1] if one > 0 else -names[-one - 1] for one in clause]
        rng.shuffle(renamed)
        clauses.append(tuple(renamed))
    rng.shuffle(clauses)
    return Instance(instance.variables, tuple(clauses))


def satisfies(model: Mapping[int, bool], instance: Instance) -> bool:
    """Whether every clause has a true literal; variables without a value make none."""
    return all(any(model.get(abs(one)) is (one > 0) for one in clause) for clause in instance.clauses)
