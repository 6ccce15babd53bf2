"""Migration: a lake's parts moved to other places."""
