"""The agent's tools.

``base`` says what a tool is, ``scripted`` makes tools of programs in the sandbox, ``builtin`` holds those that every
agent has. ``inside`` goes into the sandbox.
"""
