"""Scores policies: the mean return of five checkpoints in the mountain car's world."""

import mlgym_peer as peer
from evaluation import evaluate  # type: ignore[import-not-found]

# gymnax lets an episode last 999 frames; the published scores are of 200.
evaluate("MountainCarContinuous-v0", 200, peer)
