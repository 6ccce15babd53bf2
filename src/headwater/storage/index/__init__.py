"""Index: vectors and words for search; a view that can be rebuilt."""
