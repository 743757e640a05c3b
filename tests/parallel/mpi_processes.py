"""Jobs of mpirun on this machine and their processes, for the tests of this folder."""
import os
import shutil
import time

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1"}
# A job whose ranks cannot go on ends well within this time; nothing that is tested takes longer.
SECONDS_MAX = 30


def has_mpi(halley):
    """Whether this program can run under mpirun here; says why not."""
    if shutil.which("mpirun") is None:
        print("no mpirun: nothing runs as processes. tools/setup.sh --mpi")
        return False
    folder = os.path.dirname(os.path.dirname(os.path.abspath(halley)))
    if not os.path.exists(os.path.join(folder, "lib", "halley", "libhalley_mpi.so")):
        print("no libhalley_mpi.so: nothing runs as processes. HALLEY_MPI=ON")
        return False
    return True


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_ends(pids):
    """Waits until the processes have ended."""
    deadline = time.monotonic() + SECONDS_MAX
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise AssertionError("ranks outlive their job")
        os.sched_yield()


def ranks_of(mpirun):
    """The processes that mpirun has started: {rank: pid}."""
    ranks = {}
    with open(f"/proc/{mpirun}/task/{mpirun}/children", encoding="utf-8") as children:
        pids = children.read().split()
    for pid in pids:
        with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
            environment = dict(item.split("=", 1) for item in file.read().split("\0") if item)
        if "OMPI_COMM_WORLD_RANK" in environment:
            ranks[int(environment["OMPI_COMM_WORLD_RANK"])] = int(pid)
    return ranks
