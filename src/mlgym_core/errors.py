"""One exception hierarchy. Every error says what to do next and carries the command's exit code."""

from __future__ import annotations


class MLGymError(Exception):
    """Base of every error raised on purpose by MLGym.

    Attributes:
        exit_code: what the ``mlgym`` command exits with when this error ends it.
    """

    exit_code = 1


class UsageError(MLGymError):
    """The caller asked for something that does not exist or does not fit together."""

    exit_code = 2


class UnknownTaskError(UsageError):
    """No installed task has the requested name."""


class PluginError(UsageError):
    """A plugin that was asked for is broken or clashes with another one."""


class TaskSpecError(UsageError):
    """A task's ``task.yaml`` or its files break the contract."""


class InvalidSubmissionError(MLGymError):
    """The submission cannot be accepted; the message is written for the agent."""


class MissingSubmissionError(InvalidSubmissionError):
    """Nothing was handed in at all."""


class ExportError(MLGymError):
    """The agent's workspace cannot be taken out as it is; the message is written for the agent."""


class InfrastructureError(MLGymError):
    """The machine, the engine or the disk failed; neither agent nor task is at fault."""

    exit_code = 3


class BackendUnavailableError(InfrastructureError):
    """The requested container backend cannot be used here."""


class SandboxLostError(InfrastructureError):
    """A sandbox died and could not be brought back."""


class RecordError(InfrastructureError):
    """The run folder cannot be written or read."""


class ModelError(MLGymError):
    """The model service failed for good; retries, where they make sense, are over."""

    exit_code = 3


class GraderError(MLGymError):
    """The grader itself failed: the score is unknown, never zero, and can be graded again."""

    exit_code = 3


class DamagedPackageWarning(UserWarning):
    """An installed package whose metadata cannot be read is passed over."""
