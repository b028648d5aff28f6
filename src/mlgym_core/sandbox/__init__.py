"""The sandbox room: backends, the persistent shell, bounded output."""
