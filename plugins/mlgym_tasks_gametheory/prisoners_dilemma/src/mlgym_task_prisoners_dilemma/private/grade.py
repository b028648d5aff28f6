"""Scores a strategy: the mean payoff a round of the row player."""

import mlgym_peer as peer
from lockstep import play  # type: ignore[import-not-found]
from opponent import PrisonersDilemma  # type: ignore[import-not-found]

play(PrisonersDilemma(), peer)
