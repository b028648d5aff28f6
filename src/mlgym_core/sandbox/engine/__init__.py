"""Boxes as containers of an engine that speaks the Docker API."""
