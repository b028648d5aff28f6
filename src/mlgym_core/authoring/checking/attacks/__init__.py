"""The red team: one module a place of attack, each a table of small attacks. To add one, add a row.

None may beat the task's own honest submission, make the grader fail, or bring out a canary of the private part.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlgym_core.authoring.checking.attacks import intake, own, player, sandbox, table
from mlgym_core.authoring.checking.attacks.base import Attack
from mlgym_core.task.task import Task

__all__ = ["Attack", "attacks_on"]


def attacks_on(task: Task, which: str = "generic") -> Iterator[Attack]:
    """The attacks that suit the task's kind of submission.

    Args:
        task: is attacked.
        which: ``generic`` for all of them, ``specific`` for those whose outcome depends on the task's own grader and
            player, and those that the task brings along; ``none``.
    """
    if which == "none":
        return
    for attack in (*sandbox.ATTACKS, *intake.ATTACKS, *table.ATTACKS, *player.ATTACKS):
        if isinstance(attack, intake.Bomb) and not intake.unpacked(task):
            continue
        if task.submission.kind in attack.kinds and (which == "generic" or attack.specific):
            yield attack
    yield from own.attacks(task)
