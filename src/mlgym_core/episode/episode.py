"""The environment: ``reset()`` and ``step()``. Knows no agent and no model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import evolve, field, frozen

from mlgym_core.episode.clock import Clock
from mlgym_core.episode.hands import Hands
from mlgym_core.episode.submissions import Attempt, Submissions
from mlgym_core.errors import InfrastructureError, MLGymError, UsageError
from mlgym_core.grading.sealed import Grader
from mlgym_core.record import events
from mlgym_core.record.writer import RunRecord
from mlgym_core.sandbox.base import ActionResult, Sandbox
from mlgym_core.task.task import Split, Task
from mlgym_core.tools.arguments import arguments_in
from mlgym_core.tools.base import Tool, ToolArgumentError, ToolOutput
from mlgym_core.tools.scripted import ToolsState, readable

REQUESTS = ("validate", "submit")  #: tools that a script in the sandbox may ask for
FREE_REFUSALS = 10  #: calls in a row that are refused for their arguments alone and cost no step
_OF_FORM = ("arguments", "tool_name")


@frozen
class Action:
    """One thing the agent does: a tool and its arguments."""

    tool: str
    arguments: Mapping[str, Any] = field(factory=dict)


@frozen
class StepResult:
    """What :meth:`Episode.step` returns.

    Attributes:
        observation: text for the agent.
        step: how many steps have been taken.
        done: no further step is possible.
        reason: why it is done (``submitted``, ``steps``, ``time``), else ``None``.
        info: the tool's own facts (exit code, dev score, ...).
        directory: of the shell, as last known.
        open_file: of the file tools, as last known.
    """

    observation: str
    step: int
    done: bool
    reason: str | None = None
    info: Mapping[str, Any] = field(factory=dict)
    directory: str = ""
    open_file: str | None = None


@frozen
class _Place:
    """Where the agent stands after an action.

    Attributes:
        directory: of the shell, as last known.
        tools: state of the tools, as last known.
    """

    directory: str = ""
    tools: ToolsState = field(factory=ToolsState)

    def after(self, result: ActionResult | None) -> _Place:
        """The place that the newest command of an action has left; this one when there was none."""
        if result is None:
            return self
        return _Place(readable(result.directory) or self.directory, ToolsState.parse(result.state))


class Episode:
    """One run of one task in one sandbox.

    Use it as a context manager, or call :meth:`close`. ``reset`` opens the sandbox; ``step`` acts in it;
    ``finish`` ends the agent's work, closes the sandbox, and scores on test what was handed in.

    Args:
        task: what is worked on.
        open_sandbox: opens the agent's sandbox.
        grader: scores frozen submissions while the agent works.
        draw: gives what scores them on test; called when the sandbox is closed.
        record: where everything is written.
        tools: what the agent may call.
        size: of the task's data.
        validate_on: split that ``validate`` scores; ``test`` reproduces the published protocol.
        keep: leave the sandbox running at the end, for debugging; no process of the agent's is left in it.
        settle: whether an accepted ``submit`` finishes the episode at once, for whoever wants the score then.

    Attributes:
        clock: limits on time.
        submissions: what has been handed in, and how it is graded.
    """

    def __init__(
        self,
        *,
        task: Task,
        open_sandbox: Callable[[], Sandbox],
        grader: Grader,
        draw: Callable[[], Grader],
        record: RunRecord,
        tools: Sequence[Tool],
        size: str = "full",
        validate_on: Split = "dev",
        keep: bool = False,
        settle: bool = False,
    ) -> None:
        self.task = task
        self.size = size
        self.limits = task.limits
        self.tools = tuple(tools)
        self.steps = 0
        self.clock = Clock(task.limits)
        self.submissions = Submissions(task, grader, draw, record.submissions, self.log, validate_on)
        self._tools = {tool.name: tool for tool in self.tools}
        if len(self._tools) < len(self.tools):
            raise UsageError("two plugins offer a tool of the same name; uninstall one of them (see: mlgym plugins)")
        self._open = open_sandbox
        self._sandbox: Sandbox | None = None
        self._record = record
        self._keep = keep
        self._settle = settle
        self._reason: str | None = None
        self._closed = False
        self._place = _Place()
        self._refusals = 0
        self._requests: set[str] = set()

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace, as the agent sees it."""
        return self._live().workdir

    @property
    def reason(self) -> str | None:
        """Why the episode is over; ``None`` while it is not."""
        return self._reason

    @property
    def attempts(self) -> list[Attempt]:
        """Accepted submissions so far, in order."""
        return self.submissions.attempts

    @property
    def submitted(self) -> Attempt | None:
        """The submission that counts, once there is one."""
        return self.submissions.submitted

    @property
    def outcome(self) -> str:
        """Of the episode so far: that of ``submitted``, else ``no_submission`` or ``invalid_submission``."""
        return self.submissions.outcome

    def reset(self) -> str:
        """Open a fresh sandbox and return the task's description.

        Raises:
            InfrastructureError: the sandbox cannot be opened.
        """
        if self._sandbox is not None:
            raise UsageError("an episode is reset once; open another one for another run")
        opened = time.monotonic()
        self._sandbox = self._open()
        self.clock.start()
        self._place = _Place(self._sandbox.workdir)
        self.log(events.Reset(round(time.monotonic() - opened, 6), self._sandbox.workdir))
        return self.task.description()

    def step(self, action: Action | str) -> StepResult:
        """Do one action; text is a shell command.

        A call that is refused for its form alone (no such tool, arguments that do not fit) is no step.

        Raises:
            UsageError: the episode has not been reset, or is over.
            SandboxLostError: the sandbox died and could not be brought back.
        """
        if self._reason is not None or self._closed:
            raise UsageError(f"the episode is over ({self._reason or 'closed'}); open another one")
        if isinstance(action, str):
            action = Action("bash", {"command": action})
        found = arguments_in(action.arguments)
        action = action if found is None else evolve(action, arguments=found)
        hands = self._hands(self.steps + 1)
        started = time.monotonic()
        output = self._dispatch(action, hands)
        if self._costs_nothing(output, hands):
            self.log(events.Refusal(action.tool, action.arguments, output.text))
            return self._outcome(output)
        self.steps += 1
        self._place = self._place.after(hands.last)
        output = self._fulfil(output, hands)
        seconds = round(time.monotonic() - started, 6)
        self._reason = self._end()
        self.log(
            events.Step(self.steps, action.tool, action.arguments, output.text, output.info, seconds, self._reason)
        )
        if self._settle and self.submitted is not None:
            self.finish("submitted")
        return self._outcome(output)

    def _outcome(self, output: ToolOutput) -> StepResult:
        return StepResult(
            output.text,
            self.steps,
            self._reason is not None,
            self._reason,
            output.info,
            self._place.directory,
            self._place.tools.open_file,
        )

    def _costs_nothing(self, output: ToolOutput, hands: Hands) -> bool:
        """Whether a call was refused for its form alone; too many in a row do cost, so that every episode ends."""
        form = output.info.get("error") in _OF_FORM and hands.last is None
        self._refusals = self._refusals + 1 if form else 0
        return 0 < self._refusals <= FREE_REFUSALS

    def finish(self, reason: str = "stopped") -> None:
        """End the agent's work, and score on test what was handed in; harmless when repeated.

        Without an accepted submission the workspace is frozen and counts if it is valid on dev, else the newest valid
        archive does. Then the sandbox is closed, and only after that is anything graded on test.
        """
        self.end(reason)
        self.submissions.settle(self.steps)

    def end(self, reason: str) -> None:
        """The first half of :meth:`finish`: take what the workspace holds, close the sandbox, and commit to it."""
        self._reason = self._reason or reason
        self.clock.stop()
        if self._sandbox is None or self._closed:
            return
        if self.submitted is None:
            self.submissions.take_rest(self._sandbox, self.steps, lost=reason == "sandbox_lost")
        self._closing()
        self.submissions.commit()

    def _closing(self) -> None:
        """A sandbox that cannot be removed now is removed by the next run; its processes have been stopped."""
        try:
            self.close()
        except InfrastructureError as error:
            self._closed = True
            self.log(events.Notice(f"the sandbox could not be removed: {error}"))

    def close(self) -> None:
        """Close the sandbox (or leave it, if it is to be kept); harmless when repeated."""
        if self._sandbox is not None and not self._closed:
            if self._keep:
                self.log(events.Kept(self._sandbox.enter_hint()))
            self._sandbox.close(keep=self._keep)
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log(self, event: events.Event) -> None:
        """Write an event into the run's record; one of your own is ``UnknownEvent("kind", extra={...})``."""
        self._record.event(event)

    # For callers that look into the workspace between the steps.

    def run_command(self, command: str, timeout: float | None = None) -> ActionResult:
        """Run shell text in the sandbox; the timeout is capped by the task's and the run's limits."""
        return self._hands(self.steps).run_command(command, timeout)

    def read_file(self, path: str, limit: int) -> bytes:
        """Read a file of the sandbox as the agent's user."""
        return self._live().read_file(path, limit)

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file of the sandbox as the agent's user."""
        self._live().write_file(path, data)

    def _live(self) -> Sandbox:
        if self._sandbox is None:
            raise UsageError("call reset() before the first step")
        return self._sandbox

    def _hands(self, step: int) -> Hands:
        sandbox = self._live()
        return Hands(
            sandbox,
            self.clock,
            self._record.output_stem(step),
            validate=lambda: self.submissions.validate(sandbox, step),
            submit=lambda: self.submissions.submit(sandbox, step),
        )

    def _dispatch(self, action: Action, hands: Hands) -> ToolOutput:
        tool = self._tools.get(action.tool)
        if tool is None:
            known = ", ".join(self._tools)
            return ToolOutput(f"There is no tool {action.tool!r}; the tools are: {known}.", {"error": "tool_name"})
        try:
            return tool.run(hands, tool.check(action.arguments))
        except ToolArgumentError as error:
            return ToolOutput(str(error), {"error": "arguments"})
        except MLGymError:
            raise
        except Exception as error:
            self.log(events.ToolFailed(action.tool, repr(error)))
            return ToolOutput(f"The tool {action.tool} failed: {error!r:.500}", {"error": "tool"})

    def _fulfil(self, output: ToolOutput, hands: Hands) -> ToolOutput:
        """Do what a script has asked for during the action: ``validate`` or ``submit``, once for each request."""
        request = self._place.tools.request
        if request is None or request[0] in self._requests or self.submitted is not None:
            return output
        self._requests.add(request[0])
        if request[1] not in REQUESTS or request[1] not in self._tools:
            return output
        done = self._dispatch(Action(request[1]), hands)
        info = {**output.info, "requested": request[1], **done.info}
        return ToolOutput(f"{output.text}\n[{request[1]}]\n{done.text}", info)

    def _end(self) -> str | None:
        if self.submitted is not None:
            return "submitted"
        if self.steps >= self.limits.steps:
            return "steps"
        return "time" if self.clock.out_of_time else None
