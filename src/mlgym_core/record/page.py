"""The parts of ``docs/records.md`` that say what the vocabulary's classes say.

Run as ``python -m mlgym_core.record.page docs/records.md`` it brings them up to date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlgym_core.record.endings import REASONS, STATUSES
from mlgym_core.record.events import KINDS, Event

_PART = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->\n)", re.DOTALL)


def current(page: str) -> str:
    """The page with every part between ``<!-- begin name -->`` and ``<!-- end name -->`` written anew.

    Raises:
        KeyError: there is no part of that name.
    """
    parts = {"statuses": _meanings(STATUSES), "reasons": _meanings(REASONS), "events": _events()}
    return _PART.sub(lambda found: f"{found[1]}{parts[found[2]]}{found[3]}", page)


def _meanings(words: Mapping[Any, str]) -> str:
    return "".join(f"- `{word}`: {meaning}\n" for word, meaning in words.items())


def _events() -> str:
    return "\n".join(_event(name, form) for name, form in KINDS.items())


def _event(name: str, form: type[Event]) -> str:
    summary, _, rest = inspect.cleandoc(form.__doc__ or "").partition("\n\nAttributes:\n")
    fields = "".join(f"- `{field}`: {what}\n" for field, what in _fields(rest))
    return f"**`{name}`** {summary}\n" + (f"\n{fields}" if fields else "")


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """The entries of a docstring's section, each on one line."""
    for entry in re.split(r"\n(?=    \w)", text):
        name, _, what = entry.strip().partition(": ")
        if name:
            yield name, re.sub(r"\s+", " ", what).replace("``", "`")


def main() -> None:
    """Write the parts of the page that is named anew."""
    path = Path(sys.argv[1])
    path.write_text(current(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
