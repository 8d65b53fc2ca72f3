"""Tools for testing code that uses agentq."""

from agentq.testing.simulation import SimulatedLoop, SimulationStuck, simulate

__all__ = ["SimulatedLoop", "SimulationStuck", "simulate"]
