"""One seed gives one history, in this process and in any other: what a failure prints is true."""

import os
import subprocess
import sys
from pathlib import Path

from simulation.seeds import run_seed
from simulation.test_random_programs import Program


def histories(seeds: range) -> list[str]:
    """What happened, and when it ended, under each seed."""
    found = []
    for seed in seeds:
        programs: list[Program] = []

        async def main(seed: int, programs: list[Program] = programs) -> None:
            programs.append(Program(seed, cyclic=seed % 3 == 0, closes=seed % 2 == 0))
            await programs[0].main()

        run_seed(main, seed, slow_chance=0.05 if seed % 5 == 0 else 0.0)
        found.append(repr(programs[0].watch.transitions))
    return found


def test_one_seed_gives_one_history() -> None:
    first = histories(range(40))
    assert histories(range(40)) == first
    assert len(set(first)) > 35  # in some of them hardly anything happens


def test_a_seed_means_the_same_in_every_process() -> None:
    code = (
        "import logging; logging.disable(); from simulation.test_replay import histories;"
        "padding = [bytearray(size) for size in range(3000)];"
        "print(histories(range(40)))"
    )
    path = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert output == f"{histories(range(40))}\n"
