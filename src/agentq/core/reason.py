"""How a failure becomes text. Writing it down can itself not fail."""

REASON_LIMIT = 10_000
_LEAVES_SHOWN = 5


def reason_of(error: BaseException) -> str:
    """Return type and message of `error`, safe to store: UTF-8, no NUL, at most 10 kB.

    An exception whose message cannot be had is named by its type. The members of an
    `ExceptionGroup` are named too, since its own message says nothing about the cause.
    """
    text = _line(error)
    if issubclass(type(error), BaseExceptionGroup):
        leaves = _leaves(error)
        shown = "; ".join(_line(leaf) for leaf in leaves[:_LEAVES_SHOWN])
        more = f"; and {len(leaves) - _LEAVES_SHOWN} more" if len(leaves) > _LEAVES_SHOWN else ""
        text = f"{text}: {shown}{more}"
    return capped(text)


def capped(text: str, limit: int = REASON_LIMIT) -> str:
    """Return `text` as storable UTF-8 without NUL, cut to `limit` bytes and saying so."""
    data = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    mark = f"… [cut, {len(data)} bytes in all]"
    return data[: limit - len(mark.encode())].decode("utf-8", "ignore") + mark


def _line(error: BaseException) -> str:
    name = type.__dict__["__name__"].__get__(type(error))
    try:
        message = str.__str__(str(error))
    # Whatever a hostile __str__ raises, the failure it belongs to must be recorded.
    except BaseException as second:
        return f"{name}: <no message: its __str__ raised {type(second).__name__}>"
    return f"{name}: {message}" if message else name


def _leaves(group: BaseException) -> list[BaseException]:
    leaves: list[BaseException] = []
    pending = [group]
    while pending:
        error = pending.pop()
        if issubclass(type(error), BaseExceptionGroup):
            pending.extend(reversed(_members.__get__(error)))
        else:
            leaves.append(error)
    return leaves


# As the interpreter keeps them, whatever a subclass makes of the name.
_members = vars(BaseExceptionGroup)["exceptions"]
