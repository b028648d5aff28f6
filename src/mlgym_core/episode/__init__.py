"""The environment: an episode's reset and step, its submissions, its limits on time."""
