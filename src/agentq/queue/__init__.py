"""The queue in the process: lanes, permits, waiters and the tasks that run jobs."""
