"""The programs of the agent's tools; README.md says what they may use."""
