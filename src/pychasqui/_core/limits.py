"""Numbers that bound the engine. None is an option, though some bound one: options stand in the config.py files."""

from __future__ import annotations

# Integers on the wire
MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1

# Names and ids
MAX_QUEUE_NAME_BYTES = 512
MAX_NAME_BYTES = 256  # of a job's name
MAX_JOB_ID_BYTES = 4096  # enough for a URL; long ids usually are URLs

# Adding
ADD_WINDOW = 4  # batches in flight: two keep Redis and Python busy together, four ride out a hiccup
ADD_BATCH_JOBS = 1000  # a longer script call only adds latency for everybody else on the server
LARGE_JOB_BYTES = 2 * 1024  # a script copies and hashes what it is given: from here on XADD itself is faster
ADD_BATCH_BYTES = 2 * 1024 * 1024  # bounds the server's input buffer and the time of a script call
OPTIONS_COST_BYTES = 8 * 1024  # a job with options costs the server as much as a plain one of this size
ID_COST = 16  # a byte of an id costs as much as this many of data: each key of a job has its id
LEDGER_TTL_MS = 120_000  # far longer than an add is retried

# Reading
WORK_TIMEOUT_S = 5.0  # a worker's call without a reply within this time ends the connection
PAGE_BYTES = 1024 * 1024  # of entries in the reply of one script call: about 5 ms of the server's time
ENTRY_EXTRA_BYTES = 64 * 1024  # what an entry may hold beside the largest payload: its name, fields of others
PREFETCH_S = 0.1  # how much work a worker may hold unstarted, in seconds of its own work
MAX_AHEAD = 3000  # entries that wait for a lane, however fast the handler is
TURN_S = 0.002  # how long handlers that never await may occupy the event loop
READ_BATCH = 200  # entries in one read beside other clients, who wait for about 1 ms of the server's time
READ_BATCH_WITH_EVENTS = 64  # with 200, another client's SET took three times as long
INTAKE_SLICE = 150  # entries of a larger read that are decoded and run before the event loop turns

# Settling
RELEASED = "released"  # the consumer that holds entries that were handed back, until a worker takes them
ACK_BATCH = 160  # jobs in one ack beside other clients: less than 1 ms of the server's time
ACK_BATCH_WITH_EVENTS = 48  # less than a read: one ack leaves while the server works on another
ACK_BATCH_ALONE = 240  # if no other client waits
ACKS_AT_ONCE = 2  # the server has the next one when it has answered one
UNIQUE_COST_BYTES = 2 * 1024  # a job that may be the only one of its id costs as much as a result of this size
RESULT_BATCH_BYTES = 1024 * 1024  # results in one script call; a larger result is alone in its call
MAX_RESULT_BYTES = 64 * 1024 * 1024  # a larger result is not stored
MAX_RESULT_BREAKS = 3  # connections that end while one large result is sent, which is then not stored
OUTCOME_BATCH = 250  # failed jobs in one script call: each carries its payload
OUTCOME_BYTES = 512 * 1024  # and their bytes beside the first job's: about 3 ms of the server's time
MAX_ERROR_CHARS = 2000
MAX_TRACEBACK_CHARS = 8000
MAX_RESULT_TTL_MS = 100 * 365 * 24 * 3600 * 1000  # 100 years: the server's arithmetic ends somewhere beyond

# Leases and recovery
MIN_WORKER_LEASE_MS = 300  # a shorter lease ends by a hiccup
MAX_WORKER_LEASE_MS = 3_600_000  # an hour: the jobs of a killed worker wait that long
MAX_LEADER_LEASE_MS = (
    10_000  # of a leader; a longer lease, or one without an end, is cut to this. Official leases last 5 s
)
REGROUP_S = 0.05  # how often a worker checks whether a missing consumer group is back
SCAN_S = 0.5  # how often a worker looks for entries that other workers have left behind

# Moving by hand
MOVED_BYTES = 256 * 1024  # of jobs that one script call cancels, postpones, runs or purges

# Finding queues
REGISTERED_MS = 30 * 24 * 3600 * 1000  # how long a queue stays in the registry after it was last seen
MAX_REGISTERED = 10_000  # names in the registry
REGISTER_EVERY_S = 24 * 3600.0  # how often a worker writes its queue's name

# Leading
PROMOTE_EVERY_S = 0.5  # how often the leader looks while jobs are delayed: a new one may be due sooner
PROMOTE_BATCH = 1000
PROMOTE_BATCH_WITH_EVENTS = 500  # each event is another entry
PROMOTE_BYTES = 512 * 1024  # in one script call: about 3 ms of the server's time
PROMOTER_LEASE_MS = 1500  # a killed leader delays delayed jobs by at most this
SCHEDULER_LEASE_MS = 3000  # a killed leader delays repeatables by at most this
MAX_TICK_MS = 24 * 3600 * 1000
