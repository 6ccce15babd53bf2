"""What docs/install.md says that an installation weighs is what it weighs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

import install_size

LARGE_MB = 25  # from here on a package has a row, and a reason


def test_the_table_of_sizes_is_that_of_the_packages_that_are_here() -> None:
    rows = install_size.told()
    found = install_size.measured(list(rows))
    for row, told in rows.items():
        if "opencv" in row:
            continue  # a clone's set-up takes one of the two out
        most = 40 if row == install_size.REST else max(4, told * 0.1)
        assert found[row] == pytest.approx(told, abs=most), f"{row}: scripts/install_size.py --write, in a fresh one"


def test_every_large_package_has_its_row_and_its_reason() -> None:
    named = {name for row in install_size.told() for name in row.split(", ")}
    assert {name for name, size in install_size.sizes().items() if size >= LARGE_MB} <= named
