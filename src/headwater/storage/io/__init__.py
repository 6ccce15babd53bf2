"""Io: what the other rooms read and write with: local files, S3, scratch space."""
