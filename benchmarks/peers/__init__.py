"""Headwater beside its peers: the same corpus and the same step functions, each system in an environment of its own."""
