# What boxes of the grading call mlgym_peer; see docs/grading.md.
from mlgym_core.grading.inside.mlgym_peer import *
