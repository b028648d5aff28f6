"""Scores policies: the mean return of five checkpoints in a maze."""

import mlgym_peer as peer
from evaluation import evaluate  # type: ignore[import-not-found]

evaluate("MetaMaze-misc", 199, peer)
