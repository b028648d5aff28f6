"""Records: strict JSON, append-only, no secrets, readable after a crash, clear about a full disk."""

from __future__ import annotations

import enum
import json
import math
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.errors import RecordError
from mlgym_core.record import events
from mlgym_core.record.folder import EVENTS, new_run_id
from mlgym_core.record.reader import events_of, read_events, read_result
from mlgym_core.record.redact import Redactor
from mlgym_core.record.strictjson import encode, plain
from mlgym_core.record.writer import RunRecord


def test_events_are_on_disk_as_soon_as_they_are_written(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "r1") as record:
        record.event(events.Notice("héllo\nworld"))
        assert [event.text for event in events_of(record.folder, events.Notice)] == ["héllo\nworld"]


def test_a_torn_last_line_is_left_out_and_a_damaged_earlier_one_is_not(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "r1") as record:
        record.event(events.Notice("a"))
        record.event(events.Notice("b"))
    path = tmp_path / "run" / EVENTS
    whole = path.read_bytes()
    for cut in range(len(whole.splitlines()[1])):
        path.write_bytes(whole[: len(whole) - cut])
        assert [event.text for event in events_of(path.parent, events.Notice)] == (["a"] if cut > 1 else ["a", "b"])
    for damage in (b"{broken\n", b"[" * 100_000 + b"\n", b"[1]\n", b'{"t": 1}\n', b'{"t": "1", "kind": "a"}\n'):
        path.write_bytes(damage + whole)
        with pytest.raises(RecordError, match="line 1"):
            list(read_events(path.parent))


def test_a_folder_is_used_for_one_run_only(tmp_path: Path) -> None:
    with RunRecord(tmp_path, "r1") as record:
        record.manifest({})
    with pytest.raises(RecordError, match="--out"):
        RunRecord(tmp_path, "r2")


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"score": math.nan})


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (math.nan, None),
        ("\ud800x", "?x"),
        ({1: (Path("/a"), {"b"})}, {"1": ["/a", ["b"]]}),
        (Colour.RED, "red"),
        (True, True),
        (b"\xff", "b'\\xff'"),
        (10**400, "huge"),
        ({"a": math.inf}, {"a": None}),
    ],
)
def test_odd_values_become_plain_ones(value: object, recorded: object) -> None:
    assert json.loads(encode(plain(value))) == recorded


def test_endless_nesting_is_cut() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert len(encode(plain(loop))) < 1000


@given(st.text(min_size=8, max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_secrets_never_reach_a_record(secret: str, before: str, after: str) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder, RunRecord(Path(folder) / "r", "r", Redactor([secret])) as record:
        record.event(events.Notice(before + secret + after))
        result = record.result({"message": before + secret + after})
        said = [event.text for event in events_of(record.folder, events.Notice)]
    for text in [result["message"], *said]:
        assert "[redacted]" in text
        assert secret not in text or secret in "[redacted]" or secret in (before + "[redacted]" + after)


def test_keys_in_the_environment_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
    monkeypatch.setenv("SHORT_KEY", "abc")
    redact = Redactor.from_environment()
    assert redact("the key sk-0123456789, abc") == "the key [redacted], abc"


def test_keys_in_dotenv_are_secrets_whatever_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bearer-0123")
    monkeypatch.setenv("MLGYM_TOKENS", "10000000")
    (tmp_path / ".env").write_text(
        "DB_PASSWORD_MAIN=hunter2-hunter2\nMY_CREDENTIALS='a b c d e'\nNAME=something-else\n"
    )
    text = "bearer-0123 10000000 hunter2-hunter2 a b c d e something-else"
    assert Redactor.from_environment()(text) == "[redacted] 10000000 [redacted] [redacted] something-else"
    (tmp_path / ".env").write_bytes(b"\xff")
    assert Redactor.from_environment()("bearer-0123") == "[redacted]"


class Odd:
    def __repr__(self) -> str:
        return "x" * 990 + "sk-0123456789-long-secret"


def test_secrets_go_before_a_text_is_shortened() -> None:
    redact = Redactor(["sk-0123456789-long-secret"])
    assert plain(Odd(), redact) == "x" * 990 + "[redacted]"


def test_results_are_read_back(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "r1") as record:
        written = record.result({"status": "scored", "path": tmp_path})
    assert read_result(tmp_path / "run") == written
    assert written["schema"] == 1
    with pytest.raises(RecordError, match="finished run"):
        read_result(tmp_path)
    for text in ("{", "[" * 100_000):
        (tmp_path / "result.json").write_text(text)
        with pytest.raises(RecordError, match="not JSON"):
            read_result(tmp_path)


def test_run_ids_are_unique() -> None:
    assert len({new_run_id("t") for _ in range(100)}) == 100


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with RunRecord(disk / "run", "r1") as record, pytest.raises(RecordError, match=r"No space left.*--out"):
            for _ in range(100):
                record.event(events.Notice("x" * 4096))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_an_unwritable_folder_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="--out"):
        RunRecord(tmp_path / "file" / "run", "r1")


def test_a_manifest_is_replaced_as_a_whole(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "run", "r1") as record:
        record.manifest({"seeds": {"grading": None}})
        record.manifest({"seeds": {"grading": "ff"}})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seeds"] == {"grading": "ff"}
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["events.jsonl", "output", "run.json", "submissions"]
