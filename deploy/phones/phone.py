#!/usr/bin/env python3
"""What an app on a phone does with seqline, in Python's standard library: see README.md beside this file.

    phone.py [--api URL] [--file PHONE.db] send CONVERSATION TEXT   keep a message, then send what is kept
    phone.py [--api URL] [--file PHONE.db] wake [--wait SECONDS]    a push has come: send what is kept, read what is new
    phone.py [--api URL] [--file PHONE.db] listen                   the app is open: the same, then one stream until Ctrl-C
    phone.py [--api URL] [--file PHONE.db] show CONVERSATION        what this phone holds of a conversation, as JSON lines

The token is read from the environment, SEQLINE_TOKEN, or from the file that --token-file names, anew for each request. What is written is
one JSON line for each event. Exit codes: 0 done; 1 a request was refused for good; 2 called wrongly; 3 no answer, or one that says to try
again later: what was to be sent is kept for the next run.
"""

import argparse
import base64
import http.client
import json
import os
import random
import secrets
import sqlite3
import sys
import time
import urllib.parse

# Three of the heartbeats that a stream sends at least every 15 s: a line that is silent for longer is dead, whatever the system says.
SILENCE_S = 45
# Longest pause between two tries.
PAUSE_S_MAX = 30

TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS conversations (id TEXT PRIMARY KEY, rev INTEGER NOT NULL, shown TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    conversation TEXT NOT NULL, seq INTEGER NOT NULL, rev INTEGER NOT NULL, message TEXT NOT NULL, PRIMARY KEY (conversation, seq));
CREATE TABLE IF NOT EXISTS outbox (
    place INTEGER PRIMARY KEY AUTOINCREMENT, client_id TEXT UNIQUE NOT NULL, conversation TEXT NOT NULL, draft TEXT NOT NULL,
    fault TEXT);
"""


class Refused(Exception):
    """The answer is no, and asking again will not change it."""


class Later(Exception):
    """No answer, or one that says to try again; `after` is the pause in seconds that was asked for."""

    def __init__(self, why, after=0.0):
        super().__init__(why)
        self.after = after


def key():
    """A UUIDv7: the time is in it, so that the server knows without a search that a fresh one is new."""
    number = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Phone:
    """A phone: a file that outlives the process, and a server."""

    def __init__(self, api, file, token, say):
        self.api = urllib.parse.urlsplit(api)
        self.token = token
        self.say = say
        self.db = sqlite3.connect(file, isolation_level=None)
        self.db.executescript(TABLES)
        self.device = self.fact("device") or self.keep("device", f"phone-{secrets.token_hex(8)}")

    # What the file remembers.

    def fact(self, name):
        row = self.db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def keep(self, name, value):
        self.db.execute("INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value))
        return value

    def keep_message(self, message):
        """A message as it is now; an older state never replaces a newer one, in whatever order they come."""
        self.db.execute(
            "INSERT INTO messages VALUES (?, ?, ?, ?) ON CONFLICT (conversation, seq)"
            " DO UPDATE SET rev = excluded.rev, message = excluded.message WHERE excluded.rev > messages.rev",
            (message["conversation_id"], message["seq"], message["rev"], json.dumps(message)),
        )

    # Requests.

    def connect(self, timeout):
        kind = http.client.HTTPSConnection if self.api.scheme == "https" else http.client.HTTPConnection
        return kind(self.api.netloc, timeout=timeout)

    def ask(self, method, path, body=None, timeout=15, **query):
        path = self.api.path.rstrip("/") + path
        query = {name: value for name, value in query.items() if value is not None}
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = {"Authorization": f"Bearer {self.token()}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(body)
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as fault:
            # Whether the server did it is unknown. The key makes it safe to ask again.
            raise Later(f"no answer: {fault}") from fault
        finally:
            connection.close()
        if answer.status < 300:
            return json.loads(text) if text else None
        try:
            problem = json.loads(text)
            why = f"{answer.status} {problem['code']}: {problem.get('detail') or problem.get('title')}"
        except (ValueError, KeyError, TypeError):
            why = f"{answer.status}"
        if answer.status in (401, 408, 425, 429) or answer.status >= 500:
            after = answer.headers.get("Retry-After", "")
            raise Later(why, float(after) if after.isdigit() else 0.0)
        raise Refused(why)

    # Sending: from the file, in order, each with the key it was born with.

    def put(self, conversation, body):
        client_id = key()
        self.db.execute(
            "INSERT INTO outbox (client_id, conversation, draft) VALUES (?, ?, ?)",
            (client_id, conversation, json.dumps({"client_id": client_id, "body": body})),
        )
        return client_id

    def flush(self):
        """Sends what is kept. A message that must wait holds back the later ones of its conversation, and of no other."""
        held, fault = set(), None
        rows = self.db.execute("SELECT client_id, conversation, draft FROM outbox WHERE fault IS NULL ORDER BY place").fetchall()
        for client_id, conversation, draft in rows:
            if conversation in held:
                continue
            try:
                message = self.ask("POST", f"/v1/conversations/{conversation}/messages", json.loads(draft))
            except Later as later:
                held.add(conversation)
                fault = later
                continue
            except Refused as refused:
                # Stays in the file, marked, for whoever wrote it to see; it is never sent again by itself.
                self.db.execute("UPDATE outbox SET fault = ? WHERE client_id = ?", (str(refused), client_id))
                self.say({"type": "phone.refused", "client_id": client_id, "why": str(refused)})
                fault = fault or refused
                continue
            self.db.execute("BEGIN")
            self.keep_message(message)
            self.db.execute("DELETE FROM outbox WHERE client_id = ?", (client_id,))
            self.db.execute("COMMIT")
            self.say({"type": "phone.sent", "client_id": client_id, "seq": message["seq"]})
        if fault:
            raise fault

    # Reading: the place moves in the same transaction as what it stands for.

    def begin(self):
        """The place to start from, on the very first run: named by the list of conversations, and read before it."""
        if self.fact("place") is None:
            self.keep("place", self.recover())

    def recover(self):
        """Reads what has changed since each conversation was last seen; gives the place from which events go on without a gap."""
        head, cursor = None, None
        while True:
            page = self.ask("GET", "/v1/conversations", limit=100, cursor=cursor)
            head = head or page["events_head"]
            for conversation in page["items"]:
                self.catch_up(conversation)
            cursor = page["next_cursor"]
            if cursor is None:
                return head

    def catch_up(self, conversation):
        row = self.db.execute("SELECT rev FROM conversations WHERE id = ?", (conversation["id"],)).fetchone()
        since = row[0] if row else 0
        while since < conversation["rev"]:
            page = self.ask("GET", f"/v1/conversations/{conversation['id']}/messages", since_rev=since, limit=100)
            for message in page["items"]:
                self.keep_message(message)
            since = page["next_rev"]
            if not page["has_more"]:
                break
        self.db.execute(
            "INSERT INTO conversations VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET rev = excluded.rev, shown = excluded.shown",
            (conversation["id"], conversation["rev"], json.dumps(conversation)),
        )

    def resync(self, told):
        """The log has gone on without this phone. Everyone's has, perhaps: so wait a random part of the time that the server names."""
        time.sleep(random.uniform(0, told["spread_ms"] / 1000))
        self.recover()
        self.keep("place", told["head"])
        self.say({"type": "phone.recovered", "reason": told["reason"]})

    def take(self, event, place):
        self.db.execute("BEGIN")
        message = event.get("data", {}).get("message") if event["type"].startswith("message.") else None
        if message:
            if event["type"] == "message.resequenced":
                # What stands at the old number comes next, as an event of its own.
                old = (event["conversation_id"], event["data"]["old_seq"])
                self.db.execute("DELETE FROM messages WHERE conversation = ? AND seq = ?", old)
            self.keep_message(message)
        elif event["type"] == "reaction.changed":
            self.react(event)
        elif event["type"] in ("member.removed", "member.left") and event["data"].get("user_id") == self.me():
            self.db.execute("DELETE FROM messages WHERE conversation = ?", (event["conversation_id"],))
            self.db.execute("DELETE FROM conversations WHERE id = ?", (event["conversation_id"],))
        self.keep("place", place)
        self.db.execute("COMMIT")
        self.say(event)

    def react(self, event):
        where = (event["conversation_id"], event["data"]["seq"])
        row = self.db.execute("SELECT message FROM messages WHERE conversation = ? AND seq = ?", where).fetchone()
        if row:
            self.keep_message({**json.loads(row[0]), "rev": event["rev"], "reactions": event["data"]["reactions"]})

    def me(self):
        """The user, as the token says. Read, not proven: proving it is the server's work."""
        claims = self.token().split(".")[1]
        return json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]

    def wake(self, wait):
        """A push has come, and there are some seconds: read all that is new, say how far, and sleep again."""
        self.begin()
        while True:
            answer = self.ask(
                "GET", "/v1/events/poll", timeout=wait + 15, after=self.fact("place"), limit=200, wait=wait, device=self.device
            )
            if answer["resync"]:
                self.resync(answer["resync"])
                continue
            for event in answer["events"]:
                self.take(event, event["id"])
            self.keep("place", answer["next"])
            if not answer["events"]:
                break
            wait = 0
        # For who loses this file: a new start of the same device goes on from here.
        self.ask("POST", "/v1/events/ack", {"device": self.device, "id": self.fact("place")})

    def listen(self):
        """The app is open: one stream, from the place that was kept, for as long as it lives. Ends when the line ends."""
        self.begin()
        connection = self.connect(SILENCE_S)
        try:
            path = f"{self.api.path.rstrip('/')}/v1/events?" + urllib.parse.urlencode({"device": self.device})
            headers = {"Authorization": f"Bearer {self.token()}", "Last-Event-ID": self.fact("place"), "Accept": "text/event-stream"}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                answer.read()
                raise Later(f"the stream is refused: {answer.status}")
            block = {}
            for line in answer:
                line = line.decode().rstrip("\r\n")
                if line:
                    # A heartbeat is a comment: nothing before the colon.
                    field, _, value = line.partition(":")
                    value = value.removeprefix(" ")
                    block[field] = f"{block['data']}\n{value}" if field == "data" and "data" in block else value
                    continue
                self.hear(block)
                block = {}
        except (OSError, http.client.HTTPException) as fault:
            raise Later(f"the stream broke: {fault}") from fault
        finally:
            connection.close()

    def hear(self, block):
        kind = block.get("event")
        if kind == "resync":
            self.resync(json.loads(block["data"]))
        elif kind == "unavailable":
            raise Later("the stream is not to be had just now")
        elif "id" in block and "data" in block:
            self.take(json.loads(block["data"]), block["id"])
        elif block.get("id"):
            # The place up to which this very stream was served, though nothing came.
            self.keep("place", block["id"])
        elif "data" in block:
            self.say({"type": kind, **json.loads(block["data"])})


def stay(phone):
    """Listens for ever: each new try after a random pause that grows, so that a fleet of phones does not come back in one moment."""
    tries = 0
    while True:
        begun = time.monotonic()
        after = 0.0
        try:
            phone.flush()
            phone.listen()
        except Later as later:
            phone.say({"type": "phone.waits", "why": str(later)})
            after = later.after
        except Refused:
            pass
        tries = 0 if time.monotonic() - begun > PAUSE_S_MAX else tries + 1
        time.sleep(max(after, random.uniform(0, min(PAUSE_S_MAX, 2**tries / 2))))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--api", default="http://127.0.0.1:8080", help="a gateway, or what stands before the gateways")
    options.add_argument("--file", default="phone.db", help="what the phone keeps")
    options.add_argument("--token-file", help="where the token is, instead of SEQLINE_TOKEN")
    verbs = options.add_subparsers(dest="verb", required=True)
    send = verbs.add_parser("send", help="keep a message, then send what is kept")
    send.add_argument("conversation")
    send.add_argument("text")
    wake = verbs.add_parser("wake", help="send what is kept, read what is new")
    wake.add_argument("--wait", type=int, default=0, choices=range(31), metavar="SECONDS", help="how long to wait for the first event")
    verbs.add_parser("listen", help="one stream until Ctrl-C")
    show = verbs.add_parser("show", help="what this phone holds of a conversation")
    show.add_argument("conversation")
    asked = options.parse_args()

    def token():
        if asked.token_file:
            with open(asked.token_file, encoding="utf-8") as file:
                return file.read().strip()
        if not os.environ.get("SEQLINE_TOKEN"):
            options.error("no token: set SEQLINE_TOKEN, or name a file with --token-file")
        return os.environ["SEQLINE_TOKEN"]

    phone = Phone(asked.api, asked.file, token, lambda event: print(json.dumps(event, ensure_ascii=False), flush=True))
    try:
        if asked.verb == "show":
            rows = phone.db.execute("SELECT message FROM messages WHERE conversation = ? ORDER BY seq", (asked.conversation,))
            for (message,) in rows:
                print(message)
        elif asked.verb == "send":
            phone.put(asked.conversation, asked.text)
            phone.flush()
        elif asked.verb == "wake":
            try:
                phone.flush()
            finally:
                # A message that is refused is no reason not to read.
                phone.wake(asked.wait)
        else:
            stay(phone)
    except Refused as refused:
        print(f"phone: {refused}", file=sys.stderr)
        return 1
    except Later as later:
        print(f"phone: {later}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
