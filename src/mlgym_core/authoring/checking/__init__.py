"""Proves a task's contract: a task and a backend flow in, a report of findings comes out."""

from __future__ import annotations

from mlgym_core.authoring.checking.check import ATTACKS, Check, check_named, check_task, checks_for, perform
from mlgym_core.authoring.checking.report import Finding, Report

__all__ = ["ATTACKS", "Check", "Finding", "Report", "check_named", "check_task", "checks_for", "perform"]
