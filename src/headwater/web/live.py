"""Live: what goes on, told to every open page by one look a second, which nobody takes while no page is open."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from headwater.errors import HeadwaterError
from headwater.web.jobs import Jobs
from headwater.web.lakes import Lakes

SECONDS: Final = 1.0
_LISTENERS_MAX: Final = 200


class Live:
    def __init__(self, lakes: Lakes, jobs: Jobs) -> None:
        self._lakes = lakes
        self._jobs = jobs
        self._listeners: set[asyncio.Queue[str]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def stream(self, request: Request) -> StreamingResponse:
        whole = request.state.visitor.sees_all
        return StreamingResponse(
            self._told(whole), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    def close(self) -> None:
        if self._looking:
            self._looking.cancel()

    async def _told(self, whole: bool) -> AsyncIterator[str]:
        """Who sees only some customers is told that something changed, not what."""
        if len(self._listeners) >= _LISTENERS_MAX:
            return
        mine: asyncio.Queue[str] = asyncio.Queue(maxsize=4)
        self._listeners.add(mine)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield "retry: 3000\n\n"
            while True:
                told = await mine.get()
                yield told if whole else "event: changed\ndata: {}\n\n"
        finally:
            self._listeners.discard(mine)

    async def _look(self) -> None:
        before = ""
        quiet = 0
        while self._listeners:
            said = json.dumps(await run_in_threadpool(self._state), default=str)
            quiet = quiet + 1 if said == before else 0
            if quiet == 0 or quiet % 15 == 0:  # now and then also without news, so that a dead line is noticed
                for listener in self._listeners:
                    if not listener.full():  # a slow one hears the next
                        listener.put_nowait(f"event: state\ndata: {said}\n\n")
            before = said
            await asyncio.sleep(SECONDS)

    def _state(self) -> dict[str, Any]:
        try:
            with self._lakes.lent() as lake:
                flow = [{"name": stage["name"], "pending": stage["pending"]} for stage in lake.flow()]
                runs = lake.journal(limit=1)
        except HeadwaterError as error:
            return {"down": str(error), "jobs": self._jobs.list()}
        return {"flow": flow, "runs": runs, "jobs": self._jobs.list()}
