"""Results of checks and measurements, one JSON object per line."""
import datetime
import json
import os
import threading


class Results:
    """The results in the file `path`. add() writes a result to the file before it returns, so an interrupted run keeps
    its results. An incomplete line is ignored. Without a path the results are in memory only."""

    def __init__(self, path=None):
        self.path, self.records, self.lock = path, [], threading.Lock()
        if path and os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                self.records = [record for record in map(read_line, file) if record]

    def add(self, **record):
        record["when"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        with self.lock:
            self.records.append(record)
            if self.path:
                append_line(self.path, json.dumps(record))
        return record

    def of(self, kind):
        return [record for record in self.records if record.get("kind") == kind]


def read_line(line):
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def append_line(path, line):
    with open(path, "ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = "\n" + line
        file.write(line.encode() + b"\n")
