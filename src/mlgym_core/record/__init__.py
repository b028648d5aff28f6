"""A run's folder: writing it as things happen, reading it afterwards."""
