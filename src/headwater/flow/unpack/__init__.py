"""Unpack: an archive's files and an e-mail's attachments, each to be put as an object of its own."""
