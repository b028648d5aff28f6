"""The algorithms domain of MLGym; its tasks are distributions of their own."""
