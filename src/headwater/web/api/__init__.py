"""API v1: the lake's own words over HTTP."""

from fastapi import APIRouter

from headwater.web.api import access, changing, reading

router = APIRouter(prefix="/api/v1")
for each in (reading, changing, access):
    router.include_router(each.router)
