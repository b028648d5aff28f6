"""One ReAct loop: ask the model, do what it says, show it what happened."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mlgym_core.agent.budget import Budget
from mlgym_core.agent.config import AgentConfig, Demonstration
from mlgym_core.agent.formats import FORMATS, Actions, MalformedReplyError
from mlgym_core.agent.history import Conversation
from mlgym_core.agent.prompts import step_values, system_values, task_values
from mlgym_core.episode.episode import Action, Episode, StepResult
from mlgym_core.errors import ModelError
from mlgym_core.models.base import (
    BudgetExhaustedError,
    ContextOverflowError,
    FailedAttempt,
    Message,
    Metered,
    Model,
    ModelStopped,
    Reply,
)
from mlgym_core.record import events
from mlgym_core.tools.base import Tool

_HINT_AFTER = 3  #: equal failures in a row before the agent is told
_NEVER = 2**31
_CUT = (
    "Your reply was cut off at its token limit before it was whole, so nothing in it was done. Write less in one "
    "reply: think in fewer words, and write a long file in several parts."
)
_SHOWN = 200  #: characters of a command in the event that says what is being done


class ReactAgent:
    """The agent that is shipped. Everything in its configuration is read and checked here, before the run starts.

    Args:
        name: as recorded.
        model: asked once a step.
        config: prompts, format, tools, history.
        registered: all tools there are.

    Raises:
        UsageError: the configuration names something that does not exist.
    """

    def __init__(self, name: str, model: Model, config: AgentConfig, registered: Sequence[Tool]) -> None:
        self.name = name
        self._model = model
        self._config = config
        self._format = FORMATS[config.format]
        self._templates = config.templates()
        self._tools = config.offered(registered)
        self.settings = config.recorded() | {"tools": [tool.name for tool in self._tools]}
        self._examples = config.examples(self._tools)

    def run(self, episode: Episode, budget: Budget) -> str:
        """Loop until the episode is done, a limit is reached or the model's replies stay malformed.

        Raises:
            ModelError: the model service failed for good.
        """
        meter = _RunMeter(episode, budget)
        if isinstance(self._model, Metered):
            self._model.attach(meter)
        talk = self._opening(episode)
        repeats = _Repeats(self._config.repeats)
        malformed = 0
        while True:
            reason = _limit(episode, budget)
            if reason:
                return reason
            try:
                reply = self._ask(talk, episode, budget)
            except ContextOverflowError as error:
                if talk.silent:
                    raise ModelError(f"the model never replied: {error}") from None
                return "context"
            except BudgetExhaustedError as error:
                if meter.failure and talk.silent:
                    raise ModelError(
                        f"the model never replied before the limit on {error.reason}: {meter.failure}"
                    ) from None
                return error.reason
            except ModelStopped as stopped:
                episode.log(events.Notice(str(stopped)))
                return "stopped"
            try:
                actions = self._parsed(reply)
            except MalformedReplyError as error:
                malformed += 1
                episode.log(events.MalformedReply(malformed, str(error)))
                if malformed > self._config.format_retries:
                    return "format"
                talk.observe(*self._correction(reply, str(error), self._config.format_retries + 1 - malformed))
                continue
            malformed = 0
            reason = self._act(actions, episode, talk, repeats)
            if reason:
                return reason

    def _opening(self, episode: Episode) -> Conversation:
        talk = Conversation(episode.log, self._config.history)
        schemas = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in self._tools]
        episode.log(events.Tools(schemas))
        system = self._templates["system"].substitute(
            system_values(self._format.name, self._format.native, self._tools)
        )
        talk.fix(Message("system", system.strip()))
        for number, example in enumerate(self._examples):
            talk.fix(*self._demonstration(number, example))
        task = self._templates["task"].substitute(task_values(episode, self._config.hardware))
        talk.fix(Message("user", task.strip()))
        return talk

    def _demonstration(self, number: int, example: Demonstration) -> list[Message]:
        messages = [Message("user", self._templates["demonstration"].substitute(title=example.title).strip())]
        for at, step in enumerate(example.steps, 1):
            call_id = f"example-{number}-{at}"
            messages.append(self._format.render(step.thought, Action(step.tool, step.arguments), call_id))
            messages.append(_answer(step.observation, call_id if self._format.native else None))
        return messages

    def _ask(self, talk: Conversation, episode: Episode, budget: Budget) -> Reply:
        """The next reply. A conversation that is too long is shortened and sent once more.

        Raises:
            ContextOverflowError: it was too long even then.
        """
        try:
            reply = self._complete(talk, episode)
        except ContextOverflowError:
            reason = _limit(episode, budget)
            if reason:
                raise BudgetExhaustedError(reason) from None
            talk.trim()
            reply = self._complete(talk, episode)
        budget.charge(reply.usage)
        number = talk.reply(reply)
        episode.log(events.ModelReply(reply, budget.cost_usd, budget.tokens, message=number))
        return reply

    def _parsed(self, reply: Reply) -> Actions:
        if reply.cut:
            raise MalformedReplyError(_CUT)
        return self._format.parse(reply, self._tools)

    def _complete(self, talk: Conversation, episode: Episode) -> Reply:
        offered = self._tools if self._format.native else ()
        messages = talk.request([tool.name for tool in offered])
        asked = time.monotonic()
        try:
            return self._model.complete(messages, offered)
        finally:
            episode.clock.wait(time.monotonic() - asked)

    def _correction(self, reply: Reply, problem: str, left: int) -> list[Message]:
        """Every tool call must be answered, or providers refuse the conversation."""
        text = self._templates["malformed"].substitute(problem=problem, retries_left=left).strip()
        ids: list[str | None] = [call.id for call in reply.tool_calls]
        return [_answer(text, call_id) for call_id in ids or [None]]

    def _act(self, actions: Actions, episode: Episode, talk: Conversation, repeats: _Repeats) -> str | None:
        """Carry out what a reply asks for, which has been paid for whatever the budget says now."""
        for call_id, action in actions:
            if episode.clock.out_of_time:
                return "time"
            episode.log(events.Action(action.tool, str(action.arguments.get("command", ""))[:_SHOWN]))
            result = episode.step(action)
            if result.done:
                return result.reason
            count = repeats.count(action, result)
            if count >= repeats.most:
                episode.log(events.Notice(f"the same action has failed in the same way {count} times in a row"))
                return "format"
            text = self._templates["step"].substitute(step_values(result, episode.limits.steps)).rstrip()
            if count >= _HINT_AFTER:
                text += (
                    f"\n[this action has now failed in the same way {count} times in a row; do something else: "
                    f"at {repeats.most} the run ends]"
                )
            talk.observe(_answer(text, call_id), observation=result.observation)
        return None


def _answer(text: str, call_id: str | None) -> Message:
    return Message("user", text) if call_id is None else Message("tool", text, tool_call_id=call_id)


def _limit(episode: Episode, budget: Budget) -> str | None:
    """The limit that has been reached, if any."""
    return budget.exhausted() or ("time" if episode.clock.out_of_time else None)


class _Repeats:
    """Counts equal failures in a row: the same action with the same observation."""

    def __init__(self, most: int) -> None:
        self.most = most or _NEVER
        self._last: tuple[Action, str] | None = None
        self._count = 0

    def count(self, action: Action, result: StepResult) -> int:
        """How often in a row this has failed by now; 0 when it did not fail."""
        if not _failed(result):
            self._last, self._count = None, 0
            return 0
        now = (action, result.observation)
        self._count = self._count + 1 if now == self._last else 1
        self._last = now
        return self._count


def _failed(result: StepResult) -> bool:
    info = result.info
    refused = info.get("outcome", "scored") not in ("scored", "accepted")
    return bool(info.get("exit_code") or "error" in info or refused or info.get("status") == "timed_out")


class _RunMeter:
    """Charges a run's budget for attempts that failed, and records them."""

    def __init__(self, episode: Episode, budget: Budget) -> None:
        self.failure = ""
        self._episode = episode
        self._budget = budget

    def seconds_left(self) -> float | None:
        limit = self._episode.limits.wall_seconds  # the working time stands still meanwhile
        return None if limit is None else limit - self._episode.clock.seconds

    def exhausted(self) -> str | None:
        return _limit(self._episode, self._budget)

    def failed(self, attempt: FailedAttempt) -> None:
        self.failure = attempt.message
        self._budget.charge(attempt.usage, replied=False)
        self._episode.log(events.ModelAttempt(attempt, self._budget.cost_usd, self._budget.tokens))

    def notice(self, text: str) -> None:
        self._episode.log(events.Notice(text))
