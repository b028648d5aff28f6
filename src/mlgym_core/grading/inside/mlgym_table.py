"""Reads a file of predictions, strictly; for graders of tasks whose submission is a CSV file.

It lies beside ``mlgym_peer`` in every grader box and needs Python 3.9 or later with the standard library alone. The
file is the agent's and hostile until it has been read: nothing in it is evaluated, and memory stays bounded by the
ids that are asked for. Example (``private/grade.py``)::

    import mlgym_peer as peer
    import mlgym_table as table

    path = peer.job().paths["submission"] / "submission.csv"
    prices = table.read_predictions(path, "Id", ["SalePrice"], ids=["7", "8"])["SalePrice"]

``ids`` are all ids that the agent was given, of dev and test together: reasons then say nothing about which is which.
"""

from __future__ import annotations

import csv
import math
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Callable, Collection, Iterator, List, Sequence, Tuple  # noqa: UP035

from mlgym_peer import InvalidSubmission

MAX_LINE = 64 * 1024  #: bytes
MAX_NUMBER = 100  #: characters of a number
MAX_TEXT = 10_000  #: characters of a text
MAX_BLANK = 100  #: lines at the end
_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MISSING = {"nan", "null", "none", "na", "n/a", "<na>", "nat", "nil"}
_INFINITE = {"inf", "infinity"}
_SHOWN = 40  #: characters of a cell in a reason

Row = Tuple[int, List[str]]  # noqa: UP006 - evaluated on 3.9
Check = Callable[[str], object]


class _Cell(Exception):  # noqa: N818
    """A cell that is not what its column holds; the message says what it should be."""


def read_predictions(
    path: Path,
    id_column: str,
    value_columns: Sequence[str],
    ids: Sequence[str],
    *,
    kind: str = "number",
    labels: Collection[str] = (),
    low: float = -1e100,
    high: float = 1e100,
) -> dict[str, list]:  # type: ignore[type-arg]
    """Read a CSV file that gives every id a value in each column, in whatever order.

    Comma-separated UTF-8, one row a line, ``\\n`` or ``\\r\\n``, with or without a byte-order mark, cells quoted with
    ``"`` where needed. Columns may come in any order; none may be missing or added.

    Args:
        path: the submitted file.
        id_column: header of the ids.
        value_columns: headers of the values.
        ids: all ids that the agent was given, without duplicates.
        kind: ``number`` (finite decimal numbers), ``label`` (one of ``labels``, as text) or ``text`` (anything but
            nothing).
        labels: what a label may be.
        low, high: least and greatest number; the defaults keep a sum of squares finite.

    Returns:
        Column -> values (floats, or strings), in the order of ``ids``.

    Raises:
        InvalidSubmission: with line, column, what was found and what was expected.
        ValueError: the arguments make no sense; a mistake of the grader's.
    """
    places = {one: place for place, one in enumerate(ids)}
    wanted = [id_column, *value_columns]
    if len(places) != len(ids) or len(set(wanted)) != len(wanted) or len(wanted) < 2:
        raise ValueError("ids must differ, and so must the columns, of which there is at least one")
    check = _checker(kind, labels, low, high)
    with _opened(path) as file:
        rows = _rows(file, path.name, wanted)
        order = _header(next(rows, None), wanted, path.name)
        return _aligned(rows, order, wanted, places, check)


def _aligned(
    rows: Iterator[Row], order: list[int], wanted: list[str], places: dict[str, int], check: Check
) -> dict[str, list]:  # type: ignore[type-arg]
    values: list[list[object]] = [[None] * len(places) for _ in wanted[1:]]
    seen: dict[str, int] = {}
    for line, cells in rows:
        if len(cells) != len(wanted):
            raise InvalidSubmission(
                f"line {line}: {_count(len(cells), 'cell')}, expected {len(wanted)} ({','.join(wanted)}); a cell with "
                "a comma in it must be quoted, and numbers have no thousands separators"
            )
        one = cells[order[0]]
        if one in seen:
            raise InvalidSubmission(
                f"line {line}, column {wanted[0]}: id {_show(one)} is on line {seen[one]} already; give each id once"
            )
        if one not in places:
            raise InvalidSubmission(
                f"line {line}, column {wanted[0]}: unknown id {_show(one)}; expected exactly the {len(places)} ids "
                "that you were given, as they are written there"
            )
        seen[one] = line
        for column, cell in enumerate(order[1:]):
            try:
                values[column][places[one]] = check(cells[cell])
            except _Cell as error:
                raise InvalidSubmission(f"line {line}, column {wanted[column + 1]}: {error}") from None
    if len(seen) < len(places):
        # Sorted, so that the example does not tell in which order, or split, the grader has its ids.
        missing = sorted(places.keys() - seen.keys())
        shown = ", ".join(map(_show, missing[:3]))
        raise InvalidSubmission(f"{len(missing)} of {len(places)} ids have no row, for example {shown}")
    return {column: values[place] for place, column in enumerate(wanted[1:])}


def _opened(path: Path) -> BinaryIO:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidSubmission(f"{path.name} is missing; write it and try again") from None
    if not stat.S_ISREG(mode):
        found = "a folder" if stat.S_ISDIR(mode) else "a link or a device"
        raise InvalidSubmission(f"{path.name} is {found}; expected a CSV file")
    return path.open("rb")


def _rows(file: BinaryIO, name: str, wanted: list[str]) -> Iterator[Row]:
    """Line number and cells of each line; blank lines are allowed at the end only."""
    blank = 0
    for number, data in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
        text = _text(data[len(_BOM) :] if number == 1 and data.startswith(_BOM) else data, number, name)
        if not text:
            blank = blank or number
            if number - blank < MAX_BLANK:
                continue
            raise InvalidSubmission(f"line {blank} and more than {MAX_BLANK} after it are blank; remove them")
        if blank:
            raise InvalidSubmission(f"line {blank} is blank, and rows follow it; remove it")
        if number == 1 and text[0] in "{[":
            raise InvalidSubmission(f"{name} looks like JSON; expected CSV with the header {','.join(wanted)}")
        try:
            yield number, next(csv.reader([text], strict=True), [])
        except csv.Error as error:
            raise InvalidSubmission(
                f"line {number} is not CSV ({error}): {_show(text)}; quotes must be balanced and a cell must not "
                "go over several lines"
            ) from None


def _text(data: bytes, number: int, name: str) -> str:
    """One line without its end."""
    if number == 1 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InvalidSubmission(f"{name} is UTF-16; save it as UTF-8")
    if len(data) > MAX_LINE:
        raise InvalidSubmission(f"line {number} is longer than {MAX_LINE} bytes; expected one row a line")
    data = data[:-1] if data.endswith(b"\n") else data
    data = data[:-1] if data.endswith(b"\r") else data
    for byte, what in ((b"\0", "NUL byte"), (b"\r", "carriage return")):
        if byte in data:
            raise InvalidSubmission(
                f"line {number} has a {what} in it, at byte {data.index(byte) + 1}; write plain text"
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSubmission(f"line {number} is not UTF-8, at byte {error.start + 1}; save it as UTF-8") from None


def _header(row: Row | None, wanted: list[str], name: str) -> list[int]:
    """Where each wanted column stands."""
    header = ",".join(wanted)
    if row is None:
        raise InvalidSubmission(f"{name} is empty; expected the header {header} and a row for each id")
    found = row[1]
    if sorted(found) == sorted(wanted):
        return [found.index(column) for column in wanted]
    hint = ""
    if "" in found and len(found) > len(wanted):
        hint = "; the column without a name may be an index: leave it out"
    elif len(found) == 1 and len(wanted) > 1 and any(mark in found[0] for mark in ";\t|"):
        hint = "; separate cells with commas"
    raise InvalidSubmission(f"line 1: the header is {_show(','.join(found), 100)}, expected {header}{hint}")


def _checker(kind: str, labels: Collection[str], low: float, high: float) -> Check:
    if kind == "number":
        return lambda cell: _number(cell, low, high)
    if kind == "text":
        return _free_text
    if kind != "label":
        raise ValueError(f"kind is number, label or text, not {kind!r}")
    if not labels or not all(isinstance(one, str) for one in labels):
        raise ValueError("a column of labels needs labels, as text")
    known = {one: one for one in labels}
    some = ", ".join([*labels][:20]) + (", ..." if len(known) > 20 else "")
    return lambda cell: _label(cell, known, some)


def _number(cell: str, low: float, high: float) -> float:
    if len(cell) > MAX_NUMBER or not _NUMBER.fullmatch(cell):
        raise _Cell(f"{_complaint(cell)}; expected a finite decimal number, like 1234.5")
    value = float(cell)
    if not math.isfinite(value):
        raise _Cell(f"{_show(cell)} is too large to be a number")
    if not low <= value <= high:
        raise _Cell(f"{_show(cell)} is out of range; expected a number from {low:g} to {high:g}")
    return value


def _complaint(cell: str) -> str:
    word = cell.strip().lower()
    if not word:
        return "the cell is empty"
    if word in _MISSING:
        return f"{_show(cell)} stands for a missing value"
    if word.lstrip("+-") in _INFINITE:
        return f"{_show(cell)} is infinite"
    return f"{_show(cell)} is not a number"


def _label(cell: str, known: dict[str, str], some: str) -> str:
    try:
        return known[cell]
    except KeyError:
        found = _show(cell) if cell else "the cell is empty"
        raise _Cell(f"{found}; expected one of: {some}") from None


def _free_text(cell: str) -> str:
    if not cell.strip():
        raise _Cell("the cell is empty; expected text")
    if len(cell) > MAX_TEXT:
        raise _Cell(f"{len(cell)} characters of text; expected at most {MAX_TEXT}")
    return cell


def _show(text: str, limit: int = _SHOWN) -> str:
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}..."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
