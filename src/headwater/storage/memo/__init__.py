"""Memo: what models answered, so that no call is made twice."""
