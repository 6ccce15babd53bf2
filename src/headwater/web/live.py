"""Live: what goes on, told to every open page by one look a second, which nobody takes while no page is open."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from headwater.errors import HeadwaterError, describe
from headwater.web.jobs import Jobs
from headwater.web.lakes import Lakes

SECONDS: Final = 1.0
_LISTENERS_MAX: Final = 200
_JOBS_TOLD: Final = 10
_STREAM_SECONDS: Final = 120.0  # then the page calls again, and a token that was revoked is no longer let in


class Live:
    def __init__(self, lakes: Lakes, jobs: Jobs) -> None:
        self._lakes = lakes
        self._jobs = jobs
        self._listeners: set[asyncio.Queue[str]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._said = ""

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
            self._said = ""  # what was said while somebody listened last is old by now
            self._looking = asyncio.create_task(self._look())
        if self._said:
            mine.put_nowait(self._said)
        until = time.monotonic() + _STREAM_SECONDS
        try:
            yield "retry: 1000\n\n"
            while time.monotonic() < until:
                told = await mine.get()
                yield told if whole else "event: changed\ndata: {}\n\n"
        finally:
            self._listeners.discard(mine)

    async def _look(self) -> None:
        before = ""
        quiet = 0
        while self._listeners:
            try:
                said = json.dumps(await run_in_threadpool(self._state), default=str)
            except Exception as error:  # whoever listens is told, and the next look may go well
                said = json.dumps({"down": describe(error), "jobs": self._jobs_told()})
            quiet = quiet + 1 if said == before else 0
            self._said = f"event: state\ndata: {said}\n\n"
            if quiet == 0 or quiet % 15 == 0:  # now and then also without news, so that a dead line is noticed
                for listener in self._listeners:
                    if not listener.full():  # a slow one hears the next
                        listener.put_nowait(self._said)
            before = said
            await asyncio.sleep(SECONDS)

    def _state(self) -> dict[str, Any]:
        try:
            with self._lakes.lent() as lake:
                flow = [{"name": stage["name"], "pending": stage["pending"]} for stage in lake.flow()]
                runs = lake.journal(limit=1)
        except HeadwaterError as error:
            return {"down": str(error), "jobs": self._jobs_told()}
        return {"flow": flow, "runs": runs, "jobs": self._jobs_told()}

    def _jobs_told(self) -> list[dict[str, Any]]:
        """Without what they answered, which may be long; a page asks for it by the job's number."""
        told = self._jobs.list()[:_JOBS_TOLD]
        return [{name: value for name, value in job.items() if name != "result"} for job in told]
