"""Which state may follow which, and what decides it. Every rule about a key's life is here.

    nothing ──► Pending ──► Processing ──► Completed      absorbing
                  │ ▲          │   │
                  │ └──────────┘   └─────► Failed ──► Pending   (pushed again: fresh work)
                  │   another try            ▲
                  ├──────────────────────────┘  cancelled, or dropped at close
                  └──► nothing   the push was cancelled before its lane took the job

A claim that is withdrawn leaves its key as it was before: unknown, or failed.
"""

from enum import Enum
from types import NoneType

from agentq.core.retry import Retry
from agentq.core.states import Completed, Failed, Pending, Processing

TRANSITIONS: frozenset[tuple[type, type]] = frozenset(
    {
        (NoneType, Pending),
        (Pending, NoneType),
        (Pending, Processing),
        (Pending, Failed),
        (Processing, Pending),
        (Processing, Completed),
        (Processing, Failed),
        (Failed, Pending),
    }
)
"""Every change of state there is, as (before, after); `NoneType` stands for an unknown key."""


class Verdict(Enum):
    """What a push of a key comes to."""

    QUEUE = "new work"
    JOIN = "the job in flight answers this push too"
    REPLAY = "the cached output is the answer"
    CONFLICT = "the key belongs to a different call"


_ON_PUSH: dict[type, Verdict] = {
    NoneType: Verdict.QUEUE,
    Pending: Verdict.JOIN,
    Processing: Verdict.JOIN,
    Completed: Verdict.REPLAY,
    Failed: Verdict.QUEUE,
}


def on_push(state: type, known: bytes | None, given: bytes | None) -> Verdict:
    """Decide what a push of a key in `state` comes to.

    `known` and `given` are the fingerprints of the call that holds the key and of the call being
    pushed. Only two fingerprints that differ are a conflict: a job without one makes no claim
    about its arguments.
    """
    verdict = _ON_PUSH[state]
    if verdict is not Verdict.QUEUE and known != given and known is not None and given is not None:
        return Verdict.CONFLICT
    return verdict


def after_failure(
    retry: Retry | None, attempt: int, error: BaseException, draw: float
) -> float | None:
    """Decide what follows a failed try: seconds until the next one, or `None` to fail for good.

    `attempt` counts from 1; `draw` is a random number in [0, 1).
    """
    if retry is None or attempt >= retry.attempts or not issubclass(type(error), retry.on):
        return None
    return retry.delay(attempt, draw)
