"""Running a scenario under many seeds. A failure says which seed it was and how to repeat it.

AGENTQ_SEEDS=20000   run at least so many seeds in each of these tests
AGENTQ_SEED=417      run this seed only
"""

import logging
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from agentq.testing import simulate

Scenario = Callable[[int], Coroutine[Any, Any, None]]


def seeds(usual: int) -> range:
    """The seeds to run where `usual` of them are enough for every day."""
    if only := os.environ.get("AGENTQ_SEED"):
        return range(int(only), int(only) + 1)
    return range(max(usual, int(os.environ.get("AGENTQ_SEEDS", "0"))))


@contextmanager
def noted(seed: int) -> Iterator[None]:
    """Say in what is raised here which seed it was."""
    try:
        yield
    except BaseException as error:
        test = os.environ.get("PYTEST_CURRENT_TEST", "the test").split(" ")[0]
        error.add_note(f"seed {seed}; to repeat it: AGENTQ_SEED={seed} pytest {test!r}")
        raise


def run_seed(scenario: Scenario, seed: int, *, slow_chance: float = 0.0) -> None:
    """Run `scenario(seed)` on a simulated loop with the same seed."""
    random.seed(seed)  # the jitter of retries
    with noted(seed):
        simulate(scenario(seed), seed=seed, slow_chance=slow_chance, max_steps=200_000)


def sweep(scenario: Scenario, usual: int, *, slow: bool = True) -> None:
    """Run `scenario` under many seeds; if `slow`, every second one on a loop that can be slow."""
    loggers = [logging.getLogger("asyncio"), logging.getLogger("agentq")]
    for logger in loggers:
        logger.disabled = True
    try:
        for seed in seeds(usual):
            run_seed(scenario, seed, slow_chance=0.05 if slow and seed % 2 else 0.0)
    finally:
        for logger in loggers:
            logger.disabled = False
