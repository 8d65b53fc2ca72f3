"""Tools for testing code that uses agentq."""

from agentq.testing.simulation import SimulatedLoop, SimulationStuck, simulate
from agentq.testing.threads import simulate_threads

__all__ = ["SimulatedLoop", "SimulationStuck", "simulate", "simulate_threads"]
