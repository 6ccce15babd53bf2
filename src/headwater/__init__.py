"""Headwater: a multimodal lakehouse."""
