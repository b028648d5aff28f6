"""What may be written to a person's terminal: text of models, services and sandboxes holds escape sequences."""

from __future__ import annotations

_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_C1 = dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_KEPT = {ord("\n"), ord("\t")}
_TABLE = {code: picture for code, picture in (_PICTURES | _C1).items() if code not in _KEPT}


def harmless(text: str) -> str:
    """The text with control characters as pictures; line breaks and tabs stay."""
    return text.translate(_TABLE)
