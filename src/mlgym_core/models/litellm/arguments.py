"""From settings to the arguments of a request: what the model does not take is left out, and said."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mlgym_core.errors import UsageError
from mlgym_core.models.base import ModelSettings

_OPTIONAL = ("temperature", "top_p", "max_tokens", "reasoning_effort", "seed", "stop")
_RESERVED = {
    *_OPTIONAL,
    *("model", "messages", "tools", "stream", "stream_options", "n", "timeout", "api_base", "base_url"),
    *("num_retries", "max_retries", "fallbacks", "mock_response", "drop_params", "allowed_openai_params"),
}


def request_arguments(
    litellm: Any, model: str, provider: str, settings: ModelSettings
) -> tuple[dict[str, Any], list[str]]:
    """What every request of a run says beside the conversation, and the names of the settings that were left out.

    Args:
        litellm: the module.
        model: as litellm names it, ``provider/model``.
        provider: as litellm names it.
        settings: how to ask.

    Raises:
        UsageError: an extra argument stands for something that is a setting of its own, or fixed.
    """
    clash = sorted(_RESERVED.intersection(settings.extra))
    if clash:
        raise UsageError(f"{clash[0]} cannot be an extra argument; it is a setting of its own, or fixed")
    wanted = {name: getattr(settings, name) for name in _OPTIONAL}
    wanted["stop"] = list(settings.stop) or None
    wanted = {name: value for name, value in wanted.items() if value is not None}
    left_out = _left_out(litellm, model, provider, wanted)
    arguments = {name: value for name, value in wanted.items() if name not in left_out}
    if settings.base_url is not None:
        arguments["api_base"] = settings.base_url
        if provider == "openai" and not os.environ.get("OPENAI_API_KEY"):
            # The client insists on a key; services of one's own mostly do not.
            arguments["api_key"] = "none"
    if settings.stream:
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    fixed: dict[str, Any] = {"model": model, "num_retries": 0, "max_retries": 0, "drop_params": True}
    known = set(litellm.constants.OPENAI_CHAT_COMPLETION_PARAMS).intersection(settings.extra)
    if known:
        # Else litellm drops those of them that it thinks the model does not take; others it passes on by itself.
        fixed["allowed_openai_params"] = sorted(known)
    return {**arguments, **settings.extra, **fixed}, left_out


def _left_out(litellm: Any, model: str, provider: str, wanted: Mapping[str, Any]) -> list[str]:
    taken = litellm.get_supported_openai_params(model)
    left_out = [name for name in wanted if taken is not None and name not in taken]
    left_out += [name for name in _refused_by_claude(model, wanted) if name not in left_out]
    rest = {name: value for name, value in wanted.items() if name not in left_out}
    return left_out + [name for name in rest if not _has_effect(litellm, model, provider, rest, name)]


def _refused_by_claude(model: str, wanted: Mapping[str, Any]) -> list[str]:
    """Anthropic's models take temperature or top_p but not both, and neither of them while they reason."""
    both = [name for name in ("temperature", "top_p") if name in wanted]
    if "claude" not in model.lower():
        return []
    return both if wanted.get("reasoning_effort", "none") != "none" else both[1:]


def _has_effect(litellm: Any, model: str, provider: str, wanted: Mapping[str, Any], name: str) -> bool:
    """Whether litellm sends a setting on: it drops without a word some values that a model is known to refuse."""
    bare = model.removeprefix(f"{provider}/")
    try:
        sent = litellm.utils.get_optional_params
        without = {other: value for other, value in wanted.items() if other != name}
        fixed = {"model": bare, "custom_llm_provider": provider, "drop_params": True}
        return bool(sent(**wanted, **fixed) != sent(**without, **fixed))
    except Exception:  # it is no promised interface; the request itself will tell
        return True
