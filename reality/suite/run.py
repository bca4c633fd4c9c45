"""Runs rdma-core's own tests against the first device: each case in a process of its own, with a deadline.

A line a case for reality/run. What a case must come to, and in which guest, is in expected.csv; each difference is a failure,
so that the table stays true.
"""

import csv
import faulthandler
import os
import random
import re
import signal
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
# What hangs is told from what is slow: 4,000 messages of XRC take 18 s in a guest that shares two processors with another.
SECONDS_A_CASE = 60


def cases():
    """All cases, in the order of their names."""
    sys.path[:0] = [HERE, os.path.join(HERE, "tests")]
    sys.argv[1:] = ["--dev", "mlx5_0", "--port", "1", "--gid", os.environ["gid"], *sys.argv[1:]]
    from args_parser import parser

    parser.parse_args()
    import tests

    found = []
    for module in tests.__test_modules__:
        for suite in unittest.TestLoader().loadTestsFromModule(module):
            found += suite
    return found


def name(case):
    return case.id().removeprefix("tests.")


def verdict(case):
    """Runs one case here: its state, and why."""
    # Cases draw attributes, some of which a device may lack: the same ones every time.
    random.seed(name(case))
    result = unittest.TestResult()
    case.run(result)
    if result.errors or result.failures:
        return "FAILED", (result.errors + result.failures)[0][1]
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "ok", ""


def run(case):
    """Runs one case in a process that must end in time."""
    log = open("/tmp/case", "w+b")
    if os.path.exists("/tmp/verdict"):
        os.remove("/tmp/verdict")
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        state, why = verdict(case)
        with open("/tmp/verdict", "w") as told:
            told.write(f"{state}\n{why}")
        os._exit(0)
    give_up = time.monotonic() + SECONDS_A_CASE
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended or time.monotonic() > give_up:
            break
        time.sleep(0.01)
    if not ended:
        os.kill(pid, signal.SIGUSR1)  # it says where it is
        time.sleep(0.5)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    log.seek(0)
    said = log.read().decode(errors="replace")
    if not ended:
        return "FAILED", f"{said}did not end in {SECONDS_A_CASE} s"
    if status != 0 or not os.path.exists("/tmp/verdict"):
        return "FAILED", f"{said}its process ended with status {status}"
    with open("/tmp/verdict") as told:
        state, _, why = told.read().partition("\n")
    return state, (said + why if state == "FAILED" else why)


def main():
    guest = os.environ["guest"]
    wanted = re.compile(os.environ.get("filter", "."))
    with open(os.path.join(HERE, "expected.csv"), newline="") as table:
        expected = {row["case"]: row for row in csv.DictReader(table)}
    n_cases = 0
    for case in cases():
        row = expected.get(name(case), {"result": "unknown", "reason": "", "guest": "suite"})
        if row["guest"] != guest or not wanted.search(f"suite: {name(case)}"):
            continue
        n_cases += 1
        start = time.monotonic()
        state, why = run(case)
        seconds = f"({time.monotonic() - start:.1f} s)"
        reason = why.strip().splitlines()[-1] if why.strip() else ""
        print(end="suite: ")
        csv.writer(sys.stdout, lineterminator="\n").writerow([name(case), state, reason if state != "ok" else "", guest])
        if state != row["result"]:
            print(f"check: FAILED {name(case)}: {state}, and {row['result']} in reality/suite/expected.csv {seconds}")
            for line in why.splitlines()[-30:]:
                print(f"check:         {line}")
        elif state == "ok":
            print(f"check: ok {name(case)} {seconds}")
        else:
            print(f"check: skipped {name(case)}: {row['reason'] or reason} {seconds}")
        sys.stdout.flush()
    with open("/tmp/n_cases", "w") as told:
        told.write(str(n_cases))


main()
