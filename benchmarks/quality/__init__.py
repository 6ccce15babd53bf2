"""How right models and search are, on data whose truth is known."""
