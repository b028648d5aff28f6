"""``litellm:<provider/model>``: any model service that litellm speaks to. Nothing else here imports litellm."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from mlgym_core.errors import UsageError
from mlgym_core.models.base import FailedAttempt, Message, Meter, ModelContext, ModelSettings, Price, Reply, Usage
from mlgym_core.models.litellm.arguments import request_arguments
from mlgym_core.models.litellm.failures import failure, unreadable
from mlgym_core.models.litellm.keys import check_keys
from mlgym_core.models.litellm.openai_form import messages_out, plain, reply_in, tools_out
from mlgym_core.models.litellm.retry import Failure, Patience, persist
from mlgym_core.models.litellm.streaming import CutError, whole
from mlgym_core.record.redact import Redactor
from mlgym_core.settings import DOTENV, read_dotenv
from mlgym_core.tools.base import Tool

INSTALL = "pip install 'mlgym-core[litellm]'"

# Read by litellm when it is imported or first used; each stops a download or a search for files.
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
# Harmless, and about litellm's own code. It hides most of them itself, but only once, when it is imported.
_WARNINGS = (
    ".*`ReadOnly` qualifier.*",
    ".*conflict with protected namespace.*",
    ".*Accessing the.*attribute on the instance is deprecated.*",
    "Pydantic serializer warnings",
)
_IMPORTING = threading.Lock()
_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
_PROXY_COST = "llm_provider-x-litellm-response-cost"
# These want the reasoning that led to a tool call back, as reasoning_content.
_REASONING_BACK = {"deepseek", "moonshot"}
_MOST = 2**53  # tokens, or dollars; more is nonsense


class _Unmetered:
    """Stands in where nobody attached a meter."""

    def seconds_left(self) -> float | None:
        return None

    def exhausted(self) -> str | None:
        return None

    def failed(self, attempt: FailedAttempt) -> None:
        del attempt

    def notice(self, text: str) -> None:
        del text


class LiteLLMModel:
    """Asks a model service through litellm, one request at a time, with retries of its own only.

    Args:
        model: as litellm names it, ``provider/model``.
        settings: how to ask.
        patience: how long to go on after failures.

    Attributes:
        name: as recorded.
        priced: whether a reply's price is known beforehand, from ``settings.price`` or litellm's table.

    Raises:
        UsageError: litellm is not installed, or knows no such provider.
    """

    def __init__(self, model: str, settings: ModelSettings, patience: Patience | None = None) -> None:
        self.name = f"litellm:{model}"
        self._model = model
        self._settings = settings
        self._patience = patience or Patience()
        self._client = client()
        self._provider = _provider(self._client, model)
        check_keys(self._client, self._provider, settings.base_url)
        self._in_table = _in_table(self._client, model)
        self._free = settings.price == Price(0.0, 0.0)
        self.priced = settings.price is not None or self._in_table
        self._arguments, self._left_out = request_arguments(self._client, model, self._provider, settings)
        self._marks_cache = settings.cache and self._provider == "anthropic"
        self._carried = ["thinking_blocks", *(["reasoning_content"] if self._provider in _REASONING_BACK else [])]
        self._redact = Redactor.from_environment()
        self._meter: Meter = _Unmetered()
        self._calls = 0

    def attach(self, meter: Meter) -> None:
        """Charge this run from now on, and keep to its limits."""
        self._meter = meter
        if not self.priced:
            meter.notice(
                f"the price of {self._model} is not known, so cost is counted only where the service states it; "
                f"--price gives it"
            )
        if self._left_out:
            meter.notice(f"{self._model} does not take {', '.join(self._left_out)}; left out")

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        """Answer the conversation.

        Raises:
            ModelError: the service refused, or kept failing.
            ContextOverflowError: the conversation is too long for the model.
            BudgetExhaustedError: a limit of the run was reached while it failed.
        """
        self._calls += 1
        request = {**self._arguments, "messages": messages_out(messages, self._marks_cache)}
        if tools:
            request["tools"] = tools_out(tools)
        return persist(self.name, lambda: self._ask(request), self._meter, self._patience)

    def _ask(self, request: Mapping[str, Any]) -> Reply | Failure:
        left = self._meter.seconds_left()
        seconds = self._settings.timeout if left is None else max(0.001, min(left, self._settings.timeout))
        timed = {**request, "timeout": seconds}
        fetch = whole if self._settings.stream else _plain
        try:
            response = _within(seconds, lambda: fetch(self._client, timed, seconds))
        except CutError as error:
            return self._cut(error)
        except TimeoutError:
            # It may have been paid for all the same.
            message = f"no reply within {seconds:.0f} s"
            return Failure("timeout", message, again=True, usage=Usage(cost_usd=None), advice="try again later")
        except Exception as error:
            return self._charged(failure(error, redact=self._redact))
        try:
            return self._read(response)
        except Exception as error:  # whatever a service may have put where something else belongs
            return unreadable(f"the reply could not be read: {type(error).__name__}")

    def _read(self, response: Any) -> Reply | Failure:
        body = response.model_dump(warnings=False)
        served = (getattr(response, "_hidden_params", None) or {}).get("provider_response_model")
        body["model"] = served or body.get("model")
        usage = self._usage(body.get("usage") or {}, self._proxy_cost(response))
        if usage.reasoning_tokens and self._is_estimate(body, usage):
            usage = evolve(usage, reasoning_tokens=None)
        reply = reply_in(body, usage, self._calls, self._carried)
        if reply.cut or reply.text.strip() or reply.tool_calls or usage.completion_tokens or usage.cost_usd:
            return reply if usage.cost_usd or usage.prompt_tokens or self._free else _unmeasured(reply)
        return Failure("empty", "the reply was empty", 200, again=True, usage=usage, raw=reply.raw, advice="try again")

    def _proxy_cost(self, response: Any) -> object:
        """What a proxy says in its headers; those of a stream are sent before there is anything to charge."""
        if self._settings.stream:
            return None
        headers = (getattr(response, "_hidden_params", None) or {}).get("additional_headers") or {}
        return headers.get(_PROXY_COST)

    def _is_estimate(self, body: Mapping[str, Any], usage: Usage) -> bool:
        """Whether litellm counted the reasoning tokens itself, as it does where the service does not say."""
        choices = body.get("choices") or [{}]
        text = (choices[0].get("message") or {}).get("reasoning_content")
        if not text:
            return False
        counted = self._client.token_counter(text=text, count_response_tokens=True)
        return bool(usage.reasoning_tokens == min(counted, usage.completion_tokens))

    def _cut(self, error: CutError) -> Failure:
        """A stream that broke off; what it brought may have to be paid for."""
        cause = error.__cause__
        if isinstance(cause, Exception):
            return evolve(failure(cause, redact=self._redact), usage=Usage(cost_usd=None))
        return Failure("connection", str(error), again=True, usage=Usage(cost_usd=None), advice="try again later")

    def _charged(self, failed: Failure) -> Failure:
        usage = failed.raw.get("usage")
        if usage is None:
            return failed
        try:
            return evolve(failed, usage=self._usage(usage, None), raw={**failed.raw, "usage": plain(usage)})
        except RecursionError:
            return evolve(failed, usage=Usage(cost_usd=None), raw={})

    def _usage(self, raw: Mapping[str, Any], proxy_cost: object) -> Usage:
        prompt, completion = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
        own = _number(raw.get("cost"))
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost_usd=own if own is not None else self._price(raw, prompt, completion, _number(proxy_cost)),
            cached_tokens=_detail(raw, "prompt_tokens_details", "cached_tokens"),
            reasoning_tokens=_detail(raw, "completion_tokens_details", "reasoning_tokens"),
        )

    def _price(self, raw: Mapping[str, Any], prompt: int, completion: int, told: float | None) -> float | None:
        if told is not None:
            return told
        if not (_is_count(raw, "prompt_tokens") and _is_count(raw, "completion_tokens")):
            return None
        price = self._settings.price
        if price is not None:
            return (prompt * price.prompt + completion * price.completion) / 1e6
        if not self._in_table:
            return None
        try:
            both = self._client.cost_per_token(self._model, usage_object=self._client.Usage(**raw))
        except Exception:  # whatever a table lacks must not cost a reply that was paid for
            return None
        return _number(sum(both))


def _plain(litellm: Any, request: Mapping[str, Any], seconds: float) -> Any:
    del seconds
    return litellm.completion(**request)


def _unmeasured(reply: Reply) -> Reply:
    """A reply whose service reports no usage: what it cost is not known."""
    return evolve(reply, usage=evolve(reply.usage, cost_usd=None))


def create(argument: str, context: ModelContext) -> LiteLLMModel:
    """The model ``litellm:<provider/model>``.

    Raises:
        UsageError: no model is named, litellm is missing, or there is a limit on cost and no price.
    """
    if not argument:
        raise UsageError("--model litellm:<provider/model> needs a model, for instance litellm:openai/gpt-4o")
    _set_keys()
    model = LiteLLMModel(argument, context.settings)
    if context.limits.cost_usd is not None and not model.priced:
        raise UsageError(
            f"the price of {argument} is not known, so the limit of ${context.limits.cost_usd:g} could not be kept; "
            f"give it with --price IN,OUT (dollars for a million tokens), or lift the limit with --cost 0 "
            f"and limit tokens with --tokens"
        )
    return model


def _set_keys() -> None:
    """Put the variables of ``.env`` where litellm looks for keys; an empty one in the environment is none."""
    for name, value in read_dotenv().items():
        if os.environ.get(name):
            continue
        try:
            os.environ[name] = value
        except ValueError:
            raise UsageError(f"{DOTENV}: the variable {name} cannot be set; correct or remove it") from None


def client() -> Any:
    """The litellm module, imported when first asked for (seconds), and quiet.

    Raises:
        UsageError: it is not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with _IMPORTING:
            litellm: Any = sys.modules.get("litellm") or _import()
    except ImportError as error:
        raise UsageError(f"litellm models need litellm ({error}); install it with: {INSTALL}") from error
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def _import() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm
    return litellm


def _provider(litellm: Any, model: str) -> str:
    try:
        return str(litellm.get_llm_provider(model)[1])
    except Exception as error:
        raise UsageError(
            f"litellm knows no provider for the model {model!r}; write litellm:<provider/model>, "
            f"for instance litellm:openai/{model} for a service with OpenAI's interface"
        ) from error


def _in_table(litellm: Any, model: str) -> bool:
    """Whether litellm's table holds the price. It guesses zero for unknown models of some known families."""
    try:
        price = sum(litellm.cost_per_token(model, prompt_tokens=1000, completion_tokens=1000))
    except Exception:  # many kinds, all meaning that it is not there
        return False
    return price > 0 or model in litellm.model_cost


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """The call's result, if it comes in time: a client's own timeout starts anew with every byte it receives.

    Raises:
        TimeoutError: it did not; the call is abandoned.
    """
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((call(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=work, name="mlgym-model-call", daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result


def _count(raw: Mapping[str, Any], name: str) -> int:
    return int(raw.get(name) or 0) if _is_count(raw, name) else 0


def _is_count(raw: Mapping[str, Any], name: str) -> bool:
    """Whether it is a number of tokens that makes sense, or not said."""
    value = raw.get(name)
    return value is None or (isinstance(value, int) and 0 <= value <= _MOST)


def _detail(raw: Mapping[str, Any], group: str, name: str) -> int | None:
    details = raw.get(group)
    value = details.get(name) if isinstance(details, Mapping) else None
    return value if isinstance(value, int) and 0 <= value <= _MOST else None


def _number(value: object) -> float | None:
    """A cost that makes sense, or nothing."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= _MOST else None
