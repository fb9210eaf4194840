"""Does what users of psycopg do, and prints what they see.

The environment says where to connect (PGHOST and others).
"""

import asyncio
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.errors import CheckViolation
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool


def failure(action, *arguments):
    """The SQLSTATE of the error that this must end with."""
    try:
        action(*arguments)
    except psycopg.Error as error:
        return error.sqlstate
    raise AssertionError(f"{action} has not failed")


def rows(connection, query, *parameters, **options):
    return connection.execute(query, parameters or None, **options).fetchall()


def transactions(connection):
    connection.autocommit = False
    connection.execute("CREATE TABLE account (id int PRIMARY KEY, balance int CHECK (balance >= 0))")
    connection.execute("INSERT INTO account SELECT n, 100 FROM generate_series(1, 8) n")
    connection.commit()
    connection.execute("UPDATE account SET balance = 0")
    connection.rollback()
    yield rows(connection, "SELECT sum(balance) FROM account")
    # A statement that fails spoils the transaction.
    yield failure(connection.execute, "UPDATE account SET balance = %s WHERE id = %s", (-1, 1))
    yield failure(connection.execute, "SELECT 1")
    connection.rollback()
    # A transaction inside one is a savepoint.
    with connection.transaction():
        connection.execute("UPDATE account SET balance = balance + 1 WHERE id = 1")
        with connection.transaction(force_rollback=True):
            connection.execute("UPDATE account SET balance = balance + 10 WHERE id = 1")
        try:
            with connection.transaction():
                connection.execute("UPDATE account SET balance = -1 WHERE id = 1")
        except CheckViolation as error:
            yield error.diag.constraint_name
    yield rows(connection, "SELECT balance FROM account WHERE id = 1")
    connection.rollback()
    connection.isolation_level = IsolationLevel.SERIALIZABLE
    connection.read_only = True
    yield rows(connection, "SHOW transaction_isolation")
    yield failure(connection.execute, "DELETE FROM account")
    connection.rollback()
    yield connection.info.transaction_status.name


def values(connection):
    document = {"text": "öäü €", "list": [1, None, 2.5]}
    query = "SELECT %s, %b, %t::int[], %s::timestamptz AT TIME ZONE 'UTC', NULL, ''"
    yield rows(connection, query, Jsonb(document), b"\0\1\377", [1, None, 3], "2026-01-02 03:04:05+06")
    yield len(rows(connection, "SELECT %s", "x" * 5_000_000)[0][0])
    yield len(rows(connection, "SELECT n, repeat('x', 100) FROM generate_series(1, 50000) n", binary=True))


def prepared_statements(connection):
    # The driver prepares a statement by itself when it is executed for the sixth time.
    yield [rows(connection, "SELECT balance + %s FROM account WHERE id = 2", n)[0][0] for n in range(20)]
    yield [rows(connection, "SELECT %s::text", word, prepare=True)[0][0] for word in ("one", "two")]
    # More than the driver keeps, so that it closes some.
    connection.prepared_max = 5
    yield [rows(connection, f"SELECT {n} + %s", n, prepare=True)[0][0] for n in range(20)]
    connection.execute("ALTER TABLE account ADD note text")
    yield rows(connection, "SELECT balance + %s FROM account WHERE id = 2", 0)


def copies(connection):
    connection.execute("CREATE TABLE copied (n int, word text)")
    with connection.cursor() as cursor:
        with cursor.copy("COPY copied FROM STDIN") as copy:
            for n in range(50_000):
                copy.write_row((n, "tab\tand\nline" if n % 2 else None))
        yield cursor.rowcount
        with cursor.copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text"])
            copy.write_row((-1, "binary"))
        yield rows(connection, "SELECT count(*), sum(n), count(word), max(word) FROM copied")

        def write_nonsense():
            with cursor.copy("COPY copied FROM STDIN") as copy:
                for _ in range(1000):
                    copy.write("nonsense\n")

        yield failure(write_nonsense)
        try:
            with cursor.copy("COPY copied FROM STDIN") as copy:
                copy.write_row((1, "lost"))
                raise ValueError("no more rows")
        except ValueError as error:
            yield error
        with cursor.copy("COPY (SELECT n, word FROM copied ORDER BY n) TO STDOUT") as copy:
            yield sum(len(row) for row in copy)
        with cursor.copy("COPY (SELECT n, word FROM copied ORDER BY n) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int4", "text"])
            yield list(copy.rows())[:2]
        yield rows(connection, "SELECT count(*) FROM copied")


def cancellation(connection):
    sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
    with ThreadPoolExecutor() as threads, psycopg.connect(autocommit=True) as other:
        for cancel in (connection.cancel, lambda: connection.cancel_safe(timeout=600)):
            cancelled = threads.submit(failure, connection.execute, "SELECT pg_sleep(3600)")
            while not rows(other, sleeping):
                time.sleep(0.01)
            cancel()
            yield cancelled.result()
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = '10ms'")
        yield failure(connection.execute, "SELECT pg_sleep(3600)")
        raise psycopg.Rollback()
    yield rows(connection, "SELECT 1")


def notifications(connection):
    connection.execute("LISTEN news")
    with psycopg.connect(autocommit=True) as other:
        for word in ("one", "two"):
            other.execute("SELECT pg_notify('news', %s)", (word,))
    yield [message.payload for message in connection.notifies(stop_after=2, timeout=600)]
    connection.execute("UNLISTEN news")
    raised = []
    connection.add_notice_handler(lambda notice: raised.append(notice.message_primary))
    connection.execute("DO $$ BEGIN RAISE NOTICE 'a notice'; END $$")
    yield raised


def cursors(connection):
    with connection.transaction():
        with connection.cursor("forward") as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT n FROM generate_series(1, %s) n", (10_000,))
            yield sum(n for n, in cursor)
        with connection.cursor("both", scrollable=True) as cursor:
            cursor.execute("SELECT n FROM generate_series(1, 10) n")
            cursor.scroll(5)
            yield cursor.fetchmany(2)
            cursor.scroll(0, mode="absolute")
            yield cursor.fetchone()
    with connection.cursor("hold", withhold=True) as cursor:
        cursor.execute("SELECT n FROM generate_series(1, 10) n")
        yield cursor.fetchmany(3), cursor.fetchall()[-1]
    # A session of its own: libpq 18 would go on to stream in the pipelines below.
    with psycopg.connect() as other, other.cursor() as cursor:
        yield sum(n for n, in cursor.stream("SELECT n FROM generate_series(1, 10000) n"))


def pipelines(connection):
    with connection.pipeline() as pipeline:
        cursors = [connection.execute("SELECT %s::int * 2", (n,)) for n in range(500)]
        pipeline.sync()
        cursors += [connection.execute("SELECT %s::int", (n,)) for n in range(500)]
    yield sum(cursor.fetchone()[0] for cursor in cursors)

    def fails():
        with connection.pipeline():
            connection.execute("UPDATE account SET balance = 0")
            connection.execute("SELECT 1 / %s", (0,))
            connection.execute("UPDATE account SET balance = 1")

    yield failure(fails), rows(connection, "SELECT sum(balance) FROM account")
    with connection.pipeline(), connection.transaction():
        connection.execute("UPDATE account SET balance = balance - 5 WHERE id = 3")
        connection.execute("UPDATE account SET balance = balance + 5 WHERE id = 4")
    with connection.cursor() as cursor:
        query = "UPDATE account SET balance = %s WHERE id = %s RETURNING id"
        cursor.executemany(query, [(7, 5), (8, 6)], returning=True)
        yield cursor.fetchone(), cursor.nextset(), cursor.fetchone()
    yield rows(connection, "SELECT id, balance FROM account ORDER BY id")


def pools(connection):
    def transfer(number):
        for step in range(20):
            with pool.connection() as own:
                one, other = sorted(((number + step) % 8 + 1, (number + 3 * step) % 8 + 1))
                for id, amount in ((one, -1), (other, number)):
                    own.execute("UPDATE account SET balance = balance + %s WHERE id = %s", (amount, id))
                assert rows(own, "SELECT %s", number) == [(number,)]

    connection.execute("UPDATE account SET balance = 1000")
    with ConnectionPool(min_size=8, timeout=600) as pool, ThreadPoolExecutor(8) as threads:
        list(threads.map(transfer, range(8)))
    yield rows(connection, "SELECT id, balance FROM account ORDER BY id")


def coroutines(connection):
    async def add(number):
        async with await AsyncConnection.connect() as own, own.pipeline():
            for _ in range(10):
                await own.execute("UPDATE account SET balance = balance + 1 WHERE id = %s", (number,))

    async def add_to_all():
        await asyncio.gather(*map(add, range(1, 9)))

    asyncio.run(add_to_all())
    yield rows(connection, "SELECT id, balance FROM account ORDER BY id")


STEPS = (
    transactions,
    values,
    prepared_statements,
    copies,
    cancellation,
    notifications,
    cursors,
    pipelines,
    coroutines,
    pools,
)


def take_steps():
    for step in STEPS:
        with psycopg.connect(autocommit=True) as connection:
            for result in step(connection):
                print(step.__name__, result)


def meet_refusals():
    """Does some things that must fail, and when a line comes, again what must work."""

    def transact():
        with connection.transaction():
            return rows(connection, "SELECT 2")

    def send_many():
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", (n,)) for n in range(3)]
        return [cursor.fetchone() for cursor in cursors]

    def use_pool():
        with pool.connection() as own:
            return rows(own, "SELECT 4")

    # The driver logs that it cannot roll back a transaction that has not begun.
    logging.disable()
    with psycopg.connect(autocommit=True) as connection, ConnectionPool(min_size=1, timeout=600) as pool:
        pool.wait(600)
        actions = {"query": lambda: rows(connection, "SELECT 1")}
        actions |= {"transaction": transact, "pipeline": send_many, "pool": use_pool}
        for name, action in actions.items():
            print(name, failure(action))
        sys.stdin.readline()
        for name, action in actions.items():
            print(name, action())


meet_refusals() if sys.argv[1:] == ["refusals"] else take_steps()
