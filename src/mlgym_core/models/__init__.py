"""Model backends. ``base`` says what a model is; each other module holds one."""
