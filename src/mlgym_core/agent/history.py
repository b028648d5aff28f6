"""The conversation, and which part of it the model is shown: history processors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Literal

from attrs import evolve, frozen

from mlgym_core.models.base import Message, Reply
from mlgym_core.record import events

CHARACTERS_PER_TOKEN = 4.0  #: until the service has reported a prompt's tokens
_CUT_NOTE = 60
_LARGEST = 10**9
_RULES = {"all": "", "last_observations": "count", "token_window": "tokens", "newest_windows": ""}
_WINDOW = re.compile(r"\[File: (.+) \(\d+ lines? total\)\]\n")


@frozen
class Entry:
    """One message of the conversation.

    Attributes:
        id: by which the record names it.
        kind: ``fixed`` messages (system, task, demonstrations) are always shown.
        window: file whose window it shows, if it shows one.
        left_out: its content, or the middle of it, has been replaced by a line that says so.
    """

    id: int
    message: Message
    kind: Literal["fixed", "reply", "observation"]
    window: str | None = None
    left_out: bool = False

    @property
    def characters(self) -> int:
        """Length of what is sent."""
        calls = (len(json.dumps(dict(call.arguments or {}))) + len(call.name) for call in self.message.tool_calls)
        return len(self.message.content) + sum(calls)

    def without(self) -> Entry:
        """The same with its content left out; calls and answers still pair up."""
        if self.left_out:
            return self
        lines = self.message.content.count("\n") + 1
        size = "1 line" if lines == 1 else f"{lines} lines"
        what = f"an older view of {self.window}" if self.window else f"an older observation of {size}"
        return self._saying(f"[{what} was left out]")

    def cut(self, excess: int) -> Entry:
        """The same with at least ``excess`` characters of its middle left out, if it has so many."""
        text = self.message.content
        keep = max(0, len(text) - excess - _CUT_NOTE) // 2
        gone = len(text) - 2 * keep
        if gone <= _CUT_NOTE:
            return self
        return self._saying(f"{text[:keep]}\n[{gone} characters were left out]\n{text[len(text) - keep :]}")

    def _saying(self, text: str) -> Entry:
        return evolve(self, message=evolve(self.message, content=text), left_out=True)


@frozen
class HistoryRule:
    """One rule of a configuration.

    Attributes:
        keep: ``all``; ``last_observations`` (the ``count`` newest); ``token_window`` (about ``tokens`` of them: old
            observations go first, then whole old turns, then new observations lose their middle);
            ``newest_windows`` (of each file's views the newest).

    Raises:
        ValueError: a number is missing, makes no sense or is not used.
    """

    keep: Literal["all", "last_observations", "token_window", "newest_windows"]
    count: int = 0
    tokens: int = 0

    def __attrs_post_init__(self) -> None:
        if self.keep not in _RULES:
            raise ValueError(f"keep must be one of {', '.join(_RULES)}, not {self.keep!r}")
        for name in ("count", "tokens"):
            value = getattr(self, name)
            if name == _RULES[self.keep] and not 1 <= value <= _LARGEST:
                raise ValueError(f"{self.keep} needs {name}, a whole number from 1 to {_LARGEST}")
            if name != _RULES[self.keep] and value:
                raise ValueError(f"{self.keep} takes no {name}")

    def apply(self, entries: Sequence[Entry], characters_per_token: float) -> list[Entry]:
        """The part of the conversation that this rule keeps."""
        if self.keep == "last_observations":
            return last_observations(entries, self.count)
        if self.keep == "token_window":
            return character_window(entries, int(self.tokens * characters_per_token))
        return newest_windows(entries) if self.keep == "newest_windows" else list(entries)


def last_observations(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Leave out all observations but the ``count`` newest."""
    old = {entry.id for entry in entries if entry.kind == "observation"}
    old -= set(sorted(old)[-count:])
    return [entry.without() if entry.id in old else entry for entry in entries]


def newest_windows(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out the views of a file that has a newer one."""
    newest = {entry.window: entry.id for entry in entries if entry.window}
    return [entry.without() if entry.window and newest[entry.window] != entry.id else entry for entry in entries]


def character_window(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Shorten to about ``limit`` characters: old observations go first, then old turns, then new observations lose
    their middle.
    """
    kept = list(entries)
    excess = sum(entry.characters for entry in kept) - limit
    last_reply = max((i for i, entry in enumerate(kept) if entry.kind == "reply"), default=0)
    for index in range(last_reply):
        if excess <= 0:
            return kept
        shorter = kept[index].without()
        gain = kept[index].characters - shorter.characters
        if kept[index].kind == "observation" and gain > 0:
            kept[index] = shorter
            excess -= gain
    while excess > 0:
        turn = _oldest_turn(kept)
        if turn is None:
            break
        excess -= sum(entry.characters for entry in kept[turn])
        del kept[turn]
    for index, entry in enumerate(kept):
        if excess > 0 and entry.kind == "observation":
            kept[index] = entry.cut(excess)
            excess -= entry.characters - kept[index].characters
    return kept


def _oldest_turn(entries: Sequence[Entry]) -> slice | None:
    """A reply and what answers it; ``None`` when only the newest is left."""
    replies = [i for i, entry in enumerate(entries) if entry.kind == "reply"]
    return slice(replies[0], replies[1]) if len(replies) > 1 else None


class Conversation:
    """All messages so far. Each is recorded once; requests are recorded as lists of their ids.

    Args:
        log: writes an event.
        rules: applied in order to what is sent.
    """

    def __init__(self, log: Callable[[events.Event], None], rules: Sequence[HistoryRule]) -> None:
        self._entries: list[Entry] = []
        self._log = log
        self._rules = tuple(rules)
        self._per_token = CHARACTERS_PER_TOKEN
        self._sent = 0
        self._window: int | None = None

    def fix(self, *messages: Message) -> None:
        """Add messages that are always shown."""
        for message in messages:
            self._add("fixed", message)

    def observe(self, *messages: Message, observation: str = "") -> None:
        """Add observations or corrective messages.

        Args:
            messages: to be added.
            observation: what a tool answered, without what the step template says beside it; one that begins with
                the head of a file's window is a view of that file.
        """
        view = _WINDOW.match(observation)
        for message in messages:
            self._add("observation", message, view[1] if view else None)

    def reply(self, reply: Reply) -> int:
        """Add a reply, which the event ``model_reply`` records; returns its id."""
        if reply.usage.prompt_tokens > 0 and self._sent:
            self._per_token = min(8.0, max(1.0, self._sent / reply.usage.prompt_tokens))
        self._entries.append(Entry(len(self._entries), reply.message(), "reply"))
        return self._entries[-1].id

    @property
    def silent(self) -> bool:
        """Whether the model has not replied yet."""
        return all(entry.kind != "reply" for entry in self._entries)

    def request(self, tools: Sequence[str]) -> list[Message]:
        """What the model is shown now."""
        shown: list[Entry] = list(self._entries)
        for rule in self._rules:
            shown = rule.apply(shown, self._per_token)
        if self._window is not None:
            shown = character_window(shown, self._window)
        self._sent = sum(entry.characters for entry in shown)
        left_out = {str(entry.id): entry.message.content for entry in shown if entry.left_out}
        self._log(events.ModelRequest([entry.id for entry in shown], left_out, tools))
        return [entry.message for entry in shown]

    def trim(self) -> None:
        """From now on send about half of what was sent last; the model found that too long."""
        self._window = self._sent // 2
        self._log(
            events.Notice("the conversation has become too long for the model; old parts are left out from now on")
        )

    def _add(self, kind: Literal["fixed", "observation"], message: Message, window: str | None = None) -> None:
        entry = Entry(len(self._entries), message, kind, window)
        self._entries.append(entry)
        self._log(events.Message(entry.id, message.role, message.content, message.tool_calls, message.tool_call_id))
