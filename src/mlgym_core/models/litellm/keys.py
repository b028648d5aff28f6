"""Where providers' keys come from: a missing one, or one that could never be sent, is told before a run begins."""

from __future__ import annotations

import os
import unicodedata
from typing import Any

from mlgym_core.errors import UsageError

#: Variables of which one is enough, where a provider's is not its name with ``_API_KEY``.
_NAMES = {
    "ai21_chat": ("AI21_API_KEY",),
    "aleph_alpha": ("ALEPH_ALPHA_API_KEY", "ALEPHALPHA_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "anthropic_text": ("ANTHROPIC_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "cometapi": ("COMETAPI_KEY", "COMETAPI_API_KEY"),
    "datarobot": ("DATAROBOT_API_TOKEN",),
    "featherless_ai": ("FEATHERLESS_AI_API_KEY", "FEATHERLESS_API_KEY"),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
    "friendliai": ("FRIENDLIAI_API_KEY", "FRIENDLI_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "lambda_ai": ("LAMBDA_API_KEY",),
    "meta_llama": ("LLAMA_API_KEY",),
    "mistral": ("MISTRAL_API_KEY", "MISTRAL_AZURE_API_KEY"),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "xai": ("XAI_API_KEY", "XAI_OAUTH_TOKEN_DIR"),
    "replicate": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN"),
    "text-completion-openai": ("OPENAI_API_KEY",),
    "together_ai": ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
    "vercel_ai_gateway": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN", "AZURE_CLIENT_SECRET", "AZURE_PASSWORD"),
}
#: Providers whose one variable is their name in capitals with ``_API_KEY``.
_PLAIN = frozenset(
    (
        *("baseten", "cerebras", "codestral", "dashscope", "deepinfra", "deepseek", "groq", "hyperbolic", "minimax"),
        *("moonshot", "morph", "nebius", "novita", "nscale", "nvidia_nim", "sambanova", "v0", "volcengine", "wandb"),
        "zai",
    )
)


def names_of(provider: str) -> tuple[str, ...]:
    """Variables of which one holds a provider's key; none where it has other ways, or is a service of one's own."""
    return _NAMES.get(provider) or ((f"{provider.upper()}_API_KEY",) if provider in _PLAIN else ())


def check_keys(litellm: Any, provider: str, base_url: str | None) -> None:
    """Refuse a run that could not ask its provider anything.

    Args:
        litellm: the module; a key that was set there counts.
        provider: as litellm names it.
        base_url: of a service of one's own, which may want no key.

    Raises:
        UsageError: no variable holds a key, or what one holds could not be sent; the value is never told.
    """
    names = names_of(provider)
    found = [name for name in names if os.environ.get(name)]
    set_there = getattr(litellm, "api_key", None) or getattr(litellm, f"{provider}_key", None)
    if names and not found and base_url is None and not set_there:
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        raise UsageError(
            f"{provider} wants a key and there is none: set {names[0]}{others} with export {names[0]}=..., or write a "
            f"line {names[0]}=... into .env in the current folder"
        )
    for name in found:
        problem = unsendable(os.environ[name])
        if problem:
            raise UsageError(
                f"the value of {name} cannot be sent: it {problem}; correct it, in the environment or .env"
            )


def unsendable(value: str) -> str | None:
    """Why a text cannot be the value of an HTTP header; ``None`` when it can."""
    if value != value.strip():
        return "begins or ends with a blank or a line end"
    for char in value:
        if char in "\r\n":
            return "holds a line end"
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") or char == "\u00a0":
            return f"holds an invisible character (U+{ord(char):04X})"
        if unicodedata.category(char) in ("Pi", "Pf"):
            return "holds typographic quotes"
        if not char.isascii():
            return f"holds a character that is not ASCII (U+{ord(char):04X})"
    return None
