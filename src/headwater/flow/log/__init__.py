"""The log as flow sees it: which one it is, and whether it still holds what has yet to be read."""
