"""Model services through litellm: requests, replies, failures, retries."""
