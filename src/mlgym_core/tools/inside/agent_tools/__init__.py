"""The tools' programs. They run in the sandbox, on its own Python (3.8 or newer), with the standard library alone."""
