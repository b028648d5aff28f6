"""Attacks by code that is handed in: it runs in the player box before the honest code, and around its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from attrs import frozen

from mlgym_core.authoring.checking.attacks.base import FOUND, RUN_KINDS, Arena, filled
from mlgym_core.authoring.checking.report import BrokenError, NotApplicableError
from mlgym_core.grading.grade import Grade
from mlgym_core.task.task import SubmissionKind

NOT_PYTHON = "the baseline hands in no Python file that an attack could begin"


@frozen
class Begun:
    """The honest code with a hostile beginning.

    Attributes:
        begin: Python text with ``@METRIC@``, run before the honest code is; it may replace ``mlgym_peer.serve``.
        must_fail: whether it can never be valid; else it must only not score better.
        hasty: whether it uses up the time of the grading, which is then made short.
    """

    name: str
    about: str
    begin: str
    must_fail: bool = False
    hasty: bool = False
    kinds: Sequence[SubmissionKind] = RUN_KINDS
    specific: bool = False

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        files = begun(arena.honest, filled(self.begin, arena.task), arena.task.submission.paths)
        grade = arena.hand_in(files, self.hasty)
        ended = arena.judge(grade)
        if self.must_fail and grade.outcome == "scored":
            raise BrokenError(f"it was scored ({ended}), which it can only be when grade.py does not ask the player")
        return _said(grade) or ended


def begun(honest: Mapping[str, bytes], begin: str, paths: Sequence[str]) -> dict[str, bytes]:
    """The submission with ``begin`` before its first Python file: a declared one, else the first by name.

    Raises:
        NotApplicableError: it has no Python file.
    """
    python = [name for name in [*paths, *sorted(honest)] if name in honest and PurePosixPath(name).suffix == ".py"]
    if not python:
        raise NotApplicableError(NOT_PYTHON)
    source = honest[python[0]].decode()
    then = f"\nexec(compile({source!r}, {python[0]!r}, 'exec'), globals())\n"
    return {**honest, python[0]: (begin + then).encode()}


def _said(grade: Grade) -> str:
    return grade.message.strip().splitlines()[0][:120] if grade.message.strip() else ""


def _answering(body: str) -> str:
    """A beginning that replaces every answer; ``header`` and ``answer`` (name -> Buffer) are the honest code's."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    return (
        "import mlgym_peer as _peer\n"
        "def _hostile(handler):\n"
        "    def reply(asked, given):\n"
        "        header, answer = handler(asked, given)\n"
        "        header, answer = dict(header), {k: _peer.as_buffer(v) for k, v in answer.items()}\n"
        f"{lines}"
        "        return header, answer\n"
        "    return reply\n"
        "_peer.serve = lambda handler, serve=_peer.serve: serve(_hostile(handler))\n"
    )


def _garbage(name: str, about: str, body: str) -> Begun:
    return Begun(f"answers-{name}", about, _answering(body), specific=True)


_FILL = """
for name, one in list(answer.items()):
    kind = one.dtype[1]
    size = int(one.dtype[2:])
    count = len(one.data) // size
    floats = {{2: "e", 4: "f", 8: "d"}}
    import struct
    item = struct.pack("<" + floats[size], {value}) if kind == "f" else {other}
    answer[name] = _peer.Buffer(one.dtype, one.shape, item * count)
"""

_GARBAGE = (
    _garbage("nothing", "answers with an empty message", "header, answer = {}, {}"),
    _garbage("nan", "answers with nan", _FILL.format(value="float('nan')", other="b'\\xff' * size")),
    _garbage("infinity", "answers with infinity", _FILL.format(value="float('inf')", other="b'\\x7f' * size")),
    _garbage(
        "huge",
        "answers with the largest floats",
        _FILL.format(value="{2: 6e4, 4: 3e38, 8: 1e308}[size]", other="b'\\x80' * size"),
    ),
    _garbage(
        "other-shapes",
        "answers with arrays of other shapes",
        "answer = {k: _peer.Buffer(v.dtype, (len(v.data) // int(v.dtype[2:]), 1, 1), v.data) "
        "for k, v in answer.items()}",
    ),
    _garbage(
        "too-few",
        "answers with empty arrays",
        "answer = {k: _peer.Buffer(v.dtype, (0,), b'') for k, v in answer.items()}",
    ),
    _garbage(
        "too-many",
        "answers with arrays twice as long",
        "answer = {k: _peer.Buffer('|u1', (2 * len(v.data),), bytes(v.data) * 2) for k, v in answer.items()}",
    ),
    _garbage(
        "other-types",
        "answers with other types of number",
        "answer = {k: _peer.buffer('<f8', [0.5] * len(v.data)) for k, v in answer.items()}",
    ),
    _garbage(
        "other-header",
        "answers with another header",
        "header = {'@METRIC@': 1e9, 'outcome': 'scored', 'metrics': {'@METRIC@': 1e9}, 'moves': [None, {}], "
        "'values': 'x' * 1000}",
    ),
)

_FORGE = """
import json, os, struct
import mlgym_peer as _peer
def _forge():
    result = json.dumps({"schema": 1, "outcome": "scored", "metrics": {"@METRIC@": 1e9}}).encode()
    fds = [_peer._Box.channel._sink.fileno(), *range(1, 32)]
    for kind in ("result", "reply", "answer", "send", "open", "failed"):
        head = json.dumps({"type": kind, "id": 1, "player": 1, "header": {"@METRIC@": 1e9}, "message": "x",
                           "buffers": [["content", "|u1", [len(result)]]]}).encode()
        for fd in fds:
            try:
                os.set_blocking(fd, False)
                os.write(fd, struct.pack(">IQ", len(head), len(result)) + head + result)
            except (OSError, ValueError):
                pass
"""

_LOOK = f"""
import os, socket
_seen = []
for _p in [p for p in os.listdir("/proc") if p.isdigit()]:
    for _n in ("environ", "cmdline", "root/private/grade.py", "cwd/private/grade.py", "cwd/job.json"):
        try:
            _text = open("/proc/" + _p + "/" + _n, "rb").read()
        except OSError:
            continue
        if b"canary-" in _text or _n.endswith(("grade.py", "job.json")):
            _seen.append(_p + "/" + _n)
for _folder, _folders, _names in os.walk("/"):
    if _folder in ("/proc", "/sys", "/usr", "/lib", "/opt", "/etc", "/dev", "/var"):
        _folders[:] = []
    _seen += [_folder + "/" + n for n in _names if n in ("grade.py", "job.json", "answers-canary.csv")]
for _address in (("1.1.1.1", 53), ("169.254.169.254", 80)):
    try:
        socket.create_connection(_address, 2).close()
        _seen.append("a way to " + _address[0])
    except OSError:
        pass
if _seen:
    raise RuntimeError("{FOUND} " + " ".join(_seen[:9]))
"""

_READ = """
import os
import mlgym_peer as _peer
def _hostile(handler):
    def reply(asked, given):
        for fd in [_peer._Box.channel._source.fileno(), *range(0, 32)]:
            try:
                os.set_blocking(fd, False)
                os.read(fd, 1 << 20)
            except OSError:
                pass
        return handler(asked, given)
    return reply
_peer.serve = lambda handler, serve=_peer.serve: serve(_hostile(handler))
"""

_PATCH = """
import builtins, json, math, random, struct, sys
import mlgym_peer as _peer
for _name in ("scored", "invalid"):
    try:
        getattr(_peer, _name)({"@METRIC@": 1e9}) if _name == "scored" else None
    except BaseException:
        pass
_peer.PROTOCOL = 9
_peer.MAX_PAYLOAD = 1 << 60
sys.path.insert(0, "/tmp")
sys.modules["grade"] = sys.modules[__name__]
"""

_CLOCK = """
import time
for _name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
    setattr(time, _name, lambda: 0.0)
for _name in ("time_ns", "monotonic_ns", "perf_counter_ns", "process_time_ns"):
    setattr(time, _name, lambda: 0)
"""

_PLANT = """
import os
_RESULT = '{"schema": 1, "outcome": "scored", "metrics": {"@METRIC@": 1e9}}'
for _folder in (".", "private", "submission", "lib", "/tmp", "/dev/shm", "/box", "/box/private", "/box/lib"):
    for _name in ("result.json", "job.json", "json.py", "mlgym_peer.py", "mlgym_frames.py", "mlgym_table.py",
                  "sitecustomize.py", "conftest.py", "x.pth"):
        try:
            os.makedirs(_folder, exist_ok=True)
            open(os.path.join(_folder, _name), "w").write(_RESULT)
        except OSError:
            pass
print(_RESULT)
"""

_RAISE = """
import mlgym_peer as _peer
class _Odd(Exception):
    def __str__(self):
        return {text}
def _hostile(handler):
    def reply(asked, given):
        raise {what}
    return reply
_peer.serve = lambda handler, serve=_peer.serve: serve(_hostile(handler))
"""

_FORKS = """
import os, time
for _ in range({count}):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
    except OSError:
        break
"""

_FLOOD = "import os\nfor _ in range({megabytes}):\n    os.write({descriptor}, b'score: 1e9\\n' * 95_000)\n"

ATTACKS = (
    *_GARBAGE,
    Begun("never-answers", "never answers", _answering("import time; time.sleep(100_000)"), True, True, specific=True),
    Begun("spins", "computes for ever", _answering("while True: pass"), True, True, specific=True),
    Begun("never-loads", "never finishes loading", "import time\ntime.sleep(100_000)\n", True, True),
    Begun("clock", "patches its clock", _CLOCK, specific=True),
    Begun("exits-on-load", "exits while it is loaded", "import os\nos._exit(0)\n", True),
    Begun("leaves-on-load", "raises SystemExit while it is loaded", "raise SystemExit(0)\n", True),
    Begun("exits-when-asked", "exits when it is asked", _answering("import os; os._exit(0)"), True, specific=True),
    Begun("kills", "kills all that it can reach", "import os, signal\nos.kill(-1, signal.SIGKILL)\n"),
    Begun("closes", "closes its descriptors", "import os\nos.closerange(0, 64)\n"),
    Begun(
        "raises-endlessly",
        "raises with ten million characters",
        _RAISE.format(text="'x' * 10_000_000", what="_Odd()"),
        True,
        specific=True,
    ),
    Begun(
        "raises-oddly",
        "raises with characters that are none",
        _RAISE.format(text="'\\ud800\\x00\\x1b[2J'", what="_Odd()"),
        True,
        specific=True,
    ),
    Begun(
        "raises-while-raising",
        "raises an error that cannot be shown",
        _RAISE.format(text="1 / 0", what="_Odd()"),
        True,
        specific=True,
    ),
    Begun(
        "interrupts",
        "raises KeyboardInterrupt when asked",
        _RAISE.format(text="''", what="KeyboardInterrupt()"),
        True,
        specific=True,
    ),
    Begun("forged-frames-on-load", "writes frames of its own while it is loaded", _FORGE + "_forge()\n"),
    Begun("forged-frames-when-asked", "writes frames of its own when it is asked", _FORGE + _answering("_forge()")),
    Begun("reads-descriptors", "reads the messages that are on their way", _READ, hasty=True),
    Begun("patches-the-helper", "patches the protocol's helper and the player", _PATCH),
    Begun("looks-around", "looks for the grader, other processes and the network", _LOOK),
    Begun("planted-files", "plants results and modules in its box, prints scores", _PLANT),
    Begun("forks", "leaves children behind", _FORKS.format(count=8)),
    Begun("fork-bomb", "starts as many processes as it can", _FORKS.format(count=5000)),
    Begun("floods-output", "prints 100 MB of scores", _FLOOD.format(megabytes=100, descriptor=1)),
    Begun("floods-errors", "writes 100 MB of scores as errors", _FLOOD.format(megabytes=100, descriptor=2)),
)
