"""The `agentq` command."""
