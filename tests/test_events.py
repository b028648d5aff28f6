"""The vocabulary of records: nothing is lost between writing and reading, the format stands still, the page is true."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.models.base import Reply, ToolCall, Usage
from mlgym_core.record import events, page
from mlgym_core.record.endings import REASONS, STATUSES, Reason, Status
from mlgym_core.record.eventjson import from_json, to_json
from mlgym_core.record.events import KINDS, Event, UnknownEvent
from mlgym_core.record.folder import EVENTS
from mlgym_core.record.reader import read_events
from mlgym_core.record.redact import Redactor
from mlgym_core.record.strictjson import encode
from mlgym_core.record.writer import RunRecord
from mlgym_core.runner.document import EXIT_CODES

PAGE = Path(__file__).parents[1] / "docs" / "records.md"

#: What stands in every record that has ever been written, in this order.
FORMAT = {
    "start": "task protocol size source seed model agent backend sealed missing_capabilities validate_on network "
    "versions limits why folder",
    "progress": "text",
    "notice": "text",
    "reaped": "removed",
    "image": "role reference digest",
    "reset": "seconds workdir",
    "tools": "tools",
    "message": "id role content tool_calls tool_call_id",
    "model_request": "messages left_out tools",
    "model_attempt": "attempt cost_usd tokens",
    "model_reply": "message reply cost_usd tokens",
    "malformed_reply": "attempt message",
    "action": "tool text",
    "refusal": "tool arguments observation",
    "step": "step tool arguments observation info seconds done",
    "grade": "step split archive grade",
    "invalid_submission": "message",
    "tool_failed": "tool error",
    "agent_failed": "traceback",
    "sandbox_lost": "message",
    "kept": "how_to_enter",
    "commitment": "archives",
    "test_drawn": "",
    "end": "status reason message",
}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if typing.get_origin(kind) is Mapping:
        return st.dictionaries(TEXT, values(inner[1]), max_size=3)
    if inner:
        return st.none() | values(inner[0])
    return {str: TEXT, int: INTEGERS, float: NUMBERS, bool: st.booleans(), Any: JSON}[kind]


def extras(form: type[Event]) -> st.SearchStrategy[dict[str, Any]]:
    taken = {"kind", *(one.name for one in attrs.fields(form))} - {"extra"}
    return st.dictionaries(TEXT.filter(lambda name: name not in taken), JSON, max_size=3)


def known(form: type[Event]) -> st.SearchStrategy[Event]:
    types = typing.get_type_hints(form)
    own = {one.name: values(types[one.name]) for one in attrs.fields(form) if one.name != "extra"}
    return st.builds(form, **own, extra=extras(form))


UNKNOWN = st.builds(UnknownEvent, TEXT.filter(lambda name: name not in KINDS), t=NUMBERS, extra=extras(UnknownEvent))
ANY = st.one_of(UNKNOWN, *map(known, KINDS.values()))


def written(event: Event) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(encode(to_json(event)))
    return raw


@given(ANY)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    raw = written(event)
    assert list(raw)[:2] == ["t", "kind"]
    assert from_json(raw) == event


@given(st.lists(ANY, max_size=4), st.floats(0, 1))
def test_a_record_that_is_cut_anywhere_holds_the_events_before(wrote: list[Event], share: float) -> None:
    with TemporaryDirectory() as folder, RunRecord(Path(folder) / "run", "r") as record:
        for event in wrote:
            record.event(event)
        read = list(read_events(record.folder))
        assert [attrs.evolve(event, t=0.0) for event in read] == [attrs.evolve(event, t=0.0) for event in wrote]
        path = record.folder / EVENTS
        whole = path.read_bytes()
        cut = int(share * len(whole))
        path.write_bytes(whole[:cut])
        lacks_only_its_end = whole[cut : cut + 1] == b"\n"
        assert list(read_events(record.folder)) == read[: whole[:cut].count(b"\n") + lacks_only_its_end]


@given(
    st.sampled_from([*KINDS, "newer"]), st.dictionaries(st.sampled_from(" ".join(FORMAT.values()).split()), JSON), JSON
)
def test_nothing_that_another_version_wrote_is_lost(kind: str, content: dict[str, Any], new: Any) -> None:
    raw = {"t": 1.5, "kind": kind, **content, "new": new}
    again = written(from_json(raw))
    assert {name: again[name] for name in raw} == raw


def test_a_field_that_an_older_version_did_not_write_has_its_default() -> None:
    step = from_json({"t": 1, "kind": "step", "step": 3, "tool": "bash", "observation": "x"})
    assert step == events.Step(3, "bash", observation="x", t=1.0)
    assert from_json({"kind": "start", "task": "blotto"}) == events.Start(task="blotto")


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "grade", "split": "dev"},
        {"kind": "step", "step": "3", "tool": "bash"},
        {"kind": "step", "step": True, "tool": "bash"},
        {"kind": "reaped", "removed": "abc"},
        {"kind": "model_request", "messages": [1, "2"]},
        {"kind": "model_reply", "reply": ["x"]},
    ],
)
def test_an_event_that_is_not_what_its_kind_says_is_none_of_it(raw: dict[str, Any]) -> None:
    event = from_json(raw)
    assert isinstance(event, UnknownEvent)
    assert written(event) == {"t": 0.0, **raw}


def test_a_field_of_its_own_cannot_be_an_extra_one() -> None:
    with pytest.raises(ValueError, match="progress has a field 'text'"):
        events.Progress("x", extra={"text": "y"})
    with pytest.raises(ValueError, match="mine has a field 'kind'"):
        UnknownEvent("mine", extra={"kind": "yours"})


def test_records_stay_as_they_are() -> None:
    assert {name: [one.name for one in attrs.fields(form)][2:] for name, form in KINDS.items()} == {
        name: names.split() for name, names in FORMAT.items()
    }
    said = events.Message(1, "user", "hello")
    assert json.dumps(to_json(said)) == (
        '{"t": 0.0, "kind": "message", "id": 1, "role": "user", "content": "hello", "tool_call_id": null}'
    )
    reply = Reply("", (ToolCall("1", "bash", {"command": "ls"}),), Usage(3, 4))
    assert json.dumps(to_json(events.ModelReply(reply, 0.5, 7, message=2))) == (
        '{"t": 0.0, "kind": "model_reply", "message": 2, "reply": {"text": "", "tool_calls": [{"id": "1", '
        '"name": "bash", "arguments": {"command": "ls"}}], "usage": {"prompt_tokens": 3, '
        '"completion_tokens": 4, "cost_usd": 0.0, "cached_tokens": null, "reasoning_tokens": null}, "raw": {}, '
        '"provider": {}, "cut": false}, "cost_usd": 0.5, "tokens": 7}'
    )


def test_a_secret_that_is_a_word_of_the_vocabulary_leaves_it_readable() -> None:
    redact = Redactor(["observation", "progress"])
    step = to_json(events.Step(1, "bash", observation="an observation", extra={"observations": 1}), redact)
    assert (step["observation"], step["[redacted]s"]) == ("an [redacted]", 1)
    assert to_json(events.Progress("progress"), redact) == {"t": 0.0, "kind": "progress", "text": "[redacted]"}


def test_the_page_says_what_the_vocabulary_says() -> None:
    text = PAGE.read_text("utf-8")
    assert page.current(text) == text, "run: python -m mlgym_core.record.page docs/records.md"
    for name, form in KINDS.items():
        assert f"**`{name}`** " in text
        for one in attrs.fields(form)[2:]:
            assert f"\n- `{one.name}`: " in text.split(f"**`{name}`**")[1].split("\n**")[0], f"{name}.{one.name}"


def test_statuses_and_reasons_are_one_vocabulary() -> None:
    assert set(STATUSES) == set(typing.get_args(Status)) == set(EXIT_CODES)
    assert set(REASONS) == set(typing.get_args(Reason))
