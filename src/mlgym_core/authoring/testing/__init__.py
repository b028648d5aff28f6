"""Contract suites and helpers for authors' tests; public as :mod:`mlgym_core.testing`."""
