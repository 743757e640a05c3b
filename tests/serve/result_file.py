"""Files of bench/results for the checks of this folder that are run by hand."""
import datetime
import json
import os
import shlex
import subprocess
import sys


def add_options(parser):
    parser.add_argument("--out", help="a file for the result, with command, date, commit, machine")
    parser.add_argument("--commit", help="what the program was built from, where not SOURCE_DIR's")
    parser.add_argument("--machine", help="default: its processor and the cores of this process")


def commit_of(source):
    """Of the checkout; a "+" says that files differ from it."""
    git = ["git", "-C", source]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=True).stdout.strip()
    is_changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode != 0
    return commit + ("+" if is_changed else "")


def this_machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {len(os.sched_getaffinity(0))} cores"


def print_result(result, options):
    """Prints the JSON, and writes it to --out with what belongs to it."""
    print(json.dumps(result, indent=1))
    if not options.out:
        return
    now = datetime.datetime.now(datetime.timezone.utc)
    facts = {"command": shlex.join(["python3", *sys.argv]),
             "date": now.isoformat(timespec="seconds"),
             "commit": options.commit or commit_of(options.source),
             "machine": options.machine or this_machine(), "result": result}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
        file.write("\n")
