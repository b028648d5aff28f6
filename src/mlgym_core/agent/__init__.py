"""The agent's side: budgets, prompts, action parsing and the loop. It uses the episode's public face only."""
