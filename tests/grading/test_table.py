"""Prediction files: what is read, what is refused and with which reason, and that nothing else ever happens."""

from __future__ import annotations

import csv
import io
import math
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from grading.boxes import PipeBackend, grade_csv
from hypothesis import example, given
from hypothesis import strategies as st

from mlgym_core.grading import inside

IDS = ["a", "b", "c"]
GOOD = b"Id,SalePrice\na,1\nb,2.5\nc,-3e2\n"
Read = Callable[..., dict[str, list[Any]]]


@pytest.fixture(scope="module")
def table() -> Iterator[ModuleType]:
    """The module as a grader imports it: beside ``mlgym_peer``."""
    folder = str(Path(inside.__file__).parent)
    sys.path.insert(0, folder)
    import mlgym_table

    yield mlgym_table
    sys.path.remove(folder)
    for name in ("mlgym_table", "mlgym_peer", "mlgym_frames"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def read(table: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Read:
    path = tmp_path_factory.mktemp("table") / "submission.csv"

    def reading(data: bytes, columns: Any = ("SalePrice",), ids: Any = IDS, **options: Any) -> dict[str, list[Any]]:
        path.write_bytes(data)
        found: dict[str, list[Any]] = table.read_predictions(path, "Id", columns, ids, **options)
        return found

    return reading


@pytest.mark.parametrize(
    "data",
    [
        GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + GOOD,
        GOOD.rstrip(b"\n"),
        GOOD + b"\n\r\n\n",
        b"Id,SalePrice\nc,-300\na,+1.\nb,25E-1\n",
        b"SalePrice,Id\n1,a\n2.5,b\n-300.0,c\n",
        b'"Id","SalePrice"\n"a","1"\n"b","2.5"\n"c","-300"\n',
    ],
)
def test_what_is_read(read: Read, data: bytes) -> None:
    assert read(data) == {"SalePrice": [1.0, 2.5, -300.0]}


def test_several_columns_stand_where_their_header_stands(read: Read) -> None:
    data = b"y,Id,x\n1,c,2\n3,a,4\n5,b,6\n"
    assert read(data, ["x", "y"]) == {"x": [4, 6, 2], "y": [3, 5, 1]}


REFUSED = {
    "empty": (b"", "submission.csv is empty; expected the header Id,SalePrice"),
    "only a mark": (b"\xef\xbb\xbf", "is empty"),
    "only blank lines": (b"\n\n\n", "is empty"),
    "blank lines without end": (GOOD + b"\n" * 101, "line 5 and more than 100 after it are blank"),
    "header alone": (b"Id,SalePrice\n", "3 of 3 ids have no row, for example 'a', 'b', 'c'"),
    "no header": (b"a,1\nb,2\nc,3\n", "line 1: the header is 'a,1', expected Id,SalePrice"),
    "wrong header": (b"id,price\na,1\n", "line 1: the header is 'id,price', expected Id,SalePrice"),
    "spaces in the header": (b"Id, SalePrice\na,1\n", "the header is 'Id, SalePrice'"),
    "index": (b",Id,SalePrice\n0,a,1\n", "may be an index: leave it out"),
    "extra column": (b"Id,SalePrice,x\na,1,2\n", "the header is 'Id,SalePrice,x'"),
    "column twice": (b"Id,SalePrice,SalePrice\na,1,2\n", "the header is 'Id,SalePrice,SalePrice'"),
    "semicolons": (b"Id;SalePrice\na;1\n", "separate cells with commas"),
    "tabs": (b"Id\tSalePrice\na\t1\n", "separate cells with commas"),
    "JSON lines": (b'{"Id": "a", "SalePrice": 1}\n', "looks like JSON; expected CSV"),
    "JSON": (b'[{"Id": "a", "SalePrice": 1}]\n', "looks like JSON; expected CSV"),
    "extra cell": (b"Id,SalePrice\na,1,2\n", "line 2: 3 cells, expected 2"),
    "one cell": (b"Id,SalePrice\na\n", "line 2: 1 cell, expected 2"),
    "thousands": (b"Id,SalePrice\na,1,000\n", "numbers have no thousands separators"),
    "quoted thousands": (b'Id,SalePrice\na,"1,000"\n', "line 2, column SalePrice: '1,000' is not a number"),
    "blank between": (b"Id,SalePrice\na,1\n\nb,2\n", "line 3 is blank, and rows follow it"),
    "duplicate": (b"Id,SalePrice\na,1\nb,2\na,3\n", "line 4, column Id: id 'a' is on line 2 already"),
    "missing": (b"Id,SalePrice\na,1\nc,2\n", "1 of 3 ids have no row, for example 'b'"),
    "unknown": (b"Id,SalePrice\na,1\nz,2\n", "line 3, column Id: unknown id 'z'; expected exactly the 3 ids"),
    "id with a space": (b"Id,SalePrice\n a,1\n", "unknown id ' a'"),
    "ten times": (GOOD + b"a,1\nb,2\nc,3\n" * 9, "line 5, column Id: id 'a' is on line 2 already"),
    "nan": (b"Id,SalePrice\na,NaN\n", "line 2, column SalePrice: 'NaN' stands for a missing value"),
    "inf": (b"Id,SalePrice\na,-Infinity\n", "'-Infinity' is infinite"),
    "null": (b"Id,SalePrice\na,null\n", "'null' stands for a missing value"),
    "none": (b"Id,SalePrice\na,None\n", "'None' stands for a missing value"),
    "nothing": (b"Id,SalePrice\na,\n", "line 2, column SalePrice: the cell is empty; expected a finite decimal number"),
    "space": (b"Id,SalePrice\na, \n", "the cell is empty"),
    "text": (b"Id,SalePrice\na,about 5\n", "'about 5' is not a number"),
    "padded": (b"Id,SalePrice\na, 5\n", "' 5' is not a number"),
    "overflow": (b"Id,SalePrice\na,1e999\n", "'1e999' is too large to be a number"),
    "long number": (b"Id,SalePrice\na," + b"1" * 5000 + b"\n", "is not a number"),
    "out of range": (b"Id,SalePrice\na,-1e101\n", "'-1e101' is out of range; expected a number from -1e+100 to 1e+100"),
    "hex": (b"Id,SalePrice\na,0x1p3\n", "'0x1p3' is not a number"),
    "underscore": (b"Id,SalePrice\na,1_000\n", "'1_000' is not a number"),
    "decimal comma": (b'Id,SalePrice\na,"1,5"\n', "'1,5' is not a number"),
    "other digits": ("Id,SalePrice\na,\u0661\u0662\n".encode(), "is not a number"),
    "currency": (b"Id,SalePrice\na,$5\n", "'$5' is not a number"),
    "formula": (b"Id,SalePrice\na,=1+1\n", "'=1+1' is not a number"),
    "code": (b"Id,SalePrice\na,__import__('os').getpid()\n", "is not a number"),
    "pickle": (b"Id,SalePrice\na,cos\\nsystem\\n(S'id'\\ntR.\n", "is not a number"),
    "binary pickle": (b"\x80\x04\x95\x1a\x00\x00\x00\x00\n", "line 1 has a NUL byte in it, at byte 5"),
    "NUL": (b"Id,SalePrice\na,1\x00\n", "line 2 has a NUL byte in it, at byte 4"),
    "not UTF-8": (b"Id,SalePrice\na,\xff\n", "line 2 is not UTF-8, at byte 3"),
    "UTF-16": ("Id,SalePrice\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
    "old Mac": (b"Id,SalePrice\ra,1\r", "line 1 has a carriage return in it, at byte 13"),
    "open quote": (b'Id,SalePrice\na,"1\nb,2\n', "quotes must be balanced and a cell must not go over several lines"),
    "text after a quote": (b'Id,SalePrice\na,"1"2\n', "line 2 is not CSV"),
    "long line": (b"Id,SalePrice\na," + b"1" * 70_000, "line 2 is longer than 65536 bytes"),
    "long header": (b"x" * 70_000, "line 1 is longer than 65536 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(read: Read, table: ModuleType, name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(table.InvalidSubmission) as caught:
        read(data)
    assert __import__("re").search(
        reason.replace("(", r"\(").replace("+", r"\+").replace("$", r"\$"), str(caught.value)
    )
    assert len(str(caught.value)) < 400


def test_what_is_no_file(table: ModuleType, tmp_path: Path) -> None:
    for name, make, reason in (
        ("absent.csv", lambda path: None, "absent.csv is missing"),
        ("folder.csv", Path.mkdir, "folder.csv is a folder; expected a CSV file"),
        ("link.csv", lambda path: path.symlink_to("/etc/passwd"), "is a link or a device"),
        ("pipe.csv", os.mkfifo, "is a link or a device"),
    ):
        make(tmp_path / name)
        with pytest.raises(table.InvalidSubmission, match=reason):
            table.read_predictions(tmp_path / name, "Id", ["x"], IDS)


def test_labels(read: Read, table: ModuleType) -> None:
    options = {"columns": ["label"], "kind": "label", "labels": ["0", "1", "2"]}
    assert read(b"Id,label\nb,2\na,0\nc,1\n", **options) == {"label": ["0", "2", "1"]}
    for cell in (b"3", b"1.0", b" 1", b"one", b"-1"):
        with pytest.raises(table.InvalidSubmission, match=r"line 2, column label: .*; expected one of: 0, 1, 2"):
            read(b"Id,label\na," + cell + b"\n", **options)
    with pytest.raises(table.InvalidSubmission, match="the cell is empty; expected one of"):
        read(b"Id,label\na,\n", **options)


def test_text_is_taken_as_it_is(read: Read, table: ModuleType) -> None:
    cells = ["=cmd|' /C calc'!A0", 'a "dog", running', "\u00fcber \u2028 a\u00df"]
    data = io.StringIO()
    csv.writer(data, lineterminator="\n").writerows([("Id", "caption"), *zip(IDS, cells, strict=True)])
    assert read(data.getvalue().encode(), ["caption"], kind="text") == {"caption": cells}
    for cell, reason in ((b"", "the cell is empty; expected text"), (b"x" * 10_001, "10001 characters")):
        with pytest.raises(table.InvalidSubmission, match=reason):
            read(b"Id,caption\na," + cell + b"\n", ["caption"], kind="text")


def test_the_example_of_a_missing_id_does_not_depend_on_the_graders_order(read: Read, table: ModuleType) -> None:
    ids = [f"{number:03}" for number in range(20)]
    reasons = set()
    for order in (ids, ids[::-1], ids[10:] + ids[:10]):
        with pytest.raises(table.InvalidSubmission) as caught:
            read(b"Id,SalePrice\n004,1\n", ids=order)
        reasons.add(str(caught.value))
    assert reasons == {"19 of 20 ids have no row, for example '000', '001', '002'"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"ids": ["a", "a"]}, "ids must differ"),
        ({"columns": []}, "at least one"),
        ({"columns": ["Id"]}, "so must the columns"),
        ({"columns": ["x", "x"]}, "so must the columns"),
        ({"kind": "image"}, "kind is number, label or text"),
        ({"kind": "label"}, "needs labels"),
        ({"kind": "label", "labels": [1]}, "needs labels, as text"),
    ],
)
def test_mistakes_of_the_grader_are_not_the_agents(read: Read, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(GOOD, **arguments)


@pytest.mark.parametrize(
    "data",
    [b"Id,SalePrice\n" + b"\n" * 5_000_000, b"Id,SalePrice\na,1\nb," + b"2" * 5_000_000, GOOD + b"a,1\n" * 1_000_000],
    ids=["blank", "long", "rows"],
)
def test_memory_is_bounded_by_the_ids(read: Read, table: ModuleType, data: bytes) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(table.InvalidSubmission):
            read(data)
        assert tracemalloc.get_traced_memory()[1] - before < 1_000_000
    finally:
        tracemalloc.stop()


cells = st.one_of(st.text(max_size=12), st.floats().map(repr), st.sampled_from(["a", "b", "c", "Id", "1", '"', "=1"]))


@given(st.binary(max_size=200))
@example(b"Id,SalePrice\na,1\nb,2\nc,3")
def test_any_bytes_are_read_or_refused(read: Read, table: ModuleType, data: bytes) -> None:
    for start in (b"", b"Id,SalePrice\n", b"Id,SalePrice\na,"):
        try:
            found = read(start + data)
        except table.InvalidSubmission as error:
            assert str(error)
        else:
            assert len(found["SalePrice"]) == 3
            assert all(math.isfinite(value) for value in found["SalePrice"])


@given(st.lists(st.lists(cells, max_size=4), max_size=6))
def test_any_table_is_read_or_refused(read: Read, table: ModuleType, rows: list[list[str]]) -> None:
    data = io.StringIO()
    csv.writer(data).writerows([["Id", "SalePrice"], *rows])
    try:
        found = read(data.getvalue().encode("utf-8", "surrogatepass"))
    except table.InvalidSubmission as error:
        assert str(error)
    else:
        assert sorted(row[0] for row in rows if row) == IDS
        assert found["SalePrice"] == [float(dict(row for row in rows if row)[one]) for one in IDS]


@given(st.data())
def test_whatever_a_csv_writer_writes_comes_back(read: Read, data: st.DataObject) -> None:
    names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
    ids = data.draw(st.lists(names, min_size=1, max_size=8, unique=True))
    values = data.draw(st.lists(st.floats(-1e99, 1e99), min_size=len(ids), max_size=len(ids)))
    order = data.draw(st.permutations(range(len(ids))))
    end, mark = data.draw(st.sampled_from(["\n", "\r\n"])), data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    text = io.StringIO()
    writer = csv.writer(
        text, lineterminator=end, quoting=data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    )
    writer.writerow(["Id", "SalePrice"])
    writer.writerows([ids[place], repr(values[place])] for place in order)
    assert read(mark + text.getvalue().encode(), ids=ids) == {"SalePrice": values}


def test_a_grader_finds_it_in_its_box_and_its_reasons_reach_the_agent(tmp_path: Path, backend: PipeBackend) -> None:
    text = (
        "import mlgym_table as table\n"
        "path = peer.job().paths['submission'] / 'answer.csv'\n"
        "values = table.read_predictions(path, 'a', ['b'], ids={})['b']\n"
        "peer.scored({{'Score': values[0]}})\n"
    )
    assert grade_csv(tmp_path / "good", backend, text.format(["1"])).metrics == {"Score": 2.0}
    grade = grade_csv(tmp_path / "bad", backend, text.format(["1", "7"]))
    assert (grade.outcome, grade.message) == ("invalid_submission", "1 of 2 ids have no row, for example '7'")
