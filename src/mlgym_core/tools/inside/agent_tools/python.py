"""What is wrong with Python source, and which of it is new."""

from __future__ import annotations

import ast
import warnings
from collections import Counter, namedtuple

_MOST_BYTES = 4 << 20  #: of a file that is compiled
_MOST_BYTES_OF_NAMES = 1 << 20  #: of a file whose names are looked at


Problem = namedtuple("Problem", ("line", "text"))  #: an error, by line number from 1


class Unchecked(Exception):  # noqa: N818 - a remark, not a failure
    """It could not be looked at; the text says why."""


def inspect(before: bytes, after: bytes, region: tuple[int, int], count: int) -> tuple[list[Problem], list[str]]:
    """The errors that a change brings, and remarks about what was there before or could not be looked at.

    Args:
        before, after: the source.
        region: first and last line that are replaced; the last is one less for an insertion.
        count: lines that come in their place.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            broken = syntax_error(after)
            if broken is not None:
                return _broken(syntax_error(before), broken, region, count)
            undefined = undefined_names(after)
            if not undefined:
                return [], []
            if syntax_error(before) is not None:
                return [], [f"the file compiles now, with undefined names: {_listed(undefined)}"]
            return _new_names(undefined_names(before), undefined, region, count), []
        except Unchecked as reason:
            return [], [str(reason)]


def syntax_error(source: bytes) -> Problem | None:
    """Why the source does not compile; ``None`` when it does.

    Raises:
        Unchecked: this Python cannot tell, or not soon.
    """
    if len(source) > _MOST_BYTES:
        raise Unchecked("the file was not checked: it is large")
    try:
        compile(source, "file", "exec", dont_inherit=True)
    except SyntaxError as error:
        return Problem(error.lineno or 1, f"{type(error).__name__}: {error.msg}")
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise Unchecked(f"the file was not checked: {type(error).__name__}") from error
    return None


def _broken(old: Problem | None, new: Problem, region: tuple[int, int], count: int) -> tuple[list[Problem], list[str]]:
    """A file that was broken before may stay so, but must not break within a change that came from elsewhere."""
    start, end = region
    if old is None or (start <= new.line < start + count and not start <= old.line <= end):
        return [new], []
    return [], [_still(new)]


def _still(problem: Problem) -> str:
    return f"the file does not compile, as before: line {problem.line}: {problem.text}"


def undefined_names(source: bytes) -> list[Problem]:
    """Uses of names that nothing defines, in order.

    Raises:
        Unchecked: the checker is absent, or the source too large for it.
    """
    if len(source) > _MOST_BYTES_OF_NAMES:
        raise Unchecked("only the syntax was checked: the file is large")
    try:
        from pyflakes import checker, messages  # type: ignore[import-untyped,unused-ignore]
    except Exception as error:
        raise Unchecked("only the syntax was checked: this Python cannot load the checker of names") from error
    try:
        found = checker.Checker(ast.parse(source), filename="file").messages
    except (RecursionError, MemoryError) as error:
        raise Unchecked("only the syntax was checked: the file is nested too deeply") from error
    return sorted(
        Problem(message.lineno, f"undefined name {message.message_args[0]!r}")
        for message in found
        if isinstance(message, messages.UndefinedName)
    )


def _new_names(old: list[Problem], new: list[Problem], region: tuple[int, int], count: int) -> list[Problem]:
    """Those that were not there: outside the change by line and name, inside it by name."""
    start, end = region
    shift = count - (end - start + 1)
    known: Counter[tuple[int, str]] = Counter()
    for problem in old:
        inside = start <= problem.line <= end
        line = 0 if inside else problem.line + (shift if problem.line > end else 0)
        known[line, problem.text] += 1
    fresh = []
    for problem in new:
        key = (0 if start <= problem.line < start + count else problem.line, problem.text)
        if known[key] > 0:
            known[key] -= 1
        else:
            fresh.append(problem)
    return fresh


def _listed(problems: list[Problem]) -> str:
    names = sorted({problem.text.partition("'")[2].rstrip("'") for problem in problems})
    return ", ".join(names[:10])
