"""What a task is, and reading one: ``task.yaml``, one-file tasks, tasks named by a path."""
