"""From a command line, or JSON on standard input, to a tool and its answer."""

from __future__ import annotations

import os
import stat
import sys

from .declared import TOOLS

# Importing typing would be a fifth of a call's time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the program
    """The tool does not do it; the text says why and what to do next."""


class Usage(Refused):
    """The arguments do not fit."""


class Command:
    """How a tool works; ``declared`` says what it is.

    Attributes:
        parse: from the words of a command line to arguments; ValueError when they do not fit.
        run: does it; returns what the agent reads.
    """

    def __init__(
        self,
        parse: Callable[[list[str]], Mapping[str, Any]],
        run: Callable[[Mapping[str, Any]], bytes],
    ) -> None:
        self.parse = parse
        self.run = run


def main(name: str, words: Sequence[str]) -> int:
    """Run a tool and print its answer; returns the exit code: 0 done, 1 refused, 2 wrong usage."""
    code, text = _answer(name, words)
    reason = _say(1, text)
    if not reason:
        return code
    deed = "what was asked for is done, but" if code == 0 else f"{name} refused, and"
    _say(2, f"{deed} the answer could not be written: {reason}".encode())
    return code or 1


def _answer(name: str, words: Sequence[str]) -> tuple[int, bytes]:
    try:
        declared = TOOLS[name]
        module = __import__(f"{__package__}.{declared.module}", fromlist=["COMMANDS"])
        command: Command = module.COMMANDS[name]
        try:
            return 0, command.run(_arguments(command, list(words)))
        except Usage as refusal:
            return 2, f"{refusal}\nusage: {declared.usage}".encode("utf-8", "surrogateescape")
        except Refused as refusal:
            return 1, str(refusal).encode("utf-8", "surrogateescape")
    except Exception as error:
        text = " ".join(f"{name} failed: {type(error).__name__}: {error}".split())
        return 1, f"{text}; look at the files before going on with the shell's own commands".encode(
            "utf-8", "backslashreplace"
        )


def _arguments(command: Command, words: list[str]) -> Mapping[str, Any]:
    if words == ["--json"]:
        from .notation import loads

        try:
            arguments = loads(sys.stdin.buffer.read().decode("utf-8"))
        except ValueError as error:
            raise Usage(f"standard input is not JSON: {error}") from error
        if not isinstance(arguments, dict):
            raise Usage("the JSON on standard input is not an object")
        return arguments
    try:
        return command.parse(words)
    except ValueError as error:
        raise Usage("these arguments do not fit") from error


def _say(descriptor: int, text: bytes) -> str:
    """Print, whether or not anybody still reads; returns why that failed, if it did."""
    rest = memoryview(text if text.endswith(b"\n") else text + b"\n")
    try:
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # another process has changed the mode of the pipe they share
                import select

                select.select([], [descriptor], [])
    except BrokenPipeError:
        return ""
    except OSError as error:
        return str(error.strerror)
    return ""


# Arguments by name.


def text_of(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text.

    Raises:
        Usage: it is missing or of another kind.
    """
    value = arguments.get(name)
    value = default if value is None else value
    if not isinstance(value, str):
        raise Usage(f"{name} is missing, or not a text")
    return value


def number_of(arguments: Mapping[str, Any], name: str) -> int:
    """A whole number.

    Raises:
        Usage: it is missing or of another kind.
    """
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Usage(f"{name} is missing, or not a whole number")
    return value


def encoded(text: str, name: str) -> bytes:
    """The bytes of an argument.

    Raises:
        Refused: it holds half a surrogate pair.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise Refused(f"{name} is not valid text: it holds a lone surrogate; send it again without") from error


def content_of(arguments: Mapping[str, Any], name: str, default: str | None = None) -> bytes:
    """A text that goes into a file.

    Raises:
        Refused: no text file can hold it.
    """
    data = encoded(text_of(arguments, name, default), f"the argument {name}")
    if b"\0" in data:
        raise Refused(f"the argument {name} holds a NUL character, which no text file does")
    return data


# Words of a command line.


def counted(words: Sequence[str], fewest: int, most: int) -> Sequence[str]:
    """The words.

    Raises:
        ValueError: there are more or fewer.
    """
    if not fewest <= len(words) <= most:
        raise ValueError
    return words


def nothing(words: Sequence[str]) -> Mapping[str, Any]:
    """No arguments.

    Raises:
        ValueError: there are words.
    """
    counted(words, 0, 0)
    return {}


def given_text(advice: str) -> str:
    """The text on standard input, without a closing line that only ends it.

    Raises:
        Refused: nothing was redirected there; ``advice`` says how to.
    """
    text = read_input()
    if text is None:
        raise Refused(f"no text was given: {advice}")
    return text


def read_input() -> str | None:
    """The text on standard input; ``None`` when that is a terminal or the null device, as in every plain action."""
    try:
        if stat.S_ISCHR(os.fstat(0).st_mode):
            return None
        data = sys.stdin.buffer.read()
    except (OSError, AttributeError):
        return None
    return data.decode("utf-8", "surrogateescape")
