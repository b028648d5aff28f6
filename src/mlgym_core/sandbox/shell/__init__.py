"""The persistent shell: a session over any connection, the same for every backend."""
