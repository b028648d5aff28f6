"""Whether installed plugins fit the installed core and each other, from their metadata."""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, version

from mlgym_core.errors import PluginError

_FAMILY = "mlgym-"


def problem(distribution: Distribution | None) -> str | None:
    """What a plugin requires of MLGym's packages and does not find here, with the remedy; ``None`` when all is well.

    Other requirements are pip's business: they may be met in a task's own environment only.

    Args:
        distribution: the plugin's, as its entry point names it.
    """
    requires = distribution.requires if distribution is not None else None
    if distribution is None or not requires:
        return None
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    for text in requires:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            return f"the requirement {text!r} in its metadata cannot be read; reinstall {distribution.name}"
        name = canonicalize_name(wanted.name)
        if not name.startswith(_FAMILY) or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        asked, remedy = (
            f"{name}{wanted.specifier}",
            f"pip install --upgrade {distribution.name} '{name}{wanted.specifier}'",
        )
        try:
            present = version(name)
        except PackageNotFoundError:
            return f"it needs {asked}, which is not installed; run: {remedy}"
        if not wanted.specifier.contains(present, prereleases=True):
            return f"it needs {asked}, but {name} {present} is installed; run: {remedy}"
    return None


def check(distribution: Distribution | None, what: str) -> None:
    """Refuse a plugin that does not fit.

    Args:
        distribution: the plugin's.
        what: begins the message, as ``task 'blotto' of mlgym-task-blotto 1.0``.

    Raises:
        PluginError: naming what is required, what is installed and the command that helps.
    """
    found = problem(distribution)
    if found:
        raise PluginError(f"{what} does not fit: {found}")
