"""Embed: a vector for every chunk of text."""
