"""What authors of plugins test with: contracts to subclass, and ways to grade a few lines of text.

Installing the core makes its pytest plugin known. The contracts need pytest (extra ``testing``) and are imported when
they are first used::

    from mlgym_core.testing import TaskContract


    class TestTask(TaskContract):
        task = "blotto"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlgym_core.authoring.testing.backends import BackendContract
    from mlgym_core.authoring.testing.grading import SECRET, grade_files
    from mlgym_core.authoring.testing.models import ModelContract
    from mlgym_core.authoring.testing.tasks import TaskContract
    from mlgym_core.authoring.testing.tools import StubContext, ToolContract

_HOMES = {
    "BackendContract": "backends",
    "ModelContract": "models",
    "SECRET": "grading",
    "StubContext": "tools",
    "TaskContract": "tasks",
    "ToolContract": "tools",
    "grade_files": "grading",
}

__all__ = ["SECRET", "BackendContract", "ModelContract", "StubContext", "TaskContract", "ToolContract", "grade_files"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mlgym_core.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"mlgym_core.authoring.testing.{home}"), name)
