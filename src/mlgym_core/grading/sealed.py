"""Grades archived submissions in fresh boxes: no code of the agent's ever runs in a box that holds a secret."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

import attrs
from attrs import define, field

from mlgym_core.errors import InfrastructureError, UsageError
from mlgym_core.grading.archive import Archive
from mlgym_core.grading.grade import BadResultError, Grade, clean, read_result
from mlgym_core.grading.inside import mlgym_frames as wire
from mlgym_core.grading.inside import mlgym_peer
from mlgym_core.grading.link import BOOT, PLAYER_LOG_LIMIT, Files, PeerLink
from mlgym_core.grading.relay import GraderFailedError, Relay
from mlgym_core.grading.secrets import SECRET_BYTES
from mlgym_core.sandbox.base import Backend, BoxSpec, ConnectionClosed, Mount, PreparedImage, Progress, Role
from mlgym_core.task.task import Split, Task

__all__ = ["Grade", "Grader", "GradingData", "derive_seed"]

START_SECONDS = 120.0  #: for a box to come up
GRACE_SECONDS = 15.0  #: for the grader to conclude when the player has used up the grading's time
LOG_SECONDS = 1.0  #: to collect the end of the grader's log
_INJECT = Path(wire.__file__).parent
_LIBRARY = {f"lib/{name}": _INJECT / name for name in ("mlgym_frames.py", "mlgym_peer.py")}
_GRADER_LIBRARY = {**_LIBRARY, "lib/mlgym_table.py": _INJECT / "mlgym_table.py"}


class GradingData(Protocol):
    """Prepared data of a task; see :mod:`mlgym_core.data`."""

    @property
    def private(self) -> Path | None:
        """What only the grader sees."""

    @property
    def public(self) -> Path | None:
        """What everyone sees, mounted at ``data/`` in the player."""


def derive_seed(secret: bytes, task_id: str, split: Split) -> str:
    """The grading seed of a split, 32 hexadecimal digits: BLAKE2b keyed with the secret (RFC 7693)."""
    text = f"mlgym-grading-1\0{task_id}\0{split}".encode()
    return hashlib.blake2b(text, key=secret, digest_size=16).hexdigest()


@define
class Grader:
    """Grades submissions of one run. May be used from several threads.

    Raises:
        UsageError: the task has no such size, or the secret is not 16 bytes long.

    Attributes:
        task: what is graded.
        backend: opens the boxes.
        run_id: labels them.
        size: one of the task's sizes.
        secret: 16 bytes drawn by the host for the run or the batch; everything hidden is derived from it.
        data: the task's prepared data, if it has any.
        progress: told what takes time.
        build: whether a missing image may be built.
    """

    task: Task
    backend: Backend
    run_id: str
    size: str
    secret: bytes = field(repr=False)
    data: GradingData | None = None
    progress: Progress = field(default=lambda _: None)
    build: bool = True
    _images: dict[Role, PreparedImage] = field(factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.task.need_size(self.size)
        if len(self.secret) != SECRET_BYTES:
            raise UsageError(f"the grading secret has {len(self.secret)} bytes; draw {SECRET_BYTES} random ones")

    def grade(self, archive: Archive, split: Split) -> Grade:
        """Grade one submission.

        Raises:
            InfrastructureError: a box could not be opened; nothing is known about the submission.
        """
        started = time.monotonic()
        with_player = self.task.submission.kind != "csv"
        roles: tuple[Role, ...] = ("grader", "player") if with_player else ("grader",)
        for role in roles:
            self.image(role)
        with _Session(self, archive, split) as session:
            grade = session.run(with_player)
        return attrs.evolve(grade, seconds=time.monotonic() - started)

    def image(self, role: Role) -> PreparedImage:
        """The prepared image of ``grader`` or ``player``, prepared on first use."""
        with self._lock:
            if role not in self._images:
                self._images[role] = self.backend.prepare_image(self.task.image, role, self.progress, self.build)
            return self._images[role]


@define
class _Session:
    """The boxes of one grading; all are closed when it ends, whatever happened."""

    grader: Grader
    archive: Archive
    split: Split
    _links: list[PeerLink] = field(factory=list)
    _files: list[Files] = field(factory=list)
    _player_files: Files | None = None
    _ended: bool = False
    _lock: threading.Lock = field(factory=threading.Lock)
    # Two threads open boxes at once; they live as long as the boxes, which some backends tie to the opening thread.
    _pool: ThreadPoolExecutor = field(factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="grading"))

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            links, self._links = self._links, []
        closing = [self._pool.submit(link.close) for link in links]
        self._pool.shutdown(wait=True, cancel_futures=False)
        for files in self._files:
            files.close()
        for one in closing:
            one.result()

    def run(self, with_player: bool) -> Grade:
        """Open the boxes, relay, and read the result."""
        limit = self.grader.task.limits.grading_seconds
        ahead: deque[Future[PeerLink]] = deque()
        if with_player:
            self._player_files = self._keep(_player_files(self.grader.task, self.archive))
            ahead.append(self._start_player())
        link = self._pool.submit(self._open_grader).result()
        ready = time.monotonic()
        relay = Relay(
            link,
            self._start_player if with_player else None,
            ahead,
            deadline=ready + limit + GRACE_SECONDS,
            player_deadline=ready + limit,
            limit=limit,
        )
        try:
            grade = read_result(relay.run(), self.grader.task)
        except (GraderFailedError, BadResultError) as error:
            what = "result.json: " if isinstance(error, BadResultError) else ""
            grade = Grade("grader_error", message=clean(f"{what}{error}"))
        link.drain(time.monotonic() + LOG_SECONDS)
        last = relay.last.log() if relay.last is not None else ""
        return attrs.evolve(grade, log=link.log(), player_log=last)

    def _open_grader(self) -> PeerLink:
        files = self._keep(_grader_files(self.grader, self.archive, self.split))
        return self._open("grader", "private/grade.py", files, None)

    def _start_player(self) -> Future[PeerLink]:
        return self._pool.submit(self._open_player)

    def _open_player(self) -> PeerLink:
        entry = self.grader.task.submission.player
        if entry is None or self._player_files is None:
            raise InfrastructureError("the task names no player; see submission.player in task.yaml")
        return self._open("player", entry, self._player_files, PLAYER_LOG_LIMIT)

    def _open(self, role: Literal["grader", "player"], entry: str, files: Files, log_limit: int | None) -> PeerLink:
        grader = self.grader
        resources = grader.task.resources
        spec = BoxSpec(
            run_id=grader.run_id,
            role=role,
            image=grader.image(role),
            resources=attrs.evolve(resources, gpus=0) if role == "grader" else resources,
            mounts=_mounts(role, grader.data),
        )
        link = PeerLink(grader.backend.open_peer(spec, BOOT), log_limit)
        with self._lock:
            ended = self._ended
            self._links.append(link)
        if ended:
            link.close()
        try:
            link.start(role, entry, files, time.monotonic() + START_SECONDS)
        except (TimeoutError, ConnectionClosed, wire.ProtocolError) as error:
            link.drain(time.monotonic() + LOG_SECONDS)
            said = link.log().strip()[-1000:] or "nothing was printed"
            raise InfrastructureError(
                f"the {role} box did not start ({error or type(error).__name__}): {said}"
            ) from error
        return link

    def _keep(self, files: Files) -> Files:
        self._files.append(files)
        return files


def _grader_files(grader: Grader, archive: Archive, split: Split) -> Files:
    paths = {"submission": "submission"}
    if grader.data is not None:
        paths |= {"data": "data/private"} if grader.data.private else {}
        paths |= {"public_data": "data/public"} if grader.data.public else {}
    job = {
        "schema": mlgym_peer.PROTOCOL,
        "task": grader.task.id,
        "split": split,
        "seed": derive_seed(grader.secret, grader.task.id, split),
        "size": grader.size,
        "parameters": dict(grader.task.sizes[grader.size].parameters),
        "paths": paths,
    }
    files: dict[str, bytes | Path] = {f"private/{name}": path for name, path in grader.task.private_files().items()}
    files |= _GRADER_LIBRARY
    files["job.json"] = json.dumps(job, allow_nan=False).encode()
    return Files(files, archive.path, "submission/")


def _player_files(task: Task, archive: Archive) -> Files:
    declared = [PurePosixPath(path) for path in task.submission.paths]
    files: dict[str, bytes | Path] = {
        name: path
        for name, path in task.public_files().items()
        if name == task.submission.player or not any(PurePosixPath(name).is_relative_to(one) for one in declared)
    }
    return Files({**files, **_LIBRARY}, archive.path, without=task.submission.withheld)


def _mounts(role: Role, data: GradingData | None) -> tuple[Mount, ...]:
    if data is None:
        return ()
    public: Mapping[str, Path | None] = {"data": data.public}
    shown = public if role == "player" else {"data/private": data.private, "data/public": data.public}
    return tuple(Mount(source, target) for target, source in shown.items() if source is not None)
