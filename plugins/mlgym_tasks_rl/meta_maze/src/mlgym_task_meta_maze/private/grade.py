"""Scores policies: the mean return of five checkpoints in a maze."""

import mlgym_peer as peer  # type: ignore[import-not-found]
from evaluation import evaluate  # type: ignore[import-not-found]

evaluate("MetaMaze-misc", 199, peer)
