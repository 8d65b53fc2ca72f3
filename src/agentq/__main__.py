"""`python -m agentq`: the same as the `agentq` command."""

from agentq.cli import main

if __name__ == "__main__":
    main()
