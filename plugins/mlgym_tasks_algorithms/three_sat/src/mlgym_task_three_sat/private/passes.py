"""One pass over all instances: asked, timed, replayed; then the baseline, on the same instances, in this box.

Replay and baseline run after the player's box has been closed, so that no code of the submission's can disturb them.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import mlgym_peer as peer
from instances import Instance, Keyed, disguised  # type: ignore[import-not-found]
from pristine import TooLong, Unproved, baseline, replay  # type: ignore[import-not-found]

LOAD_SECONDS = 60.0  #: for importing the heuristic
BATCH_SECONDS = 120.0  #: for one batch, and for its replay; the baseline takes less than one
FLOOR = 0.8  #: of the replay's time: less is not believed
AGAIN = 2  #: further replays of a batch whose time would be raised to the floor
MOST_DECISIONS = 2_000_000  #: in one batch; no solver of this kind makes more within BATCH_SECONDS


class Shown(NamedTuple):
    """What a pass shows.

    Attributes:
        batches: all of them in this disguise, by number.
        seeds: for ``random`` in the player, by number of the batch.
        order: numbers of the batches as they are sent.
    """

    batches: list[list[Instance]]
    seeds: list[int]
    order: list[int]


class Log(NamedTuple):
    """What a player says about one batch, in the order in which the instances were shown.

    Attributes:
        seconds: from the call sent to the answer received.
        ends: how each search ended: 1 for satisfied, 0 for refuted.
        lengths: decisions of each.
        decisions: all of them, as literals, one search after the other.
    """

    seconds: float
    ends: array[int]
    lengths: array[int]
    decisions: array[int]


class Pass(NamedTuple):
    """The times of one pass, by number of the batch, in seconds.

    Attributes:
        measured: of the submission.
        replayed: of its decisions in the pristine solver.
        baseline: of the baseline heuristic.
        decisions: how many the submission made.
        baseline_decisions: how many the baseline made.
        satisfiable: instances that have a model.
    """

    measured: list[float]
    replayed: list[float]
    baseline: list[float]
    decisions: int
    baseline_decisions: int
    satisfiable: int


def disguise(number: int, batches: Sequence[Sequence[Instance]], secret: str) -> Shown:
    """The instances as a pass shows them: variables renamed, all orders changed."""
    rng = Keyed(secret, f"pass {number}")
    shown = [[disguised(one, rng) for one in rng.sample(batch, len(batch))] for batch in batches]
    return Shown(shown, [rng.getrandbits(64) for _ in batches], rng.sample(range(len(batches)), len(batches)))


def run(number: int, batches: Sequence[Sequence[Instance]], secret: str, deadline: float) -> Pass:
    """Ask about all batches, replay the answers, and time the baseline.

    Args:
        number: of the pass.
        batches: the instances.
        secret: the grading seed.
        deadline: a value of :func:`time.perf_counter`, for the replays.

    Raises:
        InvalidSubmission, PlayerError: the submission gave no answer, or one that is not the log of a search.
    """
    shown = disguise(number, batches, secret)
    logs, theirs = {}, {}
    with peer.open_player(timeout=LOAD_SECONDS) as player:
        for at in shown.order:
            logs[at] = _ask(player, shown.batches[at], shown.seeds[at])
    replayed = {at: _prove(shown.batches[at], logs[at], deadline) for at in shown.order}
    for at in shown.order:
        theirs[at] = baseline(shown.batches[at], shown.seeds[at])
    # A replay may have met a busy moment; an honest time must not pay for that.
    for at in shown.order * AGAIN:
        if logs[at].seconds < FLOOR * replayed[at]:
            replayed[at] = min(replayed[at], _prove(shown.batches[at], logs[at], deadline))
    in_order = range(len(batches))
    return Pass(
        [logs[at].seconds for at in in_order],
        [replayed[at] for at in in_order],
        [theirs[at][0] for at in in_order],
        sum(len(log.decisions) for log in logs.values()),
        sum(decisions for _, decisions in theirs.values()),
        sum(sum(log.ends) for log in logs.values()),
    )


def _ask(player: Any, batch: Sequence[Instance], seed: int) -> Log:
    packed = _packed(batch)
    start = time.perf_counter()
    buffers = player.call({"seed": seed}, timeout=BATCH_SECONDS, **packed).buffers
    return _checked(buffers, len(batch), time.perf_counter() - start)


def _packed(batch: Sequence[Instance]) -> dict[str, Any]:
    rows = [clause for instance in batch for clause in instance.clauses]
    sizes = [(instance.variables, len(instance.clauses)) for instance in batch]
    return {
        "clauses": peer.buffer("|i1", [literal for row in rows for literal in row], (len(rows), 3)),
        "sizes": peer.buffer("<u4", [number for size in sizes for number in size], (len(sizes), 2)),
    }


def _checked(buffers: Mapping[str, Any], count: int, seconds: float) -> Log:
    types = {name: (one.dtype, len(one.shape)) for name, one in buffers.items()}
    if types != {"ends": ("|u1", 1), "lengths": ("<u4", 1), "decisions": ("|i1", 1)}:
        raise peer.InvalidSubmission("the player did not answer with ends, lengths and decisions")
    ends, lengths, decisions = (buffers[name].array() for name in ("ends", "lengths", "decisions"))
    if len(ends) != count or len(lengths) != count or len(decisions) != sum(lengths):
        raise peer.InvalidSubmission(f"the player did not answer with the searches of {count} instances")
    if max(ends) > 1:
        raise peer.InvalidSubmission(f"the player answered {max(ends)} where 0 or 1 says how a search ended")
    if len(decisions) > MOST_DECISIONS:
        raise peer.InvalidSubmission(f"a batch took {len(decisions)} decisions; branch so that fewer are needed")
    return Log(seconds, ends, lengths, decisions)


def _prove(batch: Sequence[Instance], log: Log, deadline: float) -> float:
    """Seconds of the replay; what it does not prove is invalid."""
    until = min(deadline, time.perf_counter() + BATCH_SECONDS)
    try:
        return float(replay(batch, log.ends, log.lengths, log.decisions, until))
    except Unproved as error:
        raise peer.InvalidSubmission(str(error)) from None
    except TooLong:
        raise peer.InvalidSubmission(
            f"the {len(log.decisions)} decisions of a batch take too long to replay; branch so that fewer are needed"
        ) from None
