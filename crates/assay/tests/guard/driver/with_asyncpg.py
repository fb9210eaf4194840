"""Does what users of asyncpg do, and prints what they see.

The environment says where to connect (PGHOST and others).
"""

import asyncio
import datetime
import io
import sys

import asyncpg


async def failure(action):
    """The SQLSTATE of the error that this must end with."""
    try:
        await action
    except asyncpg.PostgresError as error:
        return error.sqlstate
    raise AssertionError(f"{action} has not failed")


async def transactions(connection):
    await connection.execute(
        "CREATE TABLE account (id int PRIMARY KEY, balance int CHECK (balance >= 0));"
        "INSERT INTO account SELECT n, 100 FROM generate_series(1, 8) n"
    )
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("UPDATE account SET balance = 0")
    await transaction.rollback()
    yield await connection.fetchval("SELECT sum(balance) FROM account")
    transaction = connection.transaction()
    await transaction.start()
    yield await failure(connection.execute("UPDATE account SET balance = $1 WHERE id = $2", -1, 1))
    # A statement that fails spoils the transaction.
    yield await failure(connection.execute("SELECT 1"))
    await transaction.rollback()
    async with connection.transaction():
        await connection.execute("UPDATE account SET balance = balance + 1 WHERE id = 1")
        # A transaction inside one is a savepoint.
        try:
            async with connection.transaction():
                await connection.execute("UPDATE account SET balance = -1 WHERE id = 1")
        except asyncpg.CheckViolationError as error:
            yield error.constraint_name
    async with connection.transaction(isolation="serializable", readonly=True, deferrable=True):
        yield await connection.fetchval("SELECT balance FROM account WHERE id = 1")
        yield await connection.fetchval("SHOW transaction_isolation")
        yield await failure(connection.execute("SAVEPOINT s; DELETE FROM account"))
        await connection.execute("ROLLBACK TO s")
    yield connection.is_in_transaction()


async def values(connection):
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    query = "SELECT $1::text, $2::bytea, $3::int[], $4::timestamptz, NULL, '', $5::numeric"
    yield tuple(await connection.fetchrow(query, "öäü €", b"\0\1\377", [1, None, 3], moment, 1))
    yield len(await connection.fetchval("SELECT $1::text", "x" * 5_000_000))
    yield len(await connection.fetch("SELECT n, repeat('x', 100) FROM generate_series(1, 50000) n"))
    # The driver asks the server for types that it does not have.
    await connection.execute("CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TYPE pair AS (a int, b mood)")
    yield await connection.fetchval("SELECT $1::pair", (1, "high"))
    yield await connection.fetchval("SELECT $1::mood[]", ["low", "high"])
    await connection.set_type_codec("mood", encoder=str.lower, decoder=str.upper, schema="public")
    yield await connection.fetchval("SELECT $1::mood", "LOW")


async def prepared_statements(connection):
    statement = await connection.prepare("SELECT balance + $1 FROM account WHERE id = 2")
    # The driver prepares without Sync, and begins a transaction with a simple query.
    async with connection.transaction():
        yield [await statement.fetchval(n) for n in range(20)]
    yield [attribute.type.name for attribute in statement.get_attributes()], statement.get_statusmsg()
    # The driver prepares all statements, and keeps the last 100.
    yield [await connection.fetchval(f"SELECT {n} + $1", n) for n in range(150)]
    yield [await connection.fetchval(f"SELECT {n} + $1", n) for n in range(150)]
    yield await connection.fetch("SELECT * FROM account WHERE id = 2")
    await connection.execute("ALTER TABLE account ADD note text")
    # It prepares a statement again when the types of its result have changed.
    yield await connection.fetch("SELECT * FROM account WHERE id = 2")


async def copies(connection):
    await connection.execute("CREATE TABLE copied (n int, word text)")
    lines = ((n, "tab\tand\nline" if n % 2 else None) for n in range(50_000))
    yield await connection.copy_records_to_table("copied", records=lines)
    yield await connection.copy_to_table("copied", source=io.BytesIO(b"-1,text\n"), format="csv")
    yield await connection.fetchrow("SELECT count(*), sum(n), count(word), max(word) FROM copied")
    yield await failure(connection.copy_to_table("copied", source=io.BytesIO(b"nonsense\n" * 100_000)))

    async def source():
        yield b"1,lost\n"
        raise ValueError("no more rows")

    try:
        await connection.copy_to_table("copied", source=source(), format="csv")
    except ValueError as error:
        yield error
    for format in ("text", "binary"):
        output = io.BytesIO()
        query = "SELECT n, word FROM copied WHERE n < $1 ORDER BY n"
        yield await connection.copy_from_query(query, 40_000, output=output, format=format)
        yield len(output.getvalue())
    yield await connection.fetchval("SELECT count(*) FROM copied")


async def cancellation(connection):
    sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
    other = await asyncpg.connect()
    # The driver sends a request to cancel when a task of the program is cancelled.
    task = asyncio.create_task(connection.fetch("SELECT pg_sleep($1)", 3600))
    while not await other.fetch(sleeping):
        await asyncio.sleep(0.01)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        yield "cancelled"
    while await other.fetch(sleeping):
        await asyncio.sleep(0.01)
    await other.close()
    async with connection.transaction():
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL statement_timeout = '10ms'")
                await connection.execute("SELECT pg_sleep(3600)")
        except asyncpg.QueryCanceledError as error:
            yield error
    yield await connection.fetchval("SELECT 1")


async def notifications(connection):
    heard = asyncio.Queue()

    def hear(connection, process, channel, word):
        heard.put_nowait(word)

    await connection.add_listener("news", hear)
    other = await asyncpg.connect()
    for word in ("one", "two"):
        await other.execute("SELECT pg_notify('news', $1)", word)
    await other.close()
    yield [await heard.get(), await heard.get()]
    await connection.remove_listener("news", hear)
    connection.add_log_listener(lambda connection, message: heard.put_nowait(message.message))
    await connection.execute("DO $$ BEGIN RAISE NOTICE 'a notice'; END $$")
    yield await heard.get()


async def cursors(connection):
    async with connection.transaction():
        query = "SELECT n FROM generate_series(1, $1) n"
        yield sum([row["n"] async for row in connection.cursor(query, 10_000, prefetch=100)])
        cursor = await connection.cursor(query, 10)
        yield await cursor.forward(5), await cursor.fetch(2), await cursor.fetchrow()


async def pipelines(connection):
    # The driver sends these without waiting for the answers.
    query = "UPDATE account SET balance = $1 WHERE id = $2"
    await connection.executemany(query, [(n, n) for n in range(1, 9)])
    yield await connection.fetchval("SELECT sum(balance) FROM account")
    yield await failure(connection.executemany(query, [(1, 1), (-1, 2), (1, 3)]))
    yield await connection.fetchmany("SELECT $1::int", [(n,) for n in range(5)])
    yield await connection.fetch("SELECT id, balance FROM account ORDER BY id")


async def pools(connection):
    async def transfer(pool, number):
        for step in range(20):
            async with pool.acquire() as own, own.transaction():
                one, other = sorted(((number + step) % 8 + 1, (number + 3 * step) % 8 + 1))
                for id, amount in ((one, -1), (other, number)):
                    await own.execute("UPDATE account SET balance = balance + $1 WHERE id = $2", amount, id)
                assert await own.fetchval("SELECT $1::int", number) == number

    await connection.execute("UPDATE account SET balance = 1000")
    # The driver resets a session when it returns to the pool.
    async with asyncpg.create_pool(min_size=8, max_size=8) as pool:
        await asyncio.gather(*(transfer(pool, number) for number in range(8)))
    yield await connection.fetch("SELECT id, balance FROM account ORDER BY id")


STEPS = (
    transactions,
    values,
    prepared_statements,
    copies,
    cancellation,
    notifications,
    cursors,
    pipelines,
    pools,
)


async def take_steps():
    for step in STEPS:
        connection = await asyncpg.connect()
        async for result in step(connection):
            print(step.__name__, result)
        await connection.close()


async def meet_refusals():
    """Does some things that must fail, and when a line comes, again what must work."""

    # A connection whose BEGIN has failed can begin no other transaction, except if it is of a pool.
    async def transact():
        async with pool.acquire() as own, own.transaction():
            return await own.fetchval("SELECT 2")

    connection = await asyncpg.connect()
    async with asyncpg.create_pool(min_size=1, max_size=1) as pool:
        actions = {
            "query": lambda: connection.fetchval("SELECT 1"),
            "transaction": transact,
            "pipeline": lambda: connection.fetchmany("SELECT $1::int", [(n,) for n in range(3)]),
            "pool": lambda: pool.fetchval("SELECT 4"),
        }
        for name, action in actions.items():
            print(name, await failure(action()))
        sys.stdin.readline()
        for name, action in actions.items():
            print(name, await action())
    await connection.close()


asyncio.run(meet_refusals() if sys.argv[1:] == ["refusals"] else take_steps())
