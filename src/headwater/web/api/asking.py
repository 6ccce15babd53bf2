"""What endpoints are given: the lake with who asks, and a check of what they may."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Request

from headwater.errors import NotFound
from headwater.lake import Lake
from headwater.web.asked import Asked


async def _asked(request: Request) -> AsyncIterator[Asked]:
    async with request.app.state.lakes.place() as lake:
        yield Asked(cast(Lake, lake), request.state.visitor, dict(request.query_params), dict(request.path_params))


def needs(role: str) -> Any:
    async def check(request: Request) -> None:
        if not request.state.visitor.may(role):
            raise NotFound(f"The token of a role {request.state.visitor.role} may not do that; it takes {role}.")

    return Depends(check)


# Of the function: the lake is given back before the answer goes out, however slowly somebody reads it.
Ask = Annotated[Asked, Depends(_asked, scope="function")]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]
