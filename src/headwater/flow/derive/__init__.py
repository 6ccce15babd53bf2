"""Derive: what models make of each object. One file a modality."""
