"""Writes new packages: tasks of each kind, plugins, and one-file tasks packed up."""
