"""What is known of an object beside its bytes, on one line."""

import json
from collections.abc import Mapping
from typing import Any


def known(about: Mapping[str, Any]) -> str:
    """Of a hit or an event."""
    thread = f"thread {about['thread']}" if about.get("thread") else ""
    meta = json.dumps(about["meta"], ensure_ascii=False) if about.get("meta") else ""
    extra = f"also sent {json.dumps(about['extra'], ensure_ascii=False)}" if about.get("extra") else ""
    return "  ".join(filter(None, (thread, meta, extra)))
