// Does what users of node-postgres do, and prints what they see.
//
// The environment says where to connect (PGHOST and others).
'use strict'

const assert = require('node:assert')
const { once } = require('node:events')
const fs = require('node:fs')
const { Readable } = require('node:stream')
const { pipeline } = require('node:stream/promises')
const { setTimeout: sleep } = require('node:timers/promises')

const { Client, Pool, Query } = require('pg')
const copyStreams = require('pg-copy-streams')
const Cursor = require('pg-cursor')
const QueryStream = require('pg-query-stream')

// The driver reads the other variables of the environment itself.
const authority = process.env.PGSSLROOTCERT
const options = authority ? { ssl: { ca: fs.readFileSync(authority) } } : {}

async function connect() {
  const client = new Client(options)
  await client.connect()
  return client
}

// The SQLSTATE of the error that this must end with.
async function failure(promise) {
  const error = await promise.then(() => assert.fail('it has not failed'), (error) => error)
  if (!error.code || error instanceof assert.AssertionError) throw error
  return error.code
}

async function rows(client, query, values) {
  return (await client.query({ text: query, values, rowMode: 'array' })).rows
}

async function * transactions(client) {
  await client.query('CREATE TABLE account (id int PRIMARY KEY, balance int CHECK (balance >= 0))')
  await client.query('INSERT INTO account SELECT n, 100 FROM generate_series(1, 8) n')
  await client.query('BEGIN')
  await client.query('UPDATE account SET balance = 0')
  await client.query('ROLLBACK')
  yield rows(client, 'SELECT sum(balance) FROM account')
  await client.query('BEGIN ISOLATION LEVEL SERIALIZABLE')
  await client.query('UPDATE account SET balance = balance + 1 WHERE id = $1', [1])
  await client.query('SAVEPOINT s')
  yield failure(client.query('UPDATE account SET balance = $1 WHERE id = $2', [-1, 1]))
  // A statement that fails spoils the transaction.
  yield failure(client.query('SELECT 1'))
  await client.query('ROLLBACK TO s')
  await client.query('COMMIT')
  yield rows(client, 'SELECT balance FROM account WHERE id = 1')
  // Several statements in one text.
  const several = 'BEGIN; UPDATE account SET balance = 7 WHERE id = 2; SELECT 1 AS one; COMMIT'
  const results = await client.query(several)
  yield results.map((result) => [result.command, result.rowCount])
}

async function * values(client) {
  const query = 'SELECT $1::jsonb, $2::bytea, $3::int[], $4::timestamptz, NULL, $5::text'
  const document = { text: 'öäü €', list: [1, null, 2.5] }
  const moment = new Date(Date.UTC(2026, 0, 2, 3, 4, 5))
  yield rows(client, query, [document, Buffer.from([0, 1, 255]), [1, null, 3], moment, ''])
  yield (await rows(client, 'SELECT $1::text', ['x'.repeat(5_000_000)]))[0][0].length
  yield (await rows(client, "SELECT n, repeat('x', 100) FROM generate_series(1, 50000) n")).length
}

async function * preparedStatements(client) {
  const balance = async (addend) => {
    const text = 'SELECT balance + $1 AS balance FROM account WHERE id = 3'
    return (await client.query({ name: 'balance', text, values: [addend] })).rows[0].balance
  }
  for (let n = 0; n < 5; n++) yield balance(n)
  await client.query('ALTER TABLE account ADD note text')
  yield balance(5)
  yield failure(client.query({ name: 'fails', text: 'SELECT 1 / $1::int', values: [0] }))
  yield failure(client.query({ name: 'wrong', text: 'SELECT FROM nowhere' }))
  yield balance(6)
}

async function * copies(client) {
  await client.query('CREATE TABLE copied (n int, word text)')
  const lines = function * (count, line) {
    for (let n = 0; n < count; n++) yield line(n)
  }
  const copy = (source) => {
    return pipeline(Readable.from(source), client.query(copyStreams.from('COPY copied FROM STDIN')))
  }
  await copy(lines(50000, (n) => `${n}\ttab\\tand\\nline\n`))
  yield rows(client, 'SELECT count(*), sum(n), max(word) FROM copied')
  yield failure(copy(lines(100000, () => 'nonsense\n')))
  const source = function * () {
    yield '1\tlost\n'
    throw new Error('no more rows')
  }
  yield copy(source()).catch((error) => error.message)
  let bytes = 0
  await pipeline(client.query(copyStreams.to('COPY copied TO STDOUT')), async (source) => {
    for await (const chunk of source) bytes += chunk.length
  })
  yield bytes
  yield rows(client, 'SELECT count(*) FROM copied')
}

async function * cancellation(client) {
  const statement = new Query('SELECT pg_sleep(3600)')
  const cancelled = new Promise((resolve) => statement.on('error', resolve))
  client.query(statement)
  const other = await connect()
  const sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
  while ((await rows(other, sleeping)).length === 0) await sleep(10)
  await other.end()
  // Its connection is for the request only.
  new Client(options).cancel(client, statement)
  yield (await cancelled).code
  await client.query('BEGIN')
  await client.query("SET LOCAL statement_timeout = '10ms'")
  yield failure(client.query('SELECT pg_sleep(3600)'))
  await client.query('ROLLBACK')
  yield rows(client, 'SELECT 1')
}

async function * notifications(client) {
  const heard = []
  const both = new Promise((resolve) => client.on('notification', (message) => {
    if (heard.push(message.payload) === 2) resolve(heard)
  }))
  await client.query('LISTEN news')
  const other = await connect()
  for (const word of ['one', 'two']) await other.query("SELECT pg_notify('news', $1)", [word])
  await other.end()
  yield both
  await client.query('UNLISTEN news')
  const notice = new Promise((resolve) => client.once('notice', (message) => resolve(message.message)))
  await client.query("DO $$ BEGIN RAISE NOTICE 'a notice'; END $$")
  yield notice
}

// A portal is read in parts, in a transaction of its own or in one that the user has begun.
async function * cursors(client) {
  const query = 'SELECT n FROM generate_series(1, $1) n'
  const cursor = client.query(new Cursor(query, [10]))
  yield cursor.read(3)
  yield cursor.read(4)
  await cursor.close()
  await client.query('BEGIN')
  for (const count of [5, 7]) {
    const own = client.query(new Cursor(query, [count]))
    yield own.read(6)
    await own.close()
  }
  await client.query('COMMIT')
  const failing = client.query(new Cursor('SELECT 1 / (5 - n) FROM generate_series(1, 10) n'))
  yield failing.read(4)
  yield failure(failing.read(4))
  let sum = 0
  for await (const row of client.query(new QueryStream(query, [10000], { batchSize: 100 }))) sum += row.n
  yield sum
  // A stream that is left early.
  for await (const row of client.query(new QueryStream(query, [10000], { batchSize: 10 }))) {
    if (row.n === 25) break
  }
  yield rows(client, 'SELECT 1')
}

// The driver sends these without waiting for the answers.
async function * pipelines() {
  const client = new Client({ ...options, pipeline: true })
  await client.connect()
  const queries = Array.from({ length: 500 }, (_, n) => rows(client, 'SELECT $1::int * 2', [n]))
  yield (await Promise.all(queries)).reduce((sum, [[value]]) => sum + value, 0)
  const mixed = await Promise.allSettled([1, 0, 2].map((n) => rows(client, 'SELECT 2 / $1::int', [n])))
  yield mixed.map(({ value, reason }) => value ?? reason.code)
  await client.end()
}

async function * pools(client) {
  await client.query('UPDATE account SET balance = 1000')
  const pool = new Pool({ ...options, max: 8 })
  const transfer = async (number) => {
    for (let step = 0; step < 20; step++) {
      const own = await pool.connect()
      const accounts = [(number + step) % 8 + 1, (number + 3 * step) % 8 + 1].sort()
      await own.query('BEGIN')
      for (const [n, id] of accounts.entries()) {
        const text = 'UPDATE account SET balance = balance + $1 WHERE id = $2'
        await own.query({ name: 'add', text, values: [n === 0 ? -1 : number, id] })
      }
      assert.deepStrictEqual(await rows(own, 'SELECT $1::int', [number]), [[number]])
      await own.query('COMMIT')
      own.release()
    }
  }
  await Promise.all(Array.from({ length: 8 }, (_, number) => transfer(number)))
  await pool.end()
  yield rows(client, 'SELECT id, balance FROM account ORDER BY id')
}

const STEPS = [
  transactions, values, preparedStatements, copies, cancellation, notifications, cursors, pipelines, pools
]

async function takeSteps() {
  for (const step of STEPS) {
    const client = await connect()
    for await (const result of step(client)) console.log(step.name, JSON.stringify(result))
    await client.end()
  }
}

// Does some things that must fail, and when a line comes, again what must work.
async function meetRefusals() {
  const client = await connect()
  const pipelined = new Client({ ...options, pipeline: true })
  await pipelined.connect()
  const pool = new Pool({ ...options, max: 1 })
  const actions = {
    query: () => rows(client, 'SELECT 1'),
    transaction: async () => {
      await client.query('BEGIN')
      const result = await rows(client, 'SELECT 2')
      await client.query('COMMIT')
      return result
    },
    pipeline: async () => {
      const results = await Promise.allSettled([1, 2, 3].map((n) => rows(pipelined, 'SELECT $1::int', [n])))
      return results.map(({ value, reason }) => { if (reason) throw reason; else return value })
    },
    pool: () => rows(pool, 'SELECT 4')
  }
  for (const [name, action] of Object.entries(actions)) console.log(name, await failure(action()))
  await once(process.stdin, 'data')
  for (const [name, action] of Object.entries(actions)) console.log(name, JSON.stringify(await action()))
  await Promise.all([client.end(), pipelined.end(), pool.end()])
  process.stdin.destroy()
}

const main = process.argv[2] === 'refusals' ? meetRefusals : takeSteps
main().catch((error) => {
  console.error(error)
  process.exit(1)
})
