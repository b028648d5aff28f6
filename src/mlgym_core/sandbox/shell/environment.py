"""The environment of an agent's shell."""

from __future__ import annotations


def base_environment(home: str, path: str, user: str = "agent") -> dict[str, str]:
    """Environment of an agent's shell; whatever would ask a person fails at once instead."""
    return {
        "PATH": path,
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "EDITOR": "false",
        "VISUAL": "false",
        "GIT_EDITOR": "false",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": user,
        "GIT_AUTHOR_EMAIL": f"{user}@localhost",
        "GIT_COMMITTER_NAME": user,
        "GIT_COMMITTER_EMAIL": f"{user}@localhost",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
        "PYTHONUNBUFFERED": "1",
    }
