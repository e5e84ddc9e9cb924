// The npm package fly-admin, driven over its own JSON lines: {"call": "Machine.getMachine", "arguments": [...]} in,
// {"answer": ...} or {"error": "..."} out. Its first line is what it can call. HAWKER_URL and HAWKER_TOKEN say where.
'use strict'

const readline = require('node:readline')
const { default: Client } = require('fly-admin/dist/client')

const GROUPS = ['App', 'Machine', 'Volume', 'Network', 'Organization', 'Regions', 'Secret']

const url = process.env.HAWKER_URL
const client = new Client(process.env.HAWKER_TOKEN, { apiUrl: url, graphqlUrl: url })

function say(line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

function surface() {
  return GROUPS.flatMap((group) =>
    Object.getOwnPropertyNames(Object.getPrototypeOf(client[group]))
      .filter((name) => name !== 'constructor')
      .map((name) => `${group}.${name}`)
  )
}

async function answer({ call, arguments: given }) {
  const [group, name] = call.split('.')
  try {
    return { answer: await client[group][name](...given) }
  } catch (error) {
    return { error: error.message }
  }
}

async function main() {
  say({ answer: surface() })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    say(await answer(JSON.parse(line)))
  }
}

main()
