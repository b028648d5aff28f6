"""How much of a box's memory its writable in-memory folders may take: half at most, all of them full."""

from __future__ import annotations

from attrs import frozen

from mlgym_core.task.task import Resources


@frozen
class Sizes:
    """Size limits in bytes.

    What lies in such a folder counts as memory of the box. Were there more of it than memory, an agent that fills a
    folder could start no shell any more.

    Attributes:
        tmp: of ``/tmp``.
        shared: of ``/dev/shm``.
        home: of the home folder.
        workdir: of a peer's working directory; a sandbox has its workspace on disk.
    """

    tmp: int
    shared: int
    home: int
    workdir: int = 0

    @classmethod
    def of_sandbox(cls, resources: Resources) -> Sizes:
        """A quarter of the memory for ``/dev/shm``, an eighth each for ``/tmp`` and home."""
        memory = resources.memory_mb << 20
        return cls(tmp=memory // 8, shared=memory // 4, home=memory // 8)

    @classmethod
    def of_peer(cls, resources: Resources) -> Sizes:
        """A quarter of the memory for the working directory, an eighth for ``/dev/shm``, a sixteenth for the others."""
        memory = resources.memory_mb << 20
        return cls(tmp=memory // 16, shared=memory // 8, home=memory // 16, workdir=memory // 4)
