"""What endpoints are given: the lake with who asks, and a check of what they may."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Depends, Header, Request

from headwater.errors import NotFound
from headwater.web.asked import Asked


def _asked(request: Request) -> Iterator[Asked]:
    with request.app.state.lakes.lent() as lake:
        yield Asked(lake, request.state.visitor, dict(request.query_params), dict(request.path_params))


def needs(role: str) -> Any:
    def check(request: Request) -> None:
        if not request.state.visitor.may(role):
            raise NotFound(f"A {request.state.visitor.role}'s token may not do that; a {role}'s may.")

    return Depends(check)


Ask = Annotated[Asked, Depends(_asked)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]
