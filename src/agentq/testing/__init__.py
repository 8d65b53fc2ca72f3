"""Tools for testing code that uses agentq."""
