"""A run's folder: written as things happen, read afterwards. Strict JSON throughout."""
