"""Scores policies: the mean return of five checkpoints in Breakout's world."""

import mlgym_peer as peer
from evaluation import evaluate  # type: ignore[import-not-found]

evaluate("Breakout-MinAtar", 999, peer, packed=True)
