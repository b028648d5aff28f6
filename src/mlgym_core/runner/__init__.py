"""A run from a configuration to its result: looked up, set up, executed, written down."""
