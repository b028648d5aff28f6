"""Shell dialects: how an action, a file and a read are put into words that bash or a plain POSIX shell understands."""

from __future__ import annotations

import base64
import functools
from importlib.resources import files

from attrs import frozen

_INLINE_BYTES = 16 * 1024
# These two read what follows their own line; a full disk must not leave any of it to be taken for a command.
_STORE = (
    '{{ [[ -f $__m_D/c || ! -e $__m_D/c ]] || builtin command -p rm -rf "$__m_D/c"; __m_c=$__m_D/c; '
    'builtin command -p head -c {size} | {{ builtin command -p cat >|"$__m_c" || '
    "{{ builtin command -p cat >/dev/null; builtin false; }}; }} || __m_c=/the-command-could-not-be-stored; }} 2>&6"
)
_WRITE = (
    b"if [[ -e %b && ! -f %b ]]; then builtin echo %b': not a regular file' >&2; "
    b"builtin command -p head -c %d >/dev/null; builtin false; else builtin command -p head -c %d | "
    b"{ builtin command -p cat >|%b || { builtin command -p cat >/dev/null; builtin false; }; }; fi"
)
_REDIRECTIONS = "<&7 >&8 2>&9 6>&- 7<&- 8>&- 9>&-"


@functools.cache
def script(name: str) -> str:
    """Text of one of the package's shell scripts."""
    return (files("mlgym_core.sandbox.shell") / "inside" / f"{name}.sh").read_text("utf-8")


@frozen
class Bash:
    """Requests in bash's dialect. It reads its input byte by byte, so raw data may follow a request's line."""

    name: str = "bash"

    def action(self, command: bytes, nonce: str, slot: str) -> bytes:
        """The request that runs a command, ends it with markers, and saves the state to a slot."""
        if len(command) <= _INLINE_BYTES:
            return inline(command, nonce, slot)
        line = f'{_STORE.format(size=len(command) + 1)}; . "$__m_c" {_REDIRECTIONS}; {{ __m {nonce} {slot}; }} 2>&6\n'
        return line.encode() + command + b"\n"

    def write(self, path: bytes, data: bytes, nonce: str, slot: str) -> bytes:
        """The request that writes a file; ``path`` is quoted already."""
        line = b"{ %b; } 2>&9; { __m %b %b; } 2>&6\n"
        body = _WRITE % (path, path, path, len(data), len(data), path)
        return line % (body, nonce.encode(), slot.encode()) + data


@frozen
class Ash:
    """Requests for BusyBox ash and plain POSIX shells, which read ahead: data must be part of the text."""

    name: str = "ash"

    def action(self, command: bytes, nonce: str, slot: str) -> bytes:
        """The request that runs a command, ends it with markers, and saves the state to a slot."""
        return inline(command, nonce, slot)

    def write(self, path: bytes, data: bytes, nonce: str, slot: str) -> bytes:
        """The request that writes a file; ``path`` is quoted already."""
        text = base64.encodebytes(data)
        check = b"if [ -e %s ] && [ ! -f %s ]; then echo %s': not a regular file' >&2; false; else" % (path, path, path)
        body = b"{ %b base64 -d >%s; fi; } 2>&9 <<'__m_E'\n%b__m_E\n" % (check, path, text)
        return body + f"{{ __m {nonce} {slot}; }} 2>&6\n".encode()


DIALECTS: dict[str, Bash | Ash] = {"bash": Bash(), "ash": Ash()}


def inline(command: bytes, nonce: str, slot: str) -> bytes:
    """An action as part of the request's own text."""
    return b"\\eval %b %b; { __m %b %b; } 2>&6\n" % (  # the backslash keeps an alias of that name out
        quote(command),
        _REDIRECTIONS.encode(),
        nonce.encode(),
        slot.encode(),
    )


def quote(text: bytes) -> bytes:
    """The text as one word of a shell."""
    return b"'" + text.replace(b"'", b"'\"'\"'") + b"'"


def read_command(path: bytes, size: int) -> bytes:
    """A command that prints the digest of a file's first ``size`` bytes, and then those bytes."""
    return (
        b"if [ -d %s ]; then echo %s': is a directory' >&2; false; "
        b"elif [ -e %s ] && [ ! -f %s ]; then echo %s': not a regular file' >&2; false; "
        b"else command -p head -c %d %s 2>/dev/null | command -p sha256sum && command -p head -c %d %s; fi"
    ) % (path, path, path, path, path, size, path, size, path)
