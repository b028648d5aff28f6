"""Scores a strategy: the mean payoff a round of the row player."""

import mlgym_peer as peer
from lockstep import play  # type: ignore[import-not-found]
from opponent import BattleOfSexes  # type: ignore[import-not-found]

play(BattleOfSexes(), peer)
