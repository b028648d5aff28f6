"""Telling libraries how many processors a box may use: what limits it leaves all of the machine's in sight."""

from __future__ import annotations

import math

from mlgym_core.task.task import Resources

# OpenMP, OpenBLAS, MKL, BLIS, vecLib, numexpr, Rayon (polars, tokenizers), Go, Julia; Python's own count from 3.13 on.
_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "GOMAXPROCS",
    "JULIA_NUM_THREADS",
    "PYTHON_CPU_COUNT",
)


def threads(resources: Resources) -> dict[str, str]:
    """The variables by which numerical libraries learn how many threads they may start."""
    count = str(max(1, math.ceil(resources.cpus)))
    return dict.fromkeys(_VARIABLES, count)
