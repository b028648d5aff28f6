"""MLGym: real machine-learning tasks for AI research agents, with fast steps and sealed scores."""
