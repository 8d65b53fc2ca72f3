"""Seeded simulations: thousands of orders of events, checked after every step."""

import pytest

pytest.register_assert_rewrite("simulation.invariants", "simulation.watch", "simulation.bodies")
