"""The vocabulary of a run's record: one class a kind of event, and the table of all kinds.

An event is written as one JSON object a line: ``t``, ``kind``, then the fields of its class under their own names (see
:mod:`mlgym_core.record.eventjson`). What the classes say here is what ``docs/records.md`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import Attribute, field, fields, frozen

from mlgym_core.record.strictjson import plain

#: Metadata of a field that is not written while it has its default.
OMITTED: Final = {"omit_default": True}


def _tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(plain(value) for value in values)


def _check_extra(event: Event, _: Attribute[Any], extra: Mapping[str, Any]) -> None:
    taken = sorted(extra.keys() & ({"kind"} | {one.name for one in fields(type(event))}) - {"extra"})
    if taken:
        raise ValueError(f"{event.kind} has a field {taken[0]!r}, so that it cannot be one of the extra ones")


@frozen
class Event:
    """What all events have.

    Attributes:
        t: seconds since the record was opened; the writer sets it.
        extra: fields that this version does not know, as they are.
    """

    t: float = field(default=0.0, kw_only=True)
    extra: Mapping[str, Any] = field(factory=dict, kw_only=True, validator=_check_extra)

    @property
    def kind(self) -> str:
        """Its name in the record."""
        return _NAMES[type(self)]


@frozen
class UnknownEvent(Event):
    """An event that is not of :data:`KINDS`: another version's, a plugin's or damaged. Its fields are all ``extra``.

    Attributes:
        kind: its name in the record.
    """

    kind: str


@frozen
class Start(Event):
    """The run begins; what it is.

    Attributes:
        task: its id.
        protocol: version of the evaluation protocol.
        size: of the data.
        source: of the data; ``null`` for a task without.
        seed: of the run and its data.
        model: its name; ``null`` when the caller chooses the actions, as with ``agent``.
        agent: its name.
        backend: its name.
        sealed: whether the boxes are isolated, so that scores can be trusted.
        missing_capabilities: what the run wants and the backend lacks.
        validate_on: split that ``validate`` scores.
        network: of the agent's sandbox, ``none`` or ``full``.
        versions: of the core, the plugins and Python, by distribution.
        limits: of the task with the run's own in their place.
        why: this backend, in one sentence.
        folder: of the run.
    """

    task: str = ""
    protocol: str = ""
    size: str = ""
    source: str | None = None
    seed: int = 0
    model: str | None = None
    agent: str | None = None
    backend: str = ""
    sealed: bool = False
    missing_capabilities: tuple[str, ...] = field(default=(), converter=_tuple)
    validate_on: str = "dev"
    network: str = "none"
    versions: Mapping[str, str] = field(factory=dict)
    limits: Mapping[str, Any] = field(factory=dict, converter=plain)
    why: str = ""
    folder: str = field(default="", converter=str)


@frozen
class Progress(Event):
    """Something that takes time goes on: data, images.

    Attributes:
        text: for people.
    """

    text: str


@frozen
class Notice(Event):
    """Something that whoever started the run should know.

    Attributes:
        text: for people.
    """

    text: str


@frozen
class Reaped(Event):
    """What dead runs had left behind was removed.

    Attributes:
        removed: names of what is gone.
    """

    removed: tuple[str, ...] = field(converter=_tuple)


@frozen
class Image(Event):
    """An image is ready.

    Attributes:
        role: ``agent``, ``grader`` or ``player``.
        reference: by which the backend finds it.
        digest: of its content.
    """

    role: str
    reference: str
    digest: str


@frozen
class Reset(Event):
    """The agent's sandbox is open and the clock runs.

    Attributes:
        seconds: that opening it took.
        workdir: the workspace, as the agent sees it.
    """

    seconds: float = 0.0
    workdir: str = ""


@frozen
class Tools(Event):
    """What the model is offered.

    Attributes:
        tools: ``name``, ``description`` and ``parameters`` (a JSON schema) of each.
    """

    tools: tuple[Mapping[str, Any], ...] = field(converter=_tuple)


@frozen
class Message(Event):
    """A message joins the conversation; each is recorded once. Replies have an event of their own.

    Attributes:
        id: by which requests name it.
        role: ``system``, ``user``, ``assistant`` (in demonstrations) or ``tool``.
        content: its text.
        tool_calls: that it asks for: ``id``, ``name`` and ``arguments`` of each; left out when there is none.
        tool_call_id: the call that it answers, if any.
    """

    id: int
    role: str
    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = field(default=(), converter=_tuple, metadata=OMITTED)
    tool_call_id: str | None = None


@frozen
class ModelRequest(Event):
    """The model is asked.

    Attributes:
        messages: ids of those that were sent, in order.
        left_out: what stood in place of contents that were left out, by id.
        tools: names of those offered as native calls.
    """

    messages: tuple[int, ...] = field(converter=_tuple)
    left_out: Mapping[str, str] = field(factory=dict)
    tools: tuple[str, ...] = field(default=(), converter=_tuple)


@frozen
class ModelAttempt(Event):
    """A request brought no usable reply.

    Attributes:
        attempt: ``kind`` of failure, ``message``, HTTP ``status``, ``usage``, ``wait`` (seconds until the next attempt,
            ``null`` when there is none), ``raw`` fields of the provider.
        cost_usd: of the run so far, in US dollars.
        tokens: of the run so far.
    """

    attempt: Mapping[str, Any] = field(converter=plain)
    cost_usd: float = 0.0
    tokens: int = 0


@frozen
class ModelReply(Event):
    """The model has replied.

    Attributes:
        message: id of the reply as a message of the conversation; ``null`` where no conversation is kept.
        reply: ``text``, ``tool_calls``, ``usage``, ``raw`` fields of the provider, and under ``provider`` what it gets
            to see again.
        cost_usd: of the run so far, in US dollars.
        tokens: of the run so far.
    """

    message: int | None = field(default=None, kw_only=True)
    reply: Mapping[str, Any] = field(converter=plain)
    cost_usd: float = 0.0
    tokens: int = 0


@frozen
class MalformedReply(Event):
    """A reply asks for nothing that can be done; the model is told.

    Attributes:
        attempt: how many in a row by now.
        message: what is wrong with it.
    """

    attempt: int
    message: str


@frozen
class Action(Event):
    """An action of the agent's begins.

    Attributes:
        tool: its name.
        text: beginning of the command, of tools that take one.
    """

    tool: str
    text: str = ""


@frozen
class Refusal(Event):
    """An action was refused for its form alone and cost no step.

    Attributes:
        tool: its name.
        arguments: as the agent gave them, which may be no object.
        observation: what it was told.
    """

    tool: str
    arguments: Any = field(factory=dict)
    observation: str = ""


@frozen
class Step(Event):
    """An action has been done.

    Attributes:
        step: its number, from 1.
        tool: its name.
        arguments: as the agent gave them, which may be no object.
        observation: what it answered; also what the shell printed when the step went wrong.
        info: the tool's own facts (exit code, outcome, ...).
        seconds: that it took, grading included.
        done: why the episode is over with it, else ``null``.
    """

    step: int
    tool: str
    arguments: Any = field(factory=dict)
    observation: str = ""
    info: Mapping[str, Any] = field(factory=dict)
    seconds: float = 0.0
    done: str | None = None


@frozen
class Grade(Event):
    """A submission was graded.

    Attributes:
        step: the newest one.
        split: ``dev`` or ``test``.
        archive: digest of the frozen submission.
        grade: ``outcome``, ``metrics``, ``standard_error``, ``message``, ``details``, ``seconds`` that it took, and the
            ends of what grader (``log``) and player (``player_log``) printed.
    """

    step: int
    split: str
    archive: str
    grade: Mapping[str, Any] = field(converter=plain)


@frozen
class InvalidSubmission(Event):
    """At the end of the run the workspace held no valid submission.

    Attributes:
        message: why.
    """

    message: str


@frozen
class ToolFailed(Event):
    """A tool raised; the agent is told, the episode goes on.

    Attributes:
        tool: its name.
        error: what it raised.
    """

    tool: str
    error: str


@frozen
class AgentFailed(Event):
    """The agent raised; its work is over, what it has done is graded.

    Attributes:
        traceback: of the exception.
    """

    traceback: str


@frozen
class SandboxLost(Event):
    """At the end of the run nothing could be taken from the sandbox.

    Attributes:
        message: why.
    """

    message: str


@frozen
class Kept(Event):
    """The sandbox is left for debugging.

    Attributes:
        how_to_enter: a command.
    """

    how_to_enter: str


@frozen
class Commitment(Event):
    """What was handed in is settled: the agent's sandbox is closed, and nothing is added from here on.

    Attributes:
        archives: digests of the accepted submissions, sorted.
    """

    archives: tuple[str, ...] = field(converter=_tuple)


@frozen
class TestDrawn(Event):
    """The secret of the test split exists from here on."""


@frozen
class End(Event):
    """The run is over.

    Attributes:
        status: what it came to, as in the result.
        reason: why the agent's work ended, as in the result; ``null`` when it did not get that far.
        message: what people should know of it.
    """

    status: str
    reason: str | None = None
    message: str = ""


#: Every kind of event, by its name in the record, in the order of a run.
KINDS: Mapping[str, type[Event]] = {
    "start": Start,
    "progress": Progress,
    "notice": Notice,
    "reaped": Reaped,
    "image": Image,
    "reset": Reset,
    "tools": Tools,
    "message": Message,
    "model_request": ModelRequest,
    "model_attempt": ModelAttempt,
    "model_reply": ModelReply,
    "malformed_reply": MalformedReply,
    "action": Action,
    "refusal": Refusal,
    "step": Step,
    "grade": Grade,
    "invalid_submission": InvalidSubmission,
    "tool_failed": ToolFailed,
    "agent_failed": AgentFailed,
    "sandbox_lost": SandboxLost,
    "kept": Kept,
    "commitment": Commitment,
    "test_drawn": TestDrawn,
    "end": End,
}
_NAMES = {form: name for name, form in KINDS.items()}
