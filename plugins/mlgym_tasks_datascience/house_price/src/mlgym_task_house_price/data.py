"""Prepares the house prices: 1,460 sales in a fixed split into training, dev and test rows.

The split is the published one, ``train_test_split(random_state=42)`` of scikit-learn: 20 % for test, then 12.5 % of
the rest for dev. ``data_split.json`` holds the resulting ids, so that nothing but the standard library is needed.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mlgym_core.errors import InfrastructureError, UsageError

EXPECTS = "the train.csv of Kaggle's competition House Prices (1,460 rows, 81 columns), or the folder that holds it"

ROWS = 1460
OPENML = "https://www.openml.org/api/v1/json/data/42165"
COMPETITION = "house-prices-advanced-regression-techniques"
KAGGLE = f"https://www.kaggle.com/api/v1/competitions/data/download/{COMPETITION}/train.csv"
TIMEOUT = 60.0  #: seconds without a byte
LARGEST = 16 * 1024 * 1024  #: bytes of an answer
FIRST_ID = 10_001  #: of the rows to predict, beyond the ids of the training rows

Row = dict[str, str]


def prepare(source: Any, size: str, seed: int, out: Any) -> None:
    """Write train.csv, test.csv and sample_submission.csv, and the labels for the grader.

    Args:
        source: kind ``openml``, ``kaggle`` or ``local``; the latter with a path.
        size: makes no difference, for the data is small.
        seed: of the order, and so of the ids, of the rows to predict.
        out: has the folders ``public`` and ``private``, and ``progress(text)``.

    Raises:
        UsageError: credentials are missing.
        InfrastructureError: the source cannot be reached.
        ValueError: what came is not the table.
    """
    del size
    rows = _checked(list(_table(source, out.progress)))
    split: dict[str, list[int]] = json.loads(Path(__file__).with_name("data_split.json").read_text("utf-8"))
    places = {str(one): name for name, ids in split.items() for one in ids}
    train = [row for row in rows if row["Id"] not in places]
    asked = sorted((row for row in rows if row["Id"] in places), key=lambda row: _rank(seed, row["Id"]))
    labels = [
        {"Id": str(FIRST_ID + place), "split": places[row["Id"]], "SalePrice": row["SalePrice"]}
        for place, row in enumerate(asked)
    ]
    features = [name for name in rows[0] if name != "SalePrice"]
    mean = sum(float(row["SalePrice"]) for row in train) / len(train)
    _write(out.public / "train.csv", [*features, "SalePrice"], train)
    _write(out.public / "test.csv", features, [row | {"Id": one["Id"]} for row, one in zip(asked, labels, strict=True)])
    _write(
        out.public / "sample_submission.csv",
        ["Id", "SalePrice"],
        [{"Id": one["Id"], "SalePrice": f"{mean:.2f}"} for one in labels],
    )
    _write(out.private / "labels.csv", ["Id", "split", "SalePrice"], labels)


def _rank(seed: int, one: str) -> bytes:
    return hashlib.blake2b(f"{seed} {one}".encode(), digest_size=16, person=b"mlgym house").digest()


def _write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _checked(rows: list[Row]) -> list[Row]:
    """The rows by Id, if they are the whole table."""
    if len(rows) != ROWS:
        raise ValueError(f"there are {len(rows)} rows, not {ROWS}")
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("a row has more or fewer cells than the header")
    columns = set(rows[0])
    if len(columns) != 81 or not {"Id", "SalePrice", "OverallQual", "Neighborhood"} <= columns:
        raise ValueError(f"there are {len(columns)} columns, not the 81 from Id to SalePrice")
    for row in rows:
        if not (row["Id"].isdigit() and row["SalePrice"].replace(".", "", 1).isdigit()):
            raise ValueError(f"Id {row['Id']!r} with SalePrice {row['SalePrice']!r} are not numbers")
    if {int(row["Id"]) for row in rows} != set(range(1, ROWS + 1)):
        raise ValueError(f"the ids are not 1 to {ROWS}")
    return sorted(({**row, "Id": str(int(row["Id"]))} for row in rows), key=lambda row: int(row["Id"]))


def _table(source: Any, progress: Any) -> Iterator[Row]:
    if source.kind == "local":
        path = source.path / "train.csv" if source.path.is_dir() else source.path
        return _from_csv(path.read_bytes())
    if source.kind == "kaggle":
        credentials = _kaggle_credentials()
        progress("downloading train.csv from Kaggle")
        return _from_csv(_unzipped(_get(KAGGLE, "Kaggle", credentials)))
    progress("downloading house_prices from OpenML")
    place = json.loads(_get(OPENML, "OpenML"))["data_set_description"]["url"]
    return _from_arff(_get(str(place), "OpenML").decode("utf-8"))


def _from_csv(data: bytes) -> Iterator[Row]:
    return csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))


def _from_arff(text: str) -> Iterator[Row]:
    """Rows of an ARFF file; its mark for a missing value becomes that of the CSV file."""
    lines = iter(text.splitlines())
    columns: list[str] = []
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word.lower() == "@attribute":
            rest = rest.strip()
            columns.append(rest[1:].split(rest[0])[0] if rest[0] in "'\"" else rest.split()[0])
        elif word.lower() == "@data":
            break
    body = (line for line in lines if line.strip() and not line.startswith("%"))
    for cells in csv.reader(body, quotechar="'", skipinitialspace=True):
        values = ["NA" if cell.strip() == "?" else cell.strip().strip('"') for cell in cells]
        if len(values) != len(columns):
            raise ValueError("a row has more or fewer cells than the header")
        yield dict(zip(columns, values, strict=True))


def _unzipped(data: bytes) -> bytes:
    if not data.startswith(b"PK"):
        return data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read("train.csv")


def _kaggle_credentials() -> str:
    """Value of the Authorization header."""
    name, key = os.environ.get("KAGGLE_USERNAME"), os.environ.get("KAGGLE_KEY")
    file = Path(os.environ.get("KAGGLE_CONFIG_DIR", "~/.kaggle")).expanduser() / "kaggle.json"
    if not (name and key) and file.is_file():
        found = json.loads(file.read_text("utf-8"))
        name, key = found.get("username"), found.get("key")
    if not (name and key):
        raise UsageError(
            f"source kaggle needs your Kaggle credentials: create an API token in your account's settings, put it in "
            f"{file} (or set KAGGLE_USERNAME and KAGGLE_KEY), and accept the rules of {COMPETITION} on its page; "
            "or download train.csv yourself and pass --source local:<folder or file>"
        )
    return "Basic " + base64.b64encode(f"{name}:{key}".encode()).decode("ascii")


def _get(url: str, name: str, authorization: str | None = None) -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": authorization} if authorization else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            data: bytes = answer.read(LARGEST + 1)
    except (OSError, urllib.error.URLError) as error:
        said = "refused the credentials, or the competition's rules are not accepted yet" if _refused(error) else ""
        raise InfrastructureError(
            f"{name} {said or 'cannot be reached from here'} ({error}); get train.csv of Kaggle's House Prices by "
            "other means and pass --source local:<folder or file>"
        ) from error
    if len(data) > LARGEST:
        raise InfrastructureError(f"{name} sent more than {LARGEST >> 20} MiB, which is not this table")
    return data


def _refused(error: Exception) -> bool:
    return isinstance(error, urllib.error.HTTPError) and error.code in (401, 403)
