"""Exceptions are one when nothing but numbers and ids in their messages tells them apart."""

from __future__ import annotations

import traceback

import pytest

from heronpy.metricsmgr import exception_group


def raised(error: Exception) -> str:
    try:
        raise error
    except Exception as e:
        return "".join(traceback.format_exception(e))


def test_57_exceptions_whose_message_holds_an_id_are_one_group() -> None:
    assert len({exception_group(raised(ValueError(f"order {n} of customer c-{n * 7} failed"))) for n in range(57)}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user 6f1f3a9e-1c1f-4a55-9d9b-9f0c6d1b7a11 is gone", "user 00000000-aaaa-4a55-9d9b-9f0c6d1b7a11 is gone"),
        ("<Foo object at 0x7f3a2c>", "<Foo object at 0x7fffff>"),
        ("took 12.5 s", "took -3e-7 s"),
        ("no key 'abc-17'", "no key 'xyz-9'"),
        ("at 2024-01-02T03:04:05", "at 2025-11-21T20:00:00"),
    ],
)
def test_numbers_and_ids_do_not_tell_exceptions_apart(one: str, other: str) -> None:
    assert exception_group(raised(ValueError(one))) == exception_group(raised(ValueError(other)))


def test_classes_messages_and_frames_tell_exceptions_apart() -> None:
    def elsewhere() -> str:
        try:
            raise ValueError("order 1 failed")
        except ValueError as e:
            return "".join(traceback.format_exception(e))

    texts = [raised(ValueError("order 1 failed")), raised(KeyError("order 1 failed")), raised(ValueError("other"))]
    assert len({exception_group(text) for text in [*texts, elsewhere()]}) == 4
