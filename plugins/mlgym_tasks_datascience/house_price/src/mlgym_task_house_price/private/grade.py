"""Scores predicted sale prices: r2 and rmse over the rows of one split."""

import csv
import math

import mlgym_peer as peer
import mlgym_table as table

HIGHEST = 1e12  #: US dollars; a prediction beyond it is a mistake, whatever the split

job = peer.job()
with (job.paths["data"] / "labels.csv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
predicted = table.read_predictions(
    job.paths["submission"] / "submission.csv",
    "Id",
    ["SalePrice"],
    [row["Id"] for row in rows],
    low=-HIGHEST,
    high=HIGHEST,
)["SalePrice"]
pairs = [(float(row["SalePrice"]), p) for row, p in zip(rows, predicted) if row["split"] == job.split]  # noqa: B905
mean = math.fsum(y for y, _ in pairs) / len(pairs)
residual = math.fsum((y - p) * (y - p) for y, p in pairs)
total = math.fsum((y - mean) * (y - mean) for y, _ in pairs)
peer.scored({"r2": 1 - residual / total, "rmse": math.sqrt(residual / len(pairs))}, details={"rows": len(pairs)})
