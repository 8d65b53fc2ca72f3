"""`@task`: a function that stays callable and makes jobs of itself."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from agentq import Job, Priority, Queue, Retry, task


@task(key="charge:{order_id}")
async def charge(order_id: int, amount: int = 10, *, note: str = "") -> int:
    """Charge an order."""
    return order_id + amount


@task
def double(number: int) -> int:
    return 2 * number


async def test_the_function_stays_callable_as_it_was() -> None:
    assert await charge(1, amount=2) == 3
    assert double(4) == 8
    assert (getattr(charge, "__name__", ""), charge.__doc__) == ("charge", "Charge an order.")
    assert list(inspect.signature(charge).parameters) == ["order_id", "amount", "note"]
    assert repr(charge) == f"<task {__name__}:charge>"


def test_the_key_comes_from_the_template() -> None:
    assert charge.job(7).key == "charge:7"
    assert charge.job(order_id=7).key == "charge:7"
    assert charge.job(7).with_key("other").key == "other"


async def test_jobs_of_a_task_run() -> None:
    async with Queue() as queue:
        assert await queue.push_and_wait(charge.job(7, note="x")) == 17
        assert await queue.push_and_wait(double.job(4)) == 8


def test_without_a_template_the_key_comes_from_name_and_arguments() -> None:
    key = double.job(4).key
    assert key.startswith(f"{__name__}:double:")
    assert key == double.job(number=4).key
    assert key != double.job(5).key
    assert double.job(1).key != double.job(1.0).key  # type: ignore[arg-type]
    assert double.job(1).key != double.job(True).key


def test_defaults_count_whether_they_are_written_out_or_not() -> None:
    assert charge.job(7).fingerprint == charge.job(7, 10, note="").fingerprint
    assert charge.job(7).fingerprint != charge.job(7, 11).fingerprint


def test_templates_reach_defaults_attributes_and_items() -> None:
    @task(key="{name}:{user[id]}:{when.year:05d}:{size!r}")
    def call(user: dict[str, int], when: Any, size: str = "xl", name: str = "n") -> None: ...

    import datetime

    date = datetime.date(2024, 1, 2)
    assert call.job({"id": 3}, date).key == "n:3:02024:'xl'"


def test_templates_reach_what_keyword_parameters_collect() -> None:
    @task(key="{kind}:{extra}")
    def call(kind: str, **rest: int) -> None: ...

    assert call.job("a", extra=1).key == "a:1"


@pytest.mark.parametrize(
    "template", ["{kind}:{extra}", "{kind.missing}", "{kind[5]}", "{kind[x]}", "{kind:05d}"]
)
def test_a_template_that_does_not_fit_the_arguments_is_told_by_task(template: str) -> None:
    @task(name="call", key=template)
    def call(kind: str, **rest: int) -> None: ...

    with pytest.raises(TypeError, match="task 'call': key template "):
        call.job("a")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("charge:{order}", "names 'order', which is no parameter; the parameters are: order_id"),
        ("charge:{order.id}", "names 'order', which is no parameter"),
        ("charge:{order[id]}", "names 'order', which is no parameter"),
        ("charge:{}", "must name its placeholders, as in 'charge:{order_id}'"),
        ("charge:{0}", "must name its placeholders"),
        ("charge:{0.x}", "must name its placeholders"),
        ("charge:{order_id", "is malformed: "),
        ("charge:order_id}", "is malformed: "),
        ("charge:{order_id:{width}}", "names 'width', which is no parameter"),
        ("charge:{order_id:{}}", "must name its placeholders"),
        ("charge:{order_id!z}", "has an unknown conversion: !z; use !r, !s or !a"),
    ],
)
def test_a_template_that_could_not_work_is_refused(template: str, message: str) -> None:
    with pytest.raises(ValueError, match="task 'charge': key template ") as caught:

        @task(name="charge", key=template)
        def call(order_id: int) -> None: ...

    assert message in str(caught.value)


@pytest.mark.parametrize("template", ["", 7, b"k", ["k"]])
def test_a_template_is_a_string(template: Any) -> None:
    with pytest.raises(TypeError, match="task 'charge': key must be a template string, not "):

        @task(name="charge", key=template)
        def call(order_id: int) -> None: ...


@pytest.mark.parametrize("args", [(), (1, 2, 3), (1, 2, "x")])
def test_arguments_that_do_not_fit_are_refused_by_task_and_parameter(args: Any) -> None:
    with pytest.raises(TypeError, match=rf"^task '{__name__}:charge': "):
        charge.job(*args)


def test_an_unexpected_keyword_is_refused() -> None:
    wrong: Any = {"oder_id": 7}
    with pytest.raises(TypeError, match="order_id"):
        charge.job(**wrong)


def test_arguments_without_a_portable_form_need_a_template() -> None:
    @task
    def hold(lock: Any) -> None: ...

    @task(key="hold")
    def hold_by_name(lock: Any) -> None: ...

    with pytest.raises(TypeError, match="no key can be derived from these arguments"):
        hold.job(threading.Lock())
    assert hold_by_name.job(threading.Lock()).key == "hold"


def test_generator_functions_are_refused_when_decorated() -> None:
    with pytest.raises(TypeError, match="is a generator function"):

        @task
        def numbers() -> Iterator[int]:
            yield 1

    with pytest.raises(TypeError, match="is a generator function"):

        @task
        async def later() -> AsyncIterator[int]:
            yield 1


def test_what_is_no_function_is_refused() -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match="a job needs a callable, not 7"):
        task(wrong)


@pytest.mark.parametrize("name", ["", 7, b"name"])
def test_a_name_is_a_string(name: Any) -> None:
    with pytest.raises(TypeError, match="a task's name must be a non-empty string, not "):
        task(name=name)(double)


def test_a_name_is_given_by_keyword() -> None:
    wrong: Any = "charge"
    with pytest.raises(TypeError, match=r"@task takes its name by keyword: @task\(name='charge'\)"):
        task(wrong)


def test_a_nameless_callable_needs_a_name() -> None:
    class Nameless:
        __module__ = None  # type: ignore[assignment]

        def __call__(self) -> int:
            return 1

    class OfThisModule:
        def __call__(self) -> int:
            return 1

    for nameless in (Nameless(), OfThisModule()):
        with pytest.raises(TypeError, match=r"has no name of its own; give one: @task\(name=…\)"):
            task(nameless)
    assert task(name="one")(Nameless()).job().key.startswith("one:")


@pytest.mark.parametrize(
    ("argument", "wrong", "error", "message"),
    [
        ("lane", None, TypeError, "task 'c': lane must be a string, not None"),
        ("retry", 3, TypeError, "task 'c': retry must be a Retry, not 3"),
        ("timeout", 0, ValueError, "task 'c': timeout must be more than 0 seconds"),
        ("timeout", "1", TypeError, "task 'c': timeout must be seconds or a timedelta"),
    ],
)
def test_wrong_options_are_refused_by_task(
    argument: str, wrong: Any, error: type[Exception], message: str
) -> None:
    def call() -> None: ...

    with pytest.raises(error) as caught:
        task(**{"name": "c", argument: wrong})(call)
    assert str(caught.value).startswith(message)


def test_options_are_handed_to_every_job() -> None:
    retry = Retry(attempts=2)

    @task(lane=Priority.HIGH, retry=retry, timeout=timedelta(seconds=3))
    def call() -> None: ...

    job = call.job()
    assert (job.lane, job.retry, job.timeout) == ("high", retry, 3.0)


async def test_a_method_can_be_a_task() -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @task(key="{self.name}:{order_id}")
        async def charge(self, order_id: int) -> str:
            return f"{self.name} charged {order_id}"

    shop = Shop("a")
    assert await shop.charge(7) == "a charged 7"
    async with Queue() as queue:
        for job in (Shop.charge.job(shop, 7), shop.charge.job(7), shop.charge.job(order_id=7)):
            assert job.key == "a:7"
            assert await queue.push_and_wait(job) == "a charged 7"
        assert queue.stats()["normal"].completed == 1


async def test_static_and_class_methods_can_be_tasks() -> None:
    class Shop:
        @staticmethod
        @task(key="static:{number}")
        def static(number: int) -> int:
            return number

        @task(key="plain:{number}")
        @staticmethod
        async def inside(number: int) -> int:
            return number

    async with Queue() as queue:
        assert await queue.push_and_wait(Shop.static.job(1)) == 1
        assert await queue.push_and_wait(Shop.inside.job(2)) == 2


def test_a_task_of_a_coroutine_function_is_seen_as_one_where_python_can() -> None:
    if hasattr(inspect, "markcoroutinefunction"):
        assert inspect.iscoroutinefunction(charge)
    assert not inspect.iscoroutinefunction(double)


async def test_a_task_can_itself_be_the_function_of_a_job() -> None:
    async with Queue() as queue:
        assert await queue.push_and_wait(Job("a", charge, args=(1,))) == 11
        assert await queue.push_and_wait(Job("d", double, args=(1,))) == 2
        await asyncio.sleep(0)
