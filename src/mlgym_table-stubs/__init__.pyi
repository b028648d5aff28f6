# What boxes of the grading call mlgym_table; see docs/data.md.
from mlgym_core.grading.inside.mlgym_table import *
