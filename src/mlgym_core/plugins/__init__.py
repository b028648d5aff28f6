"""Hooks, entry points, the core's own loading loop, and its own registrations."""
