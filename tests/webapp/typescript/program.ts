// A program of a user, over generated clients: prints what each step got, as JSON by the name of the step.
import { client as saved } from "./saved/client.gen.js";
import { share } from "./saved/index.js";
import { client } from "./tidegauge/client.gen.js";
import { type Entry, followState, getKey, listEntries, type Problem, type LookupRequest, lookUpState, lookUpStates } from "./tidegauge/index.js";

const { TIDEGAUGE_URL, TIDEGAUGE_EVENTS_URL, TIDEGAUGE_API_KEY } = process.env;
const headers = { Authorization: `Bearer ${TIDEGAUGE_API_KEY}` };
for (const each of [client, saved]) each.setConfig({ baseUrl: TIDEGAUGE_URL!, headers });

const path = { name: "flights_by_carrier" };

async function keys() {
  const { data } = await lookUpState({
    path,
    body: { keys: [["JFK", "C01"], ["JFK", "ZZ"]], measures: ["flights"], min_txid: 2 },
    throwOnError: true,
  });
  return { txid: data.txid, results: data.results };
}

// @ts-expect-error: a part of a key is text, a number or a boolean
const nested: LookupRequest = { keys: [["JFK", { carrier: "C01" }]] };

async function states() {
  const { data } = await lookUpStates({
    body: { lookups: [{ state: "totals", keys: [[]] }, { state: "flights_by_hour", keys: [] }] },
    throwOnError: true,
  });
  return data.answers.map((answer) => answer.results?.length);
}

async function oneKey() {
  const { data } = await getKey({ path, query: { key: '["JFK", "C01"]', measures: "flights" }, throwOnError: true });
  return { key: data.key, value: data.value };
}

async function pages() {
  const found: Entry[] = [];
  let cursor: string | undefined;
  do {
    const where = ["flights>=98", 'origin in ["JFK"]'];
    const { data } = await listEntries({ path, query: { where, limit: 2, cursor }, throwOnError: true });
    found.push(...data.entries);
    cursor = data.next ?? undefined;
  } while (cursor);
  return found.map(({ key }) => key.join("/"));
}

function advice(problem: Problem): string {
  switch (problem.code) {
    case "invalid_key":
      return `key ${problem.index} is wrong`;
    case "key_not_found":
      return `it is ${problem.key_status} as of batch ${problem.txid}`;
    // @ts-expect-error: the API has no such code
    case "no_such_code":
    default:
      return problem.detail;
  }
}

async function problems() {
  const wrong = await lookUpState({ path, body: { keys: [["JFK", "C01"], ["JFK"]] } });
  const absent = await getKey({ path, query: { key: '["JFK", "ZZ"]' } });
  return [wrong, absent].map(({ error, response }) => error && [response?.status, advice(error)]);
}

async function savedQuery() {
  const { data } = await share({ query: { carrier: ["C01", "C02"] }, throwOnError: true });
  const [totals, combined, entries] = data.answers;
  const carriers: string[] = entries.entries.map(({ key: [, carrier] }) => carrier);
  return {
    total: totals.results.map(({ value }) => value?.flights),
    combined: combined.combined.value.flights,
    carriers: new Set(carriers).size,
  };
}

async function refusedParameter() {
  // @ts-expect-error: the query needs the parameter `carrier`
  const { error } = await share({ query: {} });
  return error?.code;
}

async function events() {
  const stop = new AbortController();
  const query = { keys: JSON.stringify([["JFK", "C01"]]), measures: "flights" };
  const { stream } = await followState({ baseUrl: TIDEGAUGE_EVENTS_URL!, path, query, signal: stop.signal });
  for await (const event of stream) {
    stop.abort();
    return "results" in event ? { txid: event.txid, results: event.results } : event;
  }
}

const steps = { keys, states, oneKey, pages, problems, savedQuery, refusedParameter, events };
const got = Object.entries(steps).map(async ([name, step]) => [name, await step()]);
console.log(JSON.stringify(Object.fromEntries(await Promise.all(got))));
