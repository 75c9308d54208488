"""Moves money between accounts in MariaDB or MySQL, and says so in a feed: each transfer in one transaction with its events.

    MYSQL_PWD=... python examples/move_money.py --host db --user shop --database shop

Run ``headrace agent run`` beside it. Kill this program at any moment and start it again: of each transfer the feed has both
accounts or none, and every account's entries are in the order of its changes.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import Any

import pymysql

from headrace.publisher.outbox import Outbox

ACCOUNTS = 5


def set_up(app: pymysql.Connection[Any]) -> None:
    """Make the tables and the outbox. Not inside a transaction: DDL would commit it."""
    Outbox.create(app)
    with app.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, balance INT NOT NULL, version INT NOT NULL)"
        )
        for number in range(ACCOUNTS):
            cursor.execute("INSERT IGNORE INTO account VALUES (%s, 100, 0)", (number,))
    app.commit()


def book(app: pymysql.Connection[Any], feed: str, account: int, amount: int) -> None:
    """Change one account and tell it. The event comes after the change: by then the account is locked until the commit."""
    with app.cursor() as cursor:
        cursor.execute(
            "UPDATE account SET balance = balance + %s, version = version + 1 WHERE id = %s",
            (amount, account),
        )
        cursor.execute("SELECT balance, version FROM account WHERE id = %s", (account,))
        balance, version = cursor.fetchone()
    state = {"id": account, "balance": balance, "version": version}
    Outbox.add(app, feed, state, key=str(account), changed=["balance", "version"])


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3306)
    parser.add_argument("--user", required=True)
    parser.add_argument("--database", required=True)
    parser.add_argument("--feed", default="bank")
    parser.add_argument("--count", type=int, default=100, help="how many transfers")
    given = parser.parse_args()
    app = pymysql.connect(
        host=given.host,
        port=given.port,
        user=given.user,
        password=os.environ.get("MYSQL_PWD", ""),
        database=given.database,
        charset="utf8mb4",
    )
    with app:
        set_up(app)
        for number in range(1, given.count + 1):
            one, other = sorted(random.sample(range(ACCOUNTS), 2))  # always locked in this order: no deadlock
            amount = random.randint(-20, 20)
            book(app, given.feed, one, -amount)
            book(app, given.feed, other, amount)
            app.commit()
            print(f"transfer {number}: {amount} from {one} to {other}", flush=True)


if __name__ == "__main__":
    main()
