"""What the tests of house-price share: the task and its data, real where it is at hand."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path

import pytest

from mlgym_core import data
from mlgym_core.data import Prepared
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder

HERE = Path(__file__).parent
REAL = os.environ.get("MLGYM_TEST_HOUSE_PRICES")
SCHEMA = HERE / "tests" / "columns.csv"


def generate(path: Path) -> None:
    """A table of the real one's shape: prices follow from three columns and noise, the rest is random."""
    rng = random.Random(0)
    rows = []
    numbers, words = (row[1:] for row in csv.reader(SCHEMA.read_text().splitlines()))
    for number in range(1, 1461):
        row: dict[str, object] = {"Id": number}
        row |= {name: rng.randint(1, 10) if rng.random() < 0.95 else "NA" for name in numbers}
        row |= {name: rng.choice(["Gd", "TA", "Fa", "NA"]) for name in words}
        row |= {"OverallQual": rng.randint(1, 10), "GrLivArea": rng.randint(400, 3000), "CentralAir": rng.choice("YN")}
        quality, area, air = row["OverallQual"], row["GrLivArea"], 9_000 * (row["CentralAir"] == "Y")
        row["SalePrice"] = 20_000 * quality + 50 * area + air + rng.randint(0, 20_000)  # type: ignore[operator]
        rows.append(row)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="session")
def task() -> Task:
    """The task as it is in this folder."""
    return load_task_folder(HERE / "src" / "mlgym_task_house_price")


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaggle's train.csv from the folder ``MLGYM_TEST_HOUSE_PRICES``, else a generated one."""
    if REAL:
        return Path(REAL) / "train.csv"
    path = tmp_path_factory.mktemp("source") / "train.csv"
    generate(path)
    return path


@pytest.fixture(scope="session")
def prepared(task: Task, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The data under seed 0, in a cache of the test run's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLGYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        return data.prepare(task, f"local:{table}", "full", 0)
