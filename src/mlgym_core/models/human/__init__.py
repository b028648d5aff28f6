"""A person as the model, in a terminal."""
