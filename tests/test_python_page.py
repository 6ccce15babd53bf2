"""docs/python.md is what the docstrings say, and whatever is public tells its types."""

import importlib.util
import inspect
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("python_page", ROOT / "scripts" / "python_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_reference_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert page == generator().python_page(), "make it again: .venv/bin/python scripts/python_page.py"


def test_all_that_is_public_tells_its_types() -> None:
    made = generator()
    found = [pair for name, kind in {"lake": made.Lake, **made.FACETS}.items() for pair in made.members(name, kind)]
    for name, member in found:
        function = member.fget if isinstance(member, property) else inspect.unwrap(member)
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in signature.parameters.values():
            assert parameter.name == "self" or parameter.annotation is not parameter.empty, f"{name}: {parameter.name}"
