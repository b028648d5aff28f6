"""Keeps secrets out of everything that is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from mlgym_core.errors import UsageError
from mlgym_core.settings import PREFIX, read_dotenv

_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
_SHORTEST_SECRET = 8


class Redactor:
    """Replaces secrets in everything that is written."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: list[str] = []
        for value in values:
            self.add(value)

    @classmethod
    def from_environment(cls) -> Redactor:
        """Hides the values of variables whose names say that they are secrets, here and in ``.env``.

        Values of fewer than 8 characters stay: they could be anything, and so do settings of MLGYM.
        """
        variables = list(os.environ.items())
        with contextlib.suppress(UsageError):  # whoever needs what stands there says that it cannot be read
            variables += read_dotenv().items()
        return cls({value for name, value in variables if len(value) >= _SHORTEST_SECRET and _is_secret(name)})

    def add(self, value: str) -> None:
        """Hide this value from now on."""
        self._values.append(value)
        self._values.sort(key=len, reverse=True)  # a secret within a longer one must not spoil the longer one

    def __call__(self, text: str) -> str:
        """The text without the secrets."""
        for value in self._values:
            if value in text:
                text = text.replace(value, "[redacted]")
        return text


def _is_secret(name: str) -> bool:
    return not name.startswith(PREFIX) and any(mark in name.upper() for mark in _SECRETS)
