"""``replay:<run>`` plays the replies that a model gave in an earlier run, without asking anybody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from attrs import field, frozen

from mlgym_core.errors import RecordError, UsageError
from mlgym_core.models.base import Message, Meter, ModelContext, ModelStopped, Reply, ToolCall, since_last_reply
from mlgym_core.record import events
from mlgym_core.record.folder import MANIFEST
from mlgym_core.record.reader import read_events
from mlgym_core.settings import runs_folder
from mlgym_core.storage import expanded
from mlgym_core.tools.base import Tool

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


@frozen
class Recorded:
    """What one run's record says of its model.

    Attributes:
        run: its id.
        model, agent, task: their names; empty where the record does not say.
        replies: in order.
        observations: what the model was shown before each reply, since the one before.
    """

    run: str
    model: str
    agent: str
    task: str
    replies: tuple[Reply, ...]
    observations: tuple[tuple[str, ...], ...] = field(repr=False)


class ReplayModel:
    """Plays recorded replies in order; they cost nothing now.

    Args:
        recorded: what to play.

    Attributes:
        name: as recorded, with the run that is replayed.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.name = f"replay:{recorded.run}"
        self._recorded = recorded
        self._meter: Meter | None = None
        self._next = 0
        self._diverged = False

    def attach(self, meter: Meter) -> None:
        """Say to this run what is replayed, and where it goes another way."""
        self._meter = meter
        model = f" of {self._recorded.model}" if self._recorded.model else ""
        agent = f", which used --agent {self._recorded.agent}" if self._recorded.agent else ""
        meter.notice(f"replaying {len(self._recorded.replies)} replies{model} from run {self._recorded.run}{agent}")

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        """The next recorded reply.

        Raises:
            ModelStopped: there is none left.
        """
        del tools
        if self._next == len(self._recorded.replies):
            raise ModelStopped(f"the {self._next} recorded replies of run {self._recorded.run} are at their end")
        self._compare(messages)
        reply = self._recorded.replies[self._next]
        self._next += 1
        return reply

    def _compare(self, messages: Sequence[Message]) -> None:
        """Notice once that what the model is shown is not, apart from numbers, what it was shown then."""
        if self._next == 0 or self._diverged:
            return
        now = [_skeleton(message.content) for message in since_last_reply(messages)]
        then = [_skeleton(text) for text in self._recorded.observations[self._next]]
        if now != then:
            self._diverged = True
            if self._meter is not None:
                self._meter.notice(
                    f"before reply {self._next + 1} the model is shown something else than in run "
                    f"{self._recorded.run}; its replies are played all the same"
                )


def read_recorded(folder: Path) -> Recorded:
    """What the record in a run's folder says of its model; a torn last line is tolerated.

    Raises:
        UsageError: there is no record, it is damaged, or no model replied in it.
    """
    try:
        turns = list(_turns(folder))
    except RecordError as error:
        raise UsageError(f"{error}; --model replay:<run> takes a run's folder or its id") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{folder} holds a reply that cannot be read ({error!r}); it cannot be replayed") from error
    if not turns:
        raise UsageError(f"{folder} holds no reply of a model, so there is nothing to replay; choose another run")
    replies, observations = zip(*turns, strict=True)
    return Recorded(*_names(folder), replies, observations)


def create(argument: str, context: ModelContext) -> ReplayModel:
    """The model ``replay:<run>``; the run is a folder, or an id below the folder of runs.

    Raises:
        UsageError: there is no such run, or nothing in it to replay.
    """
    if not argument:
        raise UsageError("--model replay:<run> needs a run: its folder, or its id below the folder of runs")
    recorded = read_recorded(_folder(argument))
    if recorded.task not in ("", context.task.id):
        raise UsageError(
            f"run {recorded.run} is of the task {recorded.task}; replay it with: mlgym run {recorded.task}"
        )
    return ReplayModel(recorded)


def _folder(argument: str) -> Path:
    try:
        given = expanded(argument)
        folder = given if given.is_dir() else runs_folder() / argument
        folder.exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"--model replay:<run> takes a run's folder or its id, not {argument!r:.80}") from error
    return folder


def _turns(folder: Path) -> Iterator[tuple[Reply, tuple[str, ...]]]:
    """Each reply, with what the model was shown since the one before."""
    shown: list[str] = []
    for event in read_events(folder):
        if isinstance(event, events.Message) and event.role in ("user", "tool"):
            shown.append(event.content)
        elif isinstance(event, events.ModelReply):
            yield _reply(event.reply), tuple(shown)
            shown = []
        elif isinstance(event, events.UnknownEvent) and event.kind in ("message", "model_reply"):
            raise ValueError(f"the {event.kind} at {event.t} s")


def _reply(raw: Mapping[str, Any]) -> Reply:
    calls = tuple(ToolCall(str(call["id"]), str(call["name"]), call["arguments"]) for call in raw["tool_calls"])
    provider = raw.get("provider") or {}
    for mapping in (provider, *(call.arguments for call in calls)):
        if not isinstance(mapping, (Mapping, NoneType)):
            raise TypeError(f"{mapping!r:.80} is no mapping")
    return Reply(str(raw["text"]), calls, provider=provider, cut=bool(raw.get("cut")))


def _names(folder: Path) -> tuple[str, str, str, str]:
    """The run's id, its model, agent and task, from the manifest where there is one."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        model, agent, task = (str(manifest.get(key) or "") for key in ("model", "agent", "task"))
        return str(manifest["run_id"]), model, agent, task
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return folder.resolve().name, "", "", ""


def _skeleton(text: str) -> str:
    return _NUMBER.sub("#", text).strip()
