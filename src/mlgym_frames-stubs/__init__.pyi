# What boxes of the grading call mlgym_frames; see docs/grading.md.
from mlgym_core.grading.inside.mlgym_frames import *
