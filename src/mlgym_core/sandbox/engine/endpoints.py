"""Finds a container engine that speaks Docker's API, and says what was tried when there is none.

The order is documented in ``docs/docker.md``; another engine's command is never run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from mlgym_core.errors import BackendUnavailableError

if TYPE_CHECKING:
    from docker import DockerClient

_TIMEOUT_SECONDS = 120


@frozen
class Endpoint:
    """Where an engine may listen.

    Attributes:
        url: ``unix://``, ``tcp://``, ``ssh://`` or ``npipe://`` address.
        origin: what named it, for messages.
        decisive: the user chose it, so nothing after it is tried.
    """

    url: str
    origin: str
    decisive: bool = False

    @property
    def socket(self) -> Path | None:
        """The socket's path, if it is one on this machine."""
        return Path(self.url.removeprefix("unix://")) if self.url.startswith("unix://") else None


def spelled(host: str) -> str:
    """An engine address in the form the client wants: ``/run/x.sock``, ``unix:/x`` and ``host:2375`` are understood."""
    host = host.strip()
    if host.startswith("/"):
        return f"unix://{host}"
    if host.startswith("unix:") and not host.startswith("unix://"):
        return f"unix://{host.removeprefix('unix:')}"
    if "://" not in host:
        return f"tcp://{host}"
    return host.replace("http://", "tcp://", 1) if host.startswith("http://") else host


def docker_endpoints(environ: Mapping[str, str], home: Path | None, host: str | None = None) -> list[Endpoint]:
    """Where Docker may be, in the order in which it is looked for; ``host`` is what the caller insists on."""
    if host:
        return [Endpoint(spelled(host), "--backend docker:<host>", decisive=True)]
    if environ.get("MLGYM_DOCKER_HOST"):
        return [Endpoint(spelled(environ["MLGYM_DOCKER_HOST"]), "MLGYM_DOCKER_HOST", decisive=True)]
    if environ.get("DOCKER_HOST"):
        return [Endpoint(spelled(environ["DOCKER_HOST"]), "DOCKER_HOST", decisive=True)]
    found = []
    context = _context()
    if context is not None:
        found.append(context)
    runtime = environ.get("XDG_RUNTIME_DIR")
    places = [("/var/run/docker.sock", "the system's socket")]
    places += [(f"{runtime}/docker.sock", "the rootless socket")] if runtime else []
    if home is not None:
        places += [
            (f"{home}/.docker/run/docker.sock", "Docker Desktop"),
            (f"{home}/.docker/desktop/docker.sock", "Docker Desktop"),
            (f"{home}/.colima/default/docker.sock", "Colima"),
        ]
    known = {endpoint.url for endpoint in found}
    return found + [Endpoint(f"unix://{path}", origin) for path, origin in places if f"unix://{path}" not in known]


def _context() -> Endpoint | None:
    """The active context of the docker command, when it is not the default one."""
    from docker.context import ContextAPI
    from docker.errors import DockerException

    try:
        context = ContextAPI.get_current_context()
    except (DockerException, OSError, ValueError):
        return None
    if context is None or context.Name == "default" or not context.Host:
        return None
    return Endpoint(spelled(context.Host), f"docker context {context.Name!r}", decisive=True)


def connect(name: str, endpoints: Sequence[Endpoint], remedy: str) -> tuple[DockerClient, Endpoint]:
    """A client of the first engine that answers.

    Raises:
        BackendUnavailableError: none does; the message lists what was tried and what would help.
    """
    refusals = []
    for endpoint in endpoints:
        try:
            return _connect(endpoint), endpoint
        except BackendUnavailableError as error:
            refusals.append(f"{endpoint.origin} ({endpoint.url}): {error}")
            if endpoint.decisive:
                break
    raise BackendUnavailableError(f"no {name} engine answers; tried {'; '.join(refusals) or 'nothing'}. {remedy}")


def _connect(endpoint: Endpoint) -> DockerClient:
    import docker
    import requests

    path = endpoint.socket
    if path is not None:
        if not path.exists():
            raise BackendUnavailableError("no such socket")
        if not os.access(path, os.R_OK | os.W_OK):
            raise BackendUnavailableError("no permission on the socket; join its group or use a rootless engine")
    tls = bool(os.environ.get("DOCKER_TLS_VERIFY")) and endpoint.url.startswith("tcp://")
    try:
        client = docker.from_env(
            timeout=_TIMEOUT_SECONDS,
            environment={**os.environ, "DOCKER_HOST": endpoint.url, "DOCKER_TLS_VERIFY": "1" if tls else ""},
        )
        client.ping()
    except (docker.errors.DockerException, requests.RequestException, OSError, ValueError) as error:
        raise BackendUnavailableError(f"it does not answer: {_short(error)}") from error
    return client


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
