#!/usr/bin/env bash
# Tests the progress of owt train on a terminal: one line at any width, which log lines do not break and which is
# removed at the end; elsewhere plain lines. Prints each case; exits 1 at the first that fails.
#
#   usage: progress_line_test.sh OWT
set -euo pipefail

owt=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$owt" prepare synthetic "$work/shapes" --train 200 --test 20 >/dev/null

cat >"$work/test.py" <<'END'
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

OWT, WORK = sys.argv[1], pathlib.Path(sys.argv[2])
PROGRESS = re.compile(r"epoch \d+/\d+")
runs = 0


class Screen:
    """What a terminal of that many columns shows: rows, as long lines wrap."""

    def __init__(self, columns):
        self.columns, self.column, self.rows, self.wrapped = columns, 0, [""], [False]

    def feed(self, text):
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.", text, re.S):
            if part == "\x1b[K":
                self.rows[-1] = self.rows[-1][: self.column]
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.rows.append(" " * self.column)
                self.wrapped.append(False)
            elif part[0] == "\x1b":
                assert part.endswith("m"), repr(part)
            else:
                if self.column == self.columns:
                    self.rows.append("")
                    self.wrapped.append(True)
                    self.column = 0
                row = self.rows[-1].ljust(self.column)
                self.rows[-1] = row[: self.column] + part + row[self.column + 1 :]
                self.column += 1
        return self

    def lines(self):
        whole = []
        for row, wrapped in zip(self.rows, self.wrapped):
            if wrapped:
                whole[-1] += row
            else:
                whole.append(row)
        return whole


def command(*options):
    global runs
    runs += 1
    out = WORK / f"run{runs}"
    return out, [OWT, "train", "quickstart", "--data", str(WORK / "shapes"), "--out", str(out), "--workers", "2",
                 "--set", "run.eval_every_steps=4", "--set", "parallel.scale_lr=linear", "--set", "data.batch=20",
                 "--set", "run.conv_algorithm=direct", *options]


def set_columns(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def on_terminal(columns, words, act=None, **variables):
    """What the program writes to a terminal, and how it ends. act(terminal, text so far) is called as it comes."""
    process, terminal = pty.fork()
    if process == 0:
        while os.get_terminal_size(2).columns != columns:  # the parent sets it
            pass
        os.execve(words[0], words, {"PATH": os.environ["PATH"], "HOME": str(WORK), "TERM": "xterm", **variables})
    set_columns(terminal, columns)
    text = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        text += more
        if act:
            act(terminal, text.decode())
    os.close(terminal)
    status = os.waitpid(process, 0)[1]
    return text.decode(), os.waitstatus_to_exitcode(status)


def frames(text):
    return [frame for frame in re.split(r"\r\x1b\[K|[\r\n]+", text) if PROGRESS.match(frame)]


def check_clean(screen, run):
    lines = screen.lines()
    torn = [line for line in lines if PROGRESS.search(line)]
    assert not torn, torn
    assert screen.rows[-1] == "" and screen.column == 0, repr(screen.rows[-1])
    logged = [line[20:] for line in open(run / "log.txt").read().splitlines()]
    wanted = [line for line in logged if line.startswith(("model ", "warning: ", "learning rate ", "epoch "))]
    assert len(wanted) > 2, wanted
    shown = " ".join(" ".join(lines).split())  # long lines are folded
    missing = [line for line in wanted if " ".join(line.split()) not in shown]
    assert not missing, (missing, lines)


def test_one_line_whatever_the_width():
    for columns, fields in [(20, []), (40, ["loss", "left"]), (80, ["loss", "left", "images/s"]),
                            (200, ["step", "images/s", "loss", "top-1", "left", "wait", "lr"])]:
        run, words = command("--steps", "12")
        text, code = on_terminal(columns, words)
        assert code == 0, text
        shown = frames(text)
        assert shown and all(len(frame) <= columns - 2 for frame in shown), shown
        assert all(field in shown[-1] for field in fields), shown
        screen = Screen(columns).feed(text)
        check_clean(screen, run)
        heads = [line for line in screen.lines() if line.startswith(("model ", "learning rate "))]
        assert len(heads) == 2 and all(len(line) <= columns for line in heads), heads


def test_a_window_that_is_made_narrow():
    state = {}

    def act(terminal, text):
        if "at" not in state and frames(text):
            set_columns(terminal, 40)
            state["at"] = len(text)
        elif "at" in state and "done" not in state and any(len(f) <= 38 for f in frames(text[state["at"]:])[1:-1]):
            os.write(terminal, b"\x03")
            state["done"] = True

    _, words = command()
    text, code = on_terminal(80, words, act)
    assert code == 75, (code, text)
    assert any(len(frame) > 38 for frame in frames(text)), text


def test_ctrl_c_leaves_a_clean_terminal():
    asked = []

    def act(terminal, text):
        if not asked and frames(text):
            os.write(terminal, b"\x03")
            asked.append(True)

    run, words = command()
    text, code = on_terminal(80, words, act)
    assert code == 75, (code, text)
    assert "^C" in text
    check_clean(Screen(80).feed(text), run)


def test_colours_unless_they_are_not_wanted():
    for variables, coloured in [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)]:
        _, words = command("--steps", "2")
        text, _ = on_terminal(80, words, **variables)
        assert ("\x1b[33mwarning: \x1b[0mscale_lr" in text) == coloured, text
        assert ("\r\nwarning: scale_lr" in text) != coloured, text
        assert frames(text), text


def test_a_dumb_terminal_has_plain_lines():
    for term in "dumb", "":
        _, words = command("--steps", "2")
        text, _ = on_terminal(80, words, TERM=term)
        text = text.replace("\r\n", "\n")
        assert "\x1b" not in text and "\r" not in text, repr(text)
        assert re.search(r"^epoch 1/1  step 2/2 .* lr [0-9.e-]+$", text, re.M), text


def test_a_pipe_has_plain_lines():
    _, words = command("--steps", "2")
    text = subprocess.run(words, check=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True).stderr
    assert "\x1b" not in text and "\r" not in text, repr(text)
    assert re.search(r"^epoch 1/1  step 2/2 .* lr [0-9.e-]+$", text, re.M), text


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("passed:", name[5:].replace("_", " "), flush=True)
END
PYTHONDONTWRITEBYTECODE=1 python3 "$work/test.py" "$owt" "$work"
