-- Which push services something waits for, and what waits longest for one: found at once, however much waits for another one that is away, or
-- for hosts that somebody registered only to keep workers waiting.
CREATE INDEX push_queue_waiting_of_host ON push_queue (host, free_at_ms) WHERE seq > sent_seq;
