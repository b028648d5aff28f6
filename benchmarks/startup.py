"""Start-up of the commands, as whole processes: median seconds, and the ratio to a bare interpreter in the same run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

MLGYM = str(Path(sys.executable).with_name("mlgym"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import mlgym_core": [sys.executable, "-c", "import mlgym_core"],
    "mlgym --help": [MLGYM, "--help"],
    "mlgym tasks": [MLGYM, "tasks"],
    "mlgym tasks show blotto": [MLGYM, "tasks", "show", "blotto"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    bare = statistics.median(seconds["python -c pass"])
    print(f"{'start-up':<26}{'median':>9}{'max':>9}{'ratio':>8}   ({rounds} rounds)")
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:<26}{median:>7.3f} s{max(values):>7.3f} s{median / bare:>8.1f}")


if __name__ == "__main__":
    main()
