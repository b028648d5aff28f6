"""For authors of plugins: new packages, checking a task's contract, contract suites for tests."""
