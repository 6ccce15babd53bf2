"""Facets: the parts of a lake's Python face that are not for every day, each reached by a name of the lake."""
