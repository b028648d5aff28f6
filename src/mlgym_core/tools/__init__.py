"""The agent's tools. ``base`` says what a tool is; ``builtin`` holds those that every agent has."""
