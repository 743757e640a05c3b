"""Jobs of MPI on this machine: what communicators do between processes, and how jobs end.

    mpi_job_test.py PARALLEL_MPI_RANKS_TEST
"""
import os
import shutil
import signal
import subprocess
import sys
import unittest

from mpi_processes import ENVIRONMENT, SECONDS_MAX, await_ends

RANKS = sys.argv[1]


class Job:
    """A job that runs: its output goes on in `lines`, and the processes of its ranks are `pids`."""

    def __init__(self, num_ranks, *arguments):
        self.num_ranks = num_ranks
        self.process = subprocess.Popen(
            ["mpirun", "-n", str(num_ranks), RANKS, *arguments], env=ENVIRONMENT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def pids(self):
        """Waits until all ranks have said who they are; the last one waits for its end then."""
        lines = [self.process.stdout.readline() for _ in range(self.num_ranks)]
        return [int(line.split()[1]) for line in lines]

    def end(self):
        """(exit status, standard error) of the job."""
        try:
            out, errors = self.process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, errors = self.process.communicate()
            raise AssertionError("the job did not end:\n" + out + errors) from None
        return self.process.returncode, out + errors


class Communicators(unittest.TestCase):
    def check(self, num_ranks):
        status, output = Job(num_ranks).end()
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("[  PASSED  ]"), num_ranks, output)

    def test_two_ranks(self):
        self.check(2)

    def test_four_ranks(self):
        self.check(4)


class Ends(unittest.TestCase):
    """Every job ends, with what its user must know, and leaves no process behind."""

    def check(self, scenario, *texts, num_ranks=2, kill=False, expected=None):
        job = Job(num_ranks, scenario)
        pids = job.pids()
        if kill:
            os.kill(pids[0], signal.SIGKILL)
        status, output = job.end()
        for text in texts:
            self.assertIn(text, output)
        self.assertEqual(status == 0, scenario == "ends", output)
        if expected is not None:
            self.assertEqual(status, expected, output)
        await_ends(pids)

    def test_all_ranks_end(self):
        self.check("ends")

    def test_a_rank_hangs(self):
        self.check("hangs", "error: all_reduce_sum on rank 0 of 2: rank 1 did not take part within "
                            "0.2 s: it has died or hangs.")

    def test_one_of_three_ranks_hangs(self):
        self.check("hangs", "of 3: another rank did not take part within 0.2 s", num_ranks=3)

    def test_a_rank_does_not_send(self):
        self.check("does_not_send", "receive on rank 0 of 2: rank 1 did not take part")

    def test_a_message_has_another_size(self):
        self.check("sends_too_much", "error: receive on rank 0 of 2: MPI: MPI_ERR_TRUNCATE")

    def test_any_rank_is_killed_while_others_wait_without_a_limit(self):
        self.check("is_killed", "signal 9", kill=True)

    def test_a_rank_aborts(self):
        self.check("aborts", "halley: rank 1 of 2 ends the job: no memory for the weights")

    def test_a_rank_ends_by_an_error(self):
        self.check("throws", "error: there is no such model")

    def test_a_rank_ends_the_job_with_its_exit_status(self):
        self.check("ends_the_job", "halley: rank 1 of 2 ends the job: exit status 3", expected=3)

    def test_a_rank_leaves_the_others(self):
        self.check("leaves", "halley: rank 1 of 2 ends the job: barrier on rank 1 of 2: rank 0 did "
                             "not take part within 0.2 s")


class Launcher(unittest.TestCase):
    def test_an_mpi_that_does_not_know_its_launcher_is_an_error(self):
        environment = {name: value for name, value in ENVIRONMENT.items()
                       if not name.startswith(("OMPI_COMM", "PMIX_", "SLURM_"))}
        result = subprocess.run([RANKS, "ends"], text=True, capture_output=True,
                                env={**environment, "PMI_RANK": "0", "PMI_SIZE": "3"},
                                timeout=SECONDS_MAX, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("MPI: expected the 3 processes that PMI has started, got 1", result.stderr)


if __name__ == "__main__":
    if shutil.which("mpirun") is None:
        print("SKIPPED: no mpirun: tools/setup.sh --mpi")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
