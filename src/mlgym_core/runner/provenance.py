"""Facts of this machine and installation, for the record."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from mlgym_core.plugins.loading import BEHAVIOUR, installed_plugins
from mlgym_core.task.task import Task


def versions(task: Task) -> dict[str, str]:
    """Versions of the core, the task's package, every behaviour plugin, and Python."""
    found = {"mlgym-core": version("mlgym-core"), "python": platform.python_version()}
    if task.distribution:
        found[task.distribution] = task.version
    for group, _, distribution, number in installed_plugins():
        if group == BEHAVIOUR:
            found[distribution] = number
    return found


def hardware() -> dict[str, object]:
    """Processor, cores this process may use, memory in mebibytes, operating system."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": f"{platform.system()} {platform.release()}",
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
