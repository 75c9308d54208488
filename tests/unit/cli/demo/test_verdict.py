"""The demo's judge finds each kind of fault: a judge that can't would make the demo's zeros worthless."""

from __future__ import annotations

from headrace.cli.demo.verdict import Count, Fold, Step, compare, fold, percentile

TABLES = ("accounts", "notes")


def account(sequence_id: int, number: int, balance: int, revision: int, **more: bool) -> Step:
    row = {"id": number, "balance": balance, "revision": revision}
    return Step(sequence_id, "accounts", str(number), row, **more)


OPENING = [account(1, 1, 10, 1, copied=True), account(2, 2, 10, 1, copied=True, ends_transaction=True)]
MOVED = [account(3, 1, 7, 2), account(4, 2, 13, 2, ends_transaction=True)]


def counted(steps: list[Step]) -> Count:
    return fold("feed", TABLES, steps, total=20).counts["accounts"]


def test_faultless_history() -> None:
    again = account(5, 2, 13, 2, copied=True, ends_transaction=True)
    gone = account(6, 1, 7, 2, deleted=True)
    found = fold("feed", TABLES, [*OPENING, *MOVED, again, gone], total=20)
    assert all(count.faultless for count in found.counts.values())
    assert found.rows == {("accounts", "2"): MOVED[1].row}


def test_missing_change() -> None:
    assert counted([*OPENING, account(3, 1, 7, 3)]).missing == 1
    assert counted([account(1, 9, 7, 2)]).missing == 1


def test_duplicated_entry_and_duplicated_change() -> None:
    assert counted([*OPENING, *MOVED, MOVED[0]]).duplicated == 1
    assert counted([*OPENING, *MOVED, account(5, 1, 7, 2, ends_transaction=True)]).duplicated == 1


def test_out_of_order_change() -> None:
    assert counted([*OPENING, *MOVED, account(5, 1, 10, 1, ends_transaction=False)]).out_of_order == 1


def test_torn_transaction() -> None:
    torn = [account(3, 1, 7, 2, ends_transaction=True), account(4, 2, 13, 2, ends_transaction=True)]
    assert counted([*OPENING, *torn]).torn == 1


def test_compare_finds_absent_different_and_extra_rows() -> None:
    source = {("accounts", "1"): {"balance": 1}, ("accounts", "2"): {"balance": 2}}
    rows = {("accounts", "2"): {"balance": 3}, ("accounts", "3"): {"balance": 4}}
    found = Fold("spark", dict(rows), {table: Count("spark", table) for table in TABLES})
    accounts = compare(source, found)[0]
    assert (accounts.rows, accounts.missing, accounts.duplicated) == (2, 2, 1)
    assert not accounts.faultless
    assert str(accounts) == (
        "spark     accounts:   rows 2, missing 2, duplicated 1, out of order 0, torn transactions 0"
    )


def test_percentile() -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], 0.99) == 100.0
    assert percentile([5.0], 0.5) == 5.0
