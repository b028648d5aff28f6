"""Ctrl-C, SIGTERM and SIGHUP end a command by an exception, once; later ones do not disturb the cleaning up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedBySignal(KeyboardInterrupt):
    """One of the signals arrived."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it the first signal raises; leaving by it exits with 128 and the signal's number (130 for Ctrl-C)."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if not received:
            received.append(number)
            raise StoppedBySignal(number)

    # What is ignored stays ignored, for nohup.
    numbers = [number for number in _NUMBERS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    except StoppedBySignal as stopped:
        typer.echo(f"mlgym: interrupted by {stopped}", err=True)
        raise typer.Exit(stopped.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
