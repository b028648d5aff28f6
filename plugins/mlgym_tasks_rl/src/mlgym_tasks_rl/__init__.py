"""What the reinforcement-learning tasks share.

``evaluation.py`` and ``checkpoints.py`` are for their graders, ``player.py`` for their players, ``train.py`` and
``ppo.py`` for the agent's workspace. None of them is imported by MLGym itself.
"""
