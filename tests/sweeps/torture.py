"""SIGKILL of the launcher and of workers at random moments, then the same command: no row is lost, none is double.

python tests/sweep/torture.py --kills 40
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.sweep_runs import alone, recipe_file, results

from mecheval.plugins import load_plugin
from mecheval.results.table import Results


def children(launcher):
    task = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return [int(pid) for pid in task.read_text().split()] if task.exists() else []


def torture(kills, seed, room):
    rng, out = random.Random(seed), room / "out"
    file = recipe_file(room, runs=6, steps=200, width=96, batch=64)
    command = [sys.executable, "-m", "mecheval", "sweep", "mine", "--plugin", file, "--out", out, "--workers", "2"]
    died = {"launcher": 0, "worker": 0}
    ends = []
    while sum(died.values()) < kills:
        launcher = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while launcher.poll() is None:
            time.sleep(rng.uniform(0.5, 6.0))
            whose = rng.choice(("launcher", "worker", "worker"))
            victims = [launcher.pid] if whose == "launcher" else children(launcher)
            if victims and launcher.poll() is None:
                died[whose] += 1
                os.kill(rng.choice(victims), signal.SIGKILL)
        ends.append(launcher.returncode)
        if launcher.returncode == 0:
            break
    last = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    load_plugin(file)
    from mecheval.sweeps.recipe import get_experiments, get_scale

    same = results(out) == alone(get_experiments("mine", get_scale("quick")), room / "alone")
    names = ("key", "metric", "split", "step", "corrupted", "condition", "site", "role")
    keys = [tuple(row[name] for name in names) for row in Results(out).rows()]
    report = {"died": died, "ends": ends, "last": last.returncode, "same": same, "double": len(keys) - len({*keys})}
    return report | {"left": [path.name for path in out.glob("*.partial")]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        report = torture(asked.kills, asked.seed, Path(room))
    print(json.dumps(report))
    return 0 if report["same"] and not (report["last"] or report["double"] or report["left"]) else 1


if __name__ == "__main__":
    sys.exit(main())
