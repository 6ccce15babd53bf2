"""Drive: what brings data through the stages: runs, replays, retries, and what they share."""
