"""With more seeds than usual, the usual time limit does not apply."""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("AGENTQ_SEEDS"):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.timeout(0))
