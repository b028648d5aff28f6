"""The preparation: the fixed split, what is public and what is not, and every source."""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request

import pytest

from mlgym_core import data
from mlgym_core.data import Prepared
from mlgym_core.errors import InfrastructureError, UsageError
from mlgym_core.task.task import Task


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path / "kaggle"))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def split_of(task: Task) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((task.folder / "data_split.json").read_text())
    return found


def test_the_split_is_the_published_one(task: Task) -> None:
    from sklearn import model_selection as selection

    rest, test = selection.train_test_split(range(1, 1461), test_size=0.2, random_state=42)
    _, dev = selection.train_test_split(rest, test_size=0.125, random_state=42)
    assert split_of(task) == {"dev": sorted(dev), "test": sorted(test)}


def test_the_split_has_the_published_sizes(task: Task) -> None:
    split = split_of(task)
    assert (len(split["dev"]), len(split["test"])) == (146, 292)
    assert len(set(split["dev"]) | set(split["test"])) == 438
    # The first and last test rows of scikit-learn's permutation under seed 42.
    assert {893, 1106, 414} <= set(split["test"])


def test_every_row_is_somewhere_and_labels_are_private(task: Task, table: Path, prepared: Prepared) -> None:
    assert prepared.public is not None
    assert prepared.private is not None
    original = {row["Id"]: row for row in rows(table)}
    train, test = rows(prepared.public / "train.csv"), rows(prepared.public / "test.csv")
    labels = rows(prepared.private / "labels.csv")
    split = split_of(task)
    assert [row["Id"] for row in train] == [str(n) for n in range(1, 1461) if n not in {*split["dev"], *split["test"]}]
    assert all(row == original[row["Id"]] for row in train)
    assert list(test[0]) == [name for name in train[0] if name != "SalePrice"]
    assert [row["Id"] for row in test] == [row["Id"] for row in labels]
    # Rows are recognised by their features, for the ids are new.
    shown = {tuple(row[name] for name in test[0] if name != "Id"): row["Id"] for row in test}
    answers = {row["Id"]: row for row in labels}
    for name, ids in split.items():
        for one in map(str, ids):
            features = tuple(original[one][column] for column in test[0] if column != "Id")
            answer = answers[shown[features]]
            assert (answer["split"], answer["SalePrice"]) == (name, original[one]["SalePrice"])
    assert {path.name for path in prepared.public.iterdir()} == {"train.csv", "test.csv", "sample_submission.csv"}
    assert {path.name for path in prepared.private.iterdir()} == {"labels.csv"}


def test_ids_tell_nothing_and_follow_the_seed(task: Task, table: Path, prepared: Prepared) -> None:
    assert prepared.private is not None
    labels = rows(prepared.private / "labels.csv")
    assert not {row["Id"] for row in labels} & {str(number) for number in range(1, 1461)}
    splits = [row["split"] for row in labels]
    changes = sum(one != other for one, other in itertools.pairwise(splits))
    assert 120 < changes < 270  # 194 are expected of a random order
    again = data.prepare(task, f"local:{table.parent}", "full", 0)
    other = data.prepare(task, f"local:{table}", "full", 1)
    assert again.private is not None
    assert other.private is not None
    assert rows(again.private / "labels.csv") == labels
    assert rows(other.private / "labels.csv") != labels


def test_the_sample_predicts_the_mean_of_the_training_rows(prepared: Prepared) -> None:
    assert prepared.public is not None
    prices = [float(row["SalePrice"]) for row in rows(prepared.public / "train.csv")]
    sample = rows(prepared.public / "sample_submission.csv")
    assert {row["SalePrice"] for row in sample} == {f"{sum(prices) / len(prices):.2f}"}
    assert [row["Id"] for row in sample] == [row["Id"] for row in rows(prepared.public / "test.csv")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: "", "there are 0 rows, not 1460"),
        (lambda text: "".join(text.splitlines(True)[:-1]), "there are 1459 rows, not 1460"),
        (lambda text: text.replace("Id,", "Number,", 1), "not the 81 from Id to SalePrice"),
        (lambda text: text.replace("\n1,", "\n2,", 1), "the ids are not 1 to 1460"),
        (lambda text: text.replace("\n1,", "\n1,1,", 1), "more or fewer cells"),
        (lambda text: text.replace("\n1,", "\none,", 1), "are not numbers"),
    ],
)
def test_another_table_is_refused(
    task: Task, table: Path, tmp_path: Path, change: Callable[[str], str], reason: str
) -> None:
    (tmp_path / "train.csv").write_text(change(table.read_text()))
    with pytest.raises(UsageError, match=f"does not fit: .*{reason}.*name the train.csv of Kaggle's"):
        data.prepare(task, f"local:{tmp_path}", "full", 0)


def test_a_folder_without_the_table_says_what_belongs_there(task: Task, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.csv.*; name the train\.csv of Kaggle's competition House Prices"):
        data.prepare(task, f"local:{tmp_path}", "full", 0)
    with pytest.raises(UsageError, match=r"choose from: openml, kaggle, local"):
        data.prepare(task, "hub", "full", 0)


class Web:
    """Answers instead of the network: URL -> content or the error to raise."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Exception] = {}
        self.requests: list[Request] = []

    def open(self, request: Request, timeout: float) -> Any:
        assert timeout > 0
        self.requests.append(request)
        page = self.pages[request.full_url]
        if isinstance(page, Exception):
            raise page
        return io.BytesIO(page)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    found = Web()
    monkeypatch.setattr("urllib.request.urlopen", found.open)
    yield found


OPENML = "https://www.openml.org/api/v1/json/data/42165"
KAGGLE = (
    "https://www.kaggle.com/api/v1/competitions/data/download/house-prices-advanced-regression-techniques/train.csv"
)


def arff(table: Path) -> bytes:
    read = rows(table)
    text = io.StringIO()
    text.write("% a comment\n@RELATION house_prices\n\n")
    for number, name in enumerate(read[0]):
        quoted = f"'{name}'" if number % 2 else name
        text.write(f"@ATTRIBUTE {quoted} {'REAL' if read[0][name].isdigit() else '{A,B}'}\n")
    text.write("@DATA\n")
    for row in read:
        cells = ["?" if cell == "NA" else f"'{cell}'" if " " in cell else cell for cell in row.values()]
        text.write(",".join(cells) + "\n")
    return text.getvalue().encode()


def test_openml_is_the_default_and_gives_the_same_data(task: Task, table: Path, prepared: Prepared, web: Web) -> None:
    place = "https://example.org/file.arff"
    web.pages = {OPENML: json.dumps({"data_set_description": {"url": place}}).encode(), place: arff(table)}
    found = data.prepare(task, None, "full", 0)
    assert found.source == "openml"
    assert found.checksums == prepared.checksums


@pytest.mark.parametrize("packed", [False, True])
def test_kaggle_takes_the_users_token(
    task: Task, table: Path, prepared: Prepared, web: Web, tmp_path: Path, packed: bool
) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.write(table, "train.csv")
    web.pages = {KAGGLE: content.getvalue() if packed else table.read_bytes()}
    (tmp_path / "kaggle").mkdir()
    (tmp_path / "kaggle" / "kaggle.json").write_text('{"username": "me", "key": "canary"}')
    found = data.prepare(task, "kaggle", "full", 0)
    assert found.checksums == prepared.checksums
    assert web.requests[0].get_header("Authorization") == "Basic bWU6Y2FuYXJ5"


def test_kaggle_without_a_token_says_how_to_get_one(task: Task, web: Web) -> None:
    with pytest.raises(UsageError, match=r"create an API token .*kaggle\.json .*accept the rules .*--source local:"):
        data.prepare(task, "kaggle", "full", 0)
    assert web.requests == []


@pytest.mark.parametrize("source", ["openml", "kaggle"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (URLError("no route"), "cannot be reached from here"),
        (TimeoutError("timed out"), "cannot be reached from here"),
        (HTTPError("https://example.org", 503, "busy", Message(), None), "cannot be reached from here"),
        (HTTPError("https://example.org", 403, "no", Message(), None), "refused the credentials, or the competition's"),
    ],
)
def test_an_unreachable_source_says_so_and_names_another(
    task: Task, web: Web, monkeypatch: pytest.MonkeyPatch, source: str, error: Exception, reason: str
) -> None:
    monkeypatch.setenv("KAGGLE_USERNAME", "me")
    monkeypatch.setenv("KAGGLE_KEY", "canary")
    web.pages = {OPENML: error, KAGGLE: error}
    with pytest.raises(InfrastructureError, match=f"{reason}.*pass --source local:<folder or file>") as caught:
        data.prepare(task, source, "full", 0)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("page", [b"", b"<html>", b"{}", b'{"data_set_description": {}}'])
def test_an_answer_that_is_something_else_is_ours(task: Task, web: Web, page: bytes) -> None:
    web.pages = {OPENML: page}
    with pytest.raises(InfrastructureError, match="preparing the data of house-price from openml failed"):
        data.prepare(task, "openml", "full", 0)


def test_an_endless_answer_is_cut_off(task: Task, web: Web) -> None:
    web.pages = {OPENML: bytes(17 * 1024 * 1024)}
    with pytest.raises(InfrastructureError, match="OpenML sent more than 16 MiB"):
        data.prepare(task, "openml", "full", 0)


def test_the_module_needs_nothing_but_the_standard_library(task: Task) -> None:
    lines = (task.folder / "data.py").read_text().splitlines()
    imports = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert imports <= {*sys.stdlib_module_names, "mlgym_core"}
