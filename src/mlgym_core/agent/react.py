"""One ReAct loop: ask the model, do what it says, show it what happened."""

from __future__ import annotations

from collections.abc import Sequence

from mlgym_core.agent.base import Budget
from mlgym_core.agent.parsing import MalformedReplyError, fenced_action, tool_actions
from mlgym_core.agent.prompts import render, task_prompt
from mlgym_core.episode import Action, Episode
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
from mlgym_core.tools.base import Tool

FORMAT_RETRIES = 3


class ReactAgent:
    """The default agent.

    Args:
        name: as recorded.
        model: asked once a step.
        native_tools: offer the tools as tool calls; otherwise one fenced command a reply.
        format_retries: malformed replies in a row that are answered with a corrective message.
    """

    def __init__(self, name: str, model: Model, native_tools: bool, format_retries: int = FORMAT_RETRIES) -> None:
        self.name = name
        self._model = model
        self._native = native_tools
        self._retries = format_retries

    def run(self, episode: Episode, budget: Budget) -> str:
        """Loop until the episode is done, a limit is reached or the model's replies stay malformed.

        Raises:
            ModelError: the model service failed for good.
        """
        system = "system_tools" if self._native else "system_text"
        if isinstance(self._model, Metered):
            self._model.attach(_RunMeter(episode, budget))
        talk = _Conversation(episode)
        talk.add(Message("system", render(system, {}).strip()), Message("user", task_prompt(episode)))
        malformed = 0
        while True:
            reason = _limit(episode, budget)
            if reason:
                return reason
            try:
                reply = self._ask(talk, episode, budget)
            except ContextOverflowError:
                return "context"
            except BudgetExhaustedError as error:
                return error.reason
            except ModelStopped as stopped:
                episode.log("notice", text=str(stopped))
                return "stopped"
            talk.messages.append(Message("assistant", reply.text, reply.tool_calls))
            try:
                actions = self._parse(reply, episode.tools)
            except MalformedReplyError as error:
                malformed += 1
                episode.log("malformed_reply", attempt=malformed, message=str(error))
                if malformed > self._retries:
                    return "format"
                talk.add(*self._correction(reply, str(error)))
                continue
            malformed = 0
            reason = self._act(actions, episode, budget, talk)
            if reason:
                return reason

    def _ask(self, talk: _Conversation, episode: Episode, budget: Budget) -> Reply:
        tools = episode.tools if self._native else ()
        episode.log("model_request", messages=len(talk.messages), tools=[tool.name for tool in tools])
        reply = self._model.complete(talk.messages, tools)
        budget.charge(reply.usage)
        episode.log("model_reply", reply=reply, cost_usd=budget.cost_usd, tokens=budget.tokens)
        return reply

    def _parse(self, reply: Reply, tools: Sequence[Tool]) -> list[tuple[str | None, Action]]:
        if self._native:
            return list(tool_actions(reply, tools))
        return [(None, fenced_action(reply))]

    def _correction(self, reply: Reply, text: str) -> list[Message]:
        """Every tool call must be answered, or providers refuse the conversation."""
        if reply.tool_calls:
            return [Message("tool", text, tool_call_id=call.id) for call in reply.tool_calls]
        return [Message("user", text)]

    def _act(
        self, actions: list[tuple[str | None, Action]], episode: Episode, budget: Budget, talk: _Conversation
    ) -> str | None:
        for call_id, action in actions:
            reason = _limit(episode, budget)
            if reason:
                return reason
            result = episode.step(action)
            if result.done:
                return result.reason
            text = f"{result.observation}\n[step {result.step} of {episode.limits.steps}]"
            talk.add(Message("user", text) if call_id is None else Message("tool", text, tool_call_id=call_id))
        return None


def _limit(episode: Episode, budget: Budget) -> str | None:
    """The limit that has been reached, if any."""
    return budget.exhausted() or ("time" if episode.out_of_time else None)


class _RunMeter:
    """Charges a run's budget for attempts that failed, and records them."""

    def __init__(self, episode: Episode, budget: Budget) -> None:
        self._log = episode.log
        self._episode = episode
        self._budget = budget

    def seconds_left(self) -> float | None:
        limit = self._episode.limits.wall_seconds
        return None if limit is None else limit - self._episode.seconds

    def exhausted(self) -> str | None:
        return _limit(self._episode, self._budget)

    def failed(self, attempt: FailedAttempt) -> None:
        self._budget.charge(attempt.usage)
        self._log("model_attempt", attempt=attempt, cost_usd=self._budget.cost_usd, tokens=self._budget.tokens)

    def notice(self, text: str) -> None:
        self._log("notice", text=text)


class _Conversation:
    """The messages so far; each is recorded once, when it is added (replies are recorded by ``model_reply``)."""

    def __init__(self, episode: Episode) -> None:
        self.messages: list[Message] = []
        self._log = episode.log

    def add(self, *messages: Message) -> None:
        for message in messages:
            self.messages.append(message)
            self._log("message", role=message.role, content=message.content, tool_call_id=message.tool_call_id)
