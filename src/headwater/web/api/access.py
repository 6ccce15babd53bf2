"""Who may look in, and what was refused or changed: for admins."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from headwater.domain.access import ADMIN, READER
from headwater.web.api.asking import Ask, needs
from headwater.web.asked import LIMIT_MAX

router = APIRouter(dependencies=[needs(ADMIN)])


@router.get("/tokens")
def tokens(asked: Ask) -> dict[str, Any]:
    """Who may look in, without what would let anybody in."""
    return {"tokens": asked.lake.access.list()}


@router.post("/tokens", status_code=201)
def make_token(
    asked: Ask,
    role: Annotated[str, Body(embed=True)] = READER,
    name: Annotated[str, Body(embed=True, max_length=100)] = "",
    customers: Annotated[list[str] | None, Body(embed=True)] = None,
    days: Annotated[float | None, Body(embed=True, gt=0, le=3_650)] = None,
) -> dict[str, Any]:
    """A token, told this once."""
    return asked.lake.access.make(role, name=name, customers=customers or (), days=days)


@router.delete("/tokens/{id}")
def revoke_token(asked: Ask, id: str) -> dict[str, Any]:
    """From the next call on it lets nobody in."""
    return asked.lake.access.revoke(id)


@router.get("/audit")
def audit(asked: Ask, limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 100) -> dict[str, Any]:
    """Calls that were refused or changed something, the latest first."""
    return {"audit": asked.lake.access.audit(limit=limit)}
