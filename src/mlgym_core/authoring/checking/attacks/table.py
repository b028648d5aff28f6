"""Attacks on graders of prediction files: rows and cells that a careless reader takes for something else."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence

from attrs import frozen

from mlgym_core.authoring.checking.attacks.base import Arena
from mlgym_core.authoring.checking.report import BrokenError, NotApplicableError
from mlgym_core.task.task import SubmissionKind

Rows = list[list[str]]


@frozen
class Rewritten:
    """The honest file, changed.

    Attributes:
        change: header and rows (one list a line) to the new file's content.
        must_fail: whether the changed file can never be valid; else it must only not score better.
        numbers: needs a last column of numbers.
    """

    name: str
    about: str
    change: Callable[[list[str], Rows], str | bytes]
    must_fail: bool = True
    numbers: bool = False
    kinds: Sequence[SubmissionKind] = ("csv",)
    specific: bool = True

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        name, (header, *rows) = _table(arena)
        if self.numbers and not all(_is_number(row[-1]) for row in rows):
            raise NotApplicableError("the last column holds no numbers")
        changed = self.change(header, rows)
        content = changed if isinstance(changed, bytes) else changed.encode()
        grade = arena.hand_in({**arena.honest, name: content})
        ended = arena.judge(grade)
        if self.must_fail and grade.outcome == "scored":
            raise BrokenError(
                f"such a file was scored ({ended}); refuse it with a reason: mlgym_table.read_predictions does"
            )
        return grade.message[:120] or ended


def _table(arena: Arena) -> tuple[str, Rows]:
    for name, content in arena.honest.items():
        if name.endswith(".csv"):
            rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if row]
            if len(rows) > 2 and len({len(row) for row in rows}) == 1:
                return name, rows
    raise NotApplicableError("the baseline hands in no CSV file with a header and rows")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _written(header: list[str], rows: Rows) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def _first_cell(value: str) -> Callable[[list[str], Rows], str]:
    return lambda header, rows: _written(header, [[*rows[0][:-1], value], *rows[1:]])


def _every_cell(value: str) -> Callable[[list[str], Rows], str]:
    return lambda header, rows: _written(header, [[*row[:-1], value] for row in rows])


def _json_lines(header: list[str], rows: Rows) -> str:
    return "".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows)


def _cell(name: str, value: str, must_fail: bool = True) -> Rewritten:
    return Rewritten(f"cell-{name}", f"puts {value[:20]!r} into a cell", _first_cell(value), must_fail, numbers=True)


RESULT = '{"schema": 1, "outcome": "scored", "metrics": {"Score": 1e9}}\n'

ATTACKS = (
    Rewritten("half-the-rows", "leaves out every other row", lambda header, rows: _written(header, rows[::2])),
    Rewritten("only-one-row", "hands in a single row", lambda header, rows: _written(header, rows[:1])),
    Rewritten("no-rows", "hands in the header alone", lambda header, _: _written(header, [])),
    Rewritten("ten-times-the-rows", "hands every row in ten times", lambda header, rows: _written(header, rows * 10)),
    Rewritten("unknown-ids", "adds rows nobody asked for", lambda h, r: _written(h, [*r, ["no-such-id", *r[0][1:]]])),
    Rewritten("no-header", "leaves out the header", lambda _, rows: _written(rows[0], rows[1:])),
    Rewritten("other-header", "renames the columns", lambda header, rows: _written([f"x{n}" for n in header], rows)),
    Rewritten("json-lines", "hands in JSON lines", _json_lines),
    Rewritten("a-result-file", "hands in a result file", lambda *_: RESULT),
    Rewritten("a-pickle", "hands in a pickle", lambda *_: b"\x80\x04cos\nsystem\n(S'id'\ntR."),
    Rewritten("every-cell-nan", "predicts nan throughout", _every_cell("nan"), numbers=True),
    Rewritten("every-cell-huge", "predicts 1e308 throughout", _every_cell("1e308"), must_fail=False, numbers=True),
    _cell("nan", "nan"),
    _cell("infinite", "inf"),
    _cell("null", "null"),
    _cell("empty", ""),
    _cell("overflow", "1e999"),
    _cell("formula", "=SUM(A1:A9)"),
    _cell("code", "__import__('os').system('id')"),
    _cell("endless", "9" * 60_000),
)
