"""How a run can end: what it came to, and why the agent's work was over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Status = Literal[
    "scored", "invalid_submission", "no_submission", "grader_error", "infra_error", "interrupted", "not_started"
]
Reason = Literal[
    "submitted",
    "steps",
    "cost",
    "tokens",
    "calls",
    "time",
    "context",
    "format",
    "model_error",
    "sandbox_lost",
    "stopped",
]

#: What a run came to: status -> what it means.
STATUSES: Mapping[Status, str] = {
    "scored": "there is a score",
    "invalid_submission": "what was there at the end was no valid submission, and nothing earlier was accepted",
    "no_submission": "there was nothing to grade",
    "grader_error": "ours: no score, the submission is kept and can be graded again",
    "infra_error": "ours: the backend failed",
    "interrupted": "by a person or a signal",
    "not_started": "the limits that several runs share were used up before its first model call",
}

#: Why the agent's work ended: reason -> what it means.
REASONS: Mapping[Reason, str] = {
    "submitted": "a submission was accepted",
    "steps": "the limit on steps",
    "cost": "the limit on cost",
    "tokens": "the limit on tokens",
    "calls": "the limit on model calls",
    "time": "the limit on wall-clock or working time",
    "context": "the conversation no longer fitted the model, even shortened",
    "format": "malformed replies, or the same failing action, too often in a row",
    "model_error": "the model service failed for good, or the agent raised",
    "sandbox_lost": "the sandbox died and could not be brought back",
    "stopped": "the agent left without submitting",
}
