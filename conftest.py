"""Settings of all tests, those of the plugins included."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine only.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
