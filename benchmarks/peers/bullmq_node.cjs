// BullMQ on Node, the reference implementation: addBulk, finished jobs removed at once, concurrency as ordered.
// As it comes (defaults) it runs one job at a time and keeps finished jobs.
// Same command line and the same lines of JSON as the Python peers: ACTION URL COUNT PARAMETERS. No timing differs:
// the clock runs from the end of the warm-up until Redis holds no waiting and no active job.
const { Queue, Worker } = require("bullmq");
const { Redis } = require("ioredis");
const fs = require("fs");

const QUEUE = "bench";
const UP_KEY = "bench:worker-is-up";
const WATCHED_KEY = "bench:watched";
const LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
const [action, url, countText, parameters] = process.argv.slice(2);
const order = { warmup: 0, style: "single", tasks: 100, bulk: 1000, handler: "noop", concurrency: 100, drain: true,
  gap_ms: [2, 5], sleep_ms: 1, body_bytes: 0, defaults: false, ...JSON.parse(parameters), count: Number(countText) };
const OPTIONS = order.defaults ? {} : { removeOnComplete: true };
if (order.body_bytes) {
  order.data.body = Array.from({ length: order.body_bytes }, () => LETTERS[Math.floor(Math.random() * 64)]).join("");
}
const total = order.warmup + order.count;
const place = new URL(url);
const connection = { host: place.hostname, port: Number(place.port), maxRetriesPerRequest: null };

const microseconds = () => Number(process.hrtime.bigint() / 1000n);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function clock() {
  const start = microseconds();
  const cpu = process.cpuUsage();
  return (jobs) => {
    const used = process.cpuUsage(cpu);
    return { jobs, from_us: start, seconds: (microseconds() - start) / 1e6, cpu_seconds: (used.user + used.system) / 1e6 };
  };
}

function memory() {
  const status = fs.readFileSync("/proc/self/status", "ascii");
  const field = (name) => Number(status.match(new RegExp(`${name}:\\s+(\\d+)`))[1]) / 1024;
  return { rss_mb: field("VmRSS"), peak_rss_mb: field("VmHWM") };
}

function fail(error) {
  fs.writeSync(2, `${error.stack}\n`);
  process.exit(1);
}

function print(result) {
  fs.writeSync(1, JSON.stringify(result) + "\n");
  process.exit(0);
}

const openQueue = () => new Queue(QUEUE, { connection }).on("error", fail);

async function unfinished(queue) {
  const counts = await queue.getJobCounts("wait", "active");
  return counts.wait + counts.active;
}

async function addMany(queue, count) {
  if (order.style === "single") {
    for (let i = 0; i < count; i++) await queue.add("bench", order.data, OPTIONS);
  } else if (order.style === "tasks") {
    let left = count;
    const caller = async () => {
      while (left-- > 0) await queue.add("bench", order.data, OPTIONS);
    };
    await Promise.all(Array.from({ length: order.tasks }, caller));
  } else {
    const job = { name: "bench", data: order.data, opts: OPTIONS };
    for (let left = count; left > 0; left -= order.bulk) {
      await queue.addBulk(Array(Math.min(left, order.bulk)).fill(job));
    }
  }
}

async function add() {
  const queue = openQueue();
  await addMany(queue, order.warmup);
  const read = clock();
  await addMany(queue, order.count);
  print({ ...read(order.count), waiting: await unfinished(queue) });
}

async function send() {
  const queue = openQueue();
  const client = new Redis(url);
  const stamped = (seq) => ({ ...order.data, seq, at_us: microseconds() });
  await queue.add("bench", stamped(0), OPTIONS);
  while (!(await client.exists(UP_KEY))) await sleep(10);
  const [least, most] = order.gap_ms;
  for (let seq = 1; seq < total; seq++) {
    await sleep(least + Math.random() * (most - least));
    await queue.add("bench", stamped(seq), OPTIONS);
  }
  print({ sent: total });
}

async function work() {
  const queue = openQueue();
  const client = new Redis(url);
  const first = Math.max(1, order.warmup);
  const latencies = [];
  let started = 0;
  let read = clock();

  async function finish() {
    const toLastStart = read(total - first);
    if (order.drain) while (await unfinished(queue)) await sleep(1);
    const result = order.drain ? read(total - first) : toLastStart;
    if (latencies.length) result.latencies_us = latencies.sort((a, b) => a - b);
    print({ ...result, seconds_to_last_start: toLastStart.seconds, ...memory() });
  }

  async function handle(job) {
    if (order.handler === "stamp") {
      if (job.data.seq === 0) await client.set(UP_KEY, 1);
      else if (job.data.seq >= order.warmup) latencies.push(microseconds() - job.data.at_us);
    }
    started += 1;
    if (started === first) read = clock();
    else if (started === total) setImmediate(finish);
    if (order.handler === "sleep") await sleep(order.sleep_ms);
  }

  new Worker(QUEUE, handle, { connection, concurrency: order.concurrency }).on("error", fail);
}

async function run() {
  const options = order.defaults ? { connection } : { connection, concurrency: order.concurrency };
  new Worker(QUEUE, async () => {}, options).on("error", fail);
}

async function watch() {
  const queue = openQueue();
  const client = new Redis(url);
  let read = clock();
  let first = 0;
  let left;
  await client.set(WATCHED_KEY, 1);
  while ((left = await unfinished(queue))) {
    if (!first && left <= order.count) [read, first] = [clock(), left];
    await sleep(1);
  }
  const { cpu_seconds, ...result } = read(first);
  print(result);
}

({ add, fill: add, send, work, listen: work, run, watch })[action]().catch(fail);
