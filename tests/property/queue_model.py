"""What a queue should do, in a few dicts and lists: no tasks, no loop, no locks."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from agentq import Completed, Failed, LaneStats

# Different for every key, so that no two things are due in the same moment, in either order.
BACKOFF = {key: 3 + number / 8 for number, key in enumerate("abcdef")}
TIMEOUT = {key: 5 + number / 8 for number, key in enumerate("abcdef")}
CANCELLED = "cancelled"
LOST = "lost: the queue closed before the job ended"


@dataclass
class Claim:
    """One claim on a key. `where` is line, place, backoff, running or over."""

    key: str
    lane: str
    kind: str
    where: str = "line"
    joined: bool = False
    tries: int = 0
    due: float | None = None
    outcome: Completed | Failed | None = None
    refused: bool = False


@dataclass
class Lane:
    capacity: int
    permits: int
    line: list[Claim] = field(default_factory=list)
    places: list[Claim] = field(default_factory=list)
    running: list[Claim] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Model:
    """Kinds of jobs.

    ok and fail end at once; flaky fails once, then ends well. blocked, timed and stubborn go on
    until told to end; timed has a timeout, stubborn ends well when it is cancelled. slow is timed
    in its first try and ends well at once in its second.
    """

    def __init__(self, lanes: dict[str, Lane], max_keys: int | None, ttl: float | None) -> None:
        self.lanes = lanes
        self.max_keys = max_keys
        self.ttl = ttl
        self.now = 0.0
        self.live: dict[str, Claim] = {}
        self.finished: dict[str, tuple[float, Completed | Failed]] = {}
        self.fingerprints: dict[str, bytes | None] = {}
        self.runs: Counter[str] = Counter()
        self.open = True

    def push(self, key: str, lane: str, kind: str, fingerprint: bytes | None = None) -> Any:
        """Return the new claim, the claim it joins, or the `Completed` that answers.

        None when the key belongs to a call with another fingerprint.
        """
        self.forget()
        completed = key in self.finished and isinstance(self.finished[key][1], Completed)
        known = self.fingerprints.get(key) if key in self.live or completed else None
        if known is not None and fingerprint is not None and known != fingerprint:
            return None
        if key in self.live:
            claim = self.live[key]
            claim.joined = True
            self.lanes[claim.lane].counts["joined"] += 1
            return claim
        if completed:
            self.lanes[lane].counts["cached"] += 1
            return self.finished[key][1]
        claim = self.live[key] = Claim(key, lane, kind)
        self.fingerprints[key] = fingerprint
        self.lanes[lane].line.append(claim)
        self.advance(lane)
        return claim

    def advance(self, name: str) -> None:
        lane = self.lanes[name]
        while True:
            if lane.places and len(lane.running) < lane.permits:
                self._start(lane.places[0])
            elif lane.line and len(lane.places) < lane.capacity:
                self._move(lane.line[0], "place")
            else:
                return

    def _move(self, claim: Claim, where: str) -> None:
        lane = self.lanes[claim.lane]
        for group in (lane.line, lane.places, lane.running):
            if claim in group:
                group.remove(claim)
        claim.where, claim.due = where, None
        groups = {"line": lane.line, "place": lane.places, "running": lane.running}
        if where in groups:
            groups[where].append(claim)

    def _start(self, claim: Claim) -> None:
        self._move(claim, "running")
        claim.tries += 1
        self.runs[claim.key] += 1
        if claim.kind == "ok" or (claim.kind in ("flaky", "slow") and claim.tries == 2):
            self.end(claim, self.output(claim))
        elif claim.kind == "fail":
            self.end(claim, Failed("ValueError: no"))
        elif claim.kind == "flaky":
            self.try_again(claim)
        elif claim.kind in ("timed", "slow"):
            claim.due = self.now + TIMEOUT[claim.key]

    def try_again(self, claim: Claim) -> None:
        self._move(claim, "backoff")
        claim.due = self.now + BACKOFF[claim.key]
        self.advance(claim.lane)

    def output(self, claim: Claim) -> Completed:
        return Completed(f"{claim.key} {self.runs[claim.key]}")

    def end(self, claim: Claim, outcome: Completed | Failed) -> None:
        self._move(claim, "over")
        claim.outcome = outcome
        del self.live[claim.key]
        self.lanes[claim.lane].counts[type(outcome).__name__.lower()] += 1
        self.finished.pop(claim.key, None)  # it is the youngest now
        self.finished[claim.key] = (self.now, outcome)
        self.forget()
        self.advance(claim.lane)

    def cancel(self, key: str) -> bool:
        claim = self.live.get(key)
        if claim is None:
            return False
        stubborn = claim.where == "running" and claim.kind == "stubborn"
        self.end(claim, self.output(claim) if stubborn else Failed(CANCELLED))
        return True

    def withdraw(self, claim: Claim) -> None:
        """Its pusher, who waits for room, gives up."""
        if claim.where == "line" and not claim.joined:
            self._move(claim, "over")
            del self.live[claim.key]

    def drain(self) -> None:
        """Take no more; those who wait for room are turned away."""
        self.open = False
        for claim in list(self.live.values()):
            if claim.where == "line" and not claim.tries and not claim.joined:
                claim.refused = True
                self.withdraw(claim)

    def close(self) -> None:
        """As `drain`, and what is left is lost."""
        self.drain()
        for lane in self.lanes.values():
            lane.permits = lane.capacity = 0  # nothing starts any more
        claims = list(self.live.values())
        for claim in sorted(claims, key=lambda claim: claim.where == "running"):
            stubborn = claim.where == "running" and claim.kind == "stubborn"
            self.end(claim, self.output(claim) if stubborn else Failed(LOST))

    def pass_time(self, until: float) -> None:
        while due := [c for c in self.live.values() if c.due is not None and c.due <= until]:
            claim = min(due, key=lambda claim: claim.due or 0)
            assert claim.due is not None
            self.now = claim.due
            if claim.kind == "slow" and claim.where == "running":
                self.try_again(claim)
            elif claim.where == "running":
                self.end(claim, Failed(f"timed out after {TIMEOUT[claim.key]:g} s"))
            else:
                self._move(claim, "line")
                self.advance(claim.lane)
        self.now = until
        self.forget()

    def forget(self) -> None:
        while self.max_keys is not None and len(self.finished) > self.max_keys:
            del self.finished[next(iter(self.finished))]
        for key, (when, _) in list(self.finished.items()):
            if self.ttl is not None and when + self.ttl <= self.now:
                del self.finished[key]

    def stats(self, name: str, capacity: int, permits: int) -> LaneStats:
        lane = self.lanes[name]
        backoff = [c for c in self.live.values() if c.lane == name and c.where == "backoff"]
        return LaneStats(
            waiting=len(lane.places),
            running=len(lane.running),
            capacity=capacity,
            permits=permits,
            completed=lane.counts["completed"],
            failed=lane.counts["failed"],
            joined=lane.counts["joined"],
            cached=lane.counts["cached"],
            lending=0,
            retrying=len(backoff),
        )
