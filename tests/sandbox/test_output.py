from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlgym_core.sandbox.base import Captured
from mlgym_core.sandbox.shell.exchange import Exchange
from mlgym_core.sandbox.shell.output import PAYLOAD_BYTES, Allowance, Capture, MarkerScanner, for_model, new_token

TOKENS = (b"a" * 24, b"b" * 24)
# Bytes and fragments of which markers are made, so that near misses are common.
MARKER_BYTES = len(b"\x1e:\x1e") + 24 + PAYLOAD_BYTES  # the longest marker; of a shorter text more may come

fragments = st.lists(
    st.sampled_from(
        [b"\x1e", TOKENS[0], TOKENS[1], b":", b"\x1e" + TOKENS[0], b"x", b"\n", b"1:2", b"a" * 23, b"y" * 70]
    )
).map(b"".join)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def scan(chunks: list[bytes], flush: bool = True) -> tuple[bytes, bytes, dict[bytes, bytes]]:
    output, late = bytearray(), bytearray()
    scanner = MarkerScanner(TOKENS, output.extend, late.extend)
    for chunk in chunks:
        scanner.feed(chunk)
        assert len(scanner._pending) < MARKER_BYTES
    if flush:
        scanner.flush()
    return bytes(output), bytes(late), scanner.found


@given(st.lists(st.binary(max_size=50)), st.integers(0, 40), st.integers(0, 40))
def test_capture_keeps_both_ends(chunks: list[bytes], head: int, tail: int) -> None:
    capture = Capture(head=head, tail=tail)
    for chunk in chunks:
        capture.feed(chunk)
    whole, kept = b"".join(chunks), capture.result()
    assert kept.total == len(whole)
    assert kept.truncated is (len(whole) > head + tail)
    if kept.truncated:
        assert kept.head == whole[:head]
        assert kept.tail == (whole[-tail:] if tail else b"")
    else:
        assert kept.head + kept.tail == whole


@pytest.mark.parametrize(("size", "spooled"), [(9, None), (10, None), (11, 11), (15, 15), (16, 15), (1000, 15)])
def test_spool_begins_when_memory_is_full_and_ends_at_its_cap(tmp_path: Path, size: int, spooled: int | None) -> None:
    path = tmp_path / "deep" / "1.stdout"
    capture = Capture(path, head=6, tail=4, spool_cap=15)
    data = bytes(number % 251 for number in range(size))
    for start in range(0, size, 3):
        capture.feed(data[start : start + 3])
    kept = capture.result()
    if spooled is None:
        assert kept.spool is None
        assert not path.exists()
    else:
        assert kept.spool == path
        assert path.read_bytes() == data[:spooled]


def test_spool_that_cannot_be_written_costs_only_the_spool(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    capture = Capture(tmp_path / "file" / "1.stdout", head=2, tail=2)
    capture.feed(b"0123456789")
    assert capture.result() == Captured(b"01", b"89", 10, None)


@given(fragments, st.lists(st.integers(0)))
@example(b"\x1e" + b"a" * 24 + b":" + b"y" * 70, [])
@example(b"\x1e" + b"a" * 24 + b":" + b"y" * PAYLOAD_BYTES, [])
@example(b"\x1e" + b"a" * 24 + b":" + b"y" * (PAYLOAD_BYTES + 1), [])
def test_scanner_does_not_depend_on_where_chunks_are_cut(data: bytes, cuts: list[int]) -> None:
    assert scan(chunked(data, cuts)) == scan([data])


@given(fragments, st.integers(0, 1), st.lists(st.integers(0)))
def test_scanner_finds_the_marker_and_splits_there(before: bytes, which: int, cuts: list[int]) -> None:
    plain = before.replace(b"\x1e", b"")
    marker = b"\x1e" + TOKENS[which] + b":7:42\x1e"
    output, late, found = scan(chunked(plain + marker + b"after", cuts), flush=False)
    assert (output, late, found) == (plain, b"after", {TOKENS[which]: b"7:42"})


@given(st.binary(max_size=300), st.lists(st.integers(0)))
def test_scanner_passes_everything_else_on(data: bytes, cuts: list[int]) -> None:
    assert scan(chunked(data, cuts)) == (data, b"", {})


@pytest.mark.parametrize("killed", [False, True])
def test_what_comes_behind_the_end_belongs_to_the_next_request_or_to_the_one_that_is_killed(killed: bool) -> None:
    own, late = (Capture(), Capture()), (Capture(), Capture())
    exchange = Exchange(TOKENS[1], own, late)
    if killed:
        exchange.keep_late()
    for stream in (1, 2):
        exchange.feed(stream, b"before\x1e" + TOKENS[1] + b":137\x1ebehind")
    assert exchange.shell_ended
    assert [one.head for one in exchange.results()] == [b"beforebehind" if killed else b"before"] * 2
    assert [capture.result().head for capture in late] == [b"" if killed else b"behind"] * 2


def test_scanner_is_not_fooled() -> None:
    for data in (
        b"\x1e" + b"c" * 24 + b":0\x1e",  # another token
        b"\x1e" + TOKENS[0] + b"\x1e",  # no payload
        b"\x1e" + TOKENS[0] + b":" + b"p" * (PAYLOAD_BYTES + 1) + b"\x1e",  # a payload too long
        b"\x1e" * 5000,
    ):
        assert scan([data]) == (data, b"", {})


def test_both_markers_of_a_stream_are_found() -> None:
    data = b"out\x1e" + TOKENS[0] + b":0\x1elate\x1e" + TOKENS[1] + b":137\x1elater"
    assert scan([data]) == (b"out", b"latelater", {TOKENS[0]: b"0", TOKENS[1]: b"137"})


def test_tokens_fit_markers_and_differ() -> None:
    token = new_token()
    assert token != new_token()
    scanner = MarkerScanner((token,), lambda _: None)
    scanner.feed(b"\x1e" + token + b":\x1e")
    assert scanner.found == {token: b""}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain\n", "plain\n"),
        (b"bad \xff byte", "bad \ufffd byte"),
        (b"10%\r50%\r100%\nnext", "100%\nnext"),
        (b"10%\r100%\r", "100%"),
        (b"dos\r\nlines\r\n", "dos\nlines\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b[2Kcleared\x1b[?25l", "red cleared"),
        (b"\x1b]0;title\x07text \x1b]8;;url\x1b\\link\x1b]8;;\x1b\\", "text link"),
        (b"\x1b]unfinished\nkept", "\nkept"),
        (b"\x1b(Bx\x1b=y\x1b", "xy"),
    ],
)
def test_model_sees_clean_text(raw: bytes, shown: str) -> None:
    assert for_model(Captured(raw, b"", len(raw))) == shown


def test_model_sees_how_much_was_dropped() -> None:
    assert for_model(Captured(b"head\n", b"tail", 109)) == "head\n[... 100 bytes dropped ...]\ntail"
    assert for_model(Captured(b"head", b"tail", 108)) == "head\n[... 100 bytes dropped ...]\ntail"


def test_character_across_head_and_tail_is_whole() -> None:
    raw = "\u00e9".encode()
    assert for_model(Captured(raw[:1], raw[1:], 2)) == "\u00e9"


@given(st.binary())
def test_model_never_sees_escapes_or_carriage_returns(raw: bytes) -> None:
    text = for_model(Captured(raw, b"", len(raw)))
    assert "\x1b" not in text
    assert "\r" not in text


@given(st.text(alphabet=st.characters(blacklist_categories=("Cc", "Cs"))))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    raw = text.encode()
    assert for_model(Captured(raw, b"", len(raw))) == text


def test_spool_files_of_a_run_share_an_allowance(tmp_path: Path) -> None:
    allowance = Allowance(1000)
    first = Capture(tmp_path / "1", head=10, tail=10, spool_cap=700, allowance=allowance)
    first.feed(b"a" * 5000)
    second = Capture(tmp_path / "2", head=10, tail=10, spool_cap=700, allowance=allowance)
    second.feed(b"b" * 5000)
    third = Capture(tmp_path / "3", head=10, tail=10, allowance=allowance)
    third.feed(b"c" * 5000)
    result = [capture.result() for capture in (first, second, third)]
    assert [len(path.read_bytes()) for path in (tmp_path / "1", tmp_path / "2")] == [700, 300]
    assert [one.spool for one in result] == [tmp_path / "1", tmp_path / "2", None]
    assert (result[2].head, result[2].tail, result[2].total) == (b"c" * 10, b"c" * 10, 5000)
