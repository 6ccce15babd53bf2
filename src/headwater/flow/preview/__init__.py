"""Previews: what any browser can show of an object: a picture of a page, of a frame, of a picture it cannot read."""
