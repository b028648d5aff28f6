"""Boxes of this machine's own: bubblewrap namespaces where they work, else plain processes."""
