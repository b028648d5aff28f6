"""What the game-theory tasks share: ``lockstep.py`` for their graders and ``player.py`` for their players."""
